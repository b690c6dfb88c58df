"""Copy of a depot path at a changelist, as a bare git repository, for a scan (G567).

    files -a (every revision) ─► allow-list ─► print, documents first ─► git fast-import ─► renamed into place

The copy has a commit for each changelist, so that git says which one wrote a line. What is not printed, such
as a binary or too large file, is there as a file without text. A copy is whole or not there: it is made
beside its place. Its owner deletes it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from reviews.sources.content import TEXT_NAME
from reviews.sources.git_command import GitCommand, make_bare
from reviews.sources.paths import canonical_case, decode_path, encode_path
from reviews.sources.perforce.client import P4Client, Printed
from reviews.sources.perforce.records import number_in
from reviews.sources.perforce.search import DELETED, EMPTIED
from reviews.sources.perforce.types import FileType

log = structlog.get_logger()

MAX_REVISIONS = 5_000  # printed: a command each
MAX_BYTES = 64_000_000  # of their contents
SECONDS = 300.0  # of printing
LISTING_SECONDS = 120.0
_BRANCH = "refs/heads/scan"
_NO_TEXT = b"\0"  # what stands for a file that is not printed: it is there, and says nothing
_COUNT = "unread"  # the file of a copy that says how many revisions are not in it, and whether all may be


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision of a file. `name` is raw, below the copied folder."""

    path: str
    name: str
    number: int
    change: int
    is_deleted: bool
    is_emptied: bool
    kind: FileType

    @property
    def is_text(self) -> bool:
        is_binary = self.kind.is_binary and not TEXT_NAME.search(self.path)
        return not (self.is_deleted or is_binary or self.kind.is_symlink)


@dataclass(frozen=True, slots=True)
class DepotCopy:
    """A copy in its place.

    `unread`: text revisions without text; `is_whole`: none was out of sight.
    """

    git: GitCommand
    sha: str
    unread: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Copier:
    """Copies `folder` at a changelist to `place`.

    `sees` and `comes_first` are asked about raw names below it: may it be read, and does it matter most?
    `sees_all`: each may be read.
    """

    client: P4Client
    git_executable: str | Path
    folder: str
    change: int
    place: Path
    max_file_bytes: int
    sees: Callable[[str], bool]
    comes_first: Callable[[str], bool]
    sees_all: bool

    def existing(self) -> DepotCopy | None:
        """Return the copy that an earlier attempt made, or None."""
        if not (self.place / _COUNT).is_file():
            return None
        try:
            git = self._git(self.place)
            sha = git.output("rev-parse", f"{_BRANCH}^{{commit}}").decode("ascii").strip()
            unread, is_whole = map(int, (self.place / _COUNT).read_text().split())
            return DepotCopy(git, sha, unread, bool(is_whole))
        except (PermanentFailure, OSError, ValueError) as error:
            # Damaged by a power cut, or deleted meanwhile.
            log.warning("depot_copy_damaged", place=self.place.name, error=type(error).__name__)
            delete(self.place)
            return None

    def read(self, seconds: float) -> tuple[list[Revision], dict[Revision, bytes], int]:
        """Return the revisions that may be seen, the contents that were read, and how many were not.

        Raises as `P4Client.tagged`, and as `print_file` where the server does not answer at all.
        """
        until = time.monotonic() + seconds
        answer = self.client.tagged(
            "files", "-a", batch=[f"{self.folder}...@1,@{self.change}"],
            timeout_seconds=min(LISTING_SECONDS, max(seconds, 0.1)),
        )  # fmt: skip
        listed = list(self._revisions(answer.results))
        contents: dict[Revision, bytes] = {}
        room, printed, unread = MAX_BYTES, 0, 0
        heads = {each.name: each for each in sorted(listed, key=lambda one: one.number)}
        order = sorted(
            (each for each in listed if each.is_text),
            key=lambda one: (
                heads[one.name] is not one, not self.comes_first(one.name), -one.change, one.name
            ),
        )  # fmt: skip
        for each in order:
            is_head = heads[each.name] is each
            if each.is_emptied or each.kind.runs_archive_trigger:
                unread += is_head
                continue
            left = until - time.monotonic()
            if printed >= MAX_REVISIONS or room <= 0 or left <= 0:
                unread += 1
                continue
            printed += 1
            found = self._printed(each, min(self.max_file_bytes, room), left)
            if found is None or (found.too_large and room < self.max_file_bytes):
                unread += 1  # another scan may read it
            elif found.data is None:
                unread += is_head
            else:
                contents[each] = found.data
                room -= len(found.data)
        log.info("depot_path_read", folder=self.folder, revisions=len(listed), printed=printed, unread=unread)
        return listed, contents, unread

    def write(self, listed: Collection[Revision], contents: dict[Revision, bytes], unread: int) -> DepotCopy:
        """Write what was read as a repository. Raises RetryableFailure where it cannot be written."""
        self.place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = Path(tempfile.mkdtemp(prefix=f"{self.place.name}.", dir=self.place.parent))
        try:
            self._import(draft, b"".join(_stream(listed, contents, self.change)))
            (draft / _COUNT).write_text(f"{unread} {int(self.sees_all)}")
            try:
                draft.rename(self.place)
            except OSError:  # another worker has the job meanwhile, and its copy is as good
                if not (self.place / _COUNT).is_file():
                    delete(self.place)  # the rest of one that a worker died deleting
                    draft.rename(self.place)
        except OSError as error:
            raise _unwritable(error.strerror or "") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        made = self.existing()
        if made is None:
            raise _unwritable("it was deleted meanwhile")
        return made

    def _revisions(self, records: Iterable[dict[str, str]]) -> Iterator[Revision]:
        case = self.client.facts().case_sensitive
        folder = canonical_case(self.folder, case_sensitive=case)
        for record in records:
            path, action = record.get("depotFile", ""), record.get("action", "")
            number, change = number_in(record, "rev"), number_in(record, "change")
            is_below = canonical_case(path, case_sensitive=case).startswith(folder)
            if not (is_below and number and change) or change > self.change:
                continue
            name = decode_path(path[len(self.folder) :])
            if canonical_case(path, case_sensitive=True) != canonical_case(
                path[: len(self.folder)] + encode_path(name), case_sensitive=True
            ):
                continue  # the path would be printed, and that of its name was allowed
            if not self.sees(name) or any(part.lower() == ".git" for part in name.split("/")):
                continue  # git has no such files
            kind = FileType.parse(record.get("type", ""))
            yield Revision(path, name, number, change, action in DELETED, action in EMPTIED, kind)

    def _printed(self, revision: Revision, max_bytes: int, seconds: float) -> Printed | None:
        """Return what the server gives of a revision; None where it takes too long."""
        seconds = min(seconds, self.client.config.print_timeout_seconds)
        try:
            return self.client.print_file(
                revision.path, f"#{revision.number}", max_bytes=max_bytes, timeout_seconds=seconds
            )
        except RetryableFailure as failure:
            if not failure.context.get("server_alive"):
                raise
            log.warning("revision_not_read", path=revision.path, **failure.facts)
            return None

    def _import(self, draft: Path, stream: bytes) -> None:
        made = make_bare(self.git_executable, draft)
        if made.exit_code != 0:
            raise _unwritable("git init failed")
        if self._git(draft).run("fast-import", "--quiet", stdin=stream).exit_code != 0:
            raise _unwritable("git fast-import failed")

    def _git(self, directory: Path) -> GitCommand:
        return GitCommand(directory.name, directory, self.git_executable, 60.0)


