"""A small bar chart of the failures per day, with its numbers as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from django.utils.safestring import SafeString

from criticizer.admin_site.list_rendering import format_html_fast

DAYS = 14
_BAR, _GAP, _HEIGHT = 5, 1, 22  # user units of the drawing


def counts_by_day(counted: Mapping[date, int], today: date) -> list[int]:
    """Return DAYS counts, the oldest first; a day without an entry counts 0."""
    return [counted.get(today - timedelta(days=back), 0) for back in reversed(range(DAYS))]


def sentence(counts: Sequence[int]) -> str:
    """Return the chart as text, for screen readers."""
    total = sum(counts)
    if not total:
        return f"None in the last {len(counts)} days"
    most = max(counts)
    back = len(counts) - 1 - max(index for index, count in enumerate(counts) if count == most)
    peak = {0: "today", 1: "yesterday"}.get(back, f"{back} days ago")
    return f"{total} in the last {len(counts)} days, {counts[-1]} today, most {peak}: {most}"


def sparkline(counts: Sequence[int]) -> SafeString:
    """Draw one bar a day, today at the right. The style sheet gives it its colours and its size."""
    words, bars = sentence(counts), _bars(counts)
    return format_html_fast(
        '<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}"><title>{}</title>'
        '<path class="none" d="{}"/><path class="day" d="{}"/><path class="today" d="{}"/></svg>',
        len(counts) * (_BAR + _GAP) - _GAP,
        _HEIGHT,
        words,
        words,
        bars["none"],
        bars["day"],
        bars["today"],
    )


def _bars(counts: Sequence[int]) -> dict[str, str]:
    """Return the bars of each kind of day as one path: a list of groups has hundreds of bars."""
    top = max([1, *counts])
    bars = {"none": "", "day": "", "today": ""}
    for index, count in enumerate(counts):
        # A day with one failure among thousands is still seen.
        height = max(3, round(count / top * _HEIGHT)) if count else 1
        kind = "none" if not count else "today" if index == len(counts) - 1 else "day"
        bars[kind] += f"M{index * (_BAR + _GAP)} {_HEIGHT}v-{height}h{_BAR}v{height}z"
    return bars
