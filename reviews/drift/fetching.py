"""Verification of documents against a source, under the allow-list.

    listing ─► allow-list and scope ─► recording ◄─► comparison (in the redacting process) ─► untrue claims

It finds what a change makes untrue. The comparison says what it lacks of the trees; that is read, and it
runs again. What may not be seen is in no recording, so that nothing can depend on whether it is there. A
change is never worse for a failure here.
"""

from __future__ import annotations

import json
import posixpath
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

import structlog

from criticizer import texts
from criticizer.resilience.failures import ErrorClass, Failure
from reviews.drift import manifests
from reviews.drift.code import MAX_FILES
from reviews.drift.extraction import is_document
from reviews.drift.index import documents_in
from reviews.drift.recording import Recording
from reviews.drift.trees import MAX_FILE_BYTES, text_of
from reviews.sources.allowlist import AllowList
from reviews.sources.base import (
    Action,
    Change,
    DocumentSection,
    FileChange,
    SkipReason,
    Source,
    UntrueClaim,
    VerifiedDocuments,
)
from reviews.sources.enforcement import denied
from reviews.sources.paths import decode_path, encode_path, storable

log = structlog.get_logger()

MAX_ENTRIES = 50_000  # files of a tree
MAX_BYTES = 20_000_000  # read for one change
MAX_SECONDS = 30.0
MAX_ROUNDS = 8
MAX_DESCRIBING = 200  # documents in which sections are looked for
_BATCH = 500  # files


@dataclass(frozen=True, slots=True)
class Sight:
    """Paths that a review may see. None for `may_read` or `is_excluded`: it takes nothing away."""

    allow_list: AllowList
    _: KW_ONLY
    literal_names: bool
    may_read: Callable[[str], bool] | None = None
    is_excluded: Callable[[str], bool] | None = None

    def sees(self, path: str) -> bool:
        """Return whether a path may be seen, whether it exists or not."""
        return (
            not denied([path], self.allow_list, literal_names=self.literal_names)
            and (self.may_read is None or self.may_read(path))
            and (self.is_excluded is None or not self.is_excluded(path))
        )

    def is_whole(self, root: str) -> bool:
        """Return whether every path below a root may be seen."""
        return self.may_read is None and self.is_excluded is None and self.allow_list.covers(root)


@dataclass(frozen=True, slots=True)
class Root:
    """A part of the depot that is a tree of its own, with its configuration for documents.

    `sections`: how many are wanted that describe the change, of documents that a model may be sent. With
    `keeps_rest` others follow as far as these go, to be compared by meaning.
    """

    path: str
    sight: Sight
    reads: Callable[[str], bool]
    kinds: Sequence[str]
    most: int
    sections: int = 0
    keeps_rest: bool = False
    may_send: Callable[[str], bool] = lambda path: False

    def depot(self, path: str) -> str:
        """Return the path in the depot of one below this root."""
        return self.path + encode_path(path)