def delete(place: Path) -> None:
    """Delete a copy. What is left where this dies in the middle is taken for none."""
    with contextlib.suppress(OSError):
        (place / _COUNT).unlink()
    shutil.rmtree(place, ignore_errors=True)


def _stream(listed: Collection[Revision], contents: dict[Revision, bytes], change: int) -> Iterator[bytes]:
    """Yield the commands of git fast-import.

    They make a commit for each changelist, and one for the newest.
    """
    alive, below = set[str](), Counter[str]()  # `below`: how many of these are in a folder
    by_change: dict[int, list[Revision]] = {change: []}
    for each in listed:
        by_change.setdefault(each.change, []).append(each)
    yield b"feature done\n"
    for number in sorted(by_change):
        yield f"commit {_BRANCH}\ncommitter p4 <p4> {number} +0000\ndata 0\n".encode()
        # Deletions first: a folder may have taken the place of a file.
        for each in sorted(by_change[number], key=lambda one: (not one.is_deleted, one.name)):
            if not below[each.name]:  # a depot may have a folder of the same name beside a file, git may not
                yield from _lines(each, contents)
            if each.is_deleted is (each.name in alive):
                alive ^= {each.name}
                below.update(dict.fromkeys(_folders(each.name), -1 if each.is_deleted else 1))
    yield b"done\n"


def _folders(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _lines(revision: Revision, contents: dict[Revision, bytes]) -> Sequence[bytes]:
    raw = revision.name.encode("utf-8", "surrogateescape")
    quoted = b'"' + raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
    if revision.is_deleted:
        return [b"D " + quoted + b"\n"]
    mode = b"120000" if revision.kind.is_symlink else b"100644"
    data = contents.get(revision, _NO_TEXT)
    return [b"M " + mode + b" inline " + quoted + b"\ndata %d\n" % len(data), data, b"\n"]


def _unwritable(why: str) -> RetryableFailure:
    return RetryableFailure(
        ErrorClass.UPSTREAM_UNAVAILABLE,
        Component.INTERNAL,
        "the copy of the depot path cannot be written: check the disk of the data directory",
        context={"why": why},
    )
