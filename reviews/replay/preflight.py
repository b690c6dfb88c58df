"""Harmless checks of one job before its replay: its artifact, its source, its paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from criticizer.redaction import clean
from criticizer.resilience.failures import DependencyUnavailable, ErrorClass, Failure
from deadletters.types import Check, CheckKind, Failed
from reviews import config
from reviews.artifacts import redactor
from reviews.models import ReviewJob
from reviews.models.jobs import SCAN
from reviews.replay import allowlist_recheck
from reviews.sources.base import Source
from reviews.sources.enforcement import SecurityViolation
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.registry import depot_prefix
from reviews.states import Stage


def probe(failed: Failed, *, restart: bool | None) -> list[Check]:
    """Return the checks of one job (`Recovery.probe`).

    Every stage sends or reads depot text, so the current allow-list is always checked. An artifact that
    does not open stops a replay, unless it may be a restart: then its source is checked.
    """
    job = ReviewJob.objects.get(pk=failed.job_id)
    changelist_id = job.changelist_id
    if restart or failed.stage == Stage.FETCH:
        return [_listed(job)]
    if failed.stage == Stage.NOTIFY:
        return [_still_allowed(changelist_id, allowlist_recheck.paths_shown(failed.job_id))]
    try:
        paths = redactor.paths(failed.job_id)
    except Failure as failure:
        trouble = f"{words_of(failure).removesuffix('; restart from fetch')}: restart from the first stage"
        if restart is None:
            listed = _listed(job)
            return [
                replace(listed, kind=CheckKind.ARTIFACT_OR_SOURCE, message=f"{trouble}; {listed.message}")
            ]
        return [Check(CheckKind.ARTIFACT_OPENS, False, trouble, is_hard=True)]
    return [
        Check(CheckKind.ARTIFACT_OPENS, True, "the redacted change opens"),
        _still_allowed(changelist_id, paths),
    ]


def _listed(job: ReviewJob) -> Check:
    """List the change without its content, and check each path with the current allow-list."""
    denied: list[SecurityViolation] = []
    try:
        source = config.source_of_job(job)
        if job.kind == SCAN and depot_prefix(job.changelist_id) is None:
            return _scannable(job, source)
        files = ChangeFetcher(source, config.allow_list(), denied.append).look(job.changelist_id)
    except Failure as failure:
        is_denied = failure.error_class is ErrorClass.PATH_DENIED
        return Check(CheckKind.ALLOW_LIST, False, words_of(failure), is_hard=is_denied)
    return Check(
        CheckKind.ALLOW_LIST, True, f"the source lists the change, and all {files} of its paths are allowed"
    )


def _scannable(job: ReviewJob, source: Source) -> Check:
    """Check that the server answers and the folder of a scan may be read.

    What else the changelist touches is not scanned. Raises the server's failures.
    """
    folder = job.scope_prefixes[0]
    if not config.allow_list().may_touch(folder):
        return Check(CheckKind.ALLOW_LIST, False, f"the allow-list excludes all below {folder}", is_hard=True)
    source.check_health()
    return Check(CheckKind.ALLOW_LIST, True, f"paths below {folder} are allowed, and the server answers")


def _still_allowed(changelist_id: str, paths: Sequence[str]) -> Check:
    """Check the paths of a stored change with the current allow-list, as the sending stage does."""
    try:
        outside = allowlist_recheck.outside(changelist_id, paths, config.allow_list())
    except Failure as failure:
        return Check(CheckKind.ALLOW_LIST, False, words_of(failure))
    except DependencyUnavailable as waiting:
        return Check(CheckKind.ALLOW_LIST, False, waiting.reason)
    if not outside:
        return Check(CheckKind.ALLOW_LIST, True, f"all {len(paths)} paths of the change are allowed")
    words = (
        f"the allow-list does not allow {len(outside)} of the {len(paths)} paths of the change any more:"
        " nothing of it may be sent"
    )
    return Check(CheckKind.ALLOW_LIST, False, words, is_hard=True)


def words_of(failure: Failure) -> str:
    """Return a failure's redacted detail, for a page."""
    return clean(failure.detail or str(failure.error_class), 300)
