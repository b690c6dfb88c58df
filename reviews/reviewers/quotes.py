"""Looks up quoted text among the lines that a model was shown.

Both sides are compared in a normal form without white space, kinds of quotes and escapes. The
text decides: a stated hunk and the line number only choose among places that have the text.

    quote ─► readings: as it is, unwrapped, without numbers and marks
          ─► places, by how well they fit ─► one, several or none
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reviews.reviewers.base import Side
from reviews.reviewers.chunks import Chunk, ShownHunk, ShownLine
from reviews.reviewers.quote_readings import Reading, normal, readings_of

MIN_PART_CHARS = 10  # of a quote that is a part of a line, in its normal form
MIN_ELIDED_CHARS = 6  # of each part of an elided quote
MIN_HINTED_CHARS = 4  # of a part of a line whose number is stated, too
MAX_RANGE_LINES = 60
MAX_PLACES = 200  # of one quote
NEAR_HINT = 3

_ELISION = re.compile(
    r"[ \t]*(?:#|//|/\*|--|<!--)?[ \t]*[\[(<]?[ \t]*(?:\.{3,}|\u2026)[^\S\n]*(?:[a-z ]{0,40}\.{3,})?[\])>]?"
    r"[ \t]*(?:\*/|-->)?[ \t]*"
)
_ENDING = re.compile(r"[;,:.{}()\[\]']*")


@dataclass(frozen=True, slots=True)
class Place:
    """Lines of one side of a hunk in which a quote was found."""

    text: SideText
    first: int  # index in the side's lines
    last: int

    @property
    def line(self) -> ShownLine:
        return self.text.lines[self.first]

    @property
    def end(self) -> ShownLine:
        return self.text.lines[self.last]


@dataclass(frozen=True, eq=False)
class SideText:
    """One side of a hunk: its lines, and their normal forms as one text."""

    hunk: ShownHunk
    side: Side

    @cached_property
    def lines(self) -> list[ShownLine]:
        return [line for line in self.hunk.lines if line.side is self.side]

    @cached_property
    def normals(self) -> list[str]:
        return [normal(line.text) for line in self.lines]

    @cached_property
    def joined(self) -> str:
        return "".join(self.normals)

    @cached_property
    def starts(self) -> list[int]:
        starts, at = [], 0
        for line in self.normals:
            starts.append(at)
            at += len(line)
        return starts

    def at(self, offset: int) -> int:
        """Return the index of the line that holds a character. Empty lines hold none."""
        return bisect_right(self.starts, offset) - 1

    def occurrences(self, needle: str) -> Iterator[int]:
        at = self.joined.find(needle)
        for _ in range(MAX_PLACES):
            if at < 0:
                return
            yield at
            at = self.joined.find(needle, at + 1)

    def starts_line(self, offset: int) -> bool:
        return self.starts[self.at(offset)] == offset

    def ends_line(self, end: int) -> bool:
        """Return whether nothing but punctuation follows on the line."""
        line = self.at(end - 1)
        rest = self.joined[end : self.starts[line] + len(self.normals[line])]
        return _ENDING.fullmatch(rest) is not None


class ShownText:
    """The lines of one chunk, in which quotes are looked up. Normal forms are made once."""

    def __init__(self, chunk: Chunk) -> None:
        self._sides: dict[int, list[SideText]] = {}
        for hunk in chunk.hunks:
            self._sides.setdefault(hunk.file, []).extend(SideText(hunk, side) for side in Side)

    def find(self, raw: Mapping[str, Any], file: int) -> list[Place]:
        """Return the places of a finding's quote: one, several that nothing tells apart, or none."""
        sides = [text for text in self._sides.get(file, []) if text.lines]
        readings = readings_of(raw["quote"])
        hint = raw.get("line") or next((r.number for r in readings if r.number), None)
        first: list[Place] = []
        for tier in _tiers(readings, sides, hint):
            places = list(dict.fromkeys(tier))
            if not places:
                continue
            if first:
                # Text that fits better stands elsewhere. This is the stated line itself.
                exact = [place for place in places if place.line.number == hint]
                if len(exact) == 1:
                    return [_extended(exact[0], raw)]
                continue
            first = _chosen(places, raw, readings, hint)
            if hint is None or any(abs(place.line.number - hint) <= NEAR_HINT for place in first):
                break
        return [_extended(first[0], raw)] if len(first) == 1 else first


