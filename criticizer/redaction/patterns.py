# ruff: noqa: SLF001 - the one module that uses internal functions of google-re2
"""Regular expressions of RE2 over bytes, faster than with google-re2's own wrapper.

That wrapper makes a generator for every match, and a generator and two calls into the library for
every group: for a text of one line, several times the work of RE2 itself. Here the library's one
function, `Match`, is called directly; the matches are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import re2

_ANYWHERE: Final = re2._Anchor.UNANCHORED
_AT_START: Final = re2._Anchor.ANCHOR_START
_WHOLE: Final = re2._Anchor.ANCHOR_BOTH
_TO_END: Final = 1 << 62

Spans = list[tuple[int, int]]


class Match:
    """A match, as in `re`. `spans` are those of the whole and of each group."""

    __slots__ = ("spans", "text")

    def __init__(self, text: bytes, spans: Spans) -> None:
        self.text = text
        self.spans = spans

    def group(self, index: int = 0) -> Any:
        """Return the bytes of a group, None where it did not match."""
        start, end = self.spans[index]
        return self.text[start:end] if start >= 0 else None

    def groups(self) -> tuple[Any, ...]:
        return tuple(map(self.group, range(1, len(self.spans))))

    def span(self, index: int = 0) -> tuple[int, int]:
        return self.spans[index]

    def start(self, index: int = 0) -> int:
        return self.spans[index][0]

    def end(self, index: int = 0) -> int:
        return self.spans[index][1]

    @property
    def lastindex(self) -> Any:
        """The number of the first of the groups that end last, None where none matched."""
        last, index = -1, None
        for group, (_, end) in enumerate(self.spans):
            if group and end > last:
                last, index = end, group
        return index


class Pattern:
    """A compiled expression, with the methods of `re`. Positions outside the text mean its ends."""

    __slots__ = ("_match", "_whole", "groups", "pattern")

    def __init__(self, pattern: bytes) -> None:
        self._whole = re2.compile(pattern)
        self._match = self._whole._regexp.Match
        self.pattern = pattern
        self.groups: int = self._whole.groups

    def match(self, text: bytes, start: int = 0, end: int = _TO_END) -> Match | None:
        """Match at `start`."""
        if end > len(text):
            end = len(text)
        if start > end:
            return None
        spans = self._match(_AT_START, text, start, end)
        return Match(text, spans) if spans[0][0] >= 0 else None

    def fullmatch(self, text: bytes, start: int = 0, end: int = _TO_END) -> Match | None:
        """Match the whole of the text from `start` to `end`."""
        if end > len(text):
            end = len(text)
        if start > end:
            return None
        spans = self._match(_WHOLE, text, start, end)
        return Match(text, spans) if spans[0][0] >= 0 else None

    def search(self, text: bytes, start: int = 0, end: int = _TO_END) -> Match | None:
        """Return the first match."""
        if end > len(text):
            end = len(text)
        if start > end:
            return None
        spans = self._match(_ANYWHERE, text, start, end)
        return Match(text, spans) if spans[0][0] >= 0 else None

    def finditer(self, text: bytes, start: int = 0, end: int = _TO_END) -> Iterable[Match]:
        """Return all matches that do not overlap."""
        size = len(text)
        if start > (end := min(end, size)):
            return ()
        spans = self._match(_ANYWHERE, text, start, end)
        return self._following(text, start, end, spans) if spans[0][0] >= 0 else ()

    def places(self, text: bytes, start: int = 0, end: int = _TO_END) -> Iterator[tuple[int, int]]:
        """Yield the spans of all matches; the pattern has no groups and no empty match."""
        match, size = self._match, min(end, len(text))
        [(start, end)] = match(_ANYWHERE, text, start, size)
        while start >= 0:
            yield start, end
            [(start, end)] = match(_ANYWHERE, text, end, size)

    def _following(self, text: bytes, start: int, end: int, spans: Spans) -> Iterator[Match]:
        while spans[0][0] >= 0:
            yield Match(text, spans)
            if start == end:
                return
            last = spans[0][1]
            start = last if last > start else start + 1  # after an empty match
            spans = self._match(_ANYWHERE, text, start, end)

    def subn(self, replacement: bytes, text: bytes) -> tuple[bytes, int]:
        """Return the text with the matches replaced, and their number."""
        changed: tuple[bytes, int] = self._whole.subn(replacement, text)
        return changed

    def sub(self, replacement: bytes, text: bytes) -> bytes:
        return self.subn(replacement, text)[0]

    def findall(self, text: bytes) -> list[Any]:
        found: list[Any] = self._whole.findall(text)
        return found


def compiled(pattern: bytes) -> Pattern:
    """Return the pattern of an expression."""
    return Pattern(pattern)


class Forms:
    """Expressions of which one pass over a value shows which match the whole of it."""

    __slots__ = ("_match",)

    def __init__(self, patterns: Sequence[bytes]) -> None:
        forms = re2.Set.FullMatchSet()
        for pattern in patterns:
            forms.Add(pattern)
        forms.Compile()
        self._match: Callable[[bytes], list[int]] = forms._set.Match

    def of(self, value: bytes) -> int:
        """Return the expressions that match as a number with a bit for each, the first the lowest."""
        bits = 0
        for index in self._match(value):
            bits |= 1 << index
        return bits


_Judges = TypeVar("_Judges", bound=Callable[..., Any])
_REMEMBERED: Final = 16_384  # results of each function
_caches: list[Callable[[], None]] = []


def remembered(function: _Judges) -> _Judges:
    """Cache a function's results until `forget`: many values occur more than once in a text."""
    cached = lru_cache(maxsize=_REMEMBERED)(function)
    _caches.append(cached.cache_clear)
    return cast("_Judges", cached)


def forget() -> None:
    """Clear the caches of judged values, which may be secrets."""
    for clear in _caches:
        clear()
