"""A document as it is read for claims.

Its marked words, sentences, tables, code blocks and anchors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_BYTES = 100_000
MAX_MARKS = 2_000  # of a document, and as many sentences; what comes after them is left out
MAX_SENTENCE = 2_000  # characters that are read
_SENTENCE_END = re.compile(r"(?<=[.!?])[\s`*_)\"']{0,8}\s(?=[\s`*_(\[\"']{0,8}[A-Z0-9`(\[])")


class Mark(NamedTuple):
    """A word that a document sets apart: inline code, or the target of a link or an image."""

    kind: str  # code, link, page
    text: str
    line: int
    sentence: str
    section: str


class Sentence(NamedTuple):
    text: str  # inline code in backticks
    line: int
    section: str


class Row(NamedTuple):
    header: tuple[str, ...]
    cells: tuple[str, ...]
    line: int
    section: str


class Block(NamedTuple):
    """A code block. `line` is that of its first line of code; `lead` the paragraph before it."""

    language: str
    lines: tuple[str, ...]
    line: int
    section: str
    lead: str


@dataclass(slots=True)
class Page:
    marks: list[Mark] = field(default_factory=list)
    sentences: list[Sentence] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    left_out: int = 0  # marked words and sentences beyond the bounds
    cut: int = 0  # sentences of which only the first MAX_SENTENCE characters are read


def sentences_of(text: str) -> list[tuple[int, str]]:
    """Split a paragraph; return offset and text of each sentence."""
    found, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        found.append((start, text[start : end.end()]))
        start = end.end()
    return [*found, (start, text[start:])]


def slugs(headings: Iterable[str]) -> set[str]:
    """Return the anchors that GitHub, MkDocs and Sphinx make of a document's headings."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in headings:
        github = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        mkdocs = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
        sphinx = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
        for slug in {github, mkdocs, sphinx}:
            number = seen[slug]
            seen[slug] += 1
            found |= {f"{slug}-{number}", f"{slug}_{number}"} if number else {slug}
    return found
