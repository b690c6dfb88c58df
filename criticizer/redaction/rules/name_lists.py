"""Lists of names and the lists of values after them: SQL, test parameters, COPY (G191)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import ahocorasick_rs

from criticizer.redaction.input.document import Document
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import key_names
from criticizer.redaction.rules.characters import holds
from criticizer.redaction.rules.named_values import Span, span_kind
from criticizer.redaction.rules.value_heuristics import is_template, judge

ROWS: Final = 500  # that are read below a header
LINE: Final = 4_096  # bytes of a line that are read
PADDING: Final = b" \t\r\"'`*"
_MAX_TUPLES: Final = 200
_VALUE_BYTES: Final = 1_024
# ( a, b, password ) VALUES ( … ) , ( … ): a list of names and lists of as many values.
_QUOTED_NAMES = compiled(rb"[\"'][ \t]*([\w \t,]+)[\"']")
_NAMES: Final = {
    b"(": compiled(rb"\([ \t]*([\w \t`\"'\[\],]*[\w`\"'\]])[ \t]*\)"),
    b"[": compiled(rb"\[[ \t]*([\w \t`\"',]*[\w`\"'])[ \t]*\]"),
    b'"': _QUOTED_NAMES,
    b"'": _QUOTED_NAMES,
}
_BETWEEN = compiled(rb"(?i)[ \t\r\n,]*(?:values?|select|overriding[ \t]+\w+[ \t]+value|:)?[ \t\r\n]*[\[(]")
# names = ["a", "b"], then rows = [("x", "y")], or "data": [["x", "y"]], or a parameter of a test.
_TO_ROWS = compiled(
    rb"[ \t\r\n,;})\]]*(?:[\"']?[\w. ]{1,30}[\"']?[ \t]*[:=][ \t]*)?[ \t\r\n]*[\[({]{1,2}[ \t\r\n]*[\[({]"
)
_COPY = compiled(rb"(?i)[ \t]*from[ \t]+stdin[^\n]*")
_VALUE = compiled(
    rb"[ \t\r\n]*(?:N?'((?:[^'\\\n]|''|\\.)*)'|\"((?:[^\"\\\n]|\\.)*)\"|[^,()\[\]'\"\n]*)[ \t\r\n]*([,)\]])"
)
_LISTED: Final = tuple(key_names.WORDS)
_WORDS: Final = ahocorasick_rs.BytesAhoCorasick(_LISTED)


class Names(NamedTuple):
    """A list of names, one of which names a secret."""

    end: int  # of the list, in its line
    place: int  # of that name, from 0
    total: int
    strength: int  # of that name


def names(line: bytes, start: int, end: int) -> Names | None:
    """Return the list of names that holds the word from `start` to `end`, or None."""
    opened = max(line.rfind(b"(", 0, start), line.rfind(b"[", 0, start))
    while (
        opened > 0
        and line[opened - 1 : opened] in (b" ", b",", b"[")
        and line[opened : opened + 1] == b"["
        and line.find(b",", opened, start) < 0
        and line.find(b"]", opened, end + 2) >= 0
    ):
        opened = max(line.rfind(b"(", 0, opened), line.rfind(b"[", 0, opened))  # [name] of T-SQL
    quote = max(line.rfind(b'"', 0, start), line.rfind(b"'", 0, start))
    if quote >= 0 and b"," in line[quote:start] and line.find(line[quote : quote + 1], end) >= 0:
        opened = quote  # "user,password"
    if opened < 0:
        return None
    names = _NAMES[line[opened : opened + 1]].match(line, opened)
    if names is None or not names.start(1) <= start < names.end(1) or b"," not in names.group(1):
        return None
    titles = names.group(1).split(b",")
    index = line.count(b",", names.start(1), start)
    strength = strength_of(titles[index].strip(b" \t[]`\"'"))
    return Names(names.end(), index, len(titles), strength) if strength >= key_names.SECRET else None


def values(document: Document, low: int, listed: Names, spend: Callable[[int], None]) -> Iterator[Span]:
    """Yield the values of lists after a list of names, on a line that begins at `low`."""
    text, at = document.text, low + listed.end
    copy = _COPY.match(text, at, min(at + 200, len(text)))
    if copy is not None:
        return _copied(document, copy.end(), listed.place, listed.strength, spend)
    return _lists(text, at, listed, spend)


def _lists(text: bytes, at: int, listed: Names, spend: Callable[[int], None]) -> Iterator[Span]:
    _, index, count, strength = listed
    first = _TO_ROWS.match(text, at, min(at + 200, len(text)))
    for number in range(_MAX_TUPLES):
        opening = first if first and not number else _BETWEEN.match(text, at, min(at + 200, len(text)))
        if opening is None:
            return
        at = opening.end()
        for place in range(count):
            value = _plain_value(text, at) or _any_value(text, at)
            spend(8)
            if value is None:
                return
            begin, end, at = value
            if (text[at - 1 : at] == b",") != (place < count - 1):
                return
            if place == index and end > begin and is_value(text[begin:end], strength):
                yield begin, end, span_kind(strength)


def _plain_value(text: bytes, at: int) -> tuple[int, int, int] | None:
    """Return the value of a literal without escapes, which a sign follows, or None.

    Faster than `_VALUE`.
    """
    first = at + 1 if text[at : at + 1] == b" " else at
    quote = text[first : first + 1]
    if quote not in (b"'", b'"'):
        return None
    close = text.find(quote, first + 1, at + _VALUE_BYTES)
    if close < 0 or text[close + 1 : close + 2] not in (b",", b")", b"]"):
        return None
    if holds(text[first:close], b"\\\n"):
        return None
    return first + 1, close, close + 2


def _any_value(text: bytes, at: int) -> tuple[int, int, int] | None:
    match = _VALUE.match(text, at, min(at + _VALUE_BYTES, len(text)))
    if match is None:
        return None
    return *match.span(1 if match.group(1) is not None else 2), match.end()


def _copied(
    document: Document, at: int, index: int, strength: int, spend: Callable[[int], None]
) -> Iterator[Span]:
    """Yield the values of COPY table (names) FROM stdin, separated by tabs."""
    for here in document.sides(at - 1):
        for line in document.following(here, ROWS):
            body = document.text[line.start : min(line.end, line.start + LINE)]
            spend(8 + (len(body) >> 3))
            cells = body.split(b"\t")
            if body.startswith(b"\\.") or len(cells) <= index:
                break
            if is_value(cells[index].strip(), strength):
                first = line.start + sum(len(cell) + 1 for cell in cells[:index])
                yield first, first + len(cells[index].rstrip()), span_kind(strength)


def strength_of(title: bytes) -> int:
    """Return the strength of the title of a column, in which blanks count as underscores."""
    name = title.strip(PADDING).lower().replace(b" ", b"_")
    # The first place of each word, in the order of the list.
    for index in sorted({index for index, _, _ in _WORDS.find_matches_as_indexes(name, overlapping=True)}):
        word = _LISTED[index]
        at, own = name.find(word), key_names.WORDS[word][1]
        if not (own and at and name[at - 1 : at] != b"_"):
            found = key_names.strength(word, word, name[:at], name[at + len(word) :])
            if found:
                return found
    return 0


def is_value(value: bytes, strength: int) -> bool:
    """Return whether a cell below a title of this strength holds a secret."""
    return (
        len(value) >= 4
        and not is_template(value)
        and b"\x01" not in value
        and judge(value, strength, quoted=True)
    )
