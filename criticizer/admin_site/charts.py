"""Charts drawn on the server: numbers in, SVG out.

`templates/admin/_chart.html` is their frame. Shapes lie in a box of 600 by 100 units that the style sheet
stretches, so that text stays HTML and keeps its size. Colours are classes (`s-ok`, `s-danger`, ...), never
attributes. Every chart has a title, a sentence that describes it, and its numbers as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

WIDTH, HEIGHT = 600.0, 100.0
_GAP = 0.18  # of a slot, between bars
_BAR = '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>'
_LINE = '<path class="line {}" d="{}"/>'


@dataclass(frozen=True, slots=True)
class Series:
    """One row of numbers, one for each slot.

    `href` leads to the rows behind its sum, `links` to those behind each number.
    """

    name: str
    look: str
    values: Sequence[float | None]
    href: str = ""
    links: Sequence[str] = ()

    @property
    def total(self) -> float:
        return sum(value for value in self.values if value is not None)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart as the template draws it. `slots` are the labels of the slots, in order.

    `drawn` has its bars or lines as SVG: a template would take longer than the queries.
    """

    key: str
    title: str
    sentence: str
    slots: Sequence[str]
    series: Sequence[Series]
    top: str
    write: Callable[[float], str]
    drawn: SafeString

    @property
    def ticks(self) -> list[str]:
        """Return the labels of the axis: first, middle, last, each slot once."""
        count = len(self.slots)
        return [self.slots[index] for index in sorted({0, count // 2, count - 1})] if count else []

    @property
    def table_rows(self) -> SafeString:
        """Return the rows of the table."""
        rows = (
            (slot, format_html_join("", "<td>{}</td>", ((v,) for v in values))) for slot, values in self.rows
        )
        return format_html_join("", '<tr><th scope="row">{}</th>{}</tr>', rows)

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """Return the numbers as rows of a table, the newest first; slots without any are left out."""
        rows = []
        for index, slot in enumerate(self.slots):
            if any(series.values[index] for series in self.series):
                rows.append((slot, [self._written(series, index) for series in self.series]))
        return rows[::-1]

    def _written(self, series: Series, index: int) -> str:
        value = series.values[index]
        if value is None:
            return ""
        written = self.write(value)
        return format_html('<a href="{}">{}</a>', series.links[index], written) if series.links else written


def whole(value: float) -> str:
    """Write a count: `12 345`."""
    return f"{value:,.0f}".replace(",", "\u2009")


def seconds(value: float) -> str:
    """Write a time: `120 ms`, `3.4 s`, `12 min`, `2.5 h`, `20 d`."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    units = ((86_400, "d"), (3_600, "h"), (60, "min"))
    size, unit = next(((size, unit) for size, unit in units if value >= 2 * size), (1, "s"))
    return f"{value / size:.{0 if value >= 10 * size else 1}f} {unit}"


def nice_top(value: float) -> float:
    """Return the least of 1, 2, 5, 10, 20, 50, ... that is not below `value`."""
    size = 0.001
    while True:
        for factor in (1, 2, 5):
            if size * factor >= value:
                return size * factor
        size *= 10


def stacked_bars(
    key: str, title: str, slots: Sequence[str], series: Sequence[Series], sentence: str = ""
) -> Chart:
    """Stack the series' counts in one bar a slot."""
    sums = [sum((row.values[index] or 0) for row in series) for index in range(len(slots))]
    top = max(nice_top(max([*sums, 1])), 1.0)
    step = WIDTH / max(len(slots), 1)
    bars = []
    for index, slot in enumerate(slots):
        y = HEIGHT
        for row in series:
            value = row.values[index] or 0
            if not value:
                continue
            # One among thousands is still seen.
            height = max(value / top * HEIGHT, 1.5)
            y -= height
            bars.append(
                (
                    row.look,
                    round(step * (index + _GAP / 2), 2),
                    round(max(y, 0), 2),
                    round(step * (1 - _GAP), 2),
                    round(height, 2),
                    f"{slot}: {whole(value)} {row.name}",
                )
            )
    drawn = format_html_join("", _BAR, bars)
    counted = ", ".join(f"{whole(row.total)} {row.name}" for row in series if row.total)
    caption = sentence or counted or "Nothing in this time"
    return Chart(key, title, caption, slots, series, whole(top), whole, drawn)


def lines(
    key: str,
    title: str,
    slots: Sequence[str],
    series: Sequence[Series],
    write: Callable[[float], str],
    sentence: str,
    top: float = 0.0,
) -> Chart:
    """Draw a line for each series; a slot without a number breaks it.

    With `top` 0 the chart is as high as the numbers.
    """
    known = [value for row in series for value in row.values if value is not None]
    top = top or nice_top(max([*known, 0.001]))
    step = WIDTH / max(len(slots), 1)
    paths = []
    for row in series:
        parts, is_down = [], False
        for index, value in enumerate(row.values):
            if value is None:
                is_down = False
                continue
            x, y = step * (index + 0.5), HEIGHT - value / top * HEIGHT
            # A number alone between gaps is a short stroke: a point has no length to be seen.
            start = f"M{x - step * 0.2:.1f} {y:.1f}L{x:.1f} {y:.1f}"
            parts.append(f"L{x:.1f} {y:.1f}" if is_down else start)
            is_down = True
        if parts:
            paths.append((row.look, "".join(parts)))
    drawn = format_html_join("", _LINE, paths)
    return Chart(key, title, sentence, slots, series, write(top), write, drawn)


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a bar table: `width` is its share of the longest, 0 to 100."""

    name: str
    number: float
    text: str
    width: float
    look: str
    href: str = ""


def bar_rows(rows: Sequence[tuple[str, float, str, str]], write: Callable[[float], str] = whole) -> list[Bar]:
    """Return (name, number, look, href) as rows whose bars share one scale."""
    top = max([number for _, number, _, _ in rows], default=0) or 1
    return [
        Bar(name, number, write(number), round(number / top * 100, 1), look, href)
        for name, number, look, href in rows
    ]
