"""End of jobs from outside the workers: cancelled, superseded, timed out (G18 to G20).

A worker may be running a stage when its job ends. It loses its lease at once, so it can neither finish the
job nor send. `ended_token` keeps the lease's token, so that the worker's result is still stored
(`record_after_end`), as a late result when the deadline was the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import structlog
from django.db import IntegrityError, connection, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.redaction import clean
from criticizer.resilience.failures import Component, ErrorClass, kind_of
from criticizer.wording import plural_count
from deadletters import alerts, ingest
from notifications.delivery import operator_actions
from notifications.models import Delivery
from notifications.states import DeliveryStatus
from reviews.agents import expire as expire_tasks
from reviews.models import FindingRow, JobEvent, ReviewJob, Scan
from reviews.models.jobs import SCAN
from reviews.pipeline import circuit_alerts
from reviews.pipeline.base import (
    AGGREGATE,
    HOLD_PATH,
    MESSAGE,
    StageClaim,
    deadline_seconds_of,
    queue_of,
    statement,
)
from reviews.pipeline.deadline import fail_replay
from reviews.states import ACTIVE_JOB, ENDED_JOB, JobStatus, Stage, StageStatus

log = structlog.get_logger(__name__)

SYSTEM = "criticizer"
_EXPIRE_AT_ONCE = 500

# In the order of the lock that a claim takes first. A statement after it sees the attempt that a claim began
# meanwhile: one that waits for the claim's row itself reads the row again, but not the claim's attempt.
_HOLD_STAGES = "SELECT id FROM stage_runs WHERE job_id = ANY(%(jobs)s) ORDER BY id FOR NO KEY UPDATE"

# A cancelled attempt is given back: ending a job from outside uses no budget.
_END = statement("""
WITH job AS (
  UPDATE jobs SET status = %(status)s::varchar, finished_at = now(), status_reason = %(reason)s::varchar,
         is_late = is_late OR %(status)s::varchar = 'timed_out' AND EXISTS (
           SELECT 1 FROM stage_runs l WHERE l.job_id = jobs.id AND l.stage = 'llm'
              AND l.status = 'succeeded' AND l.finished_at > jobs.deadline_at)
   WHERE id = ANY(%(jobs)s) AND status IN $ACTIVE RETURNING id),
runs AS (
  UPDATE stage_runs s
     SET status = 'cancelled', ended_token = s.lease_token, lease_token = NULL, lease_expires_at = NULL,
         attempts = s.attempts - (s.status = 'running' AND %(status)s::varchar <> 'timed_out')::int,
         finished_at = now(), next_attempt_at = NULL, progress = '{}'
    FROM job WHERE s.job_id = job.id AND s.status IN $UNFINISHED RETURNING s.id),
unfinished AS (
  UPDATE attempts a SET finished_at = now(), detail = %(reason)s::varchar, error_class = %(error_class)s,
         outcome = CASE WHEN %(status)s::varchar = 'timed_out' THEN 'failed' ELSE 'given_back' END
    FROM runs WHERE a.stage_run_id = runs.id AND a.outcome = 'started'),
gone AS (
  DELETE FROM outbox_messages o USING runs WHERE o.aggregate_type = 'stage_run' AND o.aggregate_id = runs.id),
noted AS (
  INSERT INTO job_events (job_id, kind, actor, reason)
  SELECT id, %(status)s::varchar, %(actor)s, %(reason)s::varchar FROM job)
