"""The words that differ between a removed line and the one that replaces it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby

MAX_RUN = 40  # lines; longer runs are rewritten, not edited
MIN_RATIO = 0.5  # lines less alike than this have no words in common worth showing
MAX_WORDS = 120

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
Ranges = Sequence[tuple[int, int]]


def changed_words(rows: Sequence[tuple[int | None, str, str]]) -> Mapping[int, Ranges]:
    """Return the ranges of characters that differ, by row; `rows` are `(number, kind, text)`."""
    marks: dict[int, Ranges] = {}
    for removed, added in _runs(rows):
        for old, new in zip(removed, added, strict=True):
            marks[old], marks[new] = _differing(rows[old][2], rows[new][2])
    return {row: ranges for row, ranges in marks.items() if ranges}


def _runs(rows: Sequence[tuple[int | None, str, str]]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the rows of removed lines with as many added ones directly behind them."""
    before: list[int] = []
    for kind, run in groupby(range(len(rows)), key=lambda row: rows[row][1]):
        found = list(run)
        if kind == "+" and len(found) == len(before) <= MAX_RUN:
            yield before, found
        before = found if kind == "-" else []


def _differing(old: str, new: str) -> tuple[Ranges, Ranges]:
    words, others = _WORDS.findall(old), _WORDS.findall(new)
    if max(len(words), len(others)) > MAX_WORDS:
        return (), ()
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    if matcher.ratio() < MIN_RATIO:
        return (), ()
    changes = [change for change in matcher.get_opcodes() if change[0] != "equal"]
    return (
        [_range(words, first, last) for _, first, last, _, _ in changes if first < last],
        [_range(others, first, last) for _, _, _, first, last in changes if first < last],
    )


def _range(words: Sequence[str], first: int, last: int) -> tuple[int, int]:
    start = sum(map(len, words[:first]))
    return start, start + sum(map(len, words[first:last]))
