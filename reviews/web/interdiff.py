"""Difference between two versions of one file, from the diffs that were stored of it.

The file itself is not stored, only what each version changed and a few lines around it. So lines are
matched by their text: those that one version added and the other does not have, and those that only one
of them removed, are what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

from reviews.reviewers.prepared_change_codec import DiffLine
from reviews.sources.diffs import unique_anchors
from reviews.web.budget import Budget

CONTEXT_LINES = 3
MAX_STEPS = 2_000_000  # of matching in one page; lines that are left count as replaced
_SMALL = 2_500  # pairs of lines without anchors that are worth matching

Hunks = Sequence[Sequence[DiffLine]]
Row = tuple[int | None, str, str]  # number, kind, text


class _Placed(NamedTuple):
    """A line and the hunks that it stands in: `a` of the older version, `b` of the newer one."""

    row: Row
    a: int | None
    b: int | None


def interdiff(older: Hunks, newer: Hunks, budget: Budget) -> list[list[Row]]:
    """Return what differs as hunks of rows; none where both versions make the same of the file.

    Removed rows have the number of the older version, others that of the newer one, where it is known.
    """
    if _made(older) == _made(newer):
        return []
    placed = list(_placed(older, newer, budget))
    shown: set[int] = set()
    for at, one in enumerate(placed):
        if one.row[1] != " ":
            shown.update(range(at - CONTEXT_LINES, at + CONTEXT_LINES + 1))
    hunks: list[list[Row]] = []
    before: int | None = None
    for at in sorted(shown & set(range(len(placed)))):
        one = placed[at]
        if before != at - 1 or not _together(placed[before], one):
            hunks.append([])
        hunks[-1].append(one.row)
        before = at
    return [_removed_first(hunk) for hunk in hunks if any(kind != " " for _, kind, _ in hunk)]


def _removed_first(hunk: Sequence[Row]) -> list[Row]:
    runs = groupby(hunk, key=lambda row: row[1] == " ")
    return [row for _, run in runs for row in sorted(run, key=lambda row: row[1] == "+")]


def _made(hunks: Hunks) -> list[tuple[str, str]]:
    return [(line.kind, line.text) for hunk in hunks for line in hunk if line.kind != " "]


def _together(one: _Placed, other: _Placed) -> bool:
    both_differ = " " not in (one.row[1], other.row[1])
    return both_differ or one.a == other.a is not None or one.b == other.b is not None


def _placed(older: Hunks, newer: Hunks, budget: Budget) -> Iterator[_Placed]:
    a = [(line, hunk) for hunk, lines in enumerate(older) for line in lines]
    b = [(line, hunk) for hunk, lines in enumerate(newer) for line in lines]
    matches = _matches([line.text for line, _ in a], [line.text for line, _ in b], budget)
    i = j = 0
    for to_i, to_j in [*sorted(matches.items()), (len(a), len(b))]:
        for line, hunk in a[i:to_i]:
            # A removal that the newer version does not have: the line is back.
            kind = {"+": "-", "-": "+"}.get(line.kind, " ")
            yield _Placed((line.number if kind == "-" else None, kind, line.text), hunk, None)
        for line, hunk in b[j:to_j]:
            yield _Placed((None if line.kind == "-" else line.number, line.kind, line.text), None, hunk)
        if to_i < len(a) and to_j < len(b):
            (old, old_hunk), (new, new_hunk) = a[to_i], b[to_j]
            if old.kind == "-" != new.kind:
                yield _Placed((new.number, "+", new.text), old_hunk, new_hunk)
            elif new.kind == "-" != old.kind:
                yield _Placed((old.number, "-", old.text), old_hunk, new_hunk)
            elif new.kind != "-":
                yield _Placed((new.number, " ", new.text), old_hunk, new_hunk)
        i, j = to_i + 1, to_j + 1


def _matches(a: Sequence[str], b: Sequence[str], budget: Budget) -> dict[int, int]:
    """Return the places of equal lines, matched in their order (patience diff).

    Lines that each side has once anchor the others.
    """
    found: dict[int, int] = {}
    parts = [(0, len(a), 0, len(b))]
    while parts:
        i, i_end, j, j_end = parts.pop()
        while i < i_end and j < j_end and a[i] == b[j]:
            found[i] = j
            i, j = i + 1, j + 1
        while i < i_end and j < j_end and a[i_end - 1] == b[j_end - 1]:
            i_end, j_end = i_end - 1, j_end - 1
            found[i_end] = j_end
        height, width = i_end - i, j_end - j
        if not height or not width or not budget.spend(height + width):
            continue
        if anchors := unique_anchors(a[i:i_end], b[j:j_end]):
            for at_i, at_j in [*anchors, (height, width)]:
                parts.append((i, i_end - height + at_i, j, j_end - width + at_j))
                i, j = i_end - height + at_i, j_end - width + at_j
        elif height * width <= _SMALL and budget.spend(height * width):
            blocks = SequenceMatcher(None, a[i:i_end], b[j:j_end], autojunk=False).get_matching_blocks()
            found.update({i + at + n: j + to + n for at, to, size in blocks for n in range(size)})
    return found