SELECT id FROM job""")


def _end(jobs: Collection[int], status: str, actor: str, reason: str) -> list[int]:
    text = clean(reason, 500)
    parameters = {
        "jobs": list(jobs),
        "status": status,
        "actor": actor[:255],
        "reason": text,
        "error_class": "DEADLINE_EXCEEDED" if status == "timed_out" else "",
    }
    prepared.rows(_HOLD_STAGES, {"jobs": parameters["jobs"]})
    ended = [int(row["id"]) for row in prepared.rows(_END, parameters)]
    expire_tasks.cancel(ended)
    for job_id in ended:
        ingest.abandon_replayed(job_id, text)
    return ended


def cancel(job_id: int, actor: str, reason: str) -> bool:
    """Cancel an active job; its finished stages stay readable, and no attempt is used.

    Returns False when the job had ended already.
    """
    with transaction.atomic():
        ended = _end([job_id], "cancelled", actor, f"cancelled by {actor}: {reason}")
        for job in ended:
            operator_actions.cancel_unsent(job)
    if ended:
        log.info("job_cancelled", job=job_id, actor=actor)
    return bool(ended)


def supersede(job_ids: list[int], by_version: int) -> None:
    """End older versions of a changelist; nothing more is sent for them. Inside a transaction."""
    assert connection.in_atomic_block
    for job in _end(job_ids, "superseded", SYSTEM, f"version {by_version} was requested"):
        operator_actions.supersede_unsent(job)
        log.info("job_superseded", job=job, by_version=by_version)


def expire(job_ids: Collection[int]) -> int:
    """End those of the jobs that are past their deadline; return how many.

    They are timed out; a job that is being replayed becomes a dead letter again.
    """
    with transaction.atomic():
        circuit_alerts.tell_outlasting(job_ids)
        prepared.rows(_HOLD_STAGES, {"jobs": list(job_ids)})
        overdue = prepared.rows(
            statement("""
            SELECT id, created_at, deadline_at,
                   EXISTS (SELECT 1 FROM dead_letters l
                            WHERE l.job_id = jobs.id AND l.status = 'replaying') AS replayed,
                   (SELECT stage FROM stage_runs s WHERE s.job_id = jobs.id AND s.status IN $UNFINISHED
                     ORDER BY s.id LIMIT 1) AS stage
              FROM jobs WHERE id = ANY(%(jobs)s) AND status IN $ACTIVE AND deadline_at <= now()
             ORDER BY id FOR UPDATE SKIP LOCKED"""),
            {"jobs": list(job_ids)},
        )
        reason = "DEADLINE_EXCEEDED: the review was not finished before its deadline"
        ended = _end([row["id"] for row in overdue if not row["replayed"]], "timed_out", SYSTEM, reason)
        for job in ended:
            operator_actions.cancel_unsent(job)
        _alert_of_timeouts(ended)
        for row in overdue:
            if row["replayed"]:
                fail_replay(row["id"])
    for row in overdue:
        if row["id"] in ended:
            log.warning(
                "job_timed_out",
                job=row["id"],
                stage=row["stage"],
                created_at=row["created_at"].isoformat(),
                deadline_at=row["deadline_at"].isoformat(),
                **kind_of(ErrorClass.DEADLINE_EXCEEDED, Component.INTERNAL).facts,
            )
    return len(overdue)


def _alert_of_timeouts(jobs: list[int]) -> None:
    if not jobs:
        return
    named = ", ".join(map(str, jobs[:20]))
    alerts.tell(
        "timed_out",
        key=f"timed-out:{jobs[0]}:{timezone.now():%Y-%m-%dT%H}",
        path=f"{reverse('admin:reviews_reviewjob_changelist')}?q=state:{JobStatus.TIMED_OUT}",
        reviews=plural_count(len(jobs), "review"),
        jobs=named if len(jobs) <= 20 else f"{named} and {len(jobs) - 20} more",
    )


def _end_left_deliveries() -> None:
    """End deliveries that a worker put back after their job had ended.

    It was sending them at the moment of the end.
    """
    left = Delivery.objects.filter(status=DeliveryStatus.PENDING, job__status__in=ENDED_JOB)
    for job_id in left.order_by("job_id").values_list("job_id", flat=True).distinct():
        with transaction.atomic():
            jobs = ReviewJob.objects.select_for_update(skip_locked=True, no_key=True)
            job = jobs.filter(pk=job_id, status__in=ENDED_JOB).only("status").first()
            if job is not None and job.status == JobStatus.SUPERSEDED:
                operator_actions.supersede_unsent(job_id)
            elif job is not None:
                operator_actions.cancel_unsent(job_id)


def expire_overdue() -> int:
    """Time out every job that is past its deadline; return how many. Run by maintenance."""
    _end_left_deliveries()
    overdue = ReviewJob.objects.filter(finished_at=None, deadline_at__lte=Now()).order_by("deadline_at")
    total = 0
    while True:
        ids = list(overdue.values_list("pk", flat=True)[:_EXPIRE_AT_ONCE])
        ended = expire(ids) if ids else 0
        total += ended
        if ended < _EXPIRE_AT_ONCE:
            return total


_AFTER_END = statement("""
WITH run AS (
  UPDATE stage_runs s SET ended_token = NULL FROM jobs j
   WHERE s.id = %(stage_run)s AND s.ended_token = %(token)s AND j.id = s.job_id
     AND j.status IN $ENDED
  RETURNING s.job_id, s.stage, j.status),
late AS (
  UPDATE jobs SET is_late = true FROM run
   WHERE jobs.id = run.job_id AND run.status = 'timed_out' AND run.stage = 'llm' RETURNING jobs.id)
