"""Fetching of a change: allow-list, listing, allow-list per file, content.

Violations fail closed: if one path of a change is outside the allow-list, no content of that
change is read at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import structlog

from criticizer.resilience.failures import ErrorClass
from reviews.sources.allowlist import AllowList
from reviews.sources.base import (
    Action,
    Change,
    ChangeStatus,
    FileChange,
    ListedChange,
    ListedFile,
    SkipReason,
    Source,
)
from reviews.sources.content import skipped
from reviews.sources.enforcement import CheckedAt, SecurityViolation, denied, refuse
from reviews.sources.failures import not_found, permanent, retryable
from reviews.sources.paths import storable
from reviews.sources.registry import checked_id, depot_prefix
from reviews.sources.remarks import MOVED_IN

log = structlog.get_logger()

MAX_FILE_BYTES = 1_000_000  # per side
MAX_CHANGE_BYTES = 20_000_000  # both sides of all files
MAX_FILES = 2_000
MAX_DESCRIPTION_CHARACTERS = 64_000
SHELF_RESTARTS = 2
# A batch is what is in memory at once before it counts against the budget.
_BATCH_FILES = 64
_BATCH_BYTES = 8_000_000


@dataclass(frozen=True, slots=True)
class ChangeFetcher:
    """Fetches changes of one source inside one allow-list.

    `may_read` decides which paths the requester may read; None: all of them.
    """

    source: Source
    allow_list: AllowList
    on_violation: Callable[[SecurityViolation], None]
    max_change_bytes: int = MAX_CHANGE_BYTES
    max_file_bytes: int = MAX_FILE_BYTES
    max_files: int = MAX_FILES
    may_read: Callable[[str], bool] | None = None

    def fetch(self, changelist_id: str) -> Change:
        """Return a change with the content of every file that can be reviewed.

        Every listed file is in the result; those without content carry the reason. Raises
        PermanentFailure PATH_DENIED after reporting each denied path (at most
        `MAX_REPORTED_VIOLATIONS`), RetryableFailure WRITE_CONFLICT when a shelf is replaced
        again and again while it is read, and the source's own failures.
        """
        changelist_id, allow_list = self._begin(changelist_id)
        listed = self._describe(changelist_id, allow_list)
        for _ in range(SHELF_RESTARTS + 1):
            change = self._read(listed, allow_list)
            if listed.status is not ChangeStatus.SHELVED:
                return change
            # A shelf has no history: it may have been replaced under the same number.
            again = self._describe(changelist_id, allow_list)
            if again.version_key == listed.version_key:
                return change
            log.info("shelf_replaced", changelist=changelist_id)
            listed = again
        raise retryable(ErrorClass.WRITE_CONFLICT, "the shelf was replaced each time it was being read")

    def look(self, changelist_id: str) -> int:
        """List a change and check every path, reading no content; return how many files it has.

        Raises as `fetch` does.
        """
        return len(self._describe(*self._begin(changelist_id)).files)

    def _begin(self, changelist_id: str) -> tuple[str, AllowList]:
        """Return the canonical id and the allow-list as the server compares names."""
        changelist_id = checked_id(changelist_id)
        prefix = depot_prefix(changelist_id)
        if prefix is not None and not self.allow_list.may_touch(prefix):
            outside = [(prefix, "nothing below it is in the allow-list")]
            refuse(changelist_id, outside, "query", self.on_violation)
        # Whether case distinguishes names depends on the server.
        return changelist_id, self.allow_list.with_case(self.source.case_sensitive)

    def _describe(self, changelist_id: str, allow_list: AllowList) -> ListedChange:
        """Return the listing with every path allowed; move sources outside the list are left out.

        So are files, and move sources, that the requester may not read. A change without any other is
        NOT_FOUND, like one that does not exist: who may read nothing of it learns nothing of it.
        """
        listed = self.source.describe(changelist_id)
        files = [file for file in listed.files if self._is_readable(file.path)]
        if not files and self.may_read is not None:
            raise not_found("no file of the change is in the requester's scope")
        self._check(changelist_id, (file.path for file in listed.files), allow_list, "query")
        return replace(listed, files=tuple(self._without_denied_source(file, allow_list) for file in files))

    def _is_readable(self, path: str) -> bool:
        return self.may_read is None or self.may_read(path)

    def _without_denied_source(self, file: ListedFile, allow_list: AllowList) -> ListedFile:
        if file.old_path is None or (
            self._is_readable(file.old_path) and self._allows(file.old_path, allow_list)
        ):
            return file
        # The file itself is in scope; where it came from is neither read nor named.
        return _as_added(file)

    def with_moved_in(self, change: Change, is_left_out: Callable[[str], bool]) -> Change:
        """Return a fetched change with files moved out of unread paths as wholly new (G581).

        Nobody has reviewed such content: by its difference alone it would come into reviewed paths unread.
        `is_left_out` says of a path that no model reads it. Raises what `fetch` raises.
        """
        wanted = {file.path for file in change.files if _may_come_unread(file, is_left_out)}
        if not wanted:
            return change
        changelist_id, allow_list = self._begin(change.changelist_id)
        listed = self._describe(changelist_id, allow_list)
        if listed.version_key != change.version_key:
            raise retryable(ErrorClass.WRITE_CONFLICT, "the shelf was replaced when it was being read")
        moved = {storable(file.path): _as_added(file) for file in listed.files}
        files = [moved[path] for path in moved if path in wanted]
        read = self._read(replace(listed, files=tuple(files)), allow_list)
        found = {file.path: file for file in read.files if file.skipped is None}
        return replace(
            change,
            files=tuple(
                replace(
                    found[file.path], action=file.action, old_path=file.old_path,
                    old_file_type=file.old_file_type, skip_detail=MOVED_IN, moved_in=True,
                )
                if file.path in found
                else file
                for file in change.files
            ),
        )  # fmt: skip

    def _read(self, listed: ListedChange, allow_list: AllowList) -> Change:
        entries: list[FileChange] = []
        budget = self.max_change_bytes
        full = False
        for batch in self._batches(listed.files[: self.max_files]):
            if full:
                entries += [self._over_budget(file) for file in batch]
                continue
            self._check(listed.changelist_id, _paths_of(batch), allow_list, "file")
            found = self.source.read(batch, max_bytes=self.max_file_bytes)
            self._check_found(listed.changelist_id, batch, found, allow_list)
            for file, entry in zip(batch, found, strict=True):
                size = len(entry.old_text or "") + len(entry.new_text or "")
                full = full or size > budget
                # The budget is met in order, so that the same change gives the same review.
                entries.append(self._over_budget(file) if full and entry.skipped is None else entry)
                budget -= 0 if full else size
        entries += [
            skipped(file, SkipReason.BUDGET, f"the change has more than {self.max_files} files")
            for file in listed.files[self.max_files :]
        ]
        return Change(
            changelist_id=listed.changelist_id,
            source=self.source.name,
            author=listed.author,
            description=listed.description[:MAX_DESCRIPTION_CHARACTERS],
            status=listed.status,
            created_at_epoch=listed.created_at_epoch,
            version_key=listed.version_key,
            files=tuple(map(_storable, entries)),
        )

    def _over_budget(self, file: ListedFile) -> FileChange:
        return skipped(
            file, SkipReason.BUDGET, f"the change as a whole is over {self.max_change_bytes} bytes"
        )

    def _batches(self, files: Sequence[ListedFile]) -> Iterator[list[ListedFile]]:
        batch: list[ListedFile] = []
        size = 0
        for file in files:
            estimate = 2 * min(file.size_bytes or 0, self.max_file_bytes)
            if batch and (len(batch) == _BATCH_FILES or size + estimate > _BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(file)
            size += estimate
        if batch:
            yield batch

    def _check_found(
        self,
        changelist_id: str,
        asked: Sequence[ListedFile],
        found: Sequence[FileChange],
        allow_list: AllowList,
    ) -> None:
        """Check that a source read exactly the paths it was given, all of them allowed."""
        self._check(changelist_id, _paths_of(found), allow_list, "file")
        if [(file.path, file.old_path) for file in asked] != [(file.path, file.old_path) for file in found]:
            raise permanent(ErrorClass.INTERNAL_BUG, "a source read other files than the given ones")

    def _check(
        self, changelist_id: str, paths: Iterable[str], allow_list: AllowList, stage: CheckedAt
    ) -> None:
        if outside := denied(paths, allow_list, literal_names=self.source.literal_names):
            refuse(changelist_id, outside, stage, self.on_violation)

    def _allows(self, path: str, allow_list: AllowList) -> bool:
        return allow_list.decide(path, literal_names=self.source.literal_names).allowed


def _as_added(file: ListedFile) -> ListedFile:
    return replace(file, action=Action.ADD, old_path=None, old_file_type=None, old_revision=None)


def _may_come_unread(file: FileChange, is_left_out: Callable[[str], bool]) -> bool:
    if file.old_path is None or file.skipped not in {None, SkipReason.IDENTICAL}:
        return False
    return is_left_out(file.old_path) and not is_left_out(file.path)


def _paths_of(files: Iterable[ListedFile] | Iterable[FileChange]) -> Iterator[str]:
    for file in files:
        yield file.path
        if file.old_path is not None:
            yield file.old_path


def _storable(file: FileChange) -> FileChange:
    """Return an entry whose paths any storage can hold; revisions have been read by now."""
    return replace(
        file, path=storable(file.path), old_path=storable(file.old_path) if file.old_path else None
    )
