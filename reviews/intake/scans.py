"""Requests of scans: by people, by the API and by the schedule, each once.

A scan is a job like a review's, of the newest commit. At most one of a path is active. The path's row is
locked while a scan of it is requested, so that two requests at once find the same one.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Max

from notifications.rendering import Ending
from reviews import config, pipeline
from reviews.intake import review_requests
from reviews.intake.review_requests import IntakeOutcome, ReviewRequest
from reviews.models import FindingRow, ReviewJob, Scan, ScanTarget
from reviews.models.jobs import SCAN
from reviews.sources.git import GitSource
from reviews.sources.git_command import misconfigured
from reviews.sources.registry import source_for
from reviews.states import ACTIVE_JOB

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ScanAnswer:
    """The scan that was asked for. `is_new`: made by this request, otherwise it was there."""

    job_id: int
    is_new: bool


def series_of(target_id: int) -> str:
    """Return the series of a path's scans: their keys and versions are compared only with each other."""
    return f"{SCAN}:{target_id}"


def repository_of(target: ScanTarget) -> str:
    """Return the name of a path's repository. Raises CONFIG_INVALID where none has that name."""
    name = target.folder.split("/")[2]
    if name not in config.sources().git:
        raise misconfigured(f"no git repository is named {name}: add {name}=/path to GIT_REPOSITORIES")
    return name


def head_of(target: ScanTarget) -> str:
    """Return the newest commit of a path's repository, as the id of a changelist.

    Of the branch that GIT_WATCH names, else of HEAD. Raises as `GitSource` does, and CONFIG_INVALID for a
    path of no git repository.
    """
    name = repository_of(target)
    source = source_for(f"git:{name}@{'0' * 40}", config.sources())
    assert isinstance(source, GitSource)
    branch = next((branch for watched, branch in settings.GIT_WATCH if watched == name), "")
    return f"git:{name}@{source.head(branch) if branch else source.default_head()}"


def request(target: ScanTarget, key: str, actor: str) -> ScanAnswer:
    """Request a scan of a path; a repeated key, and a scan that is active, answer with that scan.

    Raises as `head_of`, and ScanTarget.DoesNotExist where the path is no longer scanned.
    """
    if (found := _found(target, key)) is not None:
        return found
    changelist_id = head_of(target)
    return review_requests.past_deadlocks(lambda: _requested(target.pk, key, actor, changelist_id))


def delete(target: ScanTarget, actor: str) -> None:
    """Delete a path with its scans, in one commit: an active one is cancelled, and open findings end.

    A worker locks the job's stages and then its documents, and so does this.
    """
    with transaction.atomic():
        ScanTarget.objects.select_for_update().get(pk=target.pk)  # no further scan is requested
        for job in ReviewJob.objects.filter(scan__target=target, status__in=ACTIVE_JOB):
            pipeline.cancel(job.pk, actor, "the path is no longer scanned")
        # The late result of an ended job may be stored beside this: its findings are seen, or end at once.
        list(Scan.objects.select_for_update().filter(target=target).order_by("pk").values_list("pk"))
        open_ones = FindingRow.objects.filter(job__scan__target=target, ending="")
        open_ones.update(ending=Ending.GONE)  # no later scan can end them
        target.delete()


def _requested(target_id: int, key: str, actor: str, changelist_id: str) -> ScanAnswer:
    with transaction.atomic():
        target = ScanTarget.objects.select_for_update(no_key=True).get(pk=target_id)
        return _found(target, key) or create(target, key, actor, changelist_id)


def _found(target: ScanTarget, key: str) -> ScanAnswer | None:
    """Return the scan that a request repeats, or that is active."""
    jobs = ReviewJob.objects.filter(series=series_of(target.pk))
    repeated = jobs.filter(idempotency_key=key).values_list("pk", flat=True).first()
    active = repeated or jobs.filter(status__in=ACTIVE_JOB).values_list("pk", flat=True).first()
    return ScanAnswer(active, is_new=False) if active else None


def create(target: ScanTarget, key: str, actor: str, changelist_id: str) -> ScanAnswer:
    """Create a scan of a path whose row the caller's transaction holds."""
    series = series_of(target.pk)
    versions = ReviewJob.objects.filter(series=series, changelist_id=changelist_id)
    newest = versions.aggregate(newest=Max("review_version"))["newest"] or 0
    wanted = ReviewRequest(
        idempotency_key=key,
        changelist_id=changelist_id,
        review_version=newest + 1,
        recipients=tuple(dict.fromkeys(target.recipients.split())),
        rerun=True,
        requested_by=actor,
        series=series,
        scope_prefixes=(target.folder,),
        kind=SCAN,
    )
    result = review_requests.request_review(wanted)
    assert result.outcome is IntakeOutcome.CREATED
    assert result.job_id is not None
    Scan.objects.create(job_id=result.job_id, target=target)
    return ScanAnswer(result.job_id, is_new=True)
