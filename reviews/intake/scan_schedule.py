"""Schedule of scans: requests one of each path that is due, exactly once.

One outbox message runs it, on whichever worker takes it. The commit that requests a scan also moves the
path's next time, from the one that was read: of two runs at once, one requests it.
"""

from __future__ import annotations

from datetime import timedelta

import structlog
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from criticizer.queue.periodic import Pause, PeriodicTask
from criticizer.redaction import clean
from criticizer.resilience.classification import classify
from criticizer.resilience.failures import Failure
from reviews import scans
from reviews.intake import review_requests
from reviews.intake import scans as intake
from reviews.models import ReviewJob, ScanTarget
from reviews.states import ACTIVE_JOB, JobStatus

ACTOR = "schedule"
CLOCK = PeriodicTask("scan_schedule", "start_scans")
EVERY_SECONDS = 30.0
AGAIN = timedelta(hours=1)  # after a repository could not be read; sooner where a path is scanned more often

log = structlog.get_logger(__name__)


def ensure() -> None:
    """Start or stop the periodic task. Run by maintenance."""
    CLOCK.ensure(is_enabled=ScanTarget.objects.filter(every_hours__gt=0).exists())


def run_due() -> Pause:
    """Request the scans that are due; return when to look again."""
    run()
    return Pause(EVERY_SECONDS)


def run() -> list[int]:
    """Request a scan of each path that is due; return their jobs.

    A repository that cannot be read delays no other path, nor does a defect that one path meets. A server
    that does not answer is asked once, after all repositories of this machine.
    """
    due = ScanTarget.objects.filter(Q(next_at=None) | Q(next_at__lte=Now()), every_hours__gt=0)
    away: dict[str, Failure] = {}
    found = [_start(target, away) for target in sorted(due, key=lambda each: intake.host_of(each) != "")]
    return [job for job in found if job is not None]


def _start(target: ScanTarget, away: dict[str, Failure]) -> int | None:
    """Request a scan of a path that is due; return its job, or None.

    None where another run requested it, one is active, or the newest commit is verified already. `away`: the
    servers that did not answer in this run, which are not asked again.
    """
    interval, host = timedelta(hours=target.every_hours), intake.host_of(target)
    try:
        if host in away:
            raise away[host]
        changelist_id = intake.head_of(target)
        return review_requests.past_deadlocks(lambda: _requested(target, interval, changelist_id))
    except Failure as failure:
        if host and failure.retryable:
            away[host] = failure
        log.warning("scan_not_requested", path=target.path, **failure.facts)
        problem = clean(failure.detail, 500)
    except Exception as error:  # a lost database raises again below, and ends the run
        log.exception("scan_not_requested", path=target.path, **classify(error).facts)
        problem = f"Criticizer failed on it ({type(error).__name__}): see the log"
    _move(target, min(interval, AGAIN), problem)
    return None


def _requested(target: ScanTarget, interval: timedelta, changelist_id: str) -> int | None:
    # The scan is requested and the next one is due later, or neither.
    with transaction.atomic():
        if not _move(target, interval, ""):
            log.info("scan_requested_elsewhere", path=target.path)
            return None
        jobs = ReviewJob.objects.filter(series=intake.series_of(target.pk))
        is_active = jobs.filter(status__in=ACTIVE_JOB).exists()
        if is_active or _is_verified(jobs.filter(changelist_id=changelist_id)):
            return None
        key = f"{ACTOR}:{target.next_at.isoformat() if target.next_at else timezone.now().isoformat()}"
        return intake.create(target, key, ACTOR, changelist_id).job_id


def _is_verified(jobs: QuerySet[ReviewJob]) -> bool:
    newest = jobs.filter(status=JobStatus.SUCCEEDED).order_by("-review_version").first()
    if newest is None or newest.documents.get("unlisted"):
        return False
    return not scans.results_of([newest.pk])[newest.pk].is_partial


def _move(target: ScanTarget, pause: timedelta, problem: str) -> bool:
    """Move the next time of a path from the one that was read.

    Return whether it was still that one.
    """
    row = ScanTarget.objects.filter(pk=target.pk, next_at=target.next_at, every_hours=target.every_hours)
    return row.update(next_at=timezone.now() + pause, problem=problem) == 1
