"""Names and words of a change to code that a document may have for it."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from reviews.drift.meaning.full_text import terms_of
from reviews.reviewers.outline import Definition, Kind, outline

MAX_LINES = 2_000  # changed ones of a file that are read
MAX_LINE_CHARS = 400
MAX_TEXT = 1_000_000
OUTLINE_SECONDS = 0.1  # of the processor, for one side of a file
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_TELLING = re.compile(r"[a-z0-9]_[a-z0-9]|[a-z][A-Z]|^[A-Z][A-Z0-9_]{3,}$", re.IGNORECASE)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]{2,}")


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file of code on both sides of a change; None where it is not there.

    Paths are relative to the root.
    """

    path: str
    old_path: str
    before: str | None
    after: str | None


@dataclass(slots=True)
class Facts:
    """Facts of a change to a file: names it touches, names the file defines, weighted words."""

    touched: set[str] = field(default_factory=set)
    defines: set[str] = field(default_factory=set)
    words: Counter[str] = field(default_factory=Counter)


def facts_of(file: ChangedFile) -> Facts:
    """Return what a change does to a file; nothing where it changes no line."""
    facts = Facts()
    sides = [side[:MAX_TEXT].split("\n") if side is not None else [] for side in (file.before, file.after)]
    for lines, others, text in (
        (sides[0], Counter(sides[1]), file.before),
        (sides[1], Counter(sides[0]), file.after),
    ):
        changed = dict(_only_here(lines, others))
        if not changed:
            continue
        path = file.path if text is file.after else file.old_path
        found = outline(path, text[:MAX_TEXT], OUTLINE_SECONDS) if text else None
        _add(facts, changed, found or ())
    if facts.words:
        for path in {file.path, file.old_path}:
            stem = " ".join(posixpath.splitext(path)[0].split("/")[-2:])
            facts.words.update(dict.fromkeys(terms_of(stem), 2))
    return facts


def _only_here(lines: list[str], others: Counter[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines, with their numbers, that the other side has not, or not so often."""
    left = Counter(others)
    count = 0
    for number, line in enumerate(lines, start=1):
        if left[line] > 0:
            left[line] -= 1
        elif line.strip() and count < MAX_LINES:
            count += 1
            yield number, line[:MAX_LINE_CHARS]


def _add(facts: Facts, changed: Mapping[int, str], definitions: tuple[Definition, ...]) -> None:
    facts.defines.update(one.name for one in definitions)
    numbers = sorted(changed)
    around = {
        one.name
        for one in definitions
        if any(one.first <= number <= one.last for number in numbers)
        # A class is touched where its own lines are, not by each of its methods.
        and (one.kind is not Kind.TYPE or any(one.first <= number <= one.body for number in numbers))
    }
    names = Counter(name for line in changed.values() for name in _NAME.findall(line))
    options = {option for line in changed.values() for option in _OPTION.findall(line)}
    telling = {name for name in names if _TELLING.search(name) or name in facts.defines}
    facts.touched |= around | options | telling
    for name, count in names.items():
        for term in terms_of(name):
            facts.words[term] += min(count, 3)
    for name in around:
        for term in terms_of(name):
            facts.words[term] += 3
