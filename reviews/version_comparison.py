"""Compares the findings of two versions: which are new, and what became of the others.

Lines move and a model words the same finding differently each time, so findings are matched by file,
then code and title, then place. A finding is fixed only if its quoted lines are no longer in the change:
a model that does not repeat itself has fixed nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from notifications.rendering import Ending, ReportFinding
from reviews.reviewers.base import MAX_EXCERPT_CHARS, Side
from reviews.reviewers.chunks import ShownHunk
from reviews.reviewers.prepare import Prepared

MIN_CODE = 12  # characters; shorter code, such as a brace, matches anything
NEARBY_LINES = 3

Lines = Mapping[tuple[str, str], Collection[str]]
_Same = Callable[[ReportFinding, ReportFinding], bool]


@dataclass(frozen=True, slots=True)
class Compared:
    """`partners[i]` is the index of the earlier finding that finding `i` repeats.

    `endings` say what became of the earlier findings without a partner, by their index.
    """

    partners: Mapping[int, int]
    endings: Mapping[int, Ending]


def compared(
    findings: Sequence[ReportFinding],
    earlier: Sequence[ReportFinding],
    coverage: Mapping[str, str],
    lines: Lines,
) -> Compared:
    """Compare the findings of a version with those of the newest `earlier` one that was reviewed.

    `coverage` maps each file of the version to its status, `lines` each file and side to the lines of
    the change that the model was shown (`lines_of`).
    """
    partners = _partners(findings, earlier)
    matched = set(partners.values())
    return Compared(
        partners,
        {
            index: _ending(finding, coverage.get(finding.file), lines)
            for index, finding in enumerate(earlier)
            if index not in matched
        },
    )


def lines_of(prepared: Prepared) -> Lines:
    """Return the lines on each `(file, side)` of a prepared change, of the files that it shows completely."""
    hunks: dict[int, list[ShownHunk]] = {index: [] for index in range(len(prepared.paths))}
    for hunk in (hunk for chunk in prepared.chunks for hunk in chunk.hunks):
        hunks[hunk.file].append(hunk)
    return {
        (prepared.paths[index], side.value): {
            _normal(line.text)
            for hunk in shown
            for line in hunk.lines
            if line.kind == " " or line.side is side
        }
        for index, shown in hunks.items()
        if len(shown) == prepared.hunks[index] and not any(hunk.is_clipped for hunk in shown)
        for side in Side
    }


def _partners(findings: Sequence[ReportFinding], earlier: Sequence[ReportFinding]) -> dict[int, int]:
    """Match findings of two versions; the strongest criteria come first and each has one partner.

    So a weak match cannot take the partner of a strong one.
    """
    partners: dict[int, int] = {}
    free = set(range(len(earlier)))
    order = sorted(range(len(findings)), key=lambda index: _place(findings[index]))
    for is_same in _CRITERIA:
        for index in order:
            if index in partners:
                continue
            one = findings[index]
            same = [e for e in free if earlier[e].file == one.file and is_same(one, earlier[e])]
            if same:
                partner = min(same, key=lambda e: (_distance(one, earlier[e]), _place(earlier[e])))
                partners[index] = partner
                free.remove(partner)
    return partners


def _place(finding: ReportFinding) -> tuple[str, int, str]:
    return finding.file, finding.line or 0, finding.title


def _distance(one: ReportFinding, other: ReportFinding) -> int:
    return abs((one.line or 0) - (other.line or 0))


def _same_title(one: ReportFinding, other: ReportFinding) -> bool:
    return _words(one.title) == _words(other.title)


def _same_code(one: ReportFinding, other: ReportFinding) -> bool:
    code = _code(one)
    return len(code) >= MIN_CODE and code == _code(other)


def _same_kind(one: ReportFinding, other: ReportFinding) -> bool:
    return (one.source, one.category, one.side) == (other.source, other.category, other.side)


def _same_place(one: ReportFinding, other: ReportFinding) -> bool:
    if one.line is None or other.line is None:
        return one.line == other.line
    return abs(one.line - other.line) <= NEARBY_LINES


_CRITERIA: tuple[_Same, ...] = (
    lambda one, other: _same_title(one, other) and _same_code(one, other),
    lambda one, other: _same_title(one, other) and _same_place(one, other),
    lambda one, other: _same_code(one, other) and _same_kind(one, other),
    lambda one, other: _same_title(one, other) and _same_kind(one, other),
    lambda one, other: _same_place(one, other) and _same_kind(one, other),
)


def _words(title: str) -> tuple[str, ...]:
    # Numbers in a title are measures: "A file of 4.2 MB" is the same finding at 4.3 MB.
    return tuple(re.findall(r"[^\W\d_]+", title.casefold()))


def _code(finding: ReportFinding) -> str:
    return " ".join(word for row in finding.excerpt if finding.covers(row) for word in row.text.split())


def _ending(finding: ReportFinding, status: str | None, lines: Lines) -> Ending:
    """Return what became of a finding that the version does not repeat; `status` is its file's coverage."""
    if status is None:
        return Ending.GONE
    is_check = finding.source.startswith("check:")
    # Checks read every file that is not skipped; the model reads only reviewed files completely.
    readers = {"reviewed", "checked", "partial"} if is_check else {"reviewed"}
    if status not in readers:
        return Ending.NOT_READ
    if finding.line is None:
        # A check says the same of the same file; a model may be silent the second time.
        return Ending.FIXED if is_check else Ending.NOT_REPORTED
    now = lines.get((finding.file, finding.side))
    has_changed = now is not None and any(text not in now for text in _changed_lines(finding))
    return Ending.FIXED if has_changed else Ending.NOT_REPORTED


def _changed_lines(finding: ReportFinding) -> Iterator[str]:
    """Yield the lines of a finding that its version changed; unchanged ones may just be out of sight."""
    for row in finding.excerpt:
        if finding.covers(row) and row.kind != " " and (text := _normal(row.text)):
            yield text


def _normal(line: str) -> str:
    return line[:MAX_EXCERPT_CHARS].strip()
