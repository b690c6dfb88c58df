"""Notices that a model server cut a request and answered all the same (guarantee G203).

Some servers take away what exceeds their window, silently and with status 200. Words that cannot
be guessed stand in the instructions, at the beginning, between the lines and at the end of a request,
and the answer repeats those that the model read. A model that repeats none is judged by the reported tokens.

The words reveal any cut that is longer than the distance between two of them. If the server reports no token
counts, or exactly its window, one probe request that is longer than the review's by more than that distance
settles the rest: a server that reads it whole has cut no shorter request (guarantee G381).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

WORDS = 64  # of one request, at most
_IN_THE_MIDDLE = 8  # of the request, and of the request with its instructions: a word a line
_CHARS_BETWEEN = 400
_LEAST_CHARS = 1_500  # of a request that has words between its lines
_WORD_CHARS = 11  # of a word's line
_LETTERS = "bcdfghjklmnpqrstvwxz"  # no words of people or programs
_LENGTH = 4
# Characters a token: more than any tokenizer reaches with code or prose.
_IMPOSSIBLE = 7.0
_UNLIKELY = 3.8
_SMALLEST_WINDOW = 1_024
_SAME_WINDOW = 0.001  # apart: servers cut at a token
LEAST_TOKENS = 256  # our rules alone are more: a smaller number is no count


def words_of(boundary: str) -> tuple[str, ...]:
    """Return the words of the request with this boundary, in their order."""
    digest = hashlib.shake_256(f"words of {boundary}".encode()).digest(2 * _LENGTH * WORDS)
    letters = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest)
    drawn = (letters[at : at + _LENGTH] for at in range(0, len(letters), _LENGTH))
    return tuple(dict.fromkeys(drawn))[:WORDS]


def places(ends: Sequence[int], system_characters: int, longest: int = 0) -> set[int]:
    """Return the lines that a word follows, between the first and the last, as numbers from 1.

    `ends` are the places where the lines of a request end. The words are as far apart as in a request of
    `longest` characters, so that the requests of a review begin alike. A server that cuts in the middle takes
    that of the request, or of the request with its instructions. There a word follows each line, because such
    a server may take away no more than it must.
    """
    characters = ends[-1]
    if characters < _LEAST_CHARS:
        return set()
    count = WORDS - 2 - 2 * _IN_THE_MIDDLE
    step = max(_CHARS_BETWEEN, max(characters, longest) // (count + 1) + 1)
    even = list(range(step, characters, step))
    found = {bisect_left(ends, place) + 1 for place in even}
    # All words move the middle, and those before it move it back.
    moved = (len(even) + 2 + 2 * _IN_THE_MIDDLE) / 2
    for number, middle in enumerate(((characters - system_characters) // 2, characters // 2)):
        before = 1 + bisect_left(even, middle) + (number + 0.5) * _IN_THE_MIDDLE
        at = bisect_left(ends, middle + (moved - before) * _WORD_CHARS) + 1 - _IN_THE_MIDDLE // 2
        found.update(range(at, at + _IN_THE_MIDDLE) if middle > 0 else ())
    return {number for number in found if 0 < number < len(ends)}


def longest_gap(text: str, words: Sequence[str]) -> int:
    """Return the most characters between two neighbours of `words`, or between one and an end."""
    found = (text.find(f"Word: {word}\n") for word in words)
    at = sorted({0, len(text), *(place for place in found if place >= 0)})
    return max(later - earlier for earlier, later in pairwise(at))


def may_be_window(input_tokens: int) -> bool:
    """Return whether so many tokens may be all that the server reads of any request."""
    thousands, rest = divmod(input_tokens, 1_000)
    whole = input_tokens if rest else thousands
    return input_tokens >= _SMALLEST_WINDOW and whole & (whole - 1) == 0


def was_cut(expected: Sequence[str], seen: Sequence[str], characters: int, input_tokens: int) -> bool:
    """Return whether the model read only a part of a request of so many characters."""
    repeated = {word.strip().casefold() for word in seen} & set(expected)
    if repeated:
        return len(repeated) < len(set(expected))
    if input_tokens < LEAST_TOKENS:
        return False
    each = characters / input_tokens
    return each > _IMPOSSIBLE or (may_be_window(input_tokens) and each > _UNLIKELY)


class Window:
    """The token count with which a server reported cut requests in one review: its window.

    An answer to a request that was read in full and is longer proves it wrong: one odd answer
    must not shorten all that follow.
    """

    def __init__(self) -> None:
        self._tokens = 0  # 0: not known
        self._proved = 0

    def is_proved(self, characters: int, input_tokens: int) -> bool:
        """Return whether all of a request was read if its answer does not say otherwise."""
        is_no_window = input_tokens >= LEAST_TOKENS and not may_be_window(input_tokens)
        return is_no_window or characters <= self._proved

    def prove(self, characters: int) -> None:
        """Note that a request of so many characters is read in full."""
        self._proved = max(self._proved, characters)

    def has_cut(
        self, expected: Sequence[str], seen: Sequence[str], characters: int, input_tokens: int
    ) -> bool:
        """Return whether the server cut a request; see `was_cut`."""
        is_cut = was_cut(expected, seen, characters, input_tokens)
        near = 0 if set(expected) <= set(seen) else _SAME_WINDOW * self._tokens
        is_same = self._tokens and abs(input_tokens - self._tokens) <= near
        if is_cut:
            self._tokens = input_tokens if input_tokens >= LEAST_TOKENS else self._tokens
        elif not is_same and input_tokens > self._tokens:
            self._tokens = 0
        return is_cut or bool(is_same)
