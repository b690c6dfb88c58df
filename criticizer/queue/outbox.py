"""The outbox, which is the work queue.

A message becomes due in the commit that makes its work necessary (`publish`), is leased by a worker
cluster (`claim`), renewed while the work runs (`lease_renewer`) and deleted in the commit that
records the result. One column is both "leased until" and "visible at", so an expired lease needs no
sweeper.

A worker holds a leased message (`hold`), then gives it up (`put_back`) or deletes it (`done`); the
pipeline does the same inside its own statements, together with the stage's row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings

from criticizer.db import prepared, reconnect

LEASE_SECONDS = 30.0  # delay of work whose worker was killed, however long the stage
RENEW_SECONDS = 10.0  # three chances before a lease runs out
RESCUE_SECONDS = 10.0  # after a database loss, before work with expired leases is rescued
STALL_SECONDS = 8.0  # claimed but not started for so long: the cluster is wedged
WAKE_PER_SECOND = 20.0  # work that waited for a dependency


def scaled(seconds: float) -> float:
    """Return `seconds` under RETRY_TIME_SCALE, for drills and tests."""
    return float(seconds * settings.RETRY_TIME_SCALE)


def channel(queue: str) -> str:
    """Return the NOTIFY channel that wakes the clusters of `queue`."""
    return f"criticizer_{queue}"


@dataclass(frozen=True, slots=True)
class Claimed:
    """A leased message."""

    id: int
    aggregate_type: str
    aggregate_id: int
    message_type: str
    lease_token: UUID
    retry_count: int


# now(), never clock_timestamp(): a volatile function is no index condition, and an idle poll
# would walk every retry that is not due yet.
CLAIM = """
UPDATE outbox_messages o
   SET available_at = now() + make_interval(secs => %(lease)s), lease_token = gen_random_uuid(),
       started_at = NULL
  FROM (SELECT id FROM outbox_messages
         WHERE queue = %(queue)s AND available_at <= now() AND (lease_token IS NULL OR %(rescue)s)
         ORDER BY available_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED) due
 WHERE o.id = due.id
