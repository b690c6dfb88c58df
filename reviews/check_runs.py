"""Check runs on code hosts, or statuses of commits: each shows the state of its review.

Every few seconds a worker compares the state that each check run shows with that of its review, and updates
those that differ. So a check run is opened when its review is requested, and closed when the review
ends in any way, also by a later replay: no other code has to do it (guarantee G256).

    claim    count the attempt on the row, in a commit before any call
    post     `Host.post_verdict`: without a known number look it up if it may exist, else create it; update it
    record   store number and state in one UPDATE, unless another worker has counted since

The token of a check run is made of what it is about. So one whose row, or whose version, was lost with a
promotion of a standby that lacked them is looked up and updated when the row is made again (guarantee G490).

Two workers update one check run at once only if a call takes longer than CLAIM_SECONDS. That is harmless:
updating it twice is the same as once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID, uuid5

import structlog
from django.conf import settings
from django.db import DatabaseError, IntegrityError
from django.db.models import F, Q
from django.db.models.functions import Now
from django.urls import reverse

from criticizer import texts
from criticizer.codehosts.base import Host, Verdict
from criticizer.db import prepared, timeline
from criticizer.inert_links import web_link
from criticizer.queue import outbox
from criticizer.queue.periodic import Pause, PeriodicTask
from criticizer.redaction import clean
from criticizer.resilience import gate
from criticizer.resilience.classification import classify
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    kind_with_code,
)
from criticizer.wording import plural_count
from deadletters.models import DeadLetter
from notifications.config import connected_hosts
from notifications.rendering import Report
from notifications.rendering.summary import summarise
from reviews.configuration.keys import rank
from reviews.job_configuration import blocks_at
from reviews.models import HostCheck, HostVersion, ReviewJob
from reviews.pipeline.base import statement
from reviews.reports import report_of
from reviews.reviewers.base import CoverageStatus
from reviews.states import ACTIVE_JOB, JobStatus, Stage

log = structlog.get_logger(__name__)

CLOCK = PeriodicTask("check_runs", "tell_check_runs", "notify")
EVERY_SECONDS = 5.0
RUN_SECONDS = 30.0  # of one run, which holds a worker
# Longer than the time from the claim to the last answer: no call begins later than _LATEST_SECONDS after the
# claim, and each ends within the client's total timeout.
CLAIM_SECONDS = 120.0
_LATEST_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 10.0  # also until a look-up is believed
_MOST_DOUBLINGS = 6
_REFUSED_SECONDS = 3600.0
_AT_ONCE = 100
_NAMESPACE = UUID("0c5f6c1e-9d0b-5c53-8a4e-2f4b7a1d6e90")  # never change it, like that of deliveries

# No check run is created for a review that was cancelled or superseded. GitHub itself closes check runs that
# are older than 14 days.
_DUE = statement("""
WITH behind AS MATERIALIZED (  -- few: only for them is looked for newer reviews
SELECT v.id, v.head_sha, p.host, p.repository_id, c.due_at
  FROM host_versions v JOIN jobs j ON j.id = v.job_id JOIN host_changes p ON p.id = v.change_id
  LEFT JOIN host_checks c ON c.version_id = v.id
 WHERE v.created_at > statement_timestamp() - interval '13 days'
   AND p.host = ANY(%(hosts)s) AND p.state <> 'removed'
   AND coalesce(c.told, '') <> CASE WHEN j.status IN $ACTIVE THEN 'active' ELSE j.status END
   AND (c.due_at IS NULL OR c.due_at <= statement_timestamp())
   AND (c.id IS NOT NULL OR j.status NOT IN ('cancelled', 'superseded'))
   AND j.series = '')  -- what a key with prefixes requests is of a part of the files
