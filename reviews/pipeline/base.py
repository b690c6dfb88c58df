"""What the pipeline's modules share: the right to work on a stage, and how it is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings

from criticizer.db import prepared
from reviews.states import ACTIVE_JOB, ENDED_JOB, UNFINISHED_STAGE, WAITING_STAGE, Stage

AGGREGATE = "stage_run"
MESSAGE = "run_stage"
# For SQL texts, as `status IN {ACTIVE}`.
ACTIVE = prepared.sql_list(ACTIVE_JOB)
ENDED = prepared.sql_list(ENDED_JOB)
UNFINISHED = prepared.sql_list(UNFINISHED_STAGE)
WAITING = prepared.sql_list(WAITING_STAGE)
# When work is due again, of a job `j`: by its deadline at the latest, for whoever claims it then ends it.
BEFORE_DEADLINE = "least(now() + make_interval(secs => %(delay)s), j.deadline_at)"


class LostLease(Exception):
    """Another worker owns the stage, or its job has ended: the result is dropped."""


@dataclass(frozen=True, slots=True)
class StageClaim:
    """The right to work on one stage once. `attempt` counts from 1 within its budget."""

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
