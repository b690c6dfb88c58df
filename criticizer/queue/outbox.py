"""The outbox that is the queue (specification 003, section 1).

A piece of work becomes due in the commit that makes it necessary (`publish`), is leased by
a worker cluster (`claim`), renewed while it runs (`heartbeat`) and deleted in the commit that records its
result. "Lease" and "visible at" are one column: a lease that runs
out needs no sweeper.

Whoever works on a leased message says so (`hold`) and ends with it there again (`put_back`) or gone
(`done`); the pipeline does the same inside its own statements, together with the stage's row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings

from criticizer.db import prepared, reconnect

LEASE_SECONDS = 30.0  # what a killed worker costs, whatever the stage's length
RENEW_SECONDS = 10.0  # three chances before a lease runs out
RESCUE_SECONDS = 10.0  # after a lost database, before leases that ran out meanwhile count for dead
STALL_SECONDS = 8.0  # claimed but not started for so long: the cluster is wedged
WAKE_PER_SECOND = 20.0  # how fast work that waited for a dependency comes back to it


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

# Early, but one after another: a dependency that has just come back is not to be overrun.
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

# Of a leased message: `token` is the fence, so that who lost the lease changes nothing.
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

    Not right after this process lost the database: nobody could renew a lease then, so one that
    ran out says nothing about its worker. Those that live renew theirs within a second.
    """
    return reconnect.seconds_since_loss() > max(scaled(RESCUE_SECONDS), 2.0)


def publish(
    aggregate_type: str, aggregate_id: int, message_type: str, queue: str, delay_seconds: float = 0.0
) -> None:
    """Make a piece of work due, once: a message that is there already stays as it is.

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


def wake(dependency: str, per_second: float = WAKE_PER_SECOND, *, limit: int | None = None) -> int:
    """Make the work that waits for `dependency` due, `per_second` a second; return how much it was.

    `limit`: no more than so many, those first that would be due first. Part of the caller's
    transaction.
    """
    found = prepared.rows(
        _WAKE,
        {"dependency": dependency, "rate": per_second / settings.RETRY_TIME_SCALE, "limit": limit},
    )
    return sum(int(row["woken"]) for row in found)


def hold(message_id: int, token: UUID, *, seconds: float = LEASE_SECONDS) -> bool:
    """Begin with a leased message, or renew its lease: nobody else gets it for `seconds` (scaled here).

    It waits for no dependency any more. False, with nothing changed, when the lease is somebody else's.
    """
    return prepared.row(_HOLD, {"id": message_id, "token": token, "lease": scaled(seconds)}) is not None


def put_back(
    message_id: int, token: UUID, *, seconds: float, waiting_for: str = "", has_failed: bool = False
) -> bool:
    """Give a leased message up: due again in `seconds`, or once the dependency it waits for is free (`wake`).

    `has_failed` counts one more in `retry_count`. Part of the caller's transaction. False, with nothing
    changed, when the lease is somebody else's.
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
    """Delete a leased message: its work is done. Part of the caller's transaction.

    False, with nothing changed, when the lease is somebody else's.
    """
    return prepared.row(_DONE, {"id": message_id, "token": token}) is not None


def release(tokens: Iterable[UUID]) -> None:
    """Give back messages that were claimed and not started."""
    prepared.rows(RELEASE, {"tokens": list(tokens)})
