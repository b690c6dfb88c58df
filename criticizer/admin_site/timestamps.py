"""Times as the pages show them, always in UTC.

Lists show how long ago it was, with the time to the second in the tooltip; histories and read-only
forms, which are compared with logs, show the time to the second.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils import timezone
from django.utils.safestring import SafeString

from criticizer.admin_site.list_rendering import format_html_fast

NEVER = "\N{EN DASH}"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_AGO = '<time datetime="{}" title="{}" data-relative>{}</time>'
_EXACT = '<time datetime="{}">{}</time>'


def time_ago(moment: datetime | None) -> SafeString | str:
    """Return a text such as `3 h ago` or `in 5 min`; static/reviews/times.js keeps it current."""
    if moment is None:
        return NEVER
    seconds = round((timezone.now() - moment).total_seconds())
    text = f"{_distance(seconds)} ago" if seconds >= 0 else f"in {_distance(-seconds)}"
    return format_html_fast(_AGO, moment.isoformat(timespec="milliseconds"), format_utc(moment), text)


def timestamp(moment: datetime | None) -> SafeString | str:
    """Return a text such as `2026-11-21 17:30:05 UTC`."""
    if moment is None:
        return NEVER
    return format_html_fast(_EXACT, moment.isoformat(timespec="milliseconds"), format_utc(moment))


def format_utc(moment: datetime) -> str:
    """Return a time in UTC, to the second, as text."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(' ', 'seconds')} UTC"


def _distance(seconds: int) -> str:
    """Return a span of time in its largest unit. static/reviews/times.js does the same."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "0 s"
