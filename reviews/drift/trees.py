"""Trees of files as drift reads them: a listing, contents on demand, and a search for words."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, Protocol

MAX_FILE_BYTES = 1_000_000  # of code; documents have less
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")


class Stored(StrEnum):
    FILE = "file"
    LINK = "link"  # never followed
    SUBMODULE = "submodule"


class Entry(NamedTuple):
    """One path of a tree. Equal digests mean equal content."""

    stored: Stored
    digest: str


class Tree(Protocol):
    """The files of a repository at one state. Paths are relative to its root, with `/`.

    What the reader may not see is neither listed nor read, and `sees` is False of it whether it exists or
    not. `is_whole`: there is nothing that could be hidden.
    """

    @property
    def entries(self) -> Mapping[str, Entry]: ...

    @property
    def is_whole(self) -> bool: ...

    def sees(self, path: str) -> bool: ...

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of ordinary files.

        Those that are too large, or not read, are left out.
        """
        ...

    def where(self, words: Collection[str]) -> Mapping[str, frozenset[str]] | None:
        """Return the files that hold each word, whole and in its case.

        A word that is left out was not searched.
        """
        ...


def words_in(files: Iterable[tuple[str, bytes]], words: Collection[str]) -> Mapping[str, frozenset[str]]:
    """Return the files that hold each word."""
    wanted = {word.encode(): word for word in words}
    found: dict[str, set[str]] = {word: set() for word in words}
    for path, data in files:
        for word in wanted.keys() & set(_WORD.findall(data)):
            found[wanted[word]].add(path)
    return {word: frozenset(paths) for word, paths in found.items()}


def text_of(data: bytes) -> str | None:
    """Return the text of a file, None for one that is binary or not UTF-8."""
    try:
        return None if b"\0" in data[:8000] else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def above(path: str) -> Iterator[str]:
    """Yield a path and the folders above it, the root last."""
    while path:
        yield path
        path = posixpath.dirname(path)
    yield ""


class View:
    """A tree with what its listing implies: folders, names in lower case, links and submodules."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.entries = tree.entries
        self._contents: dict[str, bytes | None] = {}
        self._words: dict[str, frozenset[str] | None] = {}

    @cached_property
    def folders(self) -> frozenset[str]:
        own = {posixpath.dirname(path) for path in self.entries}
        return frozenset(folder for path in own for folder in above(path)) | {""}

    @cached_property
    def lowered(self) -> Mapping[str, str]:
        """Map paths of files and folders in lower case to the paths."""
        return {path.lower(): path for path in sorted({*self.folders, *self.entries})}

    @cached_property
    def by_name(self) -> Mapping[str, Sequence[str]]:
        """Map the names of files to their paths."""
        found: dict[str, list[str]] = {}
        for path in self.entries:
            found.setdefault(posixpath.basename(path), []).append(path)
        return found

    @cached_property
    def special(self) -> Mapping[str, Stored]:
        return {path: entry.stored for path, entry in self.entries.items() if entry.stored is not Stored.FILE}

    def has(self, path: str) -> bool:
        return path in self.entries or path in self.folders

    def inside(self, path: str) -> Stored | None:
        """Return the kind of the link or submodule that a path is, or lies inside of."""
        return next((self.special[place] for place in above(path) if place in self.special), None)

    def prefetch(self, paths: Iterable[str]) -> None:
        """Read files at once that will be asked for one by one."""
        wanted = [
            path
            for path in dict.fromkeys(paths)
            if path not in self._contents
            and path in self.entries
            and self.entries[path].stored is Stored.FILE
        ]
        if wanted:
            read = self.tree.read(wanted)
            self._contents.update({path: read.get(path) for path in wanted})

    def bytes_of(self, path: str) -> bytes | None:
        self.prefetch([path])
        return self._contents.get(path)

    def text(self, path: str) -> str | None:
        """Return a file's text, or None where there is none: it is binary, not UTF-8 or not there."""
        data = self.bytes_of(path)
        return None if data is None or len(data) > MAX_FILE_BYTES else text_of(data)

    def search(self, words: Iterable[str]) -> None:
        """Look for words at once that will be asked for one by one."""
        wanted = sorted({word for word in words if word not in self._words})
        if wanted:
            found = self.tree.where(wanted)
            for word in wanted:
                self._words[word] = None if found is None else found.get(word)

    def holding(self, word: str) -> frozenset[str] | None:
        """Return the files that hold a word, or None where they were not searched."""
        self.search([word])
        return self._words[word]
