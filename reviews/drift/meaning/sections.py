"""Sections of a document: a heading and what stands below it, cut where that is long."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

MAX_SECTION_CHARS = 4_000
MAX_SECTIONS = 200  # of a document
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-{2,})[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ADORNMENT = re.compile(r"([=\-~^\"'`#*+.:_<>])\1{2,}\s*$")
_OFF, _ON = re.compile(r"<!--\s*drift:\s*off\s*-->"), re.compile(r"<!--\s*drift:\s*on\s*-->")


class Section(NamedTuple):
    """A part of a document.

    `line` is that of its first line, from 1; `heading` stands above or in it.
    """

    document: str
    heading: str
    line: int
    text: str


def sections_of(document: str, text: str) -> list[Section]:
    """Return the sections of a Markdown or reStructuredText document that say something."""
    lines = text.replace("\r\n", "\n").split("\n")
    is_markdown = posixpath.splitext(document)[1].lower() != ".rst"
    starts = dict(_markdown(lines) if is_markdown else _restructured(lines))
    _leave_out(lines)
    found: list[Section] = []
    bounds = sorted({0, *starts, len(lines)})
    heading = ""
    for first, last in pairwise(bounds):
        heading = starts.get(first, heading)
        for begin, end in _pieces(lines, first, last):
            body = "\n".join(lines[begin:end]).strip("\n")
            if _says_something(body):
                blank = next((n for n in range(begin, end) if lines[n].strip()), begin) - begin
                found.append(Section(document, heading, begin + blank + 1, body))
    return found[:MAX_SECTIONS]


def _says_something(body: str) -> bool:
    prose = [line for line in body.split("\n") if not _HEADING.match(line) and not _ADORNMENT.match(line)]
    return sum(map(str.isalnum, " ".join(prose))) >= 10


def _leave_out(lines: list[str]) -> None:
    """Empty what `<!-- drift: off -->` leaves out."""
    is_off = False
    for number, line in enumerate(lines):
        if _OFF.search(line):
            is_off = True
        if is_off:
            is_off = not _ON.search(line)
            lines[number] = ""


def _markdown(lines: list[str]) -> Iterator[tuple[int, str]]:
    fence = ""
    for number, line in enumerate(lines):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif not fence and _HEADING.match(line):
            yield number, line.strip().strip("#").strip()
        elif not fence and number and _UNDERLINE.fullmatch(line) and _is_title(lines, number):
            yield number - 1, lines[number - 1].strip()


def _is_title(lines: list[str], number: int) -> bool:
    """Return whether a line is underlined as a heading: a paragraph of one line, and no table."""
    above = lines[number - 1]
    is_alone = number < 2 or not lines[number - 2].strip()
    return bool(above.strip()) and is_alone and not above.startswith(("|", "    ", "-", "*", ">", "#"))


def _restructured(lines: list[str]) -> Iterator[tuple[int, str]]:
    for number in range(1, len(lines)):
        title, line = lines[number - 1], lines[number]
        is_title = bool(title.strip()) and not title[0].isspace() and not _ADORNMENT.match(title)
        if is_title and _ADORNMENT.match(line) and len(line.rstrip()) >= len(title.rstrip()):
            has_overline = number > 1 and bool(_ADORNMENT.match(lines[number - 2]))
            yield number - 1 - has_overline, title.strip()


def _pieces(lines: list[str], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of pieces of at most MAX_SECTION_CHARS.

    They are cut at blank lines where there are any.
    """
    begin, size, blank = first, 0, first
    for number in range(first, last):
        if not lines[number].strip():
            blank = number
        size += len(lines[number]) + 1
        if size > MAX_SECTION_CHARS and number > begin:
            end = blank if blank > begin else number
            yield begin, end
            size = sum(len(line) + 1 for line in lines[end : number + 1])
            begin = blank = end
    if begin < last:
        yield begin, last
