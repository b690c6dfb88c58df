"""The end of tasks that no agent finishes: expiry, cancellation, and what operators decide."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models.functions import Now

from criticizer.db import prepared
from criticizer.redaction import clean
from reviews.agents import claim, rows
from reviews.agents.offer import AFRESH, seconds_left
from reviews.models import AgentTask, JobEvent, StageRun
from reviews.states import OPEN_TASK, UNFINISHED_STAGE, AgentTaskStatus

log = structlog.get_logger(__name__)

# In the progress of a stage that offered tasks and has not read their results yet.
OFFERED = "agents"
LOST, TIMEOUT = "agent_lost", "agent_timeout"  # it was claimed when its lease ran out, or it was not
_AT_ONCE = 500

_RELEASE_LAPSED = rows.statement(
    """
UPDATE agent_tasks t SET status = 'pending', claim_sha256 = '', lease_expires_at = NULL,
       error_class = '$LOST', detail = 'the agent stopped renewing its claim'
 WHERE t.id IN (SELECT t.id FROM agent_tasks t WHERE t.status IN $OPEN AND $TO_RELEASE
                 LIMIT $AT_ONCE FOR UPDATE SKIP LOCKED) AND $TO_RELEASE
RETURNING t.id""",
    LOST=LOST,
    AT_ONCE=_AT_ONCE,
)

# Of an agent that was lost with a claim of it the row says so already, or its lease does.
_EXPIRE = rows.statement(
    """
UPDATE agent_tasks t
   SET error_class = CASE WHEN t.status = 'in_progress' OR t.error_class = '$LOST'
                          THEN '$LOST' ELSE '$TIMEOUT' END,
       status = 'expired', claim_sha256 = '', lease_expires_at = NULL, finished_at = clock_timestamp(),
       detail = 'no result came in time'
 WHERE t.stage_run_id = %(stage_run)s AND $DEAD
RETURNING t.id, t.job_id, t.type, t.error_class, t.created_at, t.expires_at""",
    LOST=LOST,
    TIMEOUT=TIMEOUT,
)

# A stage waits no longer than until a second after the first of its open tasks is over (`agent_review`).
_STAGES = rows.statement(
    """
SELECT DISTINCT t.stage_run_id AS id FROM agent_tasks t WHERE t.status IN $OPEN AND $DEAD
UNION
SELECT t.stage_run_id FROM agent_tasks t
  JOIN stage_runs s ON s.id = t.stage_run_id
  JOIN outbox_messages o ON o.aggregate_type = 'stage_run' AND o.aggregate_id = s.id
 WHERE t.expires_at > now() - interval '1 minute' AND t.status NOT IN $OPEN
   AND s.progress ? '$OFFERED' AND s.status = 'pending'
   AND o.lease_token IS NULL AND o.available_at > now()
   AND NOT EXISTS (SELECT FROM agent_tasks t WHERE t.stage_run_id = s.id AND t.status IN $OPEN)
 LIMIT $AT_ONCE""",
    OFFERED=OFFERED,
    AT_ONCE=_AT_ONCE,
)


def sweep() -> int:
    """Give back lost claims, expire tasks, make missed stages due; return how many expired.

    A claim is lost when it lapsed or its key was revoked. Run by maintenance every 30 seconds.
    """
    claim.release_revoked()
    if lapsed := prepared.rows(_RELEASE_LAPSED):
        log.warning("agent_claims_lapsed", tasks=len(lapsed))
    return sum(settle(row["id"]) for row in prepared.rows(_STAGES))


def settle(stage_run_id: int) -> int:
    """Expire the tasks of a stage whose time is over; return how many.

    The last one makes the stage due.
    """
    with transaction.atomic():
        rows.hold_stage(stage_run_id)
        expired = prepared.rows(_EXPIRE, {"stage_run": stage_run_id})
        rows.wake_if_last(stage_run_id)
    for task in expired:
        log.warning(
            "agent_task_expired", task=str(task["id"]), job=task["job_id"], type=task["type"],
            error_class=task["error_class"], created_at=task["created_at"].isoformat(),
            expires_at=task["expires_at"].isoformat(),
        )  # fmt: skip
    return len(expired)


def cancel(job_ids: Collection[int]) -> None:
    """Cancel the open tasks of jobs that end.

    Part of the transaction that ends the jobs and holds their stages. The token of a claim stays: its next
    heartbeat says that the task is cancelled.
    """
    found = AgentTask.objects.filter(job__in=job_ids, status__in=OPEN_TASK)
    found.update(
        status=AgentTaskStatus.CANCELLED, lease_expires_at=None, finished_at=Now(), detail="the review ended"
    )


def expire_now(task_id: UUID, actor: str, reason: str) -> str:
    """Expire an open task for an operator; return why it cannot be expired, or "".

    Raises ValueError without a reason.
    """
    return _decide(task_id, actor, reason, is_offer=False)


def offer_again(task_id: UUID, actor: str, reason: str) -> str:
    """Offer a task again whose stage still waits; a claim of it becomes void.

    Returns and raises as `expire_now`.
    """
    return _decide(task_id, actor, reason, is_offer=True)


def _decide(task_id: UUID, actor: str, reason: str, *, is_offer: bool) -> str:
    if not reason.strip():
        raise ValueError("A reason is required.")
    with transaction.atomic():
        task = AgentTask.objects.get(pk=task_id)
        rows.hold_stage(task.stage_run_id)
        stage = StageRun.objects.get(pk=task.stage_run_id)
        if stage.status not in UNFINISHED_STAGE or OFFERED not in stage.progress:
            return "its stage does not wait for it any more"
        task = AgentTask.objects.select_for_update().get(pk=task_id)
        same = AgentTask.objects.filter(pk=task_id, status=task.status)
        if is_offer:
            if task.status == AgentTaskStatus.COMPLETED:
                return "it is completed"
            left = seconds_left(task.job_id)
            if left <= 0:
                return "the deadline of its review is too near"
            done = same.update(**{**AFRESH, "expires_at": Now() + timedelta(seconds=left)})
        else:
            if task.status not in OPEN_TASK:
                return "it is not open"
            done = same.update(
                status=AgentTaskStatus.EXPIRED, claim_sha256="", lease_expires_at=None, finished_at=Now(),
                error_class=TIMEOUT, detail=clean(f"expired by {actor}: {reason}", 512),
            )  # fmt: skip
        assert done == 1
        JobEvent.objects.create(
            job_id=task.job_id,
            kind=JobEvent.Kind.TASK_DECIDED,
            actor=actor[:255],
            reason=clean(f"{'offered again' if is_offer else 'expired'}: {reason}", 1000),
            context={"task": str(task_id), "type": task.type, "before": task.status},
        )
        rows.wake_if_last(task.stage_run_id)
    log.info("agent_task_decided", task=str(task_id), job=task.job_id, actor=actor, offered=is_offer)
    return ""
