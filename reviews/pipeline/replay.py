"""Replay a dead-lettered job. (guarantee G61)"""

from __future__ import annotations

from django.db import connection

from criticizer.db import prepared
from criticizer.queue import outbox
from notifications.delivery import operator_actions, store
from reviews.pipeline.base import AGGREGATE, HOLD_PATH, MESSAGE, deadline_seconds_of, queue_of, statement
from reviews.states import STAGE_ORDER, Stage


def replay(job_id: int, stage: Stage) -> bool:
    """Queue a dead-lettered job from `stage` with a fresh budget and deadline.

    Inside a transaction. A dead letter of it is `replaying` by then; without one a trigger refuses. Returns
    False if the job is not dead-lettered, while another version of its changelist is active or newer, or if
    it is a scan and there is a newer one of its path (guarantee G542).
    """
    assert connection.in_atomic_block
    prepared.rows(HOLD_PATH, {"job": job_id})
    done = prepared.row(
        statement("""
        WITH job AS (
          UPDATE jobs SET status = 'queued', finished_at = NULL, status_reason = 'replay',
                 deadline_at = greatest(deadline_at, now() + make_interval(secs => %(sla)s))
           WHERE id = %(job)s AND status = 'dead_lettered'
             AND NOT EXISTS (SELECT 1 FROM jobs n WHERE n.changelist_id = jobs.changelist_id
                                AND n.series = jobs.series AND n.id <> jobs.id AND (n.status IN $ACTIVE
                                     OR n.review_version > jobs.review_version))
             AND NOT EXISTS (SELECT 1 FROM scans s JOIN scans n ON n.target_id = s.target_id
                              WHERE s.job_id = jobs.id AND n.job_id > s.job_id)
          RETURNING id)
        UPDATE stage_runs s
           SET status = 'pending', attempts = 0, lease_token = NULL, lease_expires_at = NULL,
               started_at = NULL, finished_at = NULL, next_attempt_at = NULL, first_failure_at = NULL,
               last_failure_at = NULL, error_class = '', ended_token = NULL
          FROM job WHERE s.job_id = job.id AND s.stage = ANY(%(stages)s)
        RETURNING s.id, s.stage"""),
        {
            "job": job_id,
            "sla": deadline_seconds_of(job_id),
            "stages": [later.value for later in STAGE_ORDER[STAGE_ORDER.index(stage) :]],
        },
    )
    if done is None:
        return False
    first = prepared.value(
        "SELECT id FROM stage_runs WHERE job_id = %(job)s AND stage = %(stage)s",
        {"job": job_id, "stage": stage.value},
    )
    if stage is not Stage.NOTIFY:
        store.leave_digests(job_id)  # a digest due earlier would hold the old review
    operator_actions.reset_failed(job_id)
    outbox.publish(AGGREGATE, first, MESSAGE, queue_of(stage), flow=outbox.REPLAYS)
    return True