SELECT v.id FROM behind v
 -- A commit has one status, which its newest review tells, whatever pull request that is of. One that ended
 -- before it was told leaves it to the review before.
 WHERE v.host = ANY(%(own_checks)s) OR NOT EXISTS (
   SELECT FROM host_versions n JOIN jobs j ON j.id = n.job_id JOIN host_changes p ON p.id = n.change_id
     LEFT JOIN host_checks c ON c.version_id = n.id
    WHERE n.head_sha = v.head_sha AND n.id > v.id AND p.host = v.host AND p.repository_id = v.repository_id
      AND j.series = '' AND (c.id IS NOT NULL OR j.status NOT IN ('cancelled', 'superseded')))
 ORDER BY v.due_at NULLS FIRST, v.id LIMIT %(limit)s""")


@dataclass(frozen=True, slots=True)
class Told:
    """State that a check run shows.

    `state` is that of its review; `conclusion` is "" until the review has ended.
    """

    state: str
    title: str
    summary: str
    conclusion: str = ""


def ensure() -> None:
    """Start or stop the clock, by the hosts that we have credentials for. Run by maintenance."""
    CLOCK.ensure(is_enabled=bool(connected_hosts()))


def run_due() -> Pause:
    """Run once; return when the next run is due."""
    run()
    return Pause(outbox.scaled(EVERY_SECONDS))


def run() -> int:
    """Tell every check run that is behind its review; return how many were told.

    Lets database errors through.
    """
    hosts, told = connected_hosts(), 0
    until = time.monotonic() + RUN_SECONDS
    own = [name for name, host in hosts.items() if host.has_own_checks]
    for row in prepared.rows(_DUE, {"limit": _AT_ONCE, "hosts": list(hosts), "own_checks": own}):
        if time.monotonic() > until:
            break
        told += _tell(row["id"], hosts)
    return told


def _tell(version_id: int, hosts: Mapping[str, Host]) -> bool:
    """Bring one check run up to its review; return whether it was told."""
    if (check := _check_of(version_id)) is None:
        log.warning("check_run_without_version", version=version_id)
        return False
    host = hosts[check.version.change.host]
    try:
        name = gate.name_of(host.dependency(check.version.change.full_name))
        permit = gate.acquire_paced_permit(name)
    except DependencyUnavailable as waiting:
        _postpone(check, waiting.seconds)
        return False
    try:
        if not _claim(check):
            return False
        began, told = time.monotonic(), told_of(check.version.job)
        check_id = _call(host, check, told, began)
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


def _check_of(version_id: int) -> HostCheck | None:
    """Return the row of a version's check run, made if it is missing.

    None where the version is gone: a standby was promoted that had not got it. Its pull request gets another.
    """
    version = HostVersion.objects.select_related("job", "change").filter(pk=version_id).first()
    if version is None:
        return None
    made = HostCheck(version_id=version_id, token=token_of(version))
    try:
        HostCheck.objects.bulk_create([made], ignore_conflicts=True)
    except IntegrityError:
        return None
    checks = HostCheck.objects.select_related("version__job", "version__change")
    return checks.filter(version_id=version_id).first()


def token_of(version: HostVersion) -> UUID:
    """Return the external id of a version's check run.

    It is the same for the version that replaces a lost one.
    """
    job = version.job
    about = [version.change.host, version.change.repository_id, version.head_sha, job.changelist_id]
    return uuid5(_NAMESPACE, json.dumps([*about, job.review_version, job.series]))


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


def _call(host: Host, check: HostCheck, told: Told, began: float) -> int | None:
    """Tell the host; return the number of the check run, None where none is needed."""
    change = check.version.change
    url = settings.BASE_URL.rstrip("/") + reverse("reviews:detail", args=[check.version.job_id])
    return host.post_verdict(
        host.repository(change.full_name, change.repository_id),
        Verdict(
            check.version.head_sha, str(check.token), told.title[:255], told.summary, web_link(url),
            told.conclusion,
        ),
        check.check_id,
        partial(_check_time, began),
        # A database that lost its last commits may have lost an attempt.
        is_first=check.attempts == 1 and timeline.is_first(),
    )  # fmt: skip


def _check_time(began: float) -> None:
    if time.monotonic() - began > _LATEST_SECONDS:
        detail = "the host answers too slowly"
        raise RetryableFailure(ErrorClass.NETWORK_TIMEOUT, Component.PROVIDER, detail)


def told_of(job: ReviewJob) -> Told:
    """Return what the check run of a job is to show: counts only, no text of a change."""
    if job.status in ACTIVE_JOB:
        return Told(HostCheck.ACTIVE, "The review is in progress", "Its results appear on the pull request.")
    if job.status == JobStatus.SUCCEEDED:
        return _result(job)
    if job.status == JobStatus.DEAD_LETTERED:
        return _failure(job)
    title, summary, conclusion = _ENDINGS[JobStatus(job.status)]
    return Told(job.status, title, summary, conclusion)


def _result(job: ReviewJob) -> Told:
    report = report_of(job)
    headline = summarise(report).headline
    if blocking := _blocking(job, report):
        title = f"{headline}. {plural_count(blocking, 'finding')} of the severity at which this check fails."
        return Told(job.status, headline, title, "failure")
    # What did not run, or a file that was read in part: the absence of findings proves less.
    if texts.NO_AGENT.text in job.banner:
        return _of(texts.AGENT_SETUP, job)
    if job.stopped or job.banner or any(file.status == CoverageStatus.PARTIAL for file in report.coverage):
        why = job.banner or "Not everything was read completely."
        return _of(texts.PARTIAL, job, headline=headline, why=why)
    return Told(job.status, headline, f"{headline}.", "neutral" if report.findings else "success")


def _failure(job: ReviewJob) -> Told:
    """Return what a check run shows of a review that stopped, by its newest dead letter."""
    letter = (
        DeadLetter.objects.filter(job=job.pk).order_by("-id").only("code", "error_class", "stage").first()
    )
    if letter is not None and letter.stage == Stage.FETCH and letter.error_class in _NOT_PERMITTED:
        return _of(texts.NO_PERMISSION, job)
    kind = kind_with_code(letter.code) if letter is not None else None
    return _of(texts.FAILED, job, error=kind.message if kind else "it stopped.")


def _of(text: texts.Text, job: ReviewJob, **values: object) -> Told:
    return Told(job.status, text.title, text.of(**values), text.conclusion)


def _blocking(job: ReviewJob, report: Report) -> int:
    """Return how many findings the repository's configuration lets no change be merged with."""
    at = blocks_at(job)
    if at == "none":
        return 0
    found = (finding for finding in report.findings if not finding.is_dismissed)
    return sum(rank(finding.severity) >= rank(at) for finding in found)


_NOT_PERMITTED = (ErrorClass.AUTH_DENIED, ErrorClass.PERMISSION_DENIED)
_ENDINGS = {
    JobStatus.SUPERSEDED: ("A newer version is reviewed", "The pull request has changed since.", "cancelled"),
    JobStatus.CANCELLED: ("The review was cancelled", "It was closed or made a draft.", "cancelled"),
    JobStatus.TIMED_OUT: (
        "The review took too long", "It was not finished before its deadline.", "timed_out",
    ),
}  # fmt: skip
