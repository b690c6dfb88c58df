"""Shared by the pipeline's modules: the lease of a stage, and SQL texts with state lists."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F

from criticizer.db import prepared
from notifications.recipients import OPTIONAL_CHANNELS
from notifications.states import NOT_REQUIRED_DELIVERY
from reviews.models import ReviewJob
from reviews.models.jobs import SCAN
from reviews.states import ACTIVE_JOB, ENDED_JOB, UNFINISHED_STAGE, WAITING_STAGE, Stage

AGGREGATE = "stage_run"
MESSAGE = "run_stage"
# From then on a stage run `s` of a job `j` calls no model where it has results (guarantee G385). What is left
# is for the calls in flight and for notifications; never more than half of the time.
_SOFT_DEADLINE = (
    "(j.deadline_at - least(make_interval(secs => %(soft_margin)s),"
    " (j.deadline_at - coalesce(s.started_at, now())) / 2))"
)
# Locks the path of a job that is a scan, as a request of a scan does: one of the two sees the other (G542).
HOLD_PATH = (
    "SELECT t.id FROM scan_targets t JOIN scans s ON s.target_id = t.id WHERE s.job_id = %(job)s"
    " FOR NO KEY UPDATE OF t"
)
_HAS_ANSWERS = "(s.stage = 'llm' AND s.progress <> '{}')"
_NOTIFY_SECONDS = 60.0
_CONSTANTS = {
    "ACTIVE": prepared.sql_list(ACTIVE_JOB),
    "ENDED": prepared.sql_list(ENDED_JOB),
    "UNFINISHED": prepared.sql_list(UNFINISHED_STAGE),
    "WAITING": prepared.sql_list(WAITING_STAGE),
    # Whose turn the work of a job `j` uses up (guarantee G140); without a requester it is the system's.
    "FLOW": "coalesce(nullif(j.requested_by, ''), 'system')",
    # When work of a job `j` is due again: at its deadline at the latest, so that it is then ended.
    # A review with answers is due at its soft deadline already, to publish these.
    "BEFORE_DEADLINE": f"least(now() + make_interval(secs => %(delay)s), CASE WHEN {_HAS_ANSWERS}"
    f" AND {_SOFT_DEADLINE} > now() THEN {_SOFT_DEADLINE} ELSE j.deadline_at END)",
    "SOFT_DEADLINE": _SOFT_DEADLINE,
    "HAS_ANSWERS": _HAS_ANSWERS,
    # An attempt `a` at a stage run `s` that lost its worker, since the stage was last queued again.
    "LOST_WORKER": "a.stage_run_id = s.id AND a.started_at >= s.started_at"
    " AND a.error_class = 'WORKER_LOST' AND a.outcome IN ('lost', 'given_back')",
    # The deliveries `d` that keep a job from success: not made, not given up by an operator, not removed from
    # its recipients by an edit, and not of a channel that no job waits for.
    "UNNOTIFIED": "d.job_id = %(job)s AND d.notified_at IS NULL AND d.status NOT IN "
    + prepared.sql_list(NOT_REQUIRED_DELIVERY)
    + f" AND d.recipient !~ '^({'|'.join(OPTIONAL_CHANNELS)}):'",
}


def statement(text: str, **constants: str) -> str:
    """Return SQL with constants such as `$ACTIVE` filled in.

    Values are parameters, never part of it.
    """
    return prepared.statement(text, **_CONSTANTS, **constants)


def deadline_seconds(changelist_id: str, kind: str = "") -> int:
    """Return the seconds from a review's creation to its deadline, by kind or source (G388).

    A kind says more than "perforce", the name of another source more than a kind, and `SCAN` more than that.
    """
    limits: Mapping[str, int] = settings.REVIEW_SLA_SECONDS
    source, is_other, _ = changelist_id.partition(":")
    name = source if is_other else "perforce"
    names = (name, kind) if is_other and kind != SCAN else (kind, name)
    return next((limits[name] for name in names if name and name in limits), limits[""])


def note_kind(job_id: int, changelist_id: str, kind: str) -> None:
    """Write the kind of a fetched change where it was not known.

    Its deadline moves by the difference.
    """
    seconds = deadline_seconds(changelist_id, kind) - deadline_seconds(changelist_id)
    ReviewJob.objects.filter(pk=job_id, kind="").update(
        kind=kind, deadline_at=F("deadline_at") + timedelta(seconds=seconds)
    )


def deadline_seconds_of(job_id: int) -> int:
    """Return the seconds that a job has from now when it begins again."""
    return deadline_seconds(*ReviewJob.objects.values_list("changelist_id", "kind").get(pk=job_id))


def soft_margin() -> float:
    """Return the seconds between the soft deadline of a review and that of its job, at most."""
    return float(settings.LLM_TIMEOUT_SECONDS + _NOTIFY_SECONDS)


class LostLease(Exception):
    """Another worker has the stage, or its job has ended: the result is dropped."""


@dataclass(frozen=True, slots=True)
class StageClaim:
    """The right to work on one stage once. `attempt` counts from 1 within its budget.

    `has_progress`: an earlier attempt left finished parts. `soft_deadline_in` is in seconds from the claim,
    negative once it has passed. `flow`: of its message (`outbox`).
    """

    outbox_id: int
    token: UUID
    stage_run_id: int
    stage: Stage
    attempt: int
    max_attempts: int
    attempt_id: int
    job_id: int
    changelist_id: str
    review_version: int
    has_progress: bool = True
    soft_deadline_in: float = math.inf
    flow: str = ""

    @property
    def rows(self) -> dict[str, Any]:
        """Return the parameters by which a statement finds the rows of this claim.

        They are its stage run, lease, attempt and message.
        """
        return {
            "stage_run": self.stage_run_id,
            "token": self.token,
            "attempt": self.attempt_id,
            "outbox": self.outbox_id,
        }


@dataclass(frozen=True, slots=True)
class Due:
    """A leased piece of work that has not been claimed yet."""

    outbox_id: int
    stage_run_id: int
    token: UUID


def queue_of(stage: str) -> str:
    """Return the queue whose workers run `stage` (settings.STAGES)."""
    stages: Mapping[str, tuple[str, str]] = settings.STAGES
    return stages[stage][1]
