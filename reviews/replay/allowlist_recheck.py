"""Check of a fetched change by the current allow-list, which may have been edited since.

Every stage that sends on a stored change checks here first, and fails as the fetch would: if one path is
outside, nothing of the change is sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from criticizer.resilience import gate
from criticizer.resilience.failures import Failure
from reviews import config
from reviews.artifacts import redactor
from reviews.models import CoverageRow
from reviews.sources.allowlist import AllowList
from reviews.sources.enforcement import CheckedAt, denied, refuse
from reviews.sources.git import GitSource
from reviews.sources.perforce.source import PerforceSource
from reviews.sources.registry import depot_prefix, source_for


def gone_sources(
    changelist_id: str, stage: CheckedAt, paths: Sequence[str], old_paths: Sequence[str]
) -> set[str]:
    """Return those of the old paths that a fetch would not read now.

    Raises as `refuse_outside` does.
    """
    allow_list = refuse_outside(changelist_id, paths, stage)
    return {path for path, _ in outside(changelist_id, old_paths, allow_list)}


def refuse_outside(
    changelist_id: str, paths: Sequence[str], stage: CheckedAt, seen: AllowList | None = None
) -> AllowList:
    """Return the current allow-list if it allows all paths.

    The check is skipped while the list is still `seen`. Raises PermanentFailure PATH_DENIED after a security
    event for each path outside, CONFIG_INVALID when the list cannot be used, and what `outside` raises.
    """
    allow_list = config.allow_list()
    if allow_list is not seen and (found := outside(changelist_id, paths, allow_list)):
        refuse(changelist_id, found, stage, config.record_violation)
    return allow_list


def paths_shown(job_id: int, covered: Sequence[str] | None = None) -> list[str]:
    """Return the paths of the files that a job's messages show, unredacted where possible.

    `covered`: the files of its coverage, where the caller has read them.
    """
    if covered is None:
        covered = list(CoverageRow.objects.filter(job_id=job_id).values_list("file", flat=True))
    paths = list(covered)
    if any("<" in path for path in paths):  # a name that was redacted
        with contextlib.suppress(Failure):  # the change may have expired
            return list(redactor.paths(job_id))
    return paths


def outside(changelist_id: str, paths: Sequence[str], allow_list: AllowList) -> list[tuple[str, str]]:
    """Return the paths of a change that a list does not allow, each with the reason.

    Asks Perforce for its case sensitivity only if the result depends on it; raises then as
    `Source.case_sensitive` does, and DependencyUnavailable while Perforce must not be called.
    """
    if depot_prefix(changelist_id) is not None:
        return denied(paths, allow_list, literal_names=GitSource.literal_names)
    literal = PerforceSource.literal_names
    as_written = denied(paths, allow_list.with_case(True), literal_names=literal)
    folded = denied(paths, allow_list.with_case(False), literal_names=literal)
    if {path for path, _ in as_written} == {path for path, _ in folded}:
        return as_written
    source = source_for(changelist_id, config.sources())
    with gate.guarded(config.perforce_dependency()):
        return as_written if source.case_sensitive else folded
