"""The Perforce source: metadata as tagged records, content by `print`, both sides.

No command here needs a client workspace, changes anything on the server, or carries text
of a user: arguments are numbers and depot paths that Perforce itself listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import structlog

from criticizer.resilience.failures import PermanentFailure
from reviews.sources.base import (
    Action,
    Change,
    ChangeStatus,
    FileChange,
    ListedChange,
    ListedFile,
    SkipReason,
)
from reviews.sources.content import TEXT_NAME, file_change, link_change, skipped
from reviews.sources.failures import not_found, unavailable
from reviews.sources.paths import storable
from reviews.sources.perforce.client import P4Client, PerforceConfig, Printed, meaning_of, unusable_answer
from reviews.sources.perforce.errors import Meaning
from reviews.sources.perforce.listing import P4Listing, content_key
from reviews.sources.perforce.moves import MoveSource, find_sources
from reviews.sources.perforce.records import Answer, indexed, number_in
from reviews.sources.perforce.reviewers import P4Reviewers
from reviews.sources.perforce.search import DepotSearch
from reviews.sources.perforce.types import FileType

log = structlog.get_logger()

CHANGE_NUMBER = re.compile(r"[1-9][0-9]{0,9}")
_ACTIONS = {
    "add": Action.ADD,
    "branch": Action.ADD,
    "import": Action.ADD,
    "move/add": Action.ADD,  # becomes a rename when its source is found
    "edit": Action.EDIT,
    "integrate": Action.EDIT,
    "purge": Action.EDIT,
    "archive": Action.EDIT,
    "delete": Action.DELETE,
    "move/delete": Action.DELETE,
}
_GONE = frozenset({"purge", "archive"})


class PerforceSource(DepotSearch):
    """One Perforce server (`Source`). Safe to keep for the life of a process."""

    literal_names = False
    can_search = False

    def __init__(self, config: PerforceConfig) -> None:
        """Raise PermanentFailure CONFIG_INVALID when the configuration cannot work."""
        self.name = "perforce"
        self._config = config
        self.client = P4Client(config)
        self.listing = P4Listing(self.client)
        self.reviewers = P4Reviewers(self.client)

    @property
    def case_sensitive(self) -> bool:
        """True if the server distinguishes names by case; the first call queries it."""
        return self.client.facts().case_sensitive

    def check_health(self) -> None:
        """Run `info -s`, which needs no rights."""
        self.client.check_health()

    def describe(self, changelist_id: str) -> ListedChange:
        """List a submitted changelist or the shelf of a pending one (see `Source.describe`).

        A pending changelist without a shelf is NOT_FOUND: its content is on a workstation.
        Files that protections hide from the service account are not in the listing.
        """
        if not CHANGE_NUMBER.fullmatch(changelist_id):
            raise not_found("this is not a changelist number")
        record = self._record(changelist_id, "describe", "-s", changelist_id)
        if record.get("status") == "submitted":
            status = ChangeStatus.SUBMITTED
        else:
            # The status stays `pending` when a shelf exists.
            record = self._record(changelist_id, "describe", "-S", "-s", changelist_id)
            status = ChangeStatus.SHELVED
        rows = [row for row in indexed(record) if "depotFile" in row]
        if not rows:
            raise not_found(
                "nothing is shelved in this pending changelist: shelve it first"
                if status is ChangeStatus.SHELVED
                else "the changelist has no files, or none that the service account may list"
            )
        return ListedChange(
            changelist_id=changelist_id,
            author=storable(record.get("user", "")),
            description=storable(record.get("desc", "")),
            status=status,
            created_at_epoch=number_in(record, "time") or 0,
            version_key=content_key(rows),
            files=tuple(self._listed(rows, changelist_id, status)),
        )

    def read(self, files: Sequence[ListedFile], *, max_bytes: int) -> list[FileChange]:
        """Print both sides of files that have passed the allow-list (see `Source.read`)."""
        return [self._read_one(file, max_bytes) for file in files]

    def holding(self, words: Sequence[str], change: Change, *, seconds: float) -> None:
        """Search nothing: an ordinary account may not search a whole depot (see `Source.holding`)."""
        return

    def order_of(self, change: Change) -> int | None:
        """Return the changelist's number (see `Source.order_of`)."""
        return int(change.changelist_id)

    def _record(self, changelist_id: str, *command: str) -> dict[str, str]:
        answer = self.client.tagged(*command)
        record = next((found for found in answer.results if found.get("change") == changelist_id), None)
        if record is not None:
            return record
        if meaning_of(answer) is Meaning.UNKNOWN_CHANGE:
            if self._config.replica:
                raise unavailable("the replica does not know this changelist yet", 30)
            raise not_found("the server does not know this changelist")
        raise unusable_answer(command[0], answer)

    def _listed(
        self, rows: Sequence[Mapping[str, str]], changelist_id: str, status: ChangeStatus
    ) -> list[ListedFile]:
        moved_to = [row for row in rows if row.get("action") == "move/add"]
        moved_from = {row["depotFile"]: row for row in rows if row.get("action") == "move/delete"}
        sources = (
            find_sources(self._auxiliary, moved_to, moved_from, changelist_id, status) if moved_to else {}
        )
        folded = {source.path for source in sources.values()} & moved_from.keys()
        return [
            _listed_file(row, changelist_id, status, sources.get(row["depotFile"]))
            for row in rows
            if row["depotFile"] not in folded  # shown once, as the other half of its rename
        ]

    def _auxiliary(self, subcommand: str, *arguments: str, batch: Sequence[str]) -> Answer:
        """Run a command that only improves a listing: when it is refused, renames are missing."""
        try:
            return self.client.tagged(subcommand, *arguments, batch=batch)
        except PermanentFailure as failure:
            if failure.context.get("pause"):
                raise
            log.warning("renames_unknown", source=self.name, **failure.facts)
            return Answer()

    def _read_one(self, file: ListedFile, max_bytes: int) -> FileChange:
        kind = FileType.parse(file.file_type)
        if file.old_revision is None and file.new_revision is None:
            return skipped(file, SkipReason.UNREADABLE, "the content was purged or archived on the server")
        if kind.is_binary and not TEXT_NAME.search(file.path):
            return skipped(file, SkipReason.BINARY)
        if kind.runs_archive_trigger:
            return skipped(file, SkipReason.UNREADABLE, "the content is kept by an archive trigger")
        if file.size_bytes is not None and file.size_bytes > max_bytes:
            return skipped(file, SkipReason.TOO_LARGE, f"{file.size_bytes} bytes, over {max_bytes}")
        note, old, new = "", None, None
        if file.old_revision is not None:
            printed = self.client.print_file(
                file.old_path or file.path, file.old_revision, max_bytes=max_bytes
            )
            if printed.verdict is not None and printed.verdict.meaning is Meaning.MISSING:
                # A re-added file, or one that keeps only its newest revisions.
                old, note = b"", "the server no longer has the old side: shown as wholly new"
            elif (refusal := _refusal(file, printed, "old", max_bytes)) is not None:
                return refusal
            else:
                old = printed.data
        if file.new_revision is not None:
            printed = self.client.print_file(file.path, file.new_revision, max_bytes=max_bytes)
            if (refusal := _refusal(file, printed, "new", max_bytes)) is not None:
                return refusal
            new = printed.data
        if kind.is_symlink:
            return link_change(file, old, new)
        return file_change(file, old, new, transform=kind.collapse_keywords, note=note)


