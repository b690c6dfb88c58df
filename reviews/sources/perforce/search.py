"""Search for names, and reading of files, beside a change on a Perforce server.

The server has no search over a whole depot that an ordinary account may run at will. So only the folders of
the change are searched: their files are listed, and `grep` gets those that are allowed, by name. Servers
that refuse `grep` leave what the change imports (`sources.context_files`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from criticizer.resilience.failures import PermanentFailure
from reviews.sources.base import Change, ChangeStatus, Mention, TreeEntry
from reviews.sources.names import defines, same_language
from reviews.sources.paths import canonical_case
from reviews.sources.perforce.client import P4Client
from reviews.sources.perforce.types import FileType

log = structlog.get_logger()

MAX_FOLDERS = 5
MAX_SEARCHED_FILES = 200
MAX_SEARCHED_NAMES = 8  # a command each
DELETED = frozenset(("delete", "move/delete"))
EMPTIED = frozenset(("purge", "archive"))


class DepotSearch:
    """The part of a Perforce source that looks beside a change (see `Source`)."""

    client: P4Client

    def find(
        self, names: Sequence[str], change: Change, *, allowed: Callable[[str], bool], seconds: float
    ) -> list[Mention]:
        """Look for names in the folders of the change (see `Source.find`)."""
        until = time.monotonic() + seconds
        endings = {ending for file in change.files for ending in same_language(file.path)}
        folders = list(dict.fromkeys(file.path.rpartition("/")[0] for file in change.files))[:MAX_FOLDERS]
        at = _revision(change)
        # A listed folder may hold names that are not allowed: they go no further.
        patterns = [f"{folder}/*{at}" for folder in folders]
        listed = _listed(self.client, patterns, until - time.monotonic(), "-e")
        searched = [
            path
            for path, revision in listed.items()
            if revision and path.endswith(tuple(endings)) and allowed(path)
        ]
        searched = searched[:MAX_SEARCHED_FILES]
        found: list[Mention] = []
        for name in names[:MAX_SEARCHED_NAMES] if searched and endings else ():
            if time.monotonic() >= until:
                break
            try:
                answer = self.client.tagged(
                    "grep", "-s", "-n", "-F", "-e", name,
                    batch=[f"{path}{at}" for path in searched], timeout_seconds=until - time.monotonic(),
                )  # fmt: skip
            except PermanentFailure as failure:
                if failure.context.get("pause"):
                    raise
                log.info("grep_refused", **failure.facts)
                break
            for record in answer.results:
                path, line = record.get("depotFile", ""), record.get("matchedLine", "")
                if path in searched:
                    found.append(Mention(path, name, name in defines(path, line)))
        return found

    def read_at(
        self,
        paths: Sequence[str],
        change: Change,
        *,
        max_bytes: int,
        seconds: float,
        is_before: bool = False,
    ) -> list[tuple[str, bytes | None]]:
        """Print files at the state of the change, or before it (see `Source.read_at`).

        None also for what the server does not give.
        """
        until = time.monotonic() + seconds
        at = _revision(change, is_before)
        made_by = change.changelist_id if is_before else ""
        fold = partial(canonical_case, case_sensitive=self.client.facts().case_sensitive)
        listed = _listed(self.client, [f"{path}{at}" for path in paths], seconds, made_by=made_by)
        existing = {fold(path): found for path, found in listed.items()}
        read: list[tuple[str, bytes | None]] = []
        for path in paths:
            if fold(path) not in existing or time.monotonic() >= until:
                continue
            revision = existing[fold(path)]
            if not revision:
                read.append((path, None))
                continue
            printed = self.client.print_file(
                path, revision, max_bytes=max_bytes, timeout_seconds=until - time.monotonic()
            )
            max_bytes -= len(printed.data or b"")
            read.append((path, printed.data))
        return read

    def tree(self, change: Change, below: str, *, most: int, seconds: float) -> dict[str, TreeEntry] | None:
        """List the files below a folder by `files` (see `Source.tree`)."""
        pattern = f"{below}...{_revision(change)}"
        answer = self.client.tagged(
            "files", "-e", "-m", str(most + 1), batch=[pattern], timeout_seconds=seconds
        )
        found = {}
        for record in answer.results:
            path, revision = record.get("depotFile", ""), record.get("rev", "")
            if not path or record.get("action") in DELETED:
                continue
            kind = "link" if FileType.parse(record.get("type", "")).is_symlink else "file"
            found[path] = TreeEntry(kind, f"{path}#{revision}")
        return found if len(answer.results) <= most else None

    def revision_before(self, change: Change) -> str:
        """Return the depot's state before a change, such as `@99` (see `Source.revision_before`)."""
        return _revision(change, is_before=True)


def _revision(change: Change, is_before: bool = False) -> str:
    # A shelf belongs to no state of the depot: the newest is the nearest.
    if change.status is not ChangeStatus.SUBMITTED:
        return "#head"
    return f"@{int(change.changelist_id) - is_before}"


def _listed(
    client: P4Client, patterns: Sequence[str], seconds: float, *options: str, made_by: str = ""
) -> dict[str, str]:
    """Return the revisions of the files that match, by path; before those of `made_by`.

    "" for a file that is no ordinary text, or whose content the server no longer has.
    """
    found: dict[str, str] = {}
    answer = client.tagged("files", *options, batch=patterns, timeout_seconds=max(seconds, 0.1))
    for record in answer.results:
        action, number = record.get("action"), record.get("rev", "")
        # A shelf may be submitted since it was read.
        is_own = record.get("change") == made_by
        revision = int(number) - is_own if number.isdigit() else 0
        if revision < 1 or (action in DELETED and not is_own):
            continue
        kind = FileType.parse(record.get("type", ""))
        is_text = not (kind.is_binary or kind.is_symlink or kind.runs_archive_trigger)
        found[record.get("depotFile", "")] = f"#{revision}" if is_text and action not in EMPTIED else ""
    return found
