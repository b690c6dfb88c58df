"""One tree with its pages, manifests and code, each read once when a claim needs it."""

from __future__ import annotations

import fnmatch
import math
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import TypeVar

from reviews.drift import code, manifests, noise
from reviews.drift.claims import Reason
from reviews.drift.code_facts import Code, Route
from reviews.drift.extraction import is_document, page_of
from reviews.drift.manifests import Fact, Scripts
from reviews.drift.page import Page
from reviews.drift.trees import Tree, View, above

T = TypeVar("T")

MAX_MANIFESTS = 60
# With versions of their own.
_OF_OTHERS = re.compile(r"(?:^|/)(?:examples?|samples?|demos?|tests?|docs?|benchmarks?)/")
# Marks of code that registers routes.
_ROUTE_WORDS = (
    "route", "router", "urlpatterns", "FastAPI", "Flask", "express", "HandleFunc", "APIRouter", "Blueprint",
    "fastify",
)  # fmt: skip


class Index(View):
    """A tree as claims are verified against it.

    Pages and code of equal content are shared by `memory`.
    """

    def __init__(
        self,
        tree: Tree,
        memory: dict[tuple[str, str], object],
        tops: frozenset[str] = frozenset(),
        until: float = math.inf,
    ) -> None:
        """Share `memory` with other trees.

        `until`, by `time.thread_time`: what was not parsed by then says nothing.
        """
        super().__init__(tree)
        self._memory, self._until = memory, until
        self.tops = tops | self.own_tops
        self.unparsed: set[str] = set()
        self._late: set[str] = set()

    @property
    def is_late(self) -> bool:
        return time.thread_time() > self._until

    def why_silent(self, paths: Iterable[str]) -> Reason:
        """Return why files say nothing."""
        asked = set(paths)
        if asked & self._late:
            return Reason.NO_TIME
        return Reason.NOT_INDEXED if asked & self.unparsed else Reason.NOT_READ

    @cached_property
    def own_tops(self) -> frozenset[str]:
        """Return the names at the root."""
        return frozenset(path.split("/", 1)[0] for path in self.entries)

    def page(self, path: str) -> Page | None:
        data = self.bytes_of(path)
        if data is None:
            return None
        key = ("page" + posixpath.splitext(path)[1], self.entries[path].digest)
        if key not in self._memory:
            if self.is_late:
                return None
            self._memory[key] = page_of(path, data)
        page = self._memory[key]
        return page if isinstance(page, Page) else None

    def code(self, path: str) -> Code | None:
        """Return what a file says, or None where it says nothing: `why_silent` says why."""
        text = self.text(path)
        key = (f"code {posixpath.basename(path)}", self.entries[path].digest if path in self.entries else "")
        if text is None:
            return None
        if key not in self._memory:
            if self.is_late:
                self._late.add(path)
                return None
            self._memory[key] = code.code_of(path, text)
        found = self._memory[key]
        if not isinstance(found, Code):
            self.unparsed.add(path)
            return None
        return found

    def code_holding(self, word: str) -> list[str] | None:
        """Return the files other than documents that hold a word, and read them.

        None where that is not known.
        """
        paths = self.code_paths(word)
        self.prefetch(paths or ())
        return paths

    def code_paths(self, word: str) -> list[str] | None:
        """Return the files other than documents that hold a word; None where that is not known."""
        found = self.holding(word)
        if found is None or len(found) > code.MAX_FILES:
            return None
        return sorted(
            path
            for path in found
            if not is_document(path) and not noise.is_history(path) and not path.endswith((".txt", ".adoc"))
        )

    def look_for(self, words: Iterable[str]) -> None:
        """Search words that claims name, and read the files that hold them, all at once."""
        wanted = set(words)
        self.search(wanted)
        self.prefetch(path for word in sorted(wanted) for path in self.code_paths(word) or ())

    @cached_property
    def routes(self) -> tuple[tuple[Route, ...], bool, frozenset[str]] | None:
        """Return all routes, whether some cannot be read, and the files that say nothing."""
        self.search(_ROUTE_WORDS)
        held = [self.code_paths(word) for word in _ROUTE_WORDS]
        paths = sorted({path for some in held for path in some or () if not _is_test(path)})
        if None in held:
            return None
        self.prefetch(paths)
        module = {path: self.code(path) for path in paths}
        silent = frozenset(path for path, one in module.items() if one is None)
        known = [one for one in module.values() if one is not None]
        routes = tuple(route for one in known for route in one.routes)
        return routes, any(one.is_dynamic for one in known), silent

    def scripts(self, runner: str, folders: Iterable[str]) -> list[tuple[str, Scripts | None]]:
        """Return the manifests of a runner in folders, with None for one that cannot be read."""
        found: list[tuple[str, Scripts | None]] = []
        for folder in folders:
            for name in manifests.RUNNERS.get(runner, {}):
                path = posixpath.join(folder, name)
                if path not in self.entries:
                    continue
                found.append((path, self._manifest(path, partial(manifests.scripts_in, name, runner))))
        return found

    def _manifest(self, path: str, read: Callable[[str], T | None]) -> T | None:
        """Return what `read` makes of a manifest's text; note one that it cannot read."""
        if (text := self.text(path)) is None:
            return None
        if (found := read(text)) is None:
            self.unparsed.add(path)
        return found

    @cached_property
    def commands(self) -> Mapping[str, str]:
        """Map the names of Django's management commands of this tree to their files."""
        return {
            posixpath.basename(path)[:-3]: path
            for path in sorted(self.entries)
            if "/management/commands/" in f"/{path}"
            and path.endswith(".py")
            and not path.endswith("__init__.py")
        }

    @cached_property
    def versions(self) -> Mapping[str, tuple[list[Fact], str]]:
        """Map names of dependencies and runtimes to their versions and the file that has them.

        The versions are those of lock files, or else of manifests.
        """
        found: dict[str, list[tuple[int, Fact, str]]] = {}
        for path in self._version_files():
            facts = self._manifest(path, partial(manifests.versions_in, posixpath.basename(path)))
            for fact in facts or ():
                found.setdefault(fact.name, []).append((path.count("/"), fact, path))
        result = {}
        for name, several in found.items():
            near = [one for one in several if one[0] == several[0][0]]
            locked = [one for one in near if one[1].is_locked] or near
            result[name] = ([fact for _, fact, _ in locked], locked[0][2])
        return result

    def _version_files(self) -> list[str]:
        paths = [
            path
            for name in manifests.VERSION_FILES
            for path in self.by_name.get(name, ())
            if path.count("/") <= 2 and not _OF_OTHERS.search(path)
        ]
        paths = sorted(paths, key=lambda path: (path.count("/"), path))[:MAX_MANIFESTS]
        self.prefetch(paths)
        return paths

    @cached_property
    def _ignored(self) -> list[str]:
        text = self.text(".gitignore") or ""
        lines = [line.strip() for line in text.splitlines() if line.strip() and line[0] not in "#!"]
        return [line.rstrip("/") for line in lines[:5_000]]

    def is_ignored(self, path: str) -> bool:
        """Return whether a path is not kept: written at run time, or ignored at the root."""
        if noise.is_written_at_run_time(path):
            return True
        whole = path.rstrip("/")
        names, places = whole.split("/"), list(above(whole))
        return any(
            fnmatch.fnmatchcase(one, pattern.lstrip("/"))
            for pattern in self._ignored
            for one in (places if "/" in pattern else names)
        )

    def may_be_hidden(self, path: str) -> bool:
        """Return whether a path, or what a folder holds, could be there unseen by this review."""
        return not self.tree.sees(path.rstrip("/")) or not self.tree.sees(f"{path.rstrip('/')}/_")


def documents_in(paths: Iterable[str]) -> Iterator[str]:
    """Yield the documents of a tree: the readme first, then by depth and name."""
    found = [path for path in paths if is_document(path) and not noise.is_written_at_run_time(path)]
    yield from sorted(
        found,
        key=lambda path: (not posixpath.basename(path).lower().startswith("readme"), path.count("/"), path),
    )


def _is_test(path: str) -> bool:
    return any(part in ("tests", "test", "testing", "__tests__", "spec") for part in path.split("/"))