def _refusal(file: ListedFile, printed: Printed, side: str, max_bytes: int) -> FileChange | None:
    """Return the entry of a file with a side that cannot be read, or None when it was read."""
    if printed.too_large:
        return skipped(file, SkipReason.TOO_LARGE, f"the {side} side is over {max_bytes} bytes")
    if printed.verdict is None:
        return None
    reason = {
        Meaning.DENIED: SkipReason.DENIED,
        Meaning.UNTRANSLATABLE: SkipReason.BINARY,
    }.get(printed.verdict.meaning, SkipReason.UNREADABLE)
    return skipped(file, reason, f"{side} side: {printed.verdict.detail}")


def _listed_file(
    row: Mapping[str, str], changelist_id: str, status: ChangeStatus, moved: MoveSource | None
) -> ListedFile:
    """Return a listed file with the revisions of its two sides (submitted and shelved differ)."""
    stated = row.get("action", "")
    action = _ACTIONS.get(stated)
    if action is None:
        log.warning("unknown_perforce_action", action=stated[:40])
        action = Action.EDIT
    revision = number_in(row, "rev") or 0
    shelved = status is ChangeStatus.SHELVED
    made = f"@={changelist_id}" if shelved else f"#{revision}"
    old, new = None, None
    if moved is not None:
        action, old, new = Action.RENAME, moved.revision, made
    elif stated not in _GONE:
        # A shelf names the revision it is based on, a submitted change the one it made.
        base = revision if shelved else revision - 1
        old = f"#{base}" if action is not Action.ADD and base > 0 else None
        new = made if action is not Action.DELETE else None
    return ListedFile(
        path=row["depotFile"],
        action=action,
        file_type=str(FileType.parse(row.get("type", "text"))),
        old_path=moved.path if moved else None,
        size_bytes=number_in(row, "fileSize"),
        digest=row.get("digest", ""),
        old_revision=old,
        new_revision=new,
    )
