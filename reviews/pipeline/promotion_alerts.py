"""The alert that the database may lack its last commits: a standby was promoted, or a backup restored."""

from __future__ import annotations

import structlog

from criticizer.db import timeline
from deadletters import alerts

log = structlog.get_logger(__name__)


def tell_promotion() -> None:
    """Alert once each timeline of the database but the first (guarantee G492). Run by maintenance.

    The alert's row is what is remembered. It is written to the database that was promoted, so one that a
    further promotion loses is followed by that of the next timeline.
    """
    found = timeline.read()
    if found is None or found[0] == 1:
        return
    number, system = found
    if alerts.tell("promoted", key=f"promoted:{system}:{number}", timeline=number):
        log.warning("database_promoted", timeline=number)