def _tiers(readings: Sequence[Reading], sides: Sequence[SideText], hint: int | None) -> Iterator[list[Place]]:
    """Yield lists of places, the ones that fit best first."""
    needles = [("".join(map(normal, reading.lines)), _count(reading)) for reading in readings]
    for needle, count in needles:
        yield [p for text in sides for p in _whole(text, needle, count)]
    for needle, count in needles:
        if len(needle) >= MIN_PART_CHARS:
            yield [p for text in sides for p in _part(text, needle, count)]
    for reading in readings:
        parts = _elided(reading)
        if parts:
            found = [p for text in sides for p in _in_order(text, parts)]
            if _count(reading) == 1:
                yield [place for place in found if place.first == place.last]
            yield found
    if hint is not None:
        for needle, count in needles:
            if MIN_HINTED_CHARS <= len(needle) < MIN_PART_CHARS and count == 1:
                near = (p for text in sides for p in _part(text, needle, 1))
                yield [p for p in near if abs(p.line.number - hint) <= NEAR_HINT]


def _count(reading: Reading) -> int:
    return sum(1 for line in reading.lines if line.strip())


def _whole(text: SideText, needle: str, count: int) -> Iterator[Place]:
    """Yield places where the quote begins and ends as lines do, on as many lines."""
    for at in text.occurrences(needle):
        if not text.starts_line(at) or not text.ends_line(at + len(needle)):
            continue
        first, last = text.at(at), text.at(at + len(needle) - 1)
        if sum(1 for line in text.normals[first : last + 1] if line) == count:
            yield Place(text, first, last)


def _part(text: SideText, needle: str, count: int) -> Iterator[Place]:
    """Yield places where the quote is a part of a line, or its lines break in other places."""
    for at in text.occurrences(needle):
        first, last = text.at(at), text.at(at + len(needle) - 1)
        is_inside = first == last and count == 1
        if is_inside or text.starts_line(at) or count > 1:
            yield Place(text, first, last)


def _elided(reading: Reading) -> list[str]:
    """Return the parts of a quote that leaves something out, or nothing."""
    parts = [normal(part) for part in _ELISION.split("\n".join(reading.lines))]
    if len(parts) < 2:
        return []
    return [part for part in parts if len(part) >= MIN_ELIDED_CHARS]


def _in_order(text: SideText, parts: Sequence[str]) -> Iterator[Place]:
    for begin in text.occurrences(parts[0]):
        end = begin + len(parts[0])
        first = text.at(begin)
        for part in parts[1:]:
            at = text.joined.find(part, end)
            if at < 0 or text.at(at) - first >= MAX_RANGE_LINES:
                break
            end = at + len(part)
        else:
            yield Place(text, first, text.at(end - 1))


def _chosen(
    places: list[Place], raw: Mapping[str, Any], readings: Sequence[Reading], hint: int | None
) -> list[Place]:
    """Return the places that are left once everything that the finding states is used."""
    side = raw.get("side") or next((r.side for r in readings if r.side is not None), None)
    end = normal(raw.get("quote_end") or "")
    quoted = readings[0].lines[0]
    hunk = _hunk_name(raw.get("hunk"))
    rules: list[Callable[[Place], bool]] = [
        lambda p: p.text.side == (side or Side.NEW),
        lambda p: p.line.number == hint,
        lambda p: p.text.hunk.name == hunk,
        lambda p: hint is not None and abs(p.line.number - hint) == nearest,
        lambda p: bool(end) and _end_of(p, end) is not None,
        lambda p: p.line.text.strip() == quoted.strip(),
        lambda p: quoted[:1].isspace() and p.line.text == quoted,
        lambda p: p.line.is_near_change,
    ]
    for rule in rules:
        if len(places) == 1:
            break
        distances = [abs(place.line.number - hint) for place in places] if hint is not None else [0]
        nearest = min(NEAR_HINT, *distances)
        places = [place for place in places if rule(place)] or places
    return places


def _hunk_name(named: object) -> str:
    found = re.search(r"F\d{1,6}H\d{1,6}", named) if isinstance(named, str) else None
    return found.group() if found else ""


def _extended(place: Place, raw: Mapping[str, Any]) -> Place:
    """Let a place go on to the line that the finding quotes as its last."""
    end = normal(raw.get("quote_end") or "")
    last = _end_of(place, end, raw.get("end_line")) if end else None
    return Place(place.text, place.first, last) if last is not None and last > place.last else place


def _end_of(place: Place, end: str, hint: int | None = None) -> int | None:
    following = range(place.first, min(place.first + MAX_RANGE_LINES, len(place.text.lines)))
    same = [k for k in following if place.text.normals[k] == end]
    if not same and len(end) >= MIN_PART_CHARS:
        same = [k for k in following if end in place.text.normals[k]]
    if hint is not None:
        same.sort(key=lambda k: abs(place.text.lines[k].number - hint))
    return same[0] if same else None
