"""Check runs on code hosts: each follows the state of its review, whatever becomes of that.

A worker compares, every few seconds, what each reviewed head's check run was last told with the state
of its review, and tells the difference. So a check run is opened when its review is requested, and is
closed when the review succeeds, fails, is cancelled, superseded or timed out, also by a replay later:
nothing else has to remember it (guarantee G256).

    claim    the attempt is counted on the row, on disk, before any call
    tell     without a known number: looked up by our token if it may exist, else made; then changed
    record   number and state in one UPDATE, unless another worker has counted since

Two workers at once would need a call that outlasts CLAIM_SECONDS; changing a check run twice is once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError
from django.db.models import F, Q
from django.db.models.functions import Now
from django.urls import reverse

from criticizer import github
from criticizer.db import prepared
from criticizer.github import AppConfig, GitHub, Repository
from criticizer.queue import outbox
from criticizer.queue.periodic import PeriodicTask
from criticizer.redaction import clean
from criticizer.resilience import gate
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    classify,
)
from notifications.config import github_app
from notifications.rendering.summary import summarise
from reviews.models import HostCheck, ReviewJob
from reviews.pipeline.base import ACTIVE
from reviews.pipeline.executor import LEASE_RENEWER
from reviews.reports import report_of
from reviews.reviewers.base import CoverageStatus
from reviews.states import ACTIVE_JOB, JobStatus

log = structlog.get_logger(__name__)

NAME = "Criticizer"
CLOCK = PeriodicTask("check_runs", "tell_check_runs", "notify")
EVERY_SECONDS = 5.0
RUN_SECONDS = 30.0  # of one run, which holds a worker
# Longer than everything between the claim and the answer to the last call: a call that begins later than
# _LATEST_SECONDS after the claim is not made, and one takes at most the client's total timeout.
CLAIM_SECONDS = 120.0
_LATEST_SECONDS = 60.0
_PACE_SECONDS = 2.5  # the longest wait for one call a second
_FIRST_PAUSE_SECONDS = 10.0  # also until a look-up is believed
_MOST_DOUBLINGS = 6
_REFUSED_SECONDS = 3600.0
_AT_ONCE = 100

# A check run that was never opened is not made for a review that nobody waits for. GitHub itself ends
# check runs that are older than 14 days.
_DUE = f"""
SELECT v.id
  FROM host_versions v JOIN jobs j ON j.id = v.job_id JOIN host_changes p ON p.id = v.change_id
  LEFT JOIN host_checks c ON c.version_id = v.id
 WHERE v.created_at > statement_timestamp() - interval '13 days'
   AND p.host = 'github' AND p.state <> 'removed'
   AND coalesce(c.told, '') <> CASE WHEN j.status IN {ACTIVE} THEN 'active' ELSE j.status END
   AND (c.due_at IS NULL OR c.due_at <= statement_timestamp())
   AND (c.id IS NOT NULL OR j.status NOT IN ('cancelled', 'superseded'))
 ORDER BY c.due_at NULLS FIRST, v.id LIMIT %(limit)s"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Told:
    """What a check run is told: `state` is that of its review. `conclusion` is empty until it has ended."""

    state: str
    title: str
    summary: str
    conclusion: str = ""


def ensure() -> None:
    """Start or stop the clock (GITHUB_APP_ID). Run by maintenance."""
    CLOCK.ensure(is_enabled=bool(settings.GITHUB_APP_ID))


def run_message(outbox_id: int, token: UUID) -> None:
    """Run once for a leased message. The django-q2 task: never raises, refuses a lost lease."""
    try:
        if not CLOCK.begin(outbox_id, token):
            return
        with LEASE_RENEWER.holding(token):
            run()
        CLOCK.end(outbox_id, token, seconds=outbox.scaled(EVERY_SECONDS))
    except Exception:
        # The lease expires and the next run starts from the rows.
        log.exception("check_runs_failed")


def run() -> int:
    """Tell every check run that is behind its review; return how many were. Lets database errors through."""
    app = github_app()
    if app is None:
        return 0
    client, told = _client(app), 0
    until = time.monotonic() + RUN_SECONDS
    for row in prepared.rows(_DUE, {"limit": _AT_ONCE}):
        if time.monotonic() > until:
            break
        told += _tell(row["id"], client)
    return told


@lru_cache(maxsize=2)
def _client(app: AppConfig) -> GitHub:
    return GitHub(app, Component.PROVIDER)  # keeps its tokens


def _tell(version_id: int, client: GitHub) -> bool:
    """Bring one check run up to its review; say whether it was told."""
    HostCheck.objects.bulk_create([HostCheck(version_id=version_id)], ignore_conflicts=True)
    check = HostCheck.objects.select_related("version__job", "version__change").get(version_id=version_id)
    try:
        permit = _permit(check)
    except DependencyUnavailable as waiting:
        _postpone(check, waiting.seconds)
        return False
    try:
        if not _claim(check):
            return False
        began, told = time.monotonic(), told_of(check.version.job)
        check_id = _call(client, check, told, began)
        permit.report(None)
    except DatabaseError:
        raise
    except Exception as error:  # noqa: BLE001
        failure = classify(error)  # a defect about one must not stop the others
        if (waits := permit.report(failure)) is not None:
            _postpone(check, waits.seconds)
        else:
            _record_failure(check, failure)
        return False
    finally:
        permit.release()  # unless it was reported
    changes = {"check_id": check_id, "told": told.state, "due_at": None}
    return _record(check, **changes, failures=0, error_class="", detail="")


