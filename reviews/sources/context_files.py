"""Fetching of context: a few files that the change does not touch but uses (guarantee G176).

    added lines ─► names without a definition in the change ─► where the source finds them
                ─► allow-list and scope ─► the likeliest files ─► read ─► allow-list again

A change is never worse for it: any failure, and any limit, only means less context. Imports are a
guess by the languages' usual layouts.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

import structlog

from criticizer.resilience.failures import Failure
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Change, ContextFile, FileChange, Mention, Source
from reviews.sources.content import Decoded, decode, generated_reason
from reviews.sources.enforcement import denied
from reviews.sources.names import MAX_FILES_OF_A_NAME, defines, names_in
from reviews.sources.paths import storable

MAX_IMPORTED = 60
# Blanks of one line only: `\s*` after `^` would read a run of empty lines again from each of them.
_PYTHON = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+\(?([\w, ]*)|import[ \t]+([\w.]+))", re.MULTILINE
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([\w./+-]{1,200})"', re.MULTILINE)
_JAVA = re.compile(r"^[ \t]*import[ \t]+(?:static[ \t]+)?([\w.]{1,200})(?:\.\*)?;", re.MULTILINE)
_SCRIPT = re.compile(r"""(?:from|import|require\s*\()\s*["'](\.{1,2}/[\w./@-]{1,200})["']""")
_RUBY = re.compile(r"""^[ \t]*require_relative[ \t]+["']([\w./-]{1,200})["']""", re.MULTILINE)
_SCRIPT_ENDINGS = (".ts", ".tsx", ".js", ".jsx", ".mjs", "/index.ts", "/index.js")
log = structlog.get_logger()
MAX_NAMES = 150  # looked for
MAX_FILES = 20
MAX_BYTES = 400_000
MAX_SECONDS = 10.0
MAX_FILES_FOR_A_NAME = 2
_MAX_CHANGE_CHARS = 4_000_000  # a change that is larger than that has enough to read


def imported_paths(files: Sequence[FileChange]) -> list[str]:
    """Return where the changed files' imports may lead, at most MAX_IMPORTED, nearest first."""
    found: dict[str, None] = {}
    for file in files:
        if file.new_text and not file.generated and not file.unsent:
            for path in _imports(file.path, file.new_text):
                normal = "//" + posixpath.normpath("/" + path[2:])[1:]
                if normal.count("/") > 2 and normal.split("/")[2] == file.path.split("/")[2]:  # one depot
                    found[normal] = None
                if len(found) >= MAX_IMPORTED:
                    return list(found)
    return list(found)


def _imports(path: str, text: str) -> Iterator[str]:
    folder, ending = posixpath.dirname(path), posixpath.splitext(path)[1].casefold()
    if ending in (".py", ".pyi"):
        yield from _python(folder, text)
    elif ending in (".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp"):
        for name in _INCLUDE.findall(text):
            yield f"{folder}/{name}"
            for root in _parents(folder):
                yield f"{root}/{name}"
                yield f"{root}/include/{name}"
    elif ending in (".java", ".kt"):
        for name in _JAVA.findall(text):
            inside = name.replace(".", "/")
            package = inside.partition("/")[0]
            roots = [root for root in _parents(folder) if folder[len(root) :].startswith(f"/{package}/")]
            yield from (f"{root}/{inside}{ending}" for root in roots[:1])
    elif ending in (".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs"):
        for name in _SCRIPT.findall(text):
            stem = re.sub(r"\.(?:js|jsx|mjs)$", "", name)
            yield from (f"{folder}/{stem}{end}" for end in _SCRIPT_ENDINGS)
    elif ending == ".rb":
        yield from (f"{folder}/{name.removesuffix('.rb')}.rb" for name in _RUBY.findall(text))


def _python(folder: str, text: str) -> Iterator[str]:
    for module, names, plain in _PYTHON.findall(text):
        dotted = (module or plain).strip()
        dots = len(dotted) - len(dotted.lstrip("."))
        inside = dotted.lstrip(".").replace(".", "/")
        if dots:
            roots = [posixpath.normpath(posixpath.join(folder, *[".."] * (dots - 1)))]
            roots = ["/" + roots[0] if not roots[0].startswith("//") else roots[0]]
        else:
            roots = _parents(folder)
        for root in roots:
            base = f"{root}/{inside}".rstrip("/")
            if inside:
                yield f"{base}.py"
            inner = [name.strip() for name in names.split(",")[:5]]
            yield from (f"{base}/{name}.py" for name in inner if name.isidentifier())


def _parents(folder: str) -> list[str]:
    """Return the folders above a file, the nearest first, without the depot itself."""
    parts = folder[2:].split("/")
    return ["//" + "/".join(parts[:count]) for count in range(len(parts), 0, -1)][:6]


@dataclass(frozen=True, slots=True)
class ContextLimits:
    files: int = MAX_FILES
    bytes: int = MAX_BYTES
    seconds: float = MAX_SECONDS


@dataclass(frozen=True, slots=True)
class ContextFetcher:
    """Fetches context from one source inside one allow-list, as `ChangeFetcher` does changes.

    `may_read` decides which of the allowed paths may be read for this review.
    """

    source: Source
    allow_list: AllowList
    may_read: Callable[[str], bool]
    limits: ContextLimits = ContextLimits()
    now: Callable[[], float] = time.monotonic

    def added_to(self, change: Change) -> Change:
        """Return the change with its context, or as it is when there is none. Raises nothing."""
        try:
            context = self._context(change)
        except Failure as failure:
            log.warning("context_not_read", changelist=change.changelist_id, **failure.facts)
            return change
        except Exception:  # a defect here must not keep a change from its review
            log.exception("context_failed", changelist=change.changelist_id)
            return change
        log.info("context_read", changelist=change.changelist_id, files=len(context))
        return replace(change, context=tuple(context))

    def _context(self, change: Change) -> list[ContextFile]:
        if sum(len(file.new_text or "") for file in change.files) > _MAX_CHANGE_CHARS:
            return []
        until = self.now() + self.limits.seconds
        names = wanted_names(change.files)
        if not names:
            return []
        allow_list = self.allow_list.with_case(self.source.case_sensitive)
        mentions = self.source.find(
            names,
            change,
            allowed=cache(lambda path: self._is_allowed(path, allow_list)),
            seconds=until - self.now(),
        )
        wanted = _ranked(mentions, change.files)
        found = {name for names_of in wanted.values() for name in names_of}
        if found != set(names):
            for path in imported_paths(change.files):
                wanted.setdefault(path, ())
        touched = {path for file in change.files for path in (file.path, file.old_path)}
        chosen = {
            path: of
            for path, of in wanted.items()
            if path not in touched and self._is_allowed(path, allow_list)
        }
        asked = dict(islice(chosen.items(), self.limits.files))
        if not asked or self.now() >= until:
            return []
        files: list[ContextFile] = []
        room = self.limits.bytes
        for path, data in self.source.read_at(
            list(asked), change, max_bytes=room, seconds=until - self.now()
        ):
            # What was read is checked again: it may be another file than the one asked for.
            of = asked.pop(path, None)
            if of is None or data is None or not self._is_allowed(path, allow_list) or len(data) > room:
                continue
            text = decode(data)
            if isinstance(text, Decoded) and not generated_reason(path, text.text):
                room -= len(data)
                files.append(ContextFile(storable(path), text.text, of))
        return files

    def _is_allowed(self, path: str, allow_list: AllowList) -> bool:
        return not denied([path], allow_list, literal_names=self.source.literal_names) and self.may_read(path)


def wanted_names(files: Sequence[FileChange]) -> list[str]:
    """Return the names that added lines use and no changed file defines, the most telling first."""
    uses: Counter[str] = Counter()
    defined: set[str] = set()
    for file in files:
        if not file.new_text or file.generated or file.unsent or file.skipped is not None:
            continue
        new = file.new_text.split("\n")
        old = set((file.old_text or "").split("\n"))
        added = names_in(file.path, (line for line in new if line not in old))
        uses.update(added)
        defined.update(name for line in new for name in defines(file.path, line))
    ranked = sorted(uses.keys() - defined, key=lambda name: (-_tells(name), -uses[name], name))
    return ranked[:MAX_NAMES]


def _tells(name: str) -> int:
    """Return how likely a name has one definition.

    Names of several words, types and constants have one.
    """
    parts = sum(map(str.isupper, name)) + name.strip("_").count("_")
    return min(parts, 3) + (len(name) > 8)


def _ranked(mentions: Iterable[Mention], files: Sequence[FileChange]) -> dict[str, tuple[str, ...]]:
    """Return the files that likely define names, best first, each with the names it is read for."""
    by_name: dict[str, set[str]] = defaultdict(set)
    defining: dict[str, set[str]] = defaultdict(set)
    for mention in mentions:
        by_name[mention.name].add(mention.path)
        if mention.is_definition:
            defining[mention.name].add(mention.path)
    imported = set(imported_paths(files))
    folders = [file.path.split("/")[:-1] for file in files]
    reads: dict[str, list[str]] = defaultdict(list)
    rank: dict[str, tuple[int, ...]] = {}
    for name, paths in sorted(defining.items()):
        if len(by_name[name]) > MAX_FILES_OF_A_NAME:
            continue
        near = sorted(paths, key=lambda path: (path not in imported, _steps(path, folders), path))
        for place, path in enumerate(near[:MAX_FILES_FOR_A_NAME]):
            reads[path].append(name)
            key = (place, len(by_name[name]) > 20, path not in imported, _steps(path, folders))
            rank[path] = min(rank.get(path, key), key)
    # The first file of each name before any second one, and those that answer for several names first.
    order = sorted(reads, key=lambda path: (rank[path][0], -len(reads[path]) // 2, rank[path], path))
    return {path: tuple(reads[path]) for path in order}


def _steps(path: str, folders: Sequence[Sequence[str]]) -> int:
    """Return how many folders lie between a file and the nearest changed one."""
    own = path.split("/")[:-1]
    steps = []
    for other in folders:
        common = next(
            (at for at, (a, b) in enumerate(zip(own, other, strict=False)) if a != b),
            min(len(own), len(other)),
        )
        steps.append(len(own) + len(other) - 2 * common)
    return min(steps, default=0)
