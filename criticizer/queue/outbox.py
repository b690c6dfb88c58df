"""The outbox, which is the work queue.

A message becomes due in the commit that makes its work necessary (`publish`), is leased by a worker
cluster (`claim`), renewed while the work runs (`lease_renewer`) and deleted in the commit that
records the result. One column is both "leased until" and "visible at", so an expired lease needs no
sweeper.

A worker holds a leased message (`hold`), then gives it up (`put_back`) or deletes it (`done`); the
pipeline does the same inside its own statements, together with the stage's row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from criticizer.db import prepared, reconnect

LEASE_SECONDS = 30.0  # delay of work whose worker was killed, however long the stage
RENEW_SECONDS = 10.0  # three chances before a lease runs out
RESCUE_SECONDS = 10.0  # after a database loss, before work with expired leases is rescued
STALL_SECONDS = 8.0  # a cluster that has not started claimed work for so long is wedged
YIELD_SECONDS = 1.0  # without a free worker for so long, waiting claims are released, to be claimed by turn
WAKE_PER_SECOND = 20.0  # messages that waited for a dependency
FLOW_WINDOW = 32  # flows that one claim compares; the next claim continues after them
SYSTEM, REPLAYS = "system", "replays"  # flows of work that no requester made

_in_work: ContextVar[_Work | None] = ContextVar("work", default=None)
_after: dict[str, str] = {}  # by queue: the flow after which this process's next claim looks; "" is the first


def scaled(seconds: float) -> float:
    """Return `seconds` under RETRY_TIME_SCALE, for drills and tests."""
    return float(seconds * settings.RETRY_TIME_SCALE)


def queues() -> list[str]:
    """Return the queues of `settings.STAGES`, each served by a worker cluster of its own."""
    return sorted({queue for _, queue in settings.STAGES.values()})


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
#
# `flows` steps along the index outbox_fair, over `window` flows after the flow `after`, so the cost
# grows neither with the messages nor with the flows. A message's turn is its place within its flow,
# behind what the flow has in work: the lowest turns are claimed, and the oldest of equal ones. Work whose
# worker was lost is first in its flow: it had its turn already, but became due again later than the others.
# There are more candidates than `limit`, as another claimer may have locked some. Limits are constants in
# the text: with parameters the planner expects many rows, sorts them, and plans each call again.
_CLAIM = """
WITH RECURSIVE flows AS (
  SELECT 0 AS place, %(after)s::varchar AS flow
  UNION ALL
  SELECT place + 1, (SELECT o.flow FROM outbox_messages o
                      WHERE o.queue = %(queue)s AND o.flow > flows.flow ORDER BY o.flow LIMIT 1)
    FROM flows WHERE place < $WINDOW AND flow IS NOT NULL),
held AS (
  SELECT id, flow, available_at, available_at <= now() AS is_lost FROM outbox_messages
   WHERE queue = %(queue)s AND lease_token IS NOT NULL),
working AS (SELECT flow, count(*) AS leased FROM held WHERE NOT is_lost GROUP BY flow),
turns AS (
  SELECT due.id, due.available_at, coalesce(working.leased, 0) + due.place AS turn
    FROM flows LEFT JOIN working USING (flow), LATERAL (
         SELECT id, available_at, row_number() OVER (ORDER BY is_lost DESC, available_at, id) AS place
           FROM ((SELECT id, available_at, is_lost FROM held
                   WHERE held.flow = flows.flow AND is_lost AND %(rescue)s)
                 UNION ALL
                 (SELECT id, available_at, false FROM outbox_messages o
                   WHERE o.queue = %(queue)s AND o.flow = flows.flow AND o.available_at <= now()
                     AND o.lease_token IS NULL
                   ORDER BY available_at, id LIMIT $CANDIDATES)) AS either
          ORDER BY place LIMIT $CANDIDATES) due
   WHERE flows.place > 0
   ORDER BY turn, available_at, id LIMIT $CANDIDATES),
claimed AS (
  UPDATE outbox_messages o
     SET available_at = now() + make_interval(secs => %(lease)s), lease_token = gen_random_uuid(),
         started_at = NULL
   WHERE id = ANY(ARRAY(
         SELECT m.id FROM outbox_messages m JOIN turns USING (id)
          WHERE m.id = ANY(ARRAY(SELECT id FROM turns))
            AND m.available_at <= now() AND (m.lease_token IS NULL OR %(rescue)s)
          ORDER BY turns.turn, turns.available_at, turns.id LIMIT $LIMIT FOR UPDATE OF m SKIP LOCKED))
  RETURNING o.id, o.aggregate_type, o.aggregate_id, o.message_type, o.lease_token, o.retry_count)
