"""Rate limits of dependencies, shared by all workers.

There are three limits, all in PostgreSQL and on its clock:

- a pause, as long as a 429 asked for (Retry-After, at most 5 minutes) or as the backoff says; when a
  server's quota is used up, as long as the server says (at most 2 hours), or a minute, doubled each time;
- a token bucket, for dependencies with a RATE_LIMITS entry and, for a minute after a pause,
  for the others too: the rate is halved and grows back;
- slots, for dependencies with a CONCURRENCY_LIMITS entry and for receivers of webhooks (`receivers`):
  leased rows, so that the slots of a lost worker become free. After a long call of a receiver its slot is
  reserved for the next waiting message; otherwise the message in progress would take it again. A message
  that does not use the reserved slot (its receiver is busy, or it makes no call) passes it on (G572).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.resilience.retry import BACKOFF

log = structlog.get_logger(__name__)
T = TypeVar("T")

RECOVER_SECONDS = 60.0  # from the halved rate back to the whole one
ASSUMED_RATE = 4.0  # calls a second of a dependency without a limit and without measured calls
SLOWEST_RATE = 0.1  # calls a second: repeated halving must not stop all calls
RECEIVERS = "provider:webhook"  # dependencies that callers choose, whose calls each hold a worker
# Slots shared by receivers of several requesters, beside the slots of each receiver and of each requester.
SLOW, SLOW_REQUESTERS = f"{RECEIVERS}#slow", f"{RECEIVERS}#slow-requesters"
SHARED = (RECEIVERS, SLOW_REQUESTERS, SLOW)
HANDOVER_AFTER_SECONDS = 1.0  # the shortest call whose slot is handed over: shorter ones delay few others
HANDOVER_SECONDS = 3.0  # a slot is kept so long for a message; longer than a claim takes
QUOTA_CEILING_SECONDS = 7200.0  # GitHub's longest is an hour
QUOTA_SECONDS = 60.0  # where the server does not say how long
# Limits that dependencies publish, unless a variable sets others; their apps register them.
RATES: dict[str, float] = {}
CONCURRENCY: dict[str, int] = {}
WRITER_CALL_SECONDS = 60.0  # lease of a slot of such a dependency; GitHub ends a request after 10
_UNLIMITED = 1e6  # calls a second; not infinity, which times zero is not a number

# The rate in force, calls a second: the configured one, or less after a pause.
_RATE = f"""least(%(rate)s::float8,
  CASE WHEN slow_since + make_interval(secs => %(recover)s) > statement_timestamp()
       THEN slow_rate + (base_rate - slow_rate)
            * greatest(extract(epoch FROM statement_timestamp() - slow_since)::float8, 0) / %(recover)s
       ELSE {_UNLIMITED} END)"""
# Tokens in the bucket now: it fills with the rate, up to one second of it.
_FILLED = """least(greatest(r.rate, 1),
  tokens + r.rate * greatest(extract(epoch FROM statement_timestamp() - refilled_at)::float8, 0))"""

# A new bucket is full: _FILLED bounds it.
_CREATE = "INSERT INTO paces (name, tokens) VALUES (%(name)s, 1e6) ON CONFLICT DO NOTHING"

_TAKE_TOKEN = prepared.statement(
    """
UPDATE paces SET tokens = $FILLED - 1, refilled_at = greatest(refilled_at, statement_timestamp())
  FROM (SELECT $RATE AS rate FROM paces WHERE name = %(name)s) r
 WHERE name = %(name)s AND (paused_until IS NULL OR paused_until <= statement_timestamp()) AND $FILLED >= 1
RETURNING name""",
    FILLED=_FILLED,
    RATE=_RATE,
)

_WHEN_TOKEN = prepared.statement(
    """
SELECT r.rate, (1 - $FILLED) / r.rate AS seconds,
       extract(epoch FROM paused_until - statement_timestamp())::float8 AS paused_in
  FROM paces, (SELECT $RATE AS rate FROM paces WHERE name = %(name)s) r WHERE name = %(name)s""",
    FILLED=_FILLED,
    RATE=_RATE,
)

_UNTAKE = "UPDATE paces SET tokens = tokens + 1 WHERE name = %(name)s"

_LOCK = prepared.statement(
    """
