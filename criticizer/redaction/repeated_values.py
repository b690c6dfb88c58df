"""Search for values that were found in one place in all others, for all values at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import ahocorasick_rs

LEAST: Final = 8  # bytes of a value
_ALIKE: Final = 16  # at most so many values with one beginning are compared one by one
# A full table of states takes minutes to build for long values that repeat within themselves.
_NFA: Final = ahocorasick_rs.Implementation.ContiguousNFA


class KnownValues:
    """A search for values of at least `LEAST` bytes.

    Its automaton has their first bytes only, so that it is small and quickly built, however long they are.
    Where many values begin alike, each would be compared in many places: it then has whole values.
    """

    __slots__ = ("_automaton", "_beginning", "_is_small")

    def __init__(self, values: Collection[bytes]) -> None:
        beginning: dict[bytes, list[bytes]] = {}
        for value in sorted(values, key=len, reverse=True):
            beginning.setdefault(value[:LEAST], []).append(value)
        self._is_small = max(map(len, beginning.values()), default=0) <= _ALIKE
        self._beginning = beginning if self._is_small else {value: [value] for value in values}
        standard, longest = ahocorasick_rs.MATCHKIND_STANDARD, ahocorasick_rs.MATCHKIND_LEFTMOST_LONGEST
        self._automaton: Any = ahocorasick_rs.BytesAhoCorasick(
            list(self._beginning), matchkind=standard if self._is_small else longest, implementation=_NFA
        )

    def places(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield the places of values that do not overlap: the leftmost, then the longest."""
        done = 0
        for _, start, end in self._automaton.find_matches_as_indexes(data, overlapping=self._is_small):
            if start < done:
                continue
            for value in self._beginning[data[start:end]]:
                if data.startswith(value, start):
                    done = start + len(value)
                    yield start, done
                    break