SELECT run.job_id, run.status, EXISTS (SELECT FROM late) AS is_late,
       extract(epoch FROM now() - j.deadline_at)::float8 AS late_by_seconds
  FROM run JOIN jobs j ON j.id = run.job_id""")


def record_after_end(claim: StageClaim, write: Callable[[], None] | None) -> bool:
    """Store a worker's result for a job that ended in between; change no state (guarantee G19).

    Findings of earlier versions do not end with it: what it says of them waits for its acceptance.

    Once per worker. Returns False when the lease was lost to another worker, when the job is active
    again, or when there is no result.
    """
    if write is None:
        return False
    with transaction.atomic():
        found = prepared.row(_AFTER_END, claim.rows)
        if found is None:
            return False
        write()
        endings = _take_back_endings(claim.job_id) if claim.stage is Stage.LLM else {}
        if found["is_late"]:
            JobEvent.objects.create(
                job_id=claim.job_id,
                kind=JobEvent.Kind.LATE_STORED,
                actor=SYSTEM,
                reason="a worker finished the review after the deadline",
                context={"endings": endings} if endings else {},
            )
    log.info(
        "result_after_end",
        job=claim.job_id,
        stage=claim.stage.value,
        job_status=found["status"],
        late_by_seconds=round(found["late_by_seconds"], 1),
    )
    return True


def _take_back_endings(job_id: int) -> dict[str, list[int]]:
    """Reopen the findings of earlier versions that a result has just ended.

    Returns their ids by ending.
    """
    ended = FindingRow.objects.filter(ended_in=job_id)
    endings: dict[str, list[int]] = {}
    for pk, ending in ended.order_by("pk").values_list("pk", "ending"):
        endings.setdefault(ending, []).append(pk)
    if endings:
        ended.update(ending="", ended_in=None)
    return endings


def _end_findings(job_id: int) -> None:
    """End the findings of earlier versions of which an accepted late result says how they ended."""
    stored = JobEvent.objects.filter(job_id=job_id, kind=JobEvent.Kind.LATE_STORED).order_by("-id").first()
    endings = stored.context.get("endings", {}) if stored is not None else {}
    for ending, ids in endings.items():
        open_ones = FindingRow.objects.filter(pk__in=ids, ended_in=None, ending="")
        open_ones.update(ending=ending, ended_in=job_id)


def why_not_acceptable(job_id: int) -> str:
    """Return why the late result of a job cannot be accepted, or an empty string."""
    job = ReviewJob.objects.filter(pk=job_id).first()
    if job is None:
        return "the review does not exist"
    if job.status != JobStatus.TIMED_OUT:
        return "only a review that timed out has a late result"
    versions = job.versions().exclude(pk=job_id)
    if versions.filter(Q(status__in=ACTIVE_JOB) | Q(review_version__gt=job.review_version)).exists():
        return "a newer version of the changelist exists"
    if job.kind == SCAN and not Scan.objects.filter(job=job_id).exists():
        return "its path is no longer scanned"
    if Scan.objects.filter(target__scans=job_id, job__gt=job_id).exists():
        return "a newer scan of its path exists"
    reviewed = job.stages.filter(stage=Stage.LLM, status=StageStatus.SUCCEEDED)
    if not job.is_late and not reviewed.exists():
        return "no result has arrived: request a rerun instead"
    return ""


_ACCEPT = """
WITH job AS (
  UPDATE jobs SET status = 'queued', finished_at = NULL, status_reason = 'late result accepted',
         deadline_at = now() + make_interval(secs => %(sla)s)
   WHERE id = %(job)s AND status = 'timed_out' RETURNING id),
review AS (
  UPDATE stage_runs s SET status = 'succeeded', ended_token = NULL, error_class = '' FROM job
   WHERE s.job_id = job.id AND s.stage = 'llm' AND s.status = 'cancelled'),
noted AS (
  INSERT INTO job_events (job_id, kind, actor, reason)
  SELECT id, 'late_accepted', %(actor)s, %(reason)s::varchar FROM job)
UPDATE stage_runs s
   SET status = 'pending', attempts = 0, started_at = NULL, finished_at = NULL, next_attempt_at = NULL,
       ended_token = NULL, first_failure_at = NULL, last_failure_at = NULL, error_class = ''
  FROM job WHERE s.job_id = job.id AND s.stage = 'notify' RETURNING s.id"""


def accept_late(job_id: int, actor: str, reason: str) -> str:
    """Deliver the late result of a timed-out review, once: its stage notify runs again.

    Returns why it cannot be, or an empty string. Raises ValueError without a reason.
    """
    if not reason.strip():
        raise ValueError("A reason is required to deliver a late result.")
    try:
        with transaction.atomic():
            prepared.rows(HOLD_PATH, {"job": job_id})
            if problem := why_not_acceptable(job_id):
                return problem
            notify = prepared.value(
                _ACCEPT,
                {
                    "job": job_id,
                    "actor": actor[:255],
                    "reason": clean(reason, 1000),
                    "sla": deadline_seconds_of(job_id),
                },
            )
            if notify is None:
                return "the review has changed since: reload it"
            _end_findings(job_id)
            operator_actions.revive_cancelled(job_id)
            outbox.publish(AGGREGATE, notify, MESSAGE, queue_of(Stage.NOTIFY), flow=outbox.REPLAYS)
    except IntegrityError:
        return "another version of the changelist is active"
    log.info("late_result_accepted", job=job_id, actor=actor)
    return ""