SELECT last.flow AS examined, claimed.*
  FROM (SELECT flow FROM flows ORDER BY place DESC LIMIT 1) last
       LEFT JOIN claimed ON true LEFT JOIN turns USING (id)
 ORDER BY turns.turn, turns.available_at, turns.id"""


# A plan made for an empty queue reads the whole table until the table is analyzed: with 50,000 messages
# a claim took 1.9 s instead of 2 ms. There is an index for every statement of the claim.
BY_INDEX = "SELECT set_config('enable_seqscan', 'off', false)"


def rows_by_index(sql: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run one statement in a transaction of its own, planned without sequential scans."""
    with transaction.atomic():
        prepared.rows(BY_INDEX.replace("false", "true"))  # until the end of the transaction
        return prepared.rows(sql, parameters)


def _claim_of(limit: int) -> str:
    return prepared.statement(_CLAIM, LIMIT=limit, CANDIDATES=2 * limit, WINDOW=FLOW_WINDOW)


NEXT_DUE = """
SELECT extract(epoch FROM available_at - clock_timestamp())::float8 AS seconds
  FROM outbox_messages
 WHERE queue = %(queue)s AND (lease_token IS NULL OR available_at > now() OR %(rescue)s)
 ORDER BY available_at LIMIT 1"""

# Wake waiters early but staggered, to avoid a thundering herd; flows take turns, as in a claim.
_WAKE = """
WITH working AS (
  SELECT flow, count(*) AS leased FROM outbox_messages
   WHERE lease_token IS NOT NULL AND available_at > now() GROUP BY flow),
turns AS (
  SELECT id, coalesce(leased, 0) + row_number() OVER (PARTITION BY flow ORDER BY available_at, id) AS turn
    FROM outbox_messages LEFT JOIN working USING (flow)
   WHERE waiting_for = %(dependency)s AND lease_token IS NULL),
waiting AS (
  SELECT id, turn, o.available_at FROM outbox_messages o JOIN turns USING (id)
   WHERE waiting_for = %(dependency)s AND lease_token IS NULL
   ORDER BY turn, o.available_at, id LIMIT %(limit)s FOR UPDATE OF o SKIP LOCKED),
placed AS (SELECT id, row_number() OVER (ORDER BY turn, available_at, id) - 1 AS place FROM waiting),
woken AS (
  UPDATE outbox_messages o
     SET available_at = least(o.available_at, now() + make_interval(secs => placed.place / %(rate)s)),
         waiting_for = ''
    FROM placed WHERE o.id = placed.id RETURNING o.queue, o.id)
SELECT queue, count(*) AS woken, min(id) AS first, pg_notify('criticizer_' || queue, '')
  FROM woken GROUP BY queue"""

# To their old places: in a busy cluster, newer messages would otherwise overtake them each time.
RELEASE = """
UPDATE outbox_messages SET available_at = least(created_at, now()), lease_token = NULL
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
  INSERT INTO outbox_messages (aggregate_type, aggregate_id, message_type, queue, flow, available_at)
  VALUES (%(aggregate_type)s, %(aggregate_id)s, %(message_type)s, %(queue)s, %(flow)s, now())
  -- Its work may have been moved to another queue since.
  ON CONFLICT (aggregate_type, aggregate_id, message_type) DO UPDATE SET queue = excluded.queue
   WHERE outbox_messages.queue <> excluded.queue AND outbox_messages.lease_token IS NULL
  RETURNING queue)
SELECT pg_notify('criticizer_' || queue, '') FROM made"""


def claim(queue: str, limit: int, run: Callable[..., list[dict[str, Any]]] = rows_by_index) -> list[Claimed]:
    """Lease up to `limit` due messages in turns of their flows; never waits.

    The next flow is the one with the fewest messages in work, of equal ones the one whose message was
    due first. Within a flow, work whose worker was lost comes first, then the oldest message (guarantee
    G140). `run` executes the statement.
    """
    asked = {"queue": queue, "lease": scaled(LEASE_SECONDS), "rescue": may_rescue()}
    starts = int(not _after.get(queue))
    while True:
        found = run(_claim_of(limit), {**asked, "after": _after.get(queue, "")})
        for row in found:
            _after[queue] = row.pop("examined") or ""
        claimed = [Claimed(**row) for row in found if row["id"] is not None]
        starts += not _after[queue]
        if claimed or starts == 2:  # every flow was looked at
            return claimed


def may_rescue() -> bool:
    """Return whether work whose lease ran out may be taken over.

    False right after this process lost the database, as no worker could renew its lease then. Workers
    that still run renew theirs within a second.
    """
    return reconnect.seconds_since_loss() > max(scaled(RESCUE_SECONDS), 2.0)