RETURNING o.id, o.aggregate_type, o.aggregate_id, o.message_type, o.lease_token, o.retry_count"""

NEXT_DUE = """
SELECT extract(epoch FROM available_at - clock_timestamp())::float8 AS seconds
  FROM outbox_messages
 WHERE queue = %(queue)s AND (lease_token IS NULL OR available_at > now() OR %(rescue)s)
 ORDER BY available_at LIMIT 1"""

# Wake waiters early but staggered, to avoid a thundering herd.
_WAKE = """
WITH waiting AS (
  SELECT id, available_at FROM outbox_messages
   WHERE waiting_for = %(dependency)s AND lease_token IS NULL
   ORDER BY available_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
placed AS (SELECT id, row_number() OVER (ORDER BY available_at, id) - 1 AS place FROM waiting),
woken AS (
  UPDATE outbox_messages o
     SET available_at = least(o.available_at, now() + make_interval(secs => placed.place / %(rate)s)),
         waiting_for = ''
    FROM placed WHERE o.id = placed.id RETURNING o.queue)
SELECT queue, count(*) AS woken, pg_notify('criticizer_' || queue, '') FROM woken GROUP BY queue"""

RELEASE = """
UPDATE outbox_messages SET available_at = now(), lease_token = NULL
 WHERE lease_token = ANY(%(tokens)s) AND started_at IS NULL"""

# `token` is the fence: without the lease nothing changes.
_HOLD = """
UPDATE outbox_messages
   SET started_at = coalesce(started_at, now()), waiting_for = '',
       available_at = now() + make_interval(secs => %(lease)s)
 WHERE id = %(id)s AND lease_token = %(token)s RETURNING id"""

_PUT_BACK = """
UPDATE outbox_messages
   SET available_at = now() + make_interval(secs => %(seconds)s), lease_token = NULL, started_at = NULL,
       waiting_for = %(waiting_for)s, retry_count = retry_count + %(failed)s
 WHERE id = %(id)s AND lease_token = %(token)s RETURNING id"""

_DONE = "DELETE FROM outbox_messages WHERE id = %(id)s AND lease_token = %(token)s RETURNING id"

_PUBLISH = """
WITH made AS (
  INSERT INTO outbox_messages (aggregate_type, aggregate_id, message_type, queue, available_at)
  VALUES (%(aggregate_type)s, %(aggregate_id)s, %(message_type)s, %(queue)s,
          now() + make_interval(secs => %(delay)s))
  ON CONFLICT (aggregate_type, aggregate_id, message_type) DO NOTHING RETURNING queue)
SELECT pg_notify('criticizer_' || queue, '') FROM made"""


def claim(queue: str, limit: int) -> list[Claimed]:
    """Lease up to `limit` due messages, oldest first. Never waits for another claimer."""
    found = prepared.rows(
        CLAIM,
        {"queue": queue, "limit": limit, "lease": scaled(LEASE_SECONDS), "rescue": may_rescue()},
    )
    return [Claimed(**row) for row in found]


def may_rescue() -> bool:
    """Say whether work whose lease ran out may be taken over.

    Not right after this process lost the database: no worker could renew its lease then. Workers
    that still run renew theirs within a second.
    """
    return reconnect.seconds_since_loss() > max(scaled(RESCUE_SECONDS), 2.0)


def publish(
    aggregate_type: str, aggregate_id: int, message_type: str, queue: str, delay_seconds: float = 0.0
) -> None:
    """Make a piece of work due, once: an existing message stays as it is.

    Part of the caller's transaction; the wake-up goes out with its commit.
    """
    prepared.rows(
        _PUBLISH,
        {
            "aggregate_type": aggregate_type,
            "aggregate_id": aggregate_id,
            "message_type": message_type,
            "queue": queue,
            "delay": delay_seconds,
        },
    )


def notify(queue: str) -> None:
    """Wake the clusters of `queue` when the caller's transaction commits."""
    prepared.rows("SELECT pg_notify(%(channel)s, '')", {"channel": channel(queue)})


def wake(dependency: str, per_second: float = WAKE_PER_SECOND, *, limit: int | None = None) -> int:
    """Make messages that wait for `dependency` due, `per_second` a second; return their number.

    `limit`: at most so many, in the order in which they were due. Part of the caller's transaction.
    """
    found = prepared.rows(
        _WAKE,
        {"dependency": dependency, "rate": per_second / settings.RETRY_TIME_SCALE, "limit": limit},
    )
    return sum(int(row["woken"]) for row in found)


def hold(message_id: int, token: UUID, *, seconds: float = LEASE_SECONDS) -> bool:
    """Start work on a leased message, or renew its lease, for `seconds` (scaled here).

    It no longer waits for a dependency. False, with nothing changed, when the lease was lost.
    """
    return prepared.row(_HOLD, {"id": message_id, "token": token, "lease": scaled(seconds)}) is not None


def put_back(
    message_id: int, token: UUID, *, seconds: float, waiting_for: str = "", has_failed: bool = False
) -> bool:
    """Give up a leased message: due again in `seconds`, or when `wake` is called for its dependency.

    `has_failed` adds one to `retry_count`. Part of the caller's transaction. False, with nothing
    changed, when the lease was lost.
    """
    parameters = {
        "id": message_id,
        "token": token,
        "seconds": seconds,
        "waiting_for": waiting_for,
        "failed": int(has_failed),
    }
    return prepared.row(_PUT_BACK, parameters) is not None


def done(message_id: int, token: UUID) -> bool:
    """Delete a leased message whose work is done. Part of the caller's transaction.

    False, with nothing changed, when the lease was lost.
    """
    return prepared.row(_DONE, {"id": message_id, "token": token}) is not None


def release(tokens: Iterable[UUID]) -> None:
    """Release messages that were claimed and not started."""
    prepared.rows(RELEASE, {"tokens": list(tokens)})
