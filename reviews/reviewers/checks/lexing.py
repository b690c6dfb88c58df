"""State of a program's line at a place: within a literal, a comment, or neither."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

COMMENT: Final = "\n"  # the end of a comment of one line
_BLOCK_END: Final = "*/"
_CLOSES: Final = {"/*": _BLOCK_END, "#": COMMENT, "//": COMMENT, "--": COMMENT, ";": COMMENT, "%": COMMENT}
_TRIPLES: Final = ('"""', "'''")
_QUOTES: Final = frozenset((*_TRIPLES, '"', "'", "`"))
_ESCAPED: Final = r"\\."
_CHARACTER: Final = r"'(?:\\[^']{1,8}|[^'\\])'"  # of a language in which a lone quote opens nothing
_REGEX: Final = r"[=(,:;!&|?{}]\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\]){0,80}\]|[^/\\\[\n]){1,200}/"


def _opening(*marks: str) -> re.Pattern[str]:
    return re.compile("|".join((_ESCAPED, *marks)), re.DOTALL)


_HASH: Final = _opening("#", '"""', "'''", '"', "'")
_SLASH: Final = _opening("//", r"/\*", '"""', '"', "'")
_SCRIPT: Final = _opening("//", r"/\*", _REGEX, '"', "'", "`")
_LONE: Final = _opening("//", r"/\*", _CHARACTER, '"""', '"')
_RUBY: Final = _opening(r"(?:^|\s)#(?!\{)", '"', "'", "`")
_PHP: Final = _opening("//", r"/\*", "#", '"', "'", "`")
_DASH: Final = _opening("--", r"/\*", '"', "'")
_BY_NAMES: Final = (
    ("py pyi ex exs jl r", _HASH),
    ("rb pl pm sh bash zsh", _RUBY),
    ("ps1", _opening("#", '"', "'")),
    ("js mjs cjs jsx ts tsx go", _SCRIPT),
    ("c h cc cpp hpp cs java kt groovy dart swift m mm", _SLASH),
    ("rs scala", _LONE),
    ("php", _PHP),
    ("sql lua", _DASH),
    ("hs ml", _opening("--", _CHARACTER, '"')),
    ("clj", _opening(";", '"')),
    ("erl", _opening("%", '"', "'")),
    ("bat cmd", _opening('"')),
    ("vb", _opening('"')),
)
_SYNTAX: Final = {f".{name}": opening for names, opening in _BY_NAMES for name in names.split()}
_LONG: Final = frozenset((*_TRIPLES, "`", _BLOCK_END))  # ends of literals and comments of many lines


def open_at_end(text: str, suffix: str, inside: str = "") -> str:
    """Return the mark that closes what is open at the end of `text`, "" in code.

    `text` is the beginning of a line; `inside` is the mark that closes what is open where the line begins.
    """
    opening = _SYNTAX[suffix]
    at = 0
    while True:
        if inside == COMMENT:
            return inside
        if inside:
            at = _closed(text, inside, at)
            if at < 0:
                return inside
            inside = ""
        match = opening.search(text, at)
        if match is None:
            return ""
        at, mark = match.end(), match.group().strip()
        if mark in _CLOSES or mark in _QUOTES:
            inside = _CLOSES.get(mark, mark)


def open_lines(lines: Sequence[str], suffix: str) -> list[str]:
    """Return, for each line, the mark that closes what is open where the line begins."""
    inside, found = "", []
    for line in lines:
        found.append(inside)
        inside = open_at_end(line, suffix, inside)
        inside = inside if inside in _LONG else ""
    return found


def _closed(text: str, mark: str, at: int) -> int:
    """Return the place behind the next unescaped `mark`, or -1 where there is none."""
    found = text.find(mark, at)
    while found >= 0:
        first = found
        while first > at and text[first - 1] == "\\":
            first -= 1
        if mark == _BLOCK_END or (found - first) % 2 == 0:
            return found + len(mark)
        found = text.find(mark, found + 1)
    return -1
