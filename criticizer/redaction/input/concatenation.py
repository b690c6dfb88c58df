"""String literals that a program joins: "abc" + "def", "abc" "def", 'abc' . 'def'.

All functions read one line; `logical_lines` makes one line of a concatenation over several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules.pem import Block
from criticizer.redaction.rules.value_heuristics import is_template

OPERATOR: Final = rb"(?:\+\+?|\.\.?|&|\|\||~|<>)"
# The opening of a string: the prefix of a language, and the quote.
OPENING: Final = rb"[bBfFrRuULN@$]{0,2}\\*[\"'`]"
_GLUE: Final = rb"([ \t]+" + OPERATOR + rb"?[ \t]*|" + OPERATOR + rb"[ \t]*|)[bBfFrRuULN@$]{0,2}"
# The quote that ends one literal and the quote that begins the next are both escaped, or both not.
_NEXT = compiled(
    rb"(?:\\[nrt])*(?:\\+[\"']" + _GLUE + rb"\\+(?:\"([^\"\\\n]*)|'([^'\\\n]*))"
    rb"|[\"'`]" + _GLUE + rb"(?:\"((?:[^\"\\\n]|\\.)*)|'((?:[^'\\\n]|\\.)*)|`([^`\n]*)))"
)
_CLOSING: Final = rb"(?:\\[nrt])*\\*[\"'`]"
_OPEN_END = compiled(_CLOSING + rb"[ \t]*" + OPERATOR + rb"?[ \t]*[\\_]?[ \t\r]*(?:(?:#|//|--)[^\n]*)?\n")
_NEXT_LINE = compiled(rb"\n[ \t]*" + OPERATOR + rb"?[ \t]*" + OPENING)
# password = "abc"; and on the next line: password += "def";
APPENDED: Final = rb"[ \t]*(?:\+=|\.=|<<)[ \t]*"
_APPENDED = compiled(rb"[\"'`];?[ \t\r]*\n[ \t]*[$@\w.]*\w" + APPENDED + OPENING)
# The signs that join two literals without a blank in them, on one line or over two.
_JOIN: Final = (
    rb"[ \t]*(?:\+\+?|\.\.?|&|\|\||<>)?[ \t]*\\?\r?\n?[ \t]*(?:\+\+?|\.\.?|&|\|\||<>)?[ \t]*[bBfFrRuUN@]?"
)
_BETWEEN = compiled(rb"\"" + _JOIN + rb"\"|'" + _JOIN + rb"'")
_RUN = compiled(
    rb"[A-Za-z0-9_.+/=-]{3,64}(?:(?:\"" + _JOIN + rb"\"|'" + _JOIN + rb"')[A-Za-z0-9_.+/=-]{2,}){1,16}"
)
_QUOTES: Final = (b'"', b"'", b"`", b"\\")
_CLOSED = compiled(rb"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`\n]*`")
_LINE_BEFORE: Final = 512  # bytes before a literal that are read for one around it
_ENDS: Final = b",;:)}]>"
# Characters after a closing quote where something is joined, on its line or below: blanks, an
# operator, a sign that the line continues, a comment.
_FOLLOWS: Final = frozenset(bytes([c]) for c in b" \t\r\n+.&|~<\\_#/-")
_SIGNS: Final = b"=:(,[{>+"  # one precedes a literal that is not an argument of a command
_SEPARATORS: Final = b"&;,?|/:="
_MARKER: Final = b"-----"  # `pem` reads blocks of keys
_MAX_PIECES: Final = 64
_NEAR: Final = 40
_GLUES: Final = b" \t+.&|~<>bBfFrRuULN@$"
_OPEN_QUOTES: Final = (b"", *_QUOTES)
_WINDOW: Final = 4_096  # bytes of one string that are read
_LINES_BELOW: Final = 400  # bytes in which the next string has to open


class Joined:
    """Pieces of a text as one line. `pieces` are (start in `text`, end, start in the source)."""

    __slots__ = ("pieces", "text")

    def __init__(self) -> None:
        self.text = b""
        self.pieces: list[tuple[int, int, int]] = []

    def add(self, glue: bytes, text: bytes, start: int, end: int) -> None:
        """Append `glue`, then the text from `start` to `end`."""
        at = len(self.text) + len(glue)
        self.text = b"".join((self.text, glue, text[start:end]))
        self.pieces.append((at, at + end - start, start))

    def shorten(self, count: int) -> None:
        """Remove the last bytes, such as a sign that the line continues."""
        at, end, start = self.pieces[-1]
        self.pieces[-1] = (at, max(end - count, at), start)
        self.text = self.text[: self.pieces[-1][1]]

    def back(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the places of a span in the source text, each on one line."""
        for first, last, origin in self.pieces:
            if start < last and first < end:
                yield origin + max(start - first, 0), origin + min(end, last) - first