SELECT generation, refusals, $RATE AS rate, base_rate,
       extract(epoch FROM paused_until - statement_timestamp())::float8 AS paused_in,
       (SELECT sum(calls) / 20.0 FROM circuit_buckets b
         WHERE b.name = paces.name
           AND b.started_at > statement_timestamp() - interval '20 seconds')::float8 AS measured
  FROM paces WHERE name = %(name)s FOR UPDATE""",
    RATE=_RATE,
)

_PAUSE = """
UPDATE paces
   SET generation = generation + 1, refusals = refusals + 1, base_rate = %(base)s, slow_rate = %(slow)s,
       paused_until = statement_timestamp() + make_interval(secs => %(seconds)s),
       slow_since = statement_timestamp() + make_interval(secs => %(seconds)s),
       -- One call when the pause is over; the next when the slow rate allows it.
       tokens = 1, refilled_at = statement_timestamp() + make_interval(secs => %(seconds)s)
 WHERE name = %(name)s"""

_PROLONG = """
UPDATE paces
   SET paused_until = greatest(paused_until, statement_timestamp() + make_interval(secs => %(seconds)s)),
       slow_since = greatest(slow_since, statement_timestamp() + make_interval(secs => %(seconds)s)),
       refilled_at = greatest(refilled_at, statement_timestamp() + make_interval(secs => %(seconds)s))
 WHERE name = %(name)s"""

# One slot of each limit, or none. Each slot is a row, which is locked: workers cannot exceed a limit.
_TAKE_SLOTS = """
WITH wanted AS (
  SELECT * FROM unnest(%(names)s::text[], %(limits)s::int[], %(leases)s::float8[]) AS w(name, most, lease)),
found AS (
  SELECT free.id, wanted.lease FROM wanted, LATERAL (
         SELECT id FROM pace_slots
          WHERE name = wanted.name AND number <= wanted.most
            AND (expires_at <= statement_timestamp() OR token = %(kept)s)
          ORDER BY token = %(kept)s DESC NULLS LAST, number LIMIT 1 FOR UPDATE SKIP LOCKED) free)
UPDATE pace_slots
   SET token = gen_random_uuid(), expires_at = statement_timestamp() + make_interval(secs => found.lease)
  FROM found WHERE pace_slots.id = found.id AND (SELECT count(*) FROM found) = (SELECT count(*) FROM wanted)
RETURNING pace_slots.name, pace_slots.token"""

_MAKE_SLOTS = """
INSERT INTO pace_slots (name, number) SELECT %(name)s, generate_series(1, %(limit)s)
ON CONFLICT DO NOTHING RETURNING number"""

# Returns the names of freed slots for which work waits.
_FREE_SLOTS = """
WITH freed AS (
  UPDATE pace_slots SET token = NULL, expires_at = statement_timestamp()
    FROM unnest(%(names)s::text[], %(tokens)s::uuid[]) AS held(name, token)
   WHERE pace_slots.name = held.name AND pace_slots.token = held.token
  RETURNING pace_slots.name)