def publish(
    aggregate_type: str,
    aggregate_id: int,
    message_type: str,
    queue: str,
    flow: str = SYSTEM,
) -> None:
    """Make a piece of work due, once: an existing message keeps its time and moves to `queue`.

    Part of the caller's transaction; the wake-up goes out with its commit.
    """
    prepared.rows(
        _PUBLISH,
        {
            "aggregate_type": aggregate_type,
            "aggregate_id": aggregate_id,
            "message_type": message_type,
            "queue": queue,
            "flow": flow,
        },
    )


_MAKE_DUE = """
WITH due AS (
  UPDATE outbox_messages SET available_at = least(available_at, now()), waiting_for = ''
   WHERE aggregate_type = %(aggregate_type)s AND aggregate_id = %(aggregate_id)s
     AND message_type = %(message_type)s AND lease_token IS NULL
  RETURNING queue)
SELECT pg_notify('criticizer_' || queue, '') FROM due"""


def make_due(aggregate_type: str, aggregate_id: int, message_type: str) -> None:
    """Make a waiting message due, unless a worker has it. Part of the caller's transaction."""
    named = {"aggregate_type": aggregate_type, "aggregate_id": aggregate_id, "message_type": message_type}
    prepared.rows(_MAKE_DUE, named)


def wake(dependency: str, *, limit: int | None = None) -> int:
    """Make the messages that wait for `dependency` due; return their number.

    WAKE_PER_SECOND become due each second, and `limit` at most, in the turns of their flows. Part of the
    caller's transaction.
    """
    return sum(int(row["woken"]) for row in _woken(dependency, limit))


def wake_first(dependency: str) -> int | None:
    """Make the first of the messages that wait for `dependency` due; return its id."""
    found = _woken(dependency, 1)
    return int(found[0]["first"]) if found else None


def _woken(dependency: str, limit: int | None) -> list[dict[str, Any]]:
    rate = WAKE_PER_SECOND / settings.RETRY_TIME_SCALE
    return prepared.rows(_WAKE, {"dependency": dependency, "rate": rate, "limit": limit})


@dataclass(slots=True)
class _Work:
    """The message that a thread works on."""

    message_id: int
    at_end: set[Callable[[int], None]] = field(default_factory=set)  # called with the id
    flow: str | None = None  # None: not known yet


@contextmanager
def working_on(message_id: int) -> Iterator[None]:
    """Note in the block which message this thread works on, for slots that are reserved for it."""
    work = _Work(message_id)
    known = _in_work.set(work)
    try:
        yield
    finally:
        _in_work.reset(known)
        for act in work.at_end:
            act(message_id)


def in_work() -> int | None:
    """Return the id of the message that this thread works on, None outside of `working_on`."""
    work = _in_work.get()
    return work.message_id if work else None


def flow_in_work() -> str | None:
    """Return the flow of the message that this thread works on, None where it is not known."""
    work = _in_work.get()
    return work.flow if work else None


def note_flow(flow: str) -> None:
    """Note the flow of the message that this thread works on; does nothing without one."""
    if (work := _in_work.get()) is not None:
        work.flow = flow


def at_end_of_work(act: Callable[[int], None]) -> None:
    """Call `act` once with the id of this thread's message when work on it ends.

    `act` must not raise. Does nothing outside of `working_on`.
    """
    if (work := _in_work.get()) is not None:
        work.at_end.add(act)


def hold(message_id: int, token: UUID, *, seconds: float = LEASE_SECONDS) -> bool:
    """Start work on a leased message, or renew its lease, for `seconds` (scaled here).

    The message no longer waits for a dependency. Returns False, with nothing changed, when the lease
    was lost.
    """
    return prepared.row(_HOLD, {"id": message_id, "token": token, "lease": scaled(seconds)}) is not None


def put_back(
    message_id: int, token: UUID, *, seconds: float, waiting_for: str = "", has_failed: bool = False
) -> bool:
    """Give up a leased message, which is due again in `seconds`.

    It is due earlier when `wake` is called for the dependency `waiting_for`. `has_failed` adds one to
    `retry_count`. Part of the caller's transaction. Returns False, with nothing changed, when the lease
    was lost.
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

    Returns False, with nothing changed, when the lease was lost.
    """
    return prepared.row(_DONE, {"id": message_id, "token": token}) is not None


def release(tokens: Iterable[UUID]) -> None:
    """Release messages that were claimed and not started."""
    prepared.rows(RELEASE, {"tokens": list(tokens)})