def _permit(check: HostCheck) -> gate.Permit:
    """Return the permit for one call; wait for it where the pace alone holds it up."""
    owner = check.version.change.full_name.partition("/")[0]
    name = gate.name_of(github.dependency_of(settings.GITHUB_API_URL, owner))
    try:
        return gate.acquire_permit(name)
    except DependencyUnavailable as waiting:
        if waiting.seconds > _PACE_SECONDS:
            raise
        time.sleep(waiting.seconds)
    return gate.acquire_permit(name)


def _claim(check: HostCheck) -> bool:
    """Count an attempt, in a commit of its own; False when another worker has it."""
    rows = HostCheck.objects.filter(pk=check.pk, attempts=check.attempts)
    claimed = rows.filter(Q(due_at=None) | Q(due_at__lte=Now())).update(
        attempts=F("attempts") + 1, due_at=Now() + timedelta(seconds=CLAIM_SECONDS)
    )
    check.attempts += 1
    return claimed == 1


def _postpone(check: HostCheck, seconds: float) -> None:
    _record(check, due_at=Now() + timedelta(seconds=seconds))


def _record(check: HostCheck, **changes: object) -> bool:
    return HostCheck.objects.filter(pk=check.pk, attempts=check.attempts).update(**changes) == 1


def _record_failure(check: HostCheck, failure: Failure) -> None:
    log.warning("check_run_not_told", check=check.pk, job=check.version.job_id, **failure.facts)
    pause = _FIRST_PAUSE_SECONDS * 2.0 ** min(check.failures, _MOST_DOUBLINGS)
    if isinstance(failure, PermanentFailure):
        pause = _REFUSED_SECONDS
    _record(
        check,
        failures=F("failures") + 1,
        due_at=Now() + timedelta(seconds=outbox.scaled(pause)),
        error_class=str(failure.error_class),
        detail=clean(failure.detail, 255),
    )


def _call(client: GitHub, check: HostCheck, told: Told, began: float) -> int | None:
    """Tell the host; return the number of the check run, None where none is needed."""
    version = check.version
    repository = Repository(version.change.full_name, version.change.repository_id)
    path = f"/repos/{repository.name}/check-runs"
    check_id = check.check_id
    if check_id is None and check.attempts > 1:
        check_id = _found(client, repository, check, began)
    _check_time(began)
    if check_id is not None:
        client.patch(repository, f"{path}/{check_id}", _body(version.job, told))
        return check_id
    if told.conclusion == "cancelled":
        return None  # it was never opened
    made = client.post(
        repository,
        path,
        {
            "name": NAME, "head_sha": version.head_sha, "external_id": str(check.token),
            **_body(version.job, told),
        },
    )  # fmt: skip
    if (number := _number(made.content)) is not None:
        return number
    raise RetryableFailure(ErrorClass.UPSTREAM_INTERNAL, Component.PROVIDER, "GitHub returned no id")


def _check_time(began: float) -> None:
    if time.monotonic() - began > _LATEST_SECONDS:
        raise RetryableFailure(ErrorClass.NETWORK_TIMEOUT, Component.PROVIDER, "GitHub answers too slowly")


def _found(client: GitHub, repository: Repository, check: HostCheck, began: float) -> int | None:
    """Look the check run up by our token, among all of the commit that our App has made."""
    query = {"check_name": NAME, "app_id": client.config.app_id, "filter": "all"}
    path = f"/repos/{repository.name}/commits/{check.version.head_sha}/check-runs"
    for page in client.pages(repository, path, query, items="check_runs"):
        _check_time(began)  # however many pages the answers promise
        for run_of_it in page.items:
            number = _number(run_of_it)
            if run_of_it.get("external_id") == str(check.token) and number is not None:
                return number
    return None


def _number(check_run: Mapping[str, object]) -> int | None:
    """Return a check run's number, or None for one that no column holds."""
    number = check_run.get("id")
    return number if isinstance(number, int) and 0 < number < 2**63 else None


def _body(job: ReviewJob, told: Told) -> Mapping[str, object]:
    state = (
        {"status": "completed", "conclusion": told.conclusion}
        if told.conclusion
        else {"status": "in_progress"}
    )
    url = settings.BASE_URL.rstrip("/") + reverse("reviews:detail", args=[job.pk])
    is_link = url.startswith(("http://", "https://"))
    return {
        **state,
        **({"details_url": url} if is_link else {}),
        "output": {"title": told.title[:255], "summary": told.summary},
    }


def told_of(job: ReviewJob) -> Told:
    """Return what the check run of a job is to be told. Counts only: no text of a change."""
    if job.status in ACTIVE_JOB:
        return Told(HostCheck.ACTIVE, "The review is in progress", "Its results appear on the pull request.")
    if job.status == JobStatus.SUCCEEDED:
        return _result(job)
    title, summary, conclusion = _ENDINGS[JobStatus(job.status)]
    return Told(job.status, title, summary, conclusion)


def _result(job: ReviewJob) -> Told:
    report = report_of(job)
    headline = summarise(report).headline
    # What did not run, or a file that was read in part: the absence of findings proves less.
    if job.banner or any(file.status == CoverageStatus.PARTIAL for file in report.coverage):
        return Told(job.status, "Partial scan", f"{headline}. Not everything was read completely.", "neutral")
    return Told(job.status, headline, f"{headline}.", "neutral" if report.findings else "success")


_ENDINGS = {
    JobStatus.SUPERSEDED: ("A newer version is reviewed", "The pull request has changed since.", "cancelled"),
    JobStatus.CANCELLED: ("The review was cancelled", "It was closed or made a draft.", "cancelled"),
    JobStatus.TIMED_OUT: (
        "The review took too long", "It was not finished before its deadline.", "timed_out",
    ),
    JobStatus.DEAD_LETTERED: (
        "The review failed", "An operator of Criticizer sees why, and can repeat it.", "failure",
    ),
}  # fmt: skip
