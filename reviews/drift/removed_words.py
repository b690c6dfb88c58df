"""Words that a change removes: only documents with one of them can become untrue."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from reviews.drift import manifests
from reviews.drift.code_facts import Code
from reviews.drift.extraction import is_document
from reviews.drift.index import Index
from reviews.drift.trees import above

MAX_NEEDLES = 2_000
_TOKEN = re.compile(rb"[a-z0-9]+")
_IDENTIFIER = re.compile(rb"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Needles:
    """Names of which a document must hold one.

    That is all words of a name in any form, or an identifier as it is.
    """

    words: frozenset[frozenset[bytes]]
    identifiers: frozenset[bytes]

    def __len__(self) -> int:
        return len(self.words) + len(self.identifiers)

    def are_in(self, data: bytes) -> bool:
        """Return whether a document holds one of them."""
        if not self.identifiers.isdisjoint(_IDENTIFIER.findall(data)):
            return True
        words = frozenset(_TOKEN.findall(data.lower()))
        return any(needle <= words for needle in self.words)


def needles(base: Index, head: Index, changed: Collection[str]) -> Needles:
    """Return names that the changed files no longer say."""
    found: set[str] = set()
    verbatim: set[str] = set()
    for path in changed:
        found.update(_of_file(path, base, head))
        verbatim.update(_verbatim(path, base, head))
    folders = {folder for path in changed for folder in above(posixpath.dirname(path))}
    found.update(posixpath.basename(folder) for folder in folders - head.folders)
    # A claim about a symbol or a variable names it as it is: `KEY` is not in `APP_KEY`.
    plain = {name for name in verbatim if _IDENTIFIER.fullmatch(name.encode())}
    words = frozenset(frozenset(_TOKEN.findall(name.lower().encode())) for name in found | (verbatim - plain))
    return Needles(words - {frozenset()}, frozenset(name.encode() for name in plain))


def _verbatim(path: str, base: Index, head: Index) -> frozenset[str]:
    """Return the symbols that a file no longer defines, and the names that it no longer reads."""
    old = base.code(path) if path in base.entries and not is_document(path) else None
    if old is None:
        return frozenset()
    new = (head.code(path) if path in head.entries else Code()) or Code()
    return ((old.symbols or frozenset()) - (new.symbols or frozenset())) | (old.reads - new.reads)


def _of_file(path: str, base: Index, head: Index) -> Iterator[str]:
    if path not in head.entries:
        yield posixpath.basename(path)
        yield posixpath.splitext(posixpath.basename(path))[0]
        if path.endswith(".py"):
            yield posixpath.basename(posixpath.dirname(path))
    if path not in base.entries:
        return
    if is_document(path):
        before, after = base.page(path), head.page(path) if path in head.entries else None
        yield from (before.anchors if before else frozenset()) - (after.anchors if after else frozenset())
        return
    yield from _scripts(path, base, head)
    yield from _versions(path, base, head)
    old = base.code(path)
    new = (head.code(path) if path in head.entries else Code()) or Code()
    if old is not None:
        # No claim holds by a value that is no literal, so none is refuted where one goes or comes.
        changed = {*old.defaults} ^ {*new.defaults}
        yield from (key.lstrip("-") for key, value in changed if value is not None)
        for route in {*old.routes} - {*new.routes}:
            yield re.sub(r"\{[^}]*\}|<[^>]*>|\[[^\]]*\]|(?<=/):\w+", "", route.path)


def _scripts(path: str, base: Index, head: Index) -> Iterator[str]:
    name = posixpath.basename(path)
    for runner, readers in manifests.RUNNERS.items():
        if name in readers:
            folder = posixpath.dirname(path)
            before, after = (
                {
                    one
                    for _, script in index.scripts(runner, [folder])
                    if script is not None
                    for one in script.names
                }
                for index in (base, head)
            )
            yield from before - after


def _versions(path: str, base: Index, head: Index) -> Iterator[str]:
    name = posixpath.basename(path)
    if name not in manifests.VERSION_FILES:
        return
    before, after = (set(manifests.versions_in(name, index.text(path) or "") or ()) for index in (base, head))
    for fact in before ^ after:
        yield fact.name
        if fact.name == "node":
            yield "node.js"