def may_follow(text: bytes, end: int) -> bool:
    """Return whether something may be joined to the literal closed at `end`; a quick check."""
    first, second = text[end : end + 1], text[end + 1 : end + 2]
    if first == b"\\":
        return second not in _ENDS
    return first in _QUOTES and (second in _FOLLOWS or second in _QUOTES[:2])  # "abc""def" of a shell


def goes_on(text: bytes, end: int) -> bool:
    """Return whether the line ends after the literal of a value and a string opens below it."""
    close = _closing(text, end)
    ends_line = text[close + 1 : close + 32].lstrip(b"; \t\r")[:1] in (b"\n", b"")
    if ends_line and _APPENDED.match(text, close, close + _LINES_BELOW) is not None:
        return True
    if not may_follow(text, close):
        return False
    tail = _OPEN_END.match(text, close, close + _LINES_BELOW)
    return tail is not None and _NEXT_LINE.search(text, tail.end() - 1, tail.end() + _LINES_BELOW) is not None


def blocks(text: bytes, spans: Iterable[tuple[int, int, str]]) -> Iterator[Block]:
    """Yield the values to which strings are joined on their line, with these strings."""
    done = 0
    for start, end, kind in sorted(spans):
        close = _closing(text, end)
        if start >= done and may_follow(text, close):
            more = pieces(text, start, close)
            if more:
                done = more[-1][1]
                yield Block(((start, end), *more), kind)


def glued(text: bytes, low: int, high: int) -> Iterator[Joined]:
    """Yield runs of joined literals, without the signs that join them."""
    for match in _RUN.finditer(text, low, high):
        at, end = match.span()
        joined = Joined()
        for glue in _BETWEEN.finditer(text, at, end):
            joined.add(b"", text, at, glue.start())
            at = glue.end()
        joined.add(b"", text, at, end)
        yield joined


def _closing(text: bytes, end: int) -> int:
    """Return where a literal whose value ends at `end` is closed; blanks may precede the quote."""
    blanks = text[end : end + 8]
    return end + len(blanks) - len(blanks.lstrip(b" ")) if blanks[:1] == b" " else end


def pieces(text: bytes, start: int, end: int) -> list[tuple[int, int]]:
    """Return the places of the strings joined to the value from `start` to `end`, on its line.

    A value that is the end of a longer literal is joined only to strings without a blank. Without an
    operator, only a whole literal is joined, and only if it is not an argument of a command.
    """
    if _MARKER in text[start:end]:
        return []
    whole = text[start - 1 : start] in _QUOTES
    assigned = whole and text[max(start - 12, 0) : start].rstrip(b" \tbBfFrRuULN@$\\\"'`")[-1:] in _SIGNS
    found: list[tuple[int, int]] = []
    at = end
    for _ in range(_MAX_PIECES):
        match = _NEXT.match(text, at, at + _WINDOW) if _may_be_next(text, at) else None
        if match is None:
            break
        glue = match.group(1) or match.group(4)
        first, at = match.span(match.lastindex)
        last = _trimmed(text, first, at)
        value = text[first:last]
        if (not glue.strip() and not assigned) or _MARKER in value:
            break
        if not (whole and glue) and (b" " in value or value[:1] in _SEPARATORS):
            break
        if not glue and not _is_opened(text, start, first, at):
            break
        if value.strip() and (not is_template(value) or (value[:1] == b"%" and len(value) >= 4)):
            found.append((first, last))
    return found


def _may_be_next(text: bytes, at: int) -> bool:
    """Return whether another literal may follow the one that ends at `at`; a quick check."""
    return text[at : at + 1] == b"\\" or text[at + 1 : at + _NEAR].lstrip(_GLUES)[:1] in _OPEN_QUOTES


def _is_opened(text: bytes, start: int, first: int, last: int) -> bool:
    """Return whether the quote before `first` opens a literal, which ends at `last`.

    In `'token = "x"', run(y)` it closes the literal around the value at `start`. Backquotes open none: in a
    shell they hold a command.
    """
    quote = text[first - 1 : first]
    if quote == b"`":
        return False
    line = text[text.rfind(b"\n", max(start - _LINE_BEFORE, 0), start) + 1 : start - 1]
    return text[last : last + 1] in (quote, b"\\") and quote not in _CLOSED.sub(b"", line)


def _trimmed(text: bytes, start: int, end: int) -> int:
    while end - start >= 2 and text[end - 2 : end] in (b"\\n", b"\\r", b"\\t"):
        end -= 2
    return end
