"""Looking for names, and reading files, beside a change on a Perforce server.

The server has no search over a whole depot that an ordinary account may run at will. So only the
folders of the change are searched: their files are listed, and `grep` gets those that are allowed, by
name. Servers that refuse `grep` leave what the change imports (`sources.imports`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import structlog

from criticizer.resilience.failures import PermanentFailure
from reviews.sources.base import Change, ChangeStatus, Mention
from reviews.sources.names import defines, same_language
from reviews.sources.perforce.client import P4Client
from reviews.sources.perforce.types import FileType

log = structlog.get_logger()

MAX_FOLDERS = 5
MAX_SEARCHED_FILES = 200
MAX_SEARCHED_NAMES = 8  # a command each
_GONE = frozenset(("delete", "move/delete", "purge", "archive"))


def find(
    client: P4Client,
    names: Sequence[str],
    change: Change,
    allowed: Callable[[str], bool],
    seconds: float,
) -> Iterator[Mention]:
    """Yield where names stand in the folders of a change."""
    until = time.monotonic() + seconds
    endings = {ending for file in change.files for ending in same_language(file.path)}
    folders = list(dict.fromkeys(file.path.rpartition("/")[0] for file in change.files))[:MAX_FOLDERS]
    at = _revision(change)
    # A listed folder may hold names that are not allowed: they go no further.
    patterns = [f"{folder}/*{at}" for folder in folders]
    listed = _listed(client, patterns, until - time.monotonic())
    searched = [path for path in listed if path.endswith(tuple(endings)) and allowed(path)]
    searched = searched[:MAX_SEARCHED_FILES]
    for name in names[:MAX_SEARCHED_NAMES] if searched and endings else ():
        if time.monotonic() >= until:
            return
        try:
            answer = client.tagged(
                "grep", "-s", "-n", "-F", "-e", name,
                batch=[f"{path}{at}" for path in searched], timeout_seconds=until - time.monotonic(),
            )  # fmt: skip
        except PermanentFailure as failure:
            if failure.context.get("pause"):
                raise
            log.info("grep_refused", **failure.facts)
            return
        for record in answer.results:
            path, line = record.get("depotFile", ""), record.get("matchedLine", "")
            if path in searched:
                yield Mention(path, name, name in defines(path, line))


def read(
    client: P4Client, paths: Sequence[str], change: Change, max_bytes: int, seconds: float
) -> Iterator[tuple[str, bytes]]:
    """Yield ordinary text files with their bytes, in the order of `paths`, up to `max_bytes` in all."""
    until = time.monotonic() + seconds
    at = _revision(change)
    existing = _listed(client, [f"{path}{at}" for path in paths], seconds)
    for path in paths:
        if path not in existing or time.monotonic() >= until:
            continue
        printed = client.print_file(
            path, existing[path], max_bytes=max_bytes, timeout_seconds=until - time.monotonic()
        )
        if printed.data is not None:
            max_bytes -= len(printed.data)
            yield path, printed.data


def _revision(change: Change) -> str:
    # A shelf belongs to no state of the depot: the newest is the nearest.
    return f"@{change.changelist_id}" if change.status is ChangeStatus.SUBMITTED else "#head"


def _listed(client: P4Client, patterns: Sequence[str], seconds: float) -> dict[str, str]:
    """Return the revisions of the ordinary text files that match, by path."""
    found = {}
    for record in client.tagged("files", "-e", batch=patterns, timeout_seconds=max(seconds, 0.1)).results:
        kind = FileType.parse(record.get("type", ""))
        is_text = not (kind.is_binary or kind.is_symlink or kind.runs_archive_trigger)
        if is_text and record.get("action") not in _GONE and record.get("rev", "").isdigit():
            found[record.get("depotFile", "")] = f"#{record['rev']}"
    return found