class DocumentVerifier:
    """Verifies the documents of changes of one source.

    `compare` is `recording.answer`, within limits.
    """

    def __init__(
        self,
        source: Source,
        compare: Callable[[bytes], bytes],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._compare, self._now = source, compare, now

    def added_to(self, change: Change, roots: Sequence[Root]) -> Change:
        """Return the change with the result for its documents. Raises nothing.

        Without roots the change stays as it is.
        """
        if not roots:
            return change
        self._until, self._room = self._now() + MAX_SECONDS, MAX_BYTES
        found = [self._verified(change, root) for root in roots]
        counts: Counter[str] = Counter()
        for each in found:
            counts.update(each.counts)
        together = VerifiedDocuments(
            tuple(claim for each in found for claim in each.untrue),
            tuple(path for each in found for path in each.read),
            dict(counts),
            " ".join(dict.fromkeys(each.note for each in found if each.note)),
            tuple(section for each in found for section in each.sections),
        )
        log.info("documents_verified", changelist=change.changelist_id, **together.counts)
        return replace(change, documents=together)

    def _verified(self, change: Change, root: Root) -> VerifiedDocuments:
        """Return the result for the documents of one root.

        A failure of it takes nothing from the other roots.
        """
        if self._left() <= 0:
            return VerifiedDocuments(note=texts.DOCUMENTS_FAILED.of(why="there was no time left"))
        try:
            return self._compared(change, root)
        except Failure as failure:
            log.warning("documents_not_verified", changelist=change.changelist_id, **failure.facts)
            return VerifiedDocuments(note=texts.DOCUMENTS_FAILED.of(why=_why(failure)))
        except Exception:  # a defect here must not keep a change from its review
            log.exception("documents_failed", changelist=change.changelist_id)
            return VerifiedDocuments(note=texts.DOCUMENTS_FAILED.of(why="an internal error"))

    def _compared(self, change: Change, root: Root) -> VerifiedDocuments:
        listed = self._source.tree(change, root.path, most=MAX_ENTRIES, seconds=self._left())
        if listed is None:
            return VerifiedDocuments(
                note=texts.DOCUMENTS_FAILED.of(why=f"the tree has more than {MAX_ENTRIES:,} files")
            )
        reader = _Reader(self._source, change, root, self._left, self._room)
        made = reader.recording(listed)
        documents = [path for path in made.after if is_document(path) and root.reads(root.depot(path))]
        if not documents:
            return VerifiedDocuments()
        described = reader.described(documents) if root.sections else None
        for number in range(1, MAX_ROUNDS + 1):
            request = {
                **vars(made),
                "documents": documents,
                "kinds": list(root.kinds),
                "described": described,
                "is_last": number == MAX_ROUNDS,
            }
            answer = json.loads(self._compare(json.dumps(request).encode()))
            if number == MAX_ROUNDS or self._left() <= 0 or not reader.records(answer["asked"]):
                break
        self._room = reader.room
        return _in_depot(answer, root)

    def _left(self) -> float:
        return self._until - self._now()


class _Reader:
    """Reads for a recording from the source, each path under the allow-list."""

    def __init__(
        self, source: Source, change: Change, root: Root, left: Callable[[], float], room: int
    ) -> None:
        self._source, self._change, self._root, self._left, self.room = source, change, root, left, room
        self._sees = cache(root.sight.sees)
        self._paths: dict[str, str] = {}  # depot paths by digest, of files that are not too large
        self._made = Recording({}, {}, {}, root.sight.is_whole(root.path))

    def recording(self, listed: dict[str, Any]) -> Recording:
        """Return what the listing and the change itself say."""
        made = self._made
        for path, entry in listed.items():
            if self._sees(path):
                made.after[self._relative(path)] = (entry.kind, entry.digest)
                if (entry.size_bytes or 0) <= MAX_FILE_BYTES:
                    self._paths[entry.digest] = path
        for file in self._change.files:
            if file.path.startswith(self._root.path) and self._sees(file.path):
                self._touch(file)
        made.words = {} if self._source.can_search else None
        return made

    def described(self, documents: Sequence[str]) -> dict[str, Any] | None:
        """Return in which documents sections are looked for, and how many; None without any."""
        root = self._root
        open_ones = (path for path in documents_in(documents) if root.may_send(root.depot(path)))
        chosen = list(islice(open_ones, MAX_DESCRIBING))
        if not chosen:
            return None
        return {"documents": chosen, "most": root.sections, "keeps_rest": root.keeps_rest}

    def _touch(self, file: FileChange) -> None:
        """Record a changed file on both sides."""
        made, path = self._made, self._relative(file.path)
        old_path = path
        if file.old_path is not None and file.old_path != file.path:
            is_seen = file.old_path.startswith(self._root.path) and self._sees(file.old_path)
            old_path = self._relative(file.old_path) if is_seen else ""
        is_same = file.skipped is SkipReason.IDENTICAL
        if is_same and old_path == path:
            return
        new, old = (_kind(file.file_type), f"after:{path}"), (_kind(file.old_file_type), f"before:{path}")
        if is_same:
            new = old = (new[0], made.after.get(path, new)[1])
        if file.action is Action.DELETE:
            made.after.pop(path, None)
        else:
            made.after[path] = new
        made.before[path] = old if file.action in (Action.EDIT, Action.DELETE) else None
        if file.action is Action.RENAME and old_path:
            made.after.pop(old_path, None)
            made.before[old_path] = old
            made.renames[old_path] = path
        if not is_same:
            made.contents[new[1]], made.contents[old[1]] = file.new_text, file.old_text

    def records(self, asked: dict[str, list[str]]) -> bool:
        """Record what a comparison lacked; return whether there was anything."""
        for path in asked["paths"]:
            self._made.sees[path] = self._sees(self._root.depot(path))
        digests = set(asked["digests"])
        if asked["words"] and self._made.words is not None:
            self._search(asked["words"])
            digests |= self._holding(asked["words"])  # the comparison would ask for them next
        if digests:
            self._read(sorted(digests))
        return any(asked.values())

    def _search(self, words: Sequence[str]) -> None:
        assert self._made.words is not None
        found = self._source.holding(words, self._change, seconds=max(self._left(), 0.1))
        if found is None:
            self._made.words = None
            return
        for word, paths in found.items():
            inside = (self._relative(path) for path in paths if path.startswith(self._root.path))
            self._made.words[word] = [
                path for path in inside if path in self._made.after and path not in self._made.before
            ]

    def _holding(self, words: Sequence[str]) -> set[str]:
        """Return what is not read yet of the code that holds words."""
        held = [paths for word in words if len(paths := (self._made.words or {}).get(word, [])) <= MAX_FILES]
        found = {self._made.after[path][1] for paths in held for path in paths if not is_document(path)}
        return found - self._made.contents.keys()

    def _read(self, digests: Sequence[str]) -> None:
        """Read contents as far as the room goes.

        Only documents and manifests, where the source cannot be searched.
        """
        self._made.contents.update(dict.fromkeys(digests))
        wanted = [(self._paths[digest], digest) for digest in digests if digest in self._paths]
        if not self._source.can_search:
            wanted = [(path, digest) for path, digest in wanted if is_document_or_manifest(path)]
        for start in range(0, len(wanted), _BATCH):
            batch = dict(wanted[start : start + _BATCH])
            if self._left() <= 0 or self.room <= 0:
                return
            for path, data in self._source.read_at(
                list(batch), self._change, max_bytes=self.room, seconds=self._left()
            ):
                # What was read is checked again: it may be another file than the one asked for.
                if path not in batch or data is None or not self._sees(path) or len(data) > self.room:
                    continue
                self.room -= len(data)
                self._made.contents[batch[path]] = text_of(data)

    def _relative(self, path: str) -> str:
        return storable(decode_path(path[len(self._root.path) :]))


def _why(failure: Failure) -> str:
    is_too_much = failure.error_class is ErrorClass.REDACTION_BLOCKED
    return "they take too much time or memory" if is_too_much else "the source could not be read"


def is_document_or_manifest(path: str) -> bool:
    """Return whether a file may hold claims, or facts of a project that claims are about."""
    name = posixpath.basename(path)
    is_manifest = name in manifests.VERSION_FILES or any(name in of for of in manifests.RUNNERS.values())
    return is_document(path) or is_manifest or name == ".gitignore"


def _kind(file_type: str | None) -> str:
    kind = (file_type or "").partition("+")[0]
    return {"symlink": "link", "submodule": "submodule"}.get(kind, "file")


def _in_depot(answer: dict[str, Any], root: Root) -> VerifiedDocuments:
    """Return an answer with depot paths in the place of relative ones.

    It has no more claims than are wanted.
    """
    counts: dict[str, int] = dict(answer["counts"])
    untrue = answer["untrue"][: root.most]
    counts["unreported"] = counts.get("unreported", 0) + len(answer["untrue"]) - len(untrue)
    return VerifiedDocuments(
        tuple(
            UntrueClaim(
                path=root.depot(one["claim"]["document"]),
                line=one["claim"]["line"],
                kind=one["claim"]["kind"],
                text=one["claim"]["text"],
                says=one["says"],
                instead=one["instead"],
                is_new=one["is_new"],
                evidence=tuple(root.depot(path) for path in one["rests_on"]),
            )
            for one in untrue
        ),
        tuple(root.depot(path) for path in answer["read"]),
        counts,
        sections=tuple(
            DocumentSection(
                path=root.depot(one["document"]),
                line=one["line"],
                heading=one["heading"],
                text=one["text"],
                files=tuple(root.depot(path) for path in one["files"]),
                score=one["score"],
                how=tuple(one["how"]),
            )
            for one in answer["sections"]
        ),
    )
