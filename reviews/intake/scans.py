"""Requests of scans: by people, by the API and by the schedule, each once.

A scan is a job like a review's, of the newest commit. At most one of a path is active. The path's row is
locked while a scan of it is requested, so that two requests at once find the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog
from django.conf import settings
from django.db import transaction

from criticizer.codehosts.registry import HOSTS
from criticizer.resilience import gate
from criticizer.resilience.failures import DependencyUnavailable, Failure
from notifications.rendering import Ending
from reviews import config, pipeline
from reviews.intake import review_requests
from reviews.intake.review_requests import IntakeOutcome, ReviewRequest
from reviews.models import FindingRow, HostChange, ReviewJob, Scan, ScanTarget
from reviews.models.jobs import SCAN
from reviews.sources.failures import misconfigured, not_found, unavailable
from reviews.sources.mirror import Mirror
from reviews.sources.pull import commit_id
from reviews.sources.registry import git_source, listing_of
from reviews.states import ACTIVE_JOB

PERFORCE = "p4:"  # no name of a git repository or host
MAX_ID = 128  # characters of a changelist's id
HEAD_SECONDS = 15.0  # in which a host says what its newest commit is

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ScanAnswer:
    """The scan that was asked for. `is_new`: made by this request, otherwise it was there."""

    job_id: int
    is_new: bool


def series_of(target_id: int) -> str:
    """Return the series of a path's scans.

    Keys and versions of scans are compared only within their series.
    """
    return f"{SCAN}:{target_id}"


def host_of(target: ScanTarget) -> str:
    """Return the server that is asked for a path's newest state.

    "" for a repository of this machine.
    """
    name = target.folder.split("/")[2]
    if name in config.sources().git:
        return ""
    if name in HOSTS:
        return name
    return PERFORCE if config.sources().perforce else ""


def repository_of(target: ScanTarget) -> str:
    """Return the name of a path's repository.

    That of a hosted one has its host: `github/owner/name`. PERFORCE for a depot path of the Perforce server.
    Raises CONFIG_INVALID where none has that name.
    """
    found = _repository(target)
    return found if isinstance(found, str) else f"{found.host}/{found.full_name.lower()}"


def _repository(target: ScanTarget) -> str | HostChange:
    """Return the repository of a path.

    The name of one of this machine, or a pull request of a hosted one.
    """
    name = target.folder.split("/")[2]
    if name in config.sources().git:
        return name
    if (hosted := config.hosted_at(target.folder)) is not None:
        return hosted
    if name in HOSTS:
        raise misconfigured(
            f"no enabled repository of {name} is known by this path: write its owner and name, and wait for"
            " the first pull request of it"
        )
    if config.sources().perforce is None:
        raise misconfigured(
            f"no git repository is named {name}: add {name}=/path to GIT_REPOSITORIES; for a depot of"
            " Perforce set P4PORT, P4USER and perforce in CHANGE_SOURCES"
        )
    if not config.may_scan(target.folder):
        raise misconfigured(
            f"no git repository is named {name}, and the allow-list excludes the depot path: add"
            f" {name}=/path to GIT_REPOSITORIES, or the path to the allow-list"
        )
    return PERFORCE


def head_of(target: ScanTarget) -> str:
    """Return the newest commit of a path's repository, as the id of a changelist.

    Of the branch that GIT_WATCH names, else of HEAD; a host is asked for that. Of a depot path the newest
    submitted changelist below it. Raises as `GitSource`, `Mirror` and `P4Listing` do, UPSTREAM_UNAVAILABLE
    while the server is not called, and CONFIG_INVALID for a path of no repository or depot.
    """
    name = _repository(target)
    if not isinstance(name, str):
        return _hosted_head(name)
    if name not in config.sources().git:
        return _depot_head(target)
    source = git_source(name, config.sources())
    branch = next((branch for watched, branch in settings.GIT_WATCH if watched == name), "")
    return f"git:{name}@{source.head(branch) if branch else source.default_head()}"


def _depot_head(target: ScanTarget) -> str:
    perforce = config.sources().perforce
    assert perforce is not None
    # Another client than that of reviews: a person may wait for the answer.
    listing = listing_of(replace(perforce, describe_timeout_seconds=HEAD_SECONDS))
    with _asked(config.perforce_dependency(), "the Perforce server"):
        newest = listing.newest_submitted([target.path], 1)
    if not newest:
        raise not_found("no submitted changelist touches the depot path: correct its name, or submit to it")
    return str(newest[0])


def _hosted_head(hosted: HostChange) -> str:
    mirror = Mirror(
        replace(
            config.mirror_of(hosted),
            timeout_seconds=HEAD_SECONDS,
            lock_seconds=HEAD_SECONDS,
            lag_pauses_seconds=(),
        )
    )
    dependency = config.source_dependency(commit_id(hosted.host, hosted.full_name, "0" * 40))
    with _asked(dependency, "the code host"):  # its git server, and its API for the token
        found = commit_id(hosted.host, hosted.full_name, mirror.default_head())
    if len(found) > MAX_ID:
        raise misconfigured("the name of the repository is too long for a scan")
    return found


@contextmanager
def _asked(dependency: str, name: str) -> Iterator[None]:
    """Ask a server through its circuit.

    Raises what the server said, and UPSTREAM_UNAVAILABLE if it is not called.
    """
    try:
        with gate.guarded(dependency):
            yield
    except DependencyUnavailable as waiting:
        if isinstance(waiting.__cause__, Failure):
            raise waiting.__cause__ from None  # it was called, and this is what it said
        raise unavailable(f"{name} is not called at the moment") from waiting


def request(target: ScanTarget, key: str, actor: str) -> ScanAnswer:
    """Request a scan of a path; a repeated key and an active scan are answered with that scan.

    Raises as `head_of`, and ScanTarget.DoesNotExist where the path is no longer scanned.
    """
    if (found := _found(target, key)) is not None:
        return found
    changelist_id = head_of(target)
    return review_requests.past_deadlocks(lambda: _requested(target.pk, key, actor, changelist_id))


def delete(target: ScanTarget, actor: str) -> None:
    """Delete a path with its scans, in one commit.

    An active scan is cancelled, and open findings end. A worker locks the job's stages and then its
    documents, and so does this.
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
    wanted = ReviewRequest(
        idempotency_key=key,
        changelist_id=changelist_id,
        review_version=review_requests.newest_version(versions) + 1,
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
