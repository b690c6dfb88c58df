"""Ways to read a quote: as it is, unwrapped, or without the numbers and marks of a hunk."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reviews.reviewers.base import Side

MAX_QUOTE_CHARS = 4_000
_MAX_QUOTE_LINES = 80

_QUOTES = "\"'`\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u00ab\u00bb\u2032\u2033"
_SAME = str.maketrans(
    {
        **dict.fromkeys(_QUOTES, "'"),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
        **dict.fromkeys("\\\u200b\u200c\u200d\u2060\ufeff\u00ad", None),
    }
)
_NUMBER = re.compile(
    r"[ \t]*(?:(?:line|L)?[ \t]*(\d{1,7})[ \t]*[:|>)\]\u2502.][ \t]?|\[(\d{1,7})\][ \t]?|(\d{1,7})[ \t])",
    re.IGNORECASE,
)
_MARK = re.compile(r"[ \t]*([-+>])")
_FENCE = re.compile(r"[ \t]*(?:```|~~~)")


def normal(text: str) -> str:
    """Return the form in which quotes and lines are compared."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    if "&" in text:
        text = html.unescape(text)
    return "".join(text.translate(_SAME).split())


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a quote: its lines, the side that its marks name, and a printed number."""

    lines: tuple[str, ...]
    side: Side | None = None
    number: int | None = None


def readings_of(quote: str) -> list[Reading]:
    """Return the ways to read a quote, the most literal one first."""
    quote = quote[:MAX_QUOTE_CHARS].replace("\r\n", "\n").strip("\r\n")
    texts = [quote, _unwrapped(quote)]
    if "\n" not in quote and "\\n" in quote:
        texts.append(quote.replace("\\n", "\n").replace("\\t", "\t"))
    found: list[Reading] = []
    for text in dict.fromkeys(texts):
        lines = tuple(text.split("\n")[:_MAX_QUOTE_LINES])
        found.append(Reading(lines))
        found += _unmarked(lines)
    ended = [Reading((*r.lines[:-1], r.lines[-1].rstrip(" \t;,.:")), r.side, r.number) for r in found]
    return list(dict.fromkeys(r for r in [*found, *ended] if any(normal(line) for line in r.lines)))


def _unwrapped(quote: str) -> str:
    """Take off fences, and marks of code or quotation around all of it."""
    lines = [line for line in quote.split("\n") if not _FENCE.match(line)]
    text = "\n".join(lines)
    bare = text.strip()
    while len(bare) > 2 and bare[0] in _QUOTES and bare[-1] in _QUOTES:
        bare = bare[1:-1].strip("\n")
    return bare if bare != text.strip() else text


def _unmarked(lines: Sequence[str]) -> Iterator[Reading]:
    """Yield readings without the numbers and marks that models copy against their instructions."""
    number, plain, marks = None, [], []
    for line in lines:
        found = _NUMBER.match(line)
        rest = line
        if found is not None:
            rest = line[found.end() :]
            number = number or int(found[1] or found[2] or found[3])
        mark = _MARK.match(rest)
        marks.append(mark[1] if mark else " ")
        plain.append(rest[mark.end() :] if mark else rest)
    if tuple(plain) == tuple(lines):
        return
    both = {"-", "+"} <= set(marks)
    if both:  # a replaced line with its replacement
        yield Reading(_without(plain, marks, "-"), Side.NEW, number)
        yield Reading(_without(plain, marks, "+"), Side.OLD, number)
        return
    side = Side.OLD if "-" in marks else Side.NEW if "+" in marks else None
    if any(plain[k] != line.lstrip() for k, line in enumerate(lines)) and number:
        # The number alone was copied: what looks like a mark belongs to the line.
        yield Reading(tuple(_NUMBER.sub("", line, count=1) for line in lines), None, number)
    yield Reading(tuple(plain), side, number)


def _without(lines: Sequence[str], marks: Sequence[str], mark: str) -> tuple[str, ...]:
    return tuple(line for line, its in zip(lines, marks, strict=True) if its != mark)
