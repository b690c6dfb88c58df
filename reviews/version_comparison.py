"""Comparison of the findings of two versions: which are new, and how the others ended.

Lines move and a model words the same finding differently each time, so findings are matched by file, then
code and title, then place. A finding is fixed only if its quoted lines are no longer in the change: a model
that does not repeat itself has fixed nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from notifications.rendering import Ending, ReportFinding
from reviews.reviewers.base import MAX_EXCERPT_CHARS, Side
from reviews.reviewers.chunks import ShownHunk
from reviews.reviewers.merging import shared, telling_words
from reviews.reviewers.prepared_change import Prepared

MIN_CODE = 12  # characters; shorter code, such as a brace, matches anything
NEARBY_LINES = 3
MIN_ALIKE = 0.35  # of the words of a dismissed finding and of one that stands at its place
_TRIED = 50  # candidates of one criterion: bounds the work on a thousand dismissed ones

Lines = Mapping[tuple[str, str], Collection[str]]


@dataclass(frozen=True, slots=True)
class Compared:
    """Result of a comparison.

    `partners[i]` is the index of the earlier finding that finding `i` repeats. `endings` say what became of
    the earlier findings without a partner, by their index.
    """

    partners: Mapping[int, int]
    endings: Mapping[int, Ending]


def compared(
    findings: Sequence[ReportFinding],
    earlier: Sequence[ReportFinding],
    coverage: Mapping[str, str],
    lines: Lines,
    dismissed: Collection[int] = frozenset(),
) -> Compared:
    """Compare the findings of a version with those of the version before.

    `earlier` are those of the newest version that was reviewed. `coverage` maps each file of the version to
    its status, `lines` each file and side to the lines of the change that the model was shown (`lines_of`).
    `dismissed` are indexes of earlier findings that people dismissed: only a finding that says the same is
    their partner (guarantee G261).
    """
    partners = _partners(findings, earlier, dismissed)
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
    """Return the lines on each `(file, side)` of a prepared change.

    Only of the files that it shows completely.
    """
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


def _partners(
    findings: Sequence[ReportFinding], earlier: Sequence[ReportFinding], dismissed: Collection[int]
) -> dict[int, int]:
    """Match findings of two versions; each has one partner.

    The strongest criteria come first, so a weak match cannot take the partner of a strong one.
    """
    partners: dict[int, int] = {}
    free = set(range(len(earlier)))
    order = sorted(range(len(findings)), key=lambda index: _place(findings[index]))
    for criterion in _CRITERIA:
        candidates: dict[Hashable, list[tuple[int, str, int]]] = defaultdict(list)
        for e in free:
            if (key := criterion.key(earlier[e])) is not None:
                candidates[key].append((earlier[e].line or 0, earlier[e].title, e))
        for entries in candidates.values():
            entries.sort()
        for index in order:
            one = findings[index]
            if index in partners or (key := criterion.key(one)) is None:
                continue
            entries = candidates.get(key, [])
            for at in islice(_nearest(entries, one.line or 0), _TRIED):
                line, _, e = entries[at]
                if criterion.is_near and abs(line - (one.line or 0)) > NEARBY_LINES:
                    break
                if e in dismissed and criterion.is_weak and not _alike(one, earlier[e]):
                    continue
                partners[index] = e
                free.remove(e)
                del entries[at]
                break
    return partners


def _nearest(entries: Sequence[tuple[int, str, int]], line: int) -> Iterator[int]:
    """Yield the indexes of entries, which are sorted by line, from the nearest to the farthest."""
    right = bisect_left(entries, (line, "", -1))
    left = right - 1
    while left >= 0 or right < len(entries):
        if right == len(entries) or (left >= 0 and line - entries[left][0] <= entries[right][0] - line):
            yield left
            left -= 1
        else:
            yield right
            right += 1


def _place(finding: ReportFinding) -> tuple[str, int, str]:
    return finding.file, finding.line or 0, finding.title


def _alike(one: ReportFinding, other: ReportFinding) -> bool:
    """Return whether two findings are worded alike.

    So another defect of the same lines is not dismissed.
    """
    mine, its = (telling_words(f"{finding.title} {finding.message}") for finding in (one, other))
    return shared(mine, its) >= MIN_ALIKE


@dataclass(frozen=True, slots=True)
class _Criterion:
    """Criterion of a match: findings with the same `key` may be the same; None matches nothing.

    `is_weak`: they may be the same whatever they say.
    """

    key: Callable[[ReportFinding], Hashable | None]
    is_near: bool = False
    is_weak: bool = False


def _kind(finding: ReportFinding) -> Hashable:
    return finding.file, finding.source, finding.category, finding.side


def _title_and_code(finding: ReportFinding) -> Hashable | None:
    return (code := code_of(finding)) and (finding.file, _words(finding.title), code)


def _code_and_kind(finding: ReportFinding) -> Hashable | None:
    return (code := code_of(finding)) and (_kind(finding), code)


_CRITERIA = (
    _Criterion(_title_and_code),
    _Criterion(lambda one: (one.file, _words(one.title), one.line is None), is_near=True),
    _Criterion(_code_and_kind, is_weak=True),
    _Criterion(lambda one: (_kind(one), _words(one.title))),
    _Criterion(lambda one: (_kind(one), one.line is None), is_near=True, is_weak=True),
)


def _words(title: str) -> tuple[str, ...]:
    # Numbers in a title are measures: "A file of 4.2 MB" is the same finding at 4.3 MB.
    return tuple(re.findall(r"[^\W\d_]+", title.casefold()))


def code_of(finding: ReportFinding) -> str | None:
    """Return the lines that a finding is about, without regard to spaces.

    None: too short to tell findings apart.
    """
    code = " ".join(word for row in finding.excerpt if finding.covers(row) for word in row.text.split())
    return code if len(code) >= MIN_CODE else None


def _ending(finding: ReportFinding, status: str | None, lines: Lines) -> Ending:
    """Return how a finding that the version does not repeat has ended.

    `status` is the coverage of its file.
    """
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
    """Yield the lines of a finding that its version changed.

    Unchanged ones may just be out of sight.
    """
    for row in finding.excerpt:
        if finding.covers(row) and row.kind != " " and (text := _normal(row.text)):
            yield text


def _normal(line: str) -> str:
    return line[:MAX_EXCERPT_CHARS].strip()
