"""End of a replay that misses its deadline: a dead letter again.

A timed-out job could not be replayed again.
"""

from __future__ import annotations

import structlog

from criticizer.db import prepared
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from reviews.pipeline import dead_letter
from reviews.pipeline.base import statement
from reviews.states import STAGE_ORDER, Stage

log = structlog.get_logger(__name__)

_DETAIL = "the replay was not finished before its deadline"

_FAIL = statement("""
WITH job AS (
  UPDATE jobs SET status = 'dead_lettered', finished_at = now(), status_reason = %(error_class)s
   WHERE id = %(job)s AND status IN $ACTIVE RETURNING id),
run AS (
  UPDATE stage_runs SET status = 'failed', lease_token = NULL, lease_expires_at = NULL, finished_at = now(),
         next_attempt_at = NULL, progress = '{}', error_class = %(error_class)s,
         first_failure_at = coalesce(first_failure_at, now()), last_failure_at = now()
   WHERE id = (SELECT s.id FROM stage_runs s JOIN job ON s.job_id = job.id WHERE s.status IN $UNFINISHED
                ORDER BY array_position(%(order)s::text[], s.stage::text) LIMIT 1)
  RETURNING id, stage),
attempt AS (
  UPDATE attempts a SET outcome = 'failed', finished_at = now(), error_class = %(error_class)s,
         detail = %(detail)s
    FROM run WHERE a.stage_run_id = run.id AND a.outcome = 'started'),
gone AS (
  DELETE FROM outbox_messages o USING run WHERE o.aggregate_type = 'stage_run' AND o.aggregate_id = run.id)
SELECT stage FROM run""")


def fail_replay(job_id: int) -> None:
    """Dead-letter a replayed job at its deadline, at its current stage.

    Its dead letter is new again. Part of the caller's transaction, which holds the job. Its worker's late
    results are dropped; what was sent stays sent, and the next replay sends the rest.
    """
    stage = prepared.value(
        _FAIL,
        {
            "job": job_id,
            "error_class": str(ErrorClass.DEADLINE_EXCEEDED),
            "detail": _DETAIL,
            "order": [stage.value for stage in STAGE_ORDER],
        },
    )
    failure = PermanentFailure(ErrorClass.DEADLINE_EXCEEDED, Component.INTERNAL, _DETAIL)
    dead_letter.open_letter(job_id, Stage(stage), failure)
    log.warning("replay_timed_out", job=job_id, stage=stage, error_class=str(ErrorClass.DEADLINE_EXCEEDED))
