"""Sources of the moved files of a changelist."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reviews.sources.base import ChangeStatus
from reviews.sources.paths import path_fault
from reviews.sources.perforce.records import Answer, indexed, number_in

_REVISION = re.compile(r"#([1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class MoveSource:
    """The earlier path of a moved file, and its revision there: `#n`."""

    path: str
    revision: str


class RunCommand(Protocol):
    def __call__(self, subcommand: str, *arguments: str, batch: Sequence[str]) -> Answer: ...


def find_sources(
    ask: RunCommand,
    moved_to: Sequence[Mapping[str, str]],
    moved_from: Mapping[str, Mapping[str, str]],
    changelist_id: str,
    status: ChangeStatus,
) -> dict[str, MoveSource]:
    """Return the source of each `move/add` row that has a findable one, by its depot path.

    Submitted: the integration records of `filelog -m1`, in one batch. Shelved: `fstat`,
    which newer servers answer. The rest is paired with the changelist's `move/delete`
    rows by equal digest, then by equal file name where both are unambiguous.
    """
    # A path with a fault is no argument for a command; the allow-list will deny it.
    askable = {row["depotFile"]: row for row in moved_to if path_fault(row["depotFile"]) is None}
    sources: dict[str, MoveSource] = {}
    if askable and status is ChangeStatus.SUBMITTED:
        revisions = {path: number_in(row, "rev") for path, row in askable.items()}
        batch = [f"{path}#{revision}" for path, revision in revisions.items() if revision]
        sources = _from_filelog(ask("filelog", "-m1", batch=batch)) if batch else {}
    elif askable:
        found = ask("fstat", "-Or", "-Rs", "-e", changelist_id, batch=list(askable))
        sources = _from_fstat(found, moved_from)
    sources = {path: source for path, source in sources.items() if path in askable}
    taken = {source.path for source in sources.values()}
    left_to = [row for row in moved_to if row["depotFile"] not in sources]
    left_from = [row for path, row in moved_from.items() if path not in taken]
    for field in ("digest", "name"):
        for target, origin in _pairs(left_to, left_from, field):
            revision = _base_revision(origin, status)
            if revision is not None:
                sources[target["depotFile"]] = MoveSource(origin["depotFile"], revision)
                left_to.remove(target)
                left_from.remove(origin)
    return sources


def _from_filelog(answer: Answer) -> dict[str, MoveSource]:
    sources = {}
    for result in answer.results:
        for revision in indexed(result)[:1]:
            for number in range(len(revision)):
                if revision.get(f"how,{number}") != "moved from":
                    continue
                path, end = revision.get(f"file,{number}"), revision.get(f"erev,{number}", "")
                if path and _REVISION.fullmatch(end):
                    sources[result.get("depotFile", "")] = MoveSource(path, end)
    return sources


def _from_fstat(answer: Answer, moved_from: Mapping[str, Mapping[str, str]]) -> dict[str, MoveSource]:
    sources = {}
    for result in answer.results:
        path = result.get("movedFile") or result.get("resolveFromFile0", "")
        row = moved_from.get(path)
        revision = _base_revision(row, ChangeStatus.SHELVED) if row else None
        if revision is not None:
            sources[result.get("depotFile", "")] = MoveSource(path, revision)
    return sources


def _base_revision(row: Mapping[str, str], status: ChangeStatus) -> str | None:
    """Return the last revision that had content: a submitted `move/delete` made one without."""
    number = (number_in(row, "rev") or 0) - (status is ChangeStatus.SUBMITTED)
    return f"#{number}" if number > 0 else None


def _pairs(
    targets: Iterable[Mapping[str, str]], origins: Iterable[Mapping[str, str]], field: str
) -> list[tuple[Mapping[str, str], Mapping[str, str]]]:
    """Return the rows of both sides that share a value which is unique on each side."""

    def by_value(rows: Iterable[Mapping[str, str]]) -> dict[str, list[Mapping[str, str]]]:
        grouped: dict[str, list[Mapping[str, str]]] = {}
        for row in rows:
            value = row["depotFile"].rpartition("/")[2] if field == "name" else row.get(field, "")
            if value:
                grouped.setdefault(value, []).append(row)
        return grouped

    new, old = by_value(targets), by_value(origins)
    return [(new[v][0], old[v][0]) for v in new if v in old and len(new[v]) == len(old[v]) == 1]
