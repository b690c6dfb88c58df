"""The sweep finds all due work again from the rows alone (guarantee G16).

It goes around the active jobs in parts, in the order of their deadlines. A process begins with a whole round,
also after it lost the database: that is when messages go missing. After that a sweep examines `AT_ONCE` jobs,
the next one goes on behind them, so that a backlog of a million costs no more than one of `AT_ONCE`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import structlog
from psycopg.types.json import Jsonb

from criticizer.db import reconnect
from criticizer.queue import outbox
from reviews.pipeline.base import queue_of, statement
from reviews.states import STAGE_ORDER

log = structlog.get_logger(__name__)

PART = 1_000  # jobs of one statement, which locks the messages that it moves
AT_ONCE = 20_000  # jobs of one sweep; with fewer active ones each sweep examines all

_Position = tuple[datetime, int]  # deadline and id of the job examined last
_START: _Position = (datetime(1, 1, 1, tzinfo=UTC), 0)
_after = _START  # where this process goes on
_whole_at: float | None = None  # when its last whole round began (monotonic clock)

_PART = """
WITH part AS (
  SELECT j.id, j.deadline_at, $FLOW AS flow FROM jobs j
   WHERE j.finished_at IS NULL AND (j.deadline_at, j.id) > (%(deadline)s, %(job)s)
   ORDER BY j.deadline_at, j.id LIMIT $PART),
current AS (
  SELECT s.id, s.due_at, (%(queues)s::jsonb) ->> s.stage AS queue, part.flow
    FROM part, LATERAL (
         SELECT id, stage, coalesce(next_attempt_at, lease_expires_at, now()) AS due_at FROM stage_runs
          WHERE job_id = part.id AND status IN $UNFINISHED
          ORDER BY array_position(%(order)s::text[], stage::text) LIMIT 1) s),
-- Each message is looked up once; the LATERAL keeps the planner from reading all of them.
found AS (
  SELECT c.*, o.id AS message, o.queue AS is_in
    FROM current c LEFT JOIN LATERAL (
         SELECT id, queue FROM outbox_messages
          WHERE aggregate_type = 'stage_run' AND aggregate_id = c.id LIMIT 1) o ON true),
moved AS (
  UPDATE outbox_messages o SET queue = f.queue FROM found f
   WHERE o.id = f.message AND f.is_in <> f.queue AND o.lease_token IS NULL
  RETURNING o.queue),
made AS (
  INSERT INTO outbox_messages (aggregate_type, aggregate_id, message_type, queue, flow, available_at)
  SELECT 'stage_run', f.id, 'run_stage', f.queue, f.flow, greatest(now(), f.due_at)
    FROM found f WHERE f.message IS NULL
  ON CONFLICT (aggregate_type, aggregate_id, message_type) DO NOTHING
  RETURNING queue)
SELECT (SELECT count(*) FROM part) AS examined, (SELECT count(*) FROM made) AS made, $READ AS read,
       (SELECT count(pg_notify('criticizer_' || queue, ''))
          FROM (SELECT queue FROM made UNION SELECT queue FROM moved) changed) AS woken,
       last.deadline_at, last.id
  FROM (SELECT) one LEFT JOIN (
       SELECT deadline_at, id FROM part ORDER BY deadline_at DESC, id DESC LIMIT 1) last ON true"""

# Indexes that a claim reads and the sweep does not. A database server that has just begun has none of their
# pages in memory: in the order of jobs each is read from the disk once, before a claim waits for it.
_READ = """(SELECT count(a.id) FROM current c,
       LATERAL (SELECT id, job_id FROM stage_runs WHERE id = c.id LIMIT 1) s,
       LATERAL (SELECT id FROM jobs WHERE id = s.job_id LIMIT 1) j LEFT JOIN
       LATERAL (SELECT id FROM attempts WHERE stage_run_id = c.id LIMIT 1) a ON true)"""


def sweep(*, is_whole: bool = False) -> int:
    """Make the missing outbox messages of active jobs; return how many. Run by maintenance.

    Messages in a queue that does not serve their stage (any more) move to the one that does. `is_whole`:
    examine every active job, not the next `AT_ONCE` of them.
    """
    global _after, _whole_at
    began = time.monotonic()
    is_whole = is_whole or _is_whole_due(began)
    position = _START if is_whole else _after
    examined = made = 0
    while True:
        found = _examine(position, is_whole)
        examined += int(found["examined"])
        made += int(found["made"])
        if found["examined"] < PART:
            position = _START
            break
        position = (found["deadline_at"], found["id"])
        if not is_whole and examined >= AT_ONCE:
            break
    _after = position
    if is_whole:
        _whole_at = began
    if made:
        log.warning("sweep_found_lost_work", messages=made)
    return made


def _is_whole_due(now: float) -> bool:
    return _whole_at is None or now - reconnect.seconds_since_loss() > _whole_at


def _examine(after: _Position, is_whole: bool) -> dict[str, Any]:
    """Examine the active jobs behind a position, `PART` at most.

    In a whole round also read what claims will read.
    """
    asked = {
        "deadline": after[0],
        "job": after[1],
        "order": [stage.value for stage in STAGE_ORDER],
        "queues": Jsonb({stage.value: queue_of(stage.value) for stage in STAGE_ORDER}),
    }
    part = statement(_PART, PART=str(PART), READ=_READ if is_whole else "0")
    (found,) = outbox.rows_by_index(part, asked)
    return found
