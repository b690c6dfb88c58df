"""The words that differ between a removed line and the one that replaces it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby

from reviews.web.budget import Budget

MAX_RUN = 40  # lines; longer runs are rewritten, not edited
MIN_RATIO = 0.5  # lines less alike than this have no words in common worth showing
MAX_WORDS = 120
MAX_COMPARED = 400_000  # pairs of words in a page: hostile lines take a second, usual ones a hundredth

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
Ranges = Sequence[tuple[int, int]]


def changed_words(rows: Sequence[tuple[int | None, str, str]], budget: Budget) -> Mapping[int, Ranges]:
    """Return the ranges of characters that differ, by row; `rows` are `(number, kind, text)`.

    `budget`: the pairs of words that may be compared; lines beyond it have no ranges.
    """
    marks: dict[int, Ranges] = {}
    for removed, added in _runs(rows):
        for old, new in zip(removed, added, strict=True):
            words, others = _WORDS.findall(rows[old][2]), _WORDS.findall(rows[new][2])
            if max(len(words), len(others)) <= MAX_WORDS and budget.spend(len(words) * len(others)):
                marks[old], marks[new] = _differing(words, others)
    return {row: ranges for row, ranges in marks.items() if ranges}


def _runs(rows: Sequence[tuple[int | None, str, str]]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the rows of removed lines with as many added ones directly behind them."""
    before: list[int] = []
    for kind, run in groupby(range(len(rows)), key=lambda row: rows[row][1]):
        found = list(run)
        if kind == "+" and len(found) == len(before) <= MAX_RUN:
            yield before, found
        before = found if kind == "-" else []


def _differing(words: Sequence[str], others: Sequence[str]) -> tuple[Ranges, Ranges]:
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
