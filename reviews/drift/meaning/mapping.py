"""Mapping of a change to the sections of documents that describe what it touches.

Three steps, of which a section may have all: by reference (it names the file), by symbol (its code names what
the change touches) and by full text. Scores are from 0 to 1; a section maps to the files that it fits best.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from reviews.drift.extraction import is_document
from reviews.drift.meaning.changed import ChangedFile, Facts, facts_of
from reviews.drift.meaning.full_text import FullText
from reviews.drift.meaning.sections import Section

MAX_FILES = 50  # changed ones that are looked for
MAX_FILES_OF_SECTION = 3
BY_PATH, BY_MODULE, BY_NAME, BY_FOLDER = 0.95, 0.9, 0.8, 0.3
BY_SYMBOL, BY_OTHER_SYMBOL, BY_TEXT = 0.85, 0.3, 0.7
LEAST = 0.12  # of a score, for a section to be asked about
_CODE = re.compile(r"```.*?```|~~~.*?~~~|``[^`\n]+``|`[^`\n]+`|^(?: {4}|\t).*$", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"--[a-z][a-z0-9-]{2,}|[A-Za-z_][A-Za-z0-9_]{2,}")
_PATH = re.compile(r"[\w.@+~-]+(?:[/.][\w.@+~-]+)*/?")


@dataclass(frozen=True, slots=True)
class Mapped:
    """A section with the changed files that it maps to, the best first.

    `how` names the steps that found it.
    """

    section: Section
    files: tuple[str, ...]
    score: float
    how: tuple[str, ...] = ()


@dataclass(slots=True)
class _Fit:
    reference: float = 0.0
    symbol: float = 0.0
    text: float = 0.0

    @property
    def score(self) -> float:
        return 1 - (1 - self.reference) * (1 - self.symbol) * (1 - self.text)

    @property
    def how(self) -> tuple[str, ...]:
        steps = {"reference": self.reference, "symbol": self.symbol, "text": self.text}
        return tuple(name for name, share in steps.items() if share >= LEAST)


class Sections:
    """The sections of all documents, with what they name."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self.sections = sections
        self.text = FullText(f"{one.heading}\n{one.text}" for one in sections)
        self.paths = [frozenset(word.rstrip("/.") for word in _PATH.findall(one.text)) for one in sections]
        self.symbols = [frozenset(_NAME.findall(" ".join(_CODE.findall(one.text)))) for one in sections]
        self.holders = Counter(name for names in self.symbols for name in names)

    def rarity(self, name: str) -> float:
        """Return 1 of a name that one section has, less of one that many have."""
        return 1 / math.sqrt(max(1, self.holders[name]))


def mapped(
    known: Sections,
    files: Sequence[ChangedFile],
    names: Collection[str] = (),
    is_late: Callable[[], bool] = lambda: False,
) -> list[Mapped]:
    """Return the sections that describe what a change touches, the best first.

    `names` are the base names of files that the tree has once. Once `is_late`, no further file is looked for.
    """
    sections = known.sections
    fits: dict[int, dict[str, _Fit]] = {}
    for file in [file for file in files if not is_document(file.path)][:MAX_FILES]:
        if is_late():
            break
        facts = facts_of(file)
        if not facts.words:
            continue
        for number, share in known.text.search(facts.words).items():
            fits.setdefault(number, {}).setdefault(file.path, _Fit()).text = BY_TEXT * share
        for number in range(len(sections)):
            reference = _reference(known.paths[number], sections[number].document, file, names)
            symbol = _symbol(known, number, facts)
            if reference or symbol:
                fit = fits.setdefault(number, {}).setdefault(file.path, _Fit())
                fit.reference, fit.symbol = reference, symbol
    found = [_best(sections[number], by_file) for number, by_file in fits.items()]
    return sorted(found, key=lambda one: (-one.score, one.section.document, one.section.line))


def _best(section: Section, by_file: Mapping[str, _Fit]) -> Mapped:
    order = sorted(by_file, key=lambda path: (-by_file[path].score, path))
    best = by_file[order[0]]
    files = [path for path in order if by_file[path].score >= best.score / 2][:MAX_FILES_OF_SECTION]
    return Mapped(section, tuple(files), round(best.score, 4), best.how)


def _reference(paths: frozenset[str], document: str, file: ChangedFile, names: Collection[str]) -> float:
    best = 0.0
    for path in dict.fromkeys((file.path, file.old_path)):
        parts = path.split("/")
        tails = {"/".join(parts[start:]) for start in range(len(parts) - 1)}
        folder = posixpath.dirname(document)
        if path in paths or tails & paths or posixpath.relpath(path, folder or ".") in paths:
            return BY_PATH
        module = posixpath.splitext(path)[0].replace("/", ".").removesuffix(".__init__")
        if "." in module and module in paths:
            best = max(best, BY_MODULE)
        if parts[-1] in paths and "." in parts[-1] and parts[-1] in names:
            best = max(best, BY_NAME)
        above = posixpath.dirname(path)
        if "/" in above and above in paths:
            best = max(best, BY_FOLDER)
    return best


def _symbol(known: Sections, number: int, facts: Facts) -> float:
    missed = 1.0
    for name in known.symbols[number] & facts.touched:
        missed *= 1 - BY_SYMBOL * known.rarity(name)
    for name in known.symbols[number] & (facts.defines - facts.touched):
        missed *= 1 - BY_OTHER_SYMBOL * known.rarity(name)
    return 1 - missed