SELECT name FROM freed
 WHERE EXISTS (SELECT FROM outbox_messages o WHERE o.waiting_for = freed.name AND o.lease_token IS NULL)"""

_LOCK_HELD = """
SELECT s.name, s.token FROM pace_slots s
  JOIN unnest(%(names)s::text[], %(tokens)s::uuid[]) AS held(name, token)
    ON s.name = held.name AND s.token = held.token
 ORDER BY s.id FOR UPDATE OF s"""

_HAND_OVER = """
UPDATE pace_slots
   SET token = %(kept)s, expires_at = statement_timestamp() + make_interval(secs => %(seconds)s)
 WHERE name = %(name)s AND token = %(token)s"""

_BACKLOG = "SELECT count(*) FROM outbox_messages WHERE waiting_for = %(name)s"


@dataclass(frozen=True, slots=True)
class Throttled:
    """A pause in force: the seconds left of it, and the rate after it (calls a second).

    `was_in_force`: the refused call began before the pause, so that its refusal belongs to it.
    """

    seconds: float
    rate: float
    was_in_force: bool


@dataclass(frozen=True, slots=True)
class RetryIn:
    """No token is left: the seconds until the next one, and the rate (calls a second)."""

    seconds: float
    rate: float


def configured(limits: Mapping[str, T], name: str) -> T | None:
    """Return the entry of a dependency, or None.

    It is the dependency's own, or that of its longest prefix that ends before a colon.
    """
    while name:
        if name in limits:
            return limits[name]
        name = name.rpartition(":")[0]
    return None


def rate_of(name: str) -> float | None:
    """Return the configured calls a second, or None."""
    rates: Mapping[str, float] = settings.RATE_LIMITS
    return configured(rates, name) or configured(RATES, name)


def concurrency_limit_of(name: str) -> int | None:
    """Return how many calls of a dependency may be in flight, or None."""
    slots: Mapping[str, int] = settings.CONCURRENCY_LIMITS
    return configured(slots, name) or configured(CONCURRENCY, name)


@dataclass(frozen=True, slots=True)
class Slots:
    """A limit on the calls in flight."""

    name: str
    limit: int
    lease_seconds: float  # after which the slot of a lost worker is free


def slots_of(name: str) -> list[Slots]:
    """Return the limits on calls in flight of a dependency; a call needs a slot of each.

    `receivers.of` returns those of a receiver of webhooks.
    """
    limit = concurrency_limit_of(name)
    is_writer = configured(CONCURRENCY, name) is not None
    seconds = outbox.scaled(WRITER_CALL_SECONDS) if is_writer else settings.CALL_SECONDS
    return [Slots(name, limit, seconds)] if limit else []


def recover_seconds() -> float:
    return outbox.scaled(RECOVER_SECONDS)


def _parameters(name: str, bucket: str = "") -> dict[str, object]:
    return {
        "name": bucket or name,
        "rate": min(rate_of(name) or _UNLIMITED, _UNLIMITED),
        "recover": recover_seconds(),
    }


def backlog(name: str) -> int:
    """Return how many messages wait for the dependency."""
    return int(prepared.value(_BACKLOG, {"name": name}))


def take_token(name: str, bucket: str = "") -> RetryIn | None:
    """Take one token and return None, or return when to try again.

    `bucket` names another bucket with the rate of this dependency.
    """
    parameters = _parameters(name, bucket)
    if prepared.rows(_TAKE_TOKEN, parameters):
        return None
    found = prepared.row(_WHEN_TOKEN, parameters)
    if found is None:
        prepared.rows(_CREATE, {"name": bucket or name})
        return take_token(name, bucket)
    return RetryIn(max(found["seconds"], found["paused_in"] or 0.0, 0.0), found["rate"])


def give_token_back(bucket: str) -> None:
    """Undo `take_token`: the call is not made."""
    prepared.rows(_UNTAKE, {"name": bucket})


def take_slots(wanted: Sequence[Slots]) -> list[tuple[str, UUID]]:
    """Lease a slot of each limit; return names and tokens, none when a limit has no free slot."""
    asked = {
        "names": [slots.name for slots in wanted],
        "limits": [slots.limit for slots in wanted],
        "leases": [slots.lease_seconds for slots in wanted],
        "kept": None if (message := outbox.in_work()) is None else _kept_for(message),
    }
    return [(row["name"], row["token"]) for row in prepared.rows(_TAKE_SLOTS, asked)]


def take_slot(slots: Slots) -> UUID | None:
    """Lease a slot and return its token; None when all are taken. Creates missing rows."""
    taken = take_slots([slots])
    if not taken and prepared.rows(_MAKE_SLOTS, {"name": slots.name, "limit": slots.limit}):
        taken = take_slots([slots])
    return taken[0][1] if taken else None


def _kept_for(message_id: int) -> UUID:
    """Return the token of slots that are kept for a message. Other tokens are random."""
    return UUID(int=message_id)


def _hand_over(held: Sequence[tuple[str, UUID]]) -> None:
    """Free slots and keep each for HANDOVER_SECONDS for the message that is next to have it."""
    left = []
    names, tokens = zip(*held, strict=True)
    with transaction.atomic():
        # The rows hold no slot whose lease has expired: it belongs to another call by now.
        for row in prepared.rows(_LOCK_HELD, {"names": list(names), "tokens": list(tokens)}):
            name, token = row["name"], row["token"]
            # Only work of one flow waits for the slots of that flow: any message of it may be woken.
            is_of_flow = name.startswith(f"{RECEIVERS}#") and name not in SHARED
            if is_of_flow or (message := outbox.wake_first(name)) is None:
                left.append((name, token))
                continue
            kept = {"kept": _kept_for(message), "seconds": outbox.scaled(HANDOVER_SECONDS)}
            prepared.rows(_HAND_OVER, {"name": name, "token": token, **kept})
        if left:
            free_slots(left)


def pass_on(message_id: int) -> None:
    """Hand over receivers' slots that were kept for a message and that it did not use."""
    _hand_over([(name, _kept_for(message_id)) for name in SHARED])


