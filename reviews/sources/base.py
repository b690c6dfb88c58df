"""Interface of a source of changes, and the dataclasses it speaks.

Adapters import no models and no settings; their configuration is passed in. They raise
`criticizer.resilience.failures` classes with `Component.SOURCE` and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol


class Action(StrEnum):
    ADD = "add"
    EDIT = "edit"
    DELETE = "delete"
    RENAME = "rename"  # old_path is set; the content may have changed too


class SkipReason(StrEnum):
    """Reason why the content of a listed file was not read. Shown in the coverage."""

    BINARY = "binary"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"
    TOO_LARGE = "too_large"
    DENIED = "denied"  # the server lets our account list but not read it
    UNREADABLE = "unreadable"  # undecodable, purged, archived, damaged
    IDENTICAL = "identical"  # a rename or integration without a change of content
    BUDGET = "budget"  # the change as a whole is over its byte budget


class ChangeStatus(StrEnum):
    SUBMITTED = "submitted"
    SHELVED = "shelved"


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file of a change as the source lists it, before any content is read.

    Paths are depot paths in the source's encoded form (`%40` for `@`). `old_revision` and
    `new_revision` are opaque outside the source that made them; None means that side does not
    exist.
    """

    path: str
    action: Action
    file_type: str = "text"
    old_path: str | None = None
    old_file_type: str | None = None
    size_bytes: int | None = None
    digest: str = ""
    old_revision: str | None = None
    new_revision: str | None = None


@dataclass(frozen=True, slots=True)
class ListedChange:
    """A change's description and its files, before any content is read."""

    changelist_id: str
    author: str
    description: str
    status: ChangeStatus
    created_at_epoch: int
    version_key: str  # digest over (path, action, type, content digest): equal means same content
    files: tuple[ListedFile, ...]


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file of a change with both sides' text, or the reason why they were not read.

    `old_text` is None for an added file and for one that was moved out of an unread path, `new_text` for a
    deleted one, both when `skipped`.
    Text has `\\n` line ends; `crlf` says that the stored new side had `\\r\\n`.
    """

    path: str
    action: Action
    file_type: str = "text"
    old_path: str | None = None
    old_file_type: str | None = None
    size_bytes: int | None = None
    old_text: str | None = None
    new_text: str | None = None
    encoding: str = "utf-8"
    crlf: bool = False
    old_crlf: bool | None = None  # the same of the old side; None: the source does not know
    skipped: SkipReason | None = None
    generated: str = ""  # why only the checks read it: it was generated before and is (our words)
    oddity: str = ""  # why other tools may not read it as text, although it should be one (our words)
    unsent: str = ""  # why no model reads it, by the repository's configuration (our words)
    checks_off: tuple[str, ...] = ()  # names of checks that do not read it, by the same
    skip_detail: str = ""  # may quote the depot (a link's target): redact it like the texts
    in_lfs: bool = False  # the repository holds a pointer of Git LFS
    moved_in: bool = False  # out of a path that no model reads, so that it is shown as wholly new
    # Of a symbolic link, before and after, as `remarks.link_target` quotes them; None: a file stood there.
    link_targets: tuple[str | None, ...] = ()

    @property
    def is_verbatim(self) -> bool:
        """Return whether the text's UTF-8 bytes are the stored ones, but for collapsed keywords."""
        # Perforce keeps the type utf16 as UTF-8, and writes UTF-16 into a workspace.
        is_utf8 = self.encoding == "utf-8" and not self.file_type.startswith("utf16")
        return is_utf8 and not self.crlf and not self.oddity


@dataclass(frozen=True, slots=True)
class Mention:
    """A file outside the change that holds a name.

    `is_definition`: on a line that looks to define it.
    """

    path: str
    name: str
    is_definition: bool


