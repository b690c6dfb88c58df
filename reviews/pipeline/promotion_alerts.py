"""Alert that the database may lack its last commits.

A standby was promoted, or a backup restored.
"""

from __future__ import annotations

from datetime import UTC

import structlog

from criticizer.db import timeline
from deadletters import alerts

log = structlog.get_logger(__name__)


def tell_promotion() -> None:
    """Alert once each timeline of the database but the first (guarantee G492).

    Run by maintenance. The alert's row is what is remembered. It is written to the database that was
    promoted, so one that a further promotion loses is followed by that of the next timeline.
    """
    found = timeline.read()
    if found is None or found[0] == 1:
        return
    number, system = found
    last = timeline.last_taken_over()
    since = (
        f"what was committed after {last.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
        if last
        else "PostgreSQL was restarted since, and does not say from when on"
    )
    if alerts.tell("promoted", key=f"promoted:{system}:{number}", timeline=number, since=since):
        log.warning("database_promoted", timeline=number, last_commit=last and last.isoformat())
