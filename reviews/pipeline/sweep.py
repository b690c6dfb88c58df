"""The sweep finds all due work again from the rows alone (guarantee G16)."""

from __future__ import annotations

import structlog
from psycopg.types.json import Jsonb

from criticizer.db import prepared
from reviews.pipeline.base import queue_of, statement
from reviews.states import STAGE_ORDER

log = structlog.get_logger(__name__)

_SWEEP = statement("""
WITH current AS (
  SELECT DISTINCT ON (s.job_id) s.id, s.stage, s.status, s.next_attempt_at, s.lease_expires_at, $FLOW AS flow
    FROM stage_runs s JOIN jobs j ON j.id = s.job_id
   WHERE j.status IN $ACTIVE AND s.status IN $UNFINISHED
   ORDER BY s.job_id, array_position(%(order)s::text[], s.stage::text)),
wanted AS (SELECT c.*, (%(queues)s::jsonb) ->> c.stage AS queue FROM current c),
moved AS (
  UPDATE outbox_messages o SET queue = w.queue FROM wanted w
   WHERE o.aggregate_type = 'stage_run' AND o.aggregate_id = w.id AND o.queue <> w.queue
     AND o.lease_token IS NULL
  RETURNING o.queue),
made AS (
  INSERT INTO outbox_messages (aggregate_type, aggregate_id, message_type, queue, flow, available_at)
  SELECT 'stage_run', c.id, 'run_stage', c.queue, c.flow,
         greatest(now(), coalesce(c.next_attempt_at, c.lease_expires_at, now()))
    FROM wanted c
   WHERE NOT EXISTS (SELECT 1 FROM outbox_messages o
                      WHERE o.aggregate_type = 'stage_run' AND o.aggregate_id = c.id)
  ON CONFLICT (aggregate_type, aggregate_id, message_type) DO NOTHING
  RETURNING queue)
SELECT queue, sum(made) AS made, pg_notify('criticizer_' || queue, '')
  FROM (SELECT queue, 1 AS made FROM made UNION ALL SELECT queue, 0 FROM moved) changed GROUP BY queue""")


def sweep() -> int:
    """Make the missing outbox messages of active jobs; return how many.

    Messages in a queue that does not serve their stage (any more) move to the one that does.
    """
    found = prepared.rows(
        _SWEEP,
        {
            "order": [stage.value for stage in STAGE_ORDER],
            "queues": Jsonb({stage.value: queue_of(stage.value) for stage in STAGE_ORDER}),
        },
    )
    made = sum(int(row["made"]) for row in found)
    if made:
        log.warning("sweep_found_lost_work", messages=made)
    return made
