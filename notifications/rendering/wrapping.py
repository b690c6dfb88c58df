"""Wraps text by terminal columns, not by the number of characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

WIDTH = 78  # leaves room for the mark that a quoted reply puts before each line


def width(text: str) -> int:
    """Return the text's columns in a terminal: wide characters take two, marks none."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def wrapped(text: str, indent: str = "", *, first: str | None = None) -> str:
    """Return prose wrapped to WIDTH columns under an indent, its own line ends kept.

    `first` replaces the indent of the first line. Words are never broken, so that addresses
    and paths stay whole; text without spaces breaks between wide characters.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        lines += _wrapped_line(line, indent, first if first is not None and not lines else indent)
    return "\n".join(lines)


def indented(text: str, indent: str) -> str:
    """Return code with an indent before each line."""
    return "\n".join(f"{indent}{line}".rstrip() for line in text.split("\n"))


def _wrapped_line(line: str, indent: str, first: str) -> Iterator[str]:
    current, used, is_empty = first, width(first), True
    for word in _words(line):
        space = 0 if is_empty or word.glued else 1
        if not is_empty and used + space + width(word.text) > WIDTH:
            yield current.rstrip()
            current, used, space = indent, width(indent), 0
        current += " " * space + word.text
        used += space + width(word.text)
        is_empty = False
    yield current.rstrip()


class _Word(NamedTuple):
    """A piece that is never broken; `glued` to the previous one without a space."""

    text: str
    glued: bool


def _words(line: str) -> Iterator[_Word]:
    for word in line.split():
        glued = False
        piece = ""
        for character in word:
            # Scripts written without spaces break between their characters, not before punctuation.
            if piece and _is_wide(character) and unicodedata.category(character).startswith("L"):
                yield _Word(piece, glued=glued)
                piece, glued = "", True
            piece += character
        yield _Word(piece, glued=glued)


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in {"W", "F"}


def _columns(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if _is_wide(character) else 1