@dataclass(frozen=True, slots=True)
class ContextFile:
    """A file that the change does not touch, read for what it defines.

    `names` are the names that it was read for; without any, everything in it may be of use.
    """

    path: str
    text: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that some files of a change are reviewed by, named by their indexes.

    One of the team has a name; one of the repository is the text of the file at `path` before the change.
    """

    name: str
    text: str
    files: tuple[int, ...]
    severity: str = ""
    good: str = ""
    bad: str = ""
    path: str = ""


class TreeEntry(NamedTuple):
    """One path of a tree: `kind` is file, link or submodule. Equal digests mean equal content."""

    kind: str
    digest: str
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class UntrueClaim:
    """A sentence of a document that the change makes untrue, or writes although it is.

    `says`: what is there instead; `instead`: what to write, where that is certain; `evidence`: the files that
    prove it. All text is the depot's, or ours about it.
    """

    path: str
    line: int
    kind: str
    text: str
    says: str
    instead: str = ""
    is_new: bool = False
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentSection:
    """A section of a document that may describe what a change does.

    `line` is that of its first line. `files` are the changed files that it maps to, the best first; `score`,
    up to 1, ranks it. `how` names the steps that found it: reference, symbol, text. Without files it is
    there to be compared by meaning.
    """

    path: str
    line: int
    heading: str
    text: str
    files: tuple[str, ...] = ()
    score: float = 0.0
    how: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifiedDocuments:
    """Result of verifying documents against the trees before and after a change.

    See `reviews.drift`. `read`: documents of the change itself that were compared, by path. `counts` are for
    `reviews.drift.wording`; `note` says why nothing was compared, or "". `sections` are for a model to read.
    """

    untrue: tuple[UntrueClaim, ...] = ()
    read: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    sections: tuple[DocumentSection, ...] = ()
    is_scan: bool = False  # of one tree, without a change


@dataclass(frozen=True, slots=True)
class Change:
    """A fetched change: the input of the llm stage, and the content of the raw artifact."""

    changelist_id: str
    source: str  # "perforce" or "git:<name>"
    author: str
    description: str
    status: ChangeStatus
    created_at_epoch: int
    version_key: str
    files: tuple[FileChange, ...] = field(default=())
    context: tuple[ContextFile, ...] = ()
    rules: tuple[Rule, ...] = ()  # of the team, then of the repository, each the most specific first
    documents: VerifiedDocuments | None = None  # None: they were not verified


def version_key_of(files: Iterable[tuple[str, str, str, str]]) -> str:
    """Return the digest of a change's content: hexadecimal SHA-256.

    It is made of `(path, action, type, content digest)` per file, independent of the order of the files.
    """
    listing = "".join("\0".join(fields) + "\n" for fields in sorted(files))
    return hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()


class Source(Protocol):
    """A version control system. One object per configured server or repository."""

    name: str
    # Paths are never handed to a command that reads wildcards, so `[...slug].tsx` is a name.
    literal_names: bool
    # Whether `holding` searches.
    can_search: bool

    @property
    def case_sensitive(self) -> bool:
        """True if `//Depot/a` and `//depot/a` differ; may query the server, raising as `describe`."""
        ...

    def describe(self, changelist_id: str) -> ListedChange:
        """List a change without reading any content.

        Raises PermanentFailure NOT_FOUND, AUTH_DENIED, PERMISSION_DENIED, CONFIG_INVALID,
        RetryableFailure NETWORK_*, UPSTREAM_*, RATE_LIMITED.
        """
        ...

    def read(self, files: Sequence[ListedFile], *, max_bytes: int) -> list[FileChange]:
        """Read both sides of files that have passed the allow-list, `max_bytes` per side.

        A file that cannot be read carries its `SkipReason`; only a failing server raises. The result
        has one entry per given file, in order.
        """
        ...

    def find(
        self, names: Sequence[str], change: Change, *, allowed: Callable[[str], bool], seconds: float
    ) -> list[Mention]:
        """Look for names in files beside those of a change, at its state, in about `seconds`.

        Only `allowed` paths are in the result. It may be incomplete; what a source searches is its own
        choice. Raises as `describe`.
        """
        ...

    def revision_before(self, change: Change) -> str:
        """Return the state that `read_at` reads before a change. Raises as `describe`."""
        ...

    def read_at(
        self,
        paths: Sequence[str],
        change: Change,
        *,
        max_bytes: int,
        seconds: float,
        is_before: bool = False,
    ) -> list[tuple[str, bytes | None]]:
        """Read ordinary files that have passed the allow-list, at the state of a change.

        Or at the state before it. Returns those that exist, in order, at most `max_bytes` in all. None: it
        exists and is not read, as a link, a binary file or what is too large. Raises as `describe`.
        """
        ...

    def tree(self, change: Change, below: str, *, most: int, seconds: float) -> dict[str, TreeEntry] | None:
        """Return the files below a depot folder at the state of a change, by path.

        None: there are more than `most`. None of them has passed the allow-list. Raises as `describe`.
        """
        ...

    def holding(
        self, words: Sequence[str], change: Change, *, seconds: float
    ) -> dict[str, frozenset[str]] | None:
        """Return the files that hold each word, whole and in its case, at the state of a change.

        None: they were not searched, or not all. Raises as `describe`.
        """
        ...

    def order_of(self, change: Change) -> int | None:
        """Return a number that is greater for later states of what a change is made for; 0: unknown.

        None: the change is not part of what others are made from. Raises as `describe`.
        """
        ...

    def check_health(self) -> None:
        """Check the server with a cheap query; raise as `describe` when it fails."""
        ...