def free_slots(held: Sequence[tuple[str, UUID]], held_seconds: float = 0.0) -> None:
    """Free slots and wake one message that waits for each.

    A slot whose lease has expired stays as it is. Work that is not woken, because this process dies in
    between, becomes due at its own time.
    """
    is_receiver = any(name == RECEIVERS for name, _ in held)
    if is_receiver and held_seconds >= outbox.scaled(HANDOVER_AFTER_SECONDS):
        _hand_over(held)
        return
    names, tokens = zip(*held, strict=True)
    for row in prepared.rows(_FREE_SLOTS, {"names": list(names), "tokens": list(tokens)}):
        outbox.wake(row["name"], limit=1)


def pause(
    name: str, generation: int, retry_after_seconds: float | None, *, is_quota: bool = False
) -> Throttled:
    """Stop calls for as long as a refusal asks, then halve the rate.

    `is_quota`: the server refuses calls for as long as it says, also beyond the backoff's ceiling.

    Refusals of calls that began before the pause (`generation` is older) belong to it: they prolong
    it when they ask for more, and change nothing else.
    """
    parameters = _parameters(name)
    prepared.rows(_CREATE, {"name": name})
    with transaction.atomic():
        found = prepared.row(_LOCK, parameters)
        assert found is not None
        left = max(found["paused_in"] or 0.0, 0.0)
        if found["generation"] != generation or left > 0:
            ceiling = QUOTA_CEILING_SECONDS if is_quota else BACKOFF.ceiling
            asked = outbox.scaled(min(retry_after_seconds or 0.0, ceiling))
            if asked > left:
                prepared.rows(_PROLONG, {"name": name, "seconds": asked})
            return Throttled(max(left, asked), found["rate"], was_in_force=True)
        delay = _quota_seconds if is_quota else BACKOFF.delay
        seconds = outbox.scaled(delay(found["refusals"] + 1, retry_after_seconds))
        rate = found["rate"]
        is_limited = rate < _UNLIMITED
        base = rate_of(name) or (found["base_rate"] if is_limited else None)
        base = base or max(found["measured"] or 0.0, ASSUMED_RATE)
        slow = max((rate if is_limited else base) / 2, SLOWEST_RATE)
        prepared.rows(_PAUSE, {"name": name, "base": base, "slow": min(slow, base), "seconds": seconds})
    log.warning("dependency_paused", dependency=name, seconds=round(seconds, 3), calls_per_second=slow)
    return Throttled(seconds, slow, was_in_force=False)


def _quota_seconds(refusal: int, retry_after_seconds: float | None) -> float:
    """Return the seconds to wait for a quota after `refusal` refusals in a row."""
    seconds = (
        QUOTA_SECONDS * 2.0 ** min(refusal - 1, 16) if retry_after_seconds is None else retry_after_seconds
    )
    return min(seconds, QUOTA_CEILING_SECONDS)
