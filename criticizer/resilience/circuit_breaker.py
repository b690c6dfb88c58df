"""Circuit breakers, one row per dependency, shared by all processes (specification 003, section 5).

    closed ── more than half of at least 10 calls in 60 s failed,
              or credentials were refused 3 times in a row ──► open
    open ── 30 s later, by a harmless probe or by the next call ──► half-open
    half-open ── 2 probes in a row succeed ──► closed ;  any failure ──► open

A probe is a real call. Where nobody calls for 15 s, and no work waits, it is the harmless
question of `probes`, so that a circuit that nobody needs closes too. Not where its answers say
nothing: after refused credentials, and after a real probe that failed while the question was
answered. `needs_call` then holds until a real probe succeeds.

Every change is one guarded statement on the database's clock. A call remembers the generation
it began under; what it reports under another one changes nothing. `dependencies` is the door.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.resilience.failures import ErrorClass
from criticizer.resilience.states import CircuitState

log = structlog.get_logger(__name__)

AUTH = frozenset({ErrorClass.AUTH_DENIED, ErrorClass.PERMISSION_DENIED})
MIN_CALLS = 10
AUTH_FAILURES_IN_A_ROW = 3
COOL_DOWN_SECONDS = 30.0
PROBES_TO_CLOSE = 2  # in a row: that is above the specified 80 %
# When another probe may start although one is out: its worker may be gone. A probe that takes
# longer counts all the same.
PROBE_LEASE_SECONDS = 30.0
# Where a harmless probe exists it comes first, unless nobody makes it for so long.
HARMLESS_GRACE_SECONDS = 60.0
# Half-open: how long a real call is awaited before a harmless question may be the probe.
QUIET_SECONDS = 15.0

ANSWERED = "answered"  # `probe_detail` while the harmless question is answered

NOW = "statement_timestamp()"
NO_PROBE = "probe_token = NULL, probe_expires_at = NULL, probe_successes = 0"
_BUCKET = "date_bin('10 seconds', statement_timestamp(), 'epoch'::timestamptz)"
_WINDOW = "statement_timestamp() - interval '60 seconds'"

_CREATE = "INSERT INTO circuits (name) VALUES (%(name)s) ON CONFLICT DO NOTHING"

# Writes the history of what the statement changed.
NOTE = """
  INSERT INTO circuit_events (name, change, generation, actor, reason, until)
  SELECT name, {change}, generation, actor, reason, retry_at FROM changed"""

_NOT_CLOSED = """
SELECT name, state, needs_call, error_class FROM circuits WHERE state <> 'closed' ORDER BY name LIMIT 100"""

_COUNT_SUCCESS = f"""
WITH c AS (SELECT name, state, generation FROM circuits WHERE name = %(name)s),
counted AS (
  INSERT INTO circuit_buckets AS b (name, generation, started_at, calls, failures)
  SELECT name, generation, {_BUCKET}, 1, 0 FROM c
   WHERE state = 'closed' AND generation = %(generation)s
  ON CONFLICT (name, generation, started_at) DO UPDATE SET calls = b.calls + 1),
forgiven AS (
  UPDATE circuits SET auth_failures = 0
   WHERE name = %(name)s AND auth_failures > 0 AND generation = %(generation)s),
calm AS (
  UPDATE paces SET refusals = 0
   WHERE name = %(name)s AND refusals > 0 AND generation = %(pace_generation)s)
SELECT state FROM c"""  # noqa: S608

# Two who count at the same moment each see their own count: the later one sees both.
_COUNT_FAILURE = f"""
WITH c AS (
  SELECT name, state, generation, extract(epoch FROM retry_at - {NOW})::float8 AS retry_in
    FROM circuits WHERE name = %(name)s),
counted AS (
  INSERT INTO circuit_buckets AS b (name, generation, started_at, calls, failures)
  SELECT name, generation, {_BUCKET}, 1, 1 FROM c
   WHERE state = 'closed' AND generation = %(generation)s
  ON CONFLICT (name, generation, started_at)
  DO UPDATE SET calls = b.calls + 1, failures = b.failures + 1
  RETURNING b.calls, b.failures, b.started_at),
total AS (
  SELECT sum(calls) AS calls, sum(failures) AS failures
    FROM (SELECT calls, failures FROM counted
          UNION ALL
          SELECT b.calls, b.failures FROM circuit_buckets b, counted
           WHERE b.name = %(name)s AND b.generation = %(generation)s AND b.started_at > {_WINDOW}
             AND b.started_at <> counted.started_at) s),
changed AS (
  UPDATE circuits
     SET state = 'open', generation = circuits.generation + 1, changed_at = {NOW}, actor = '',
         retry_at = {NOW} + make_interval(secs => %(cool_down)s), auth_failures = 0, probe_detail = '',
         reason = format('%%s of %%s calls within a minute failed, the last with %%s',
                         total.failures, total.calls, %(error_class)s::text),
         error_class = %(error_class)s, needs_call = false, {NO_PROBE}
    FROM total
   WHERE name = %(name)s AND state = 'closed' AND generation = %(generation)s
     AND total.calls >= {MIN_CALLS} AND 2 * total.failures > total.calls
  RETURNING circuits.*),
noted AS ({NOTE.format(change="'opened'")})
SELECT c.state, c.generation, c.retry_in, EXISTS (SELECT FROM changed) AS has_opened,
       coalesce(total.calls >= {MIN_CALLS} AND 2 * total.failures > total.calls, false) AS must_open
  FROM c, total"""  # noqa: S608

_COUNT_AUTH_FAILURE = f"""
WITH c AS (
  SELECT name, state, generation, extract(epoch FROM retry_at - {NOW})::float8 AS retry_in
    FROM circuits WHERE name = %(name)s),
judged AS (
  SELECT auth_failures + 1 >= {AUTH_FAILURES_IN_A_ROW} AS opens FROM circuits
   WHERE name = %(name)s AND state = 'closed' AND generation = %(generation)s FOR UPDATE),
refused AS (
  UPDATE circuits
     SET auth_failures = CASE WHEN opens THEN 0 ELSE auth_failures + 1 END,
         state = CASE WHEN opens THEN 'open' ELSE state END,
         generation = generation + opens::int,
         changed_at = CASE WHEN opens THEN {NOW} ELSE changed_at END,
         retry_at = CASE WHEN opens THEN {NOW} + make_interval(secs => %(cool_down)s) ELSE retry_at END,
         reason = CASE WHEN opens
                       THEN format('our credentials were refused %%s times in a row, the last with %%s',
                                   auth_failures + 1, %(error_class)s::text)
                       ELSE reason END,
         error_class = CASE WHEN opens THEN %(error_class)s ELSE error_class END,
         needs_call = opens, actor = '', probe_detail = '', {NO_PROBE}
    FROM judged WHERE name = %(name)s
  RETURNING circuits.*),
changed AS (SELECT * FROM refused WHERE state = 'open'),
noted AS ({NOTE.format(change="'opened'")})
SELECT c.state, c.generation, c.retry_in, EXISTS (SELECT FROM changed) AS has_opened,
       NOT EXISTS (SELECT FROM refused) AS must_open
  FROM c"""  # noqa: S608

_LEASE_PROBE = f"""
WITH changed AS (
  UPDATE circuits
     SET generation = generation + (state = 'open')::int, state = 'half_open',
         changed_at = CASE WHEN state = 'open' THEN {NOW} ELSE changed_at END,
         probe_successes = CASE WHEN state = 'open' THEN 0 ELSE probe_successes END,
         probe_token = gen_random_uuid(), probe_expires_at = {NOW} + make_interval(secs => %(lease)s),
         retry_at = {NOW} + make_interval(secs => %(call)s)  -- no harmless question beside this call
   WHERE name = %(name)s
     AND (state = 'open' AND retry_at <= {NOW} - make_interval(secs => %(grace)s)
          OR state = 'half_open' AND (probe_expires_at IS NULL OR probe_expires_at <= {NOW}))
  RETURNING name, generation, probe_token, changed_at, NULL::timestamptz AS retry_at, actor,
            ''::text AS reason),
noted AS ({NOTE.format(change="'half_opened'")} WHERE changed_at = {NOW})
SELECT generation, probe_token FROM changed"""  # noqa: S608

_PROBE_SUCCEEDED = f"""
WITH judged AS (
  SELECT name, probe_successes + 1 >= {PROBES_TO_CLOSE} AS closes FROM circuits
   WHERE name = %(name)s AND state = 'half_open' AND generation = %(generation)s FOR UPDATE),
probed AS (
  UPDATE circuits
     SET probe_successes = probe_successes + 1,
         state = CASE WHEN closes THEN 'closed' ELSE state END,
         generation = generation + closes::int,
         changed_at = CASE WHEN closes THEN {NOW} ELSE changed_at END,
         retry_at = CASE WHEN closes THEN NULL ELSE {NOW} + make_interval(secs => %(quiet)s) END,
         reason = CASE WHEN closes THEN '' ELSE reason END,
         error_class = CASE WHEN closes THEN '' ELSE error_class END,
         needs_call = false, auth_failures = 0,
         probe_detail = CASE WHEN %(is_harmless)s THEN '{ANSWERED}' ELSE probe_detail END,
         probe_token = CASE WHEN probe_token = %(token)s OR closes THEN NULL ELSE probe_token END,
         probe_expires_at = CASE WHEN probe_token = %(token)s OR closes THEN NULL ELSE probe_expires_at END
    FROM judged WHERE circuits.name = judged.name
  RETURNING circuits.*),
changed AS (SELECT * FROM probed WHERE state = 'closed'),
noted AS ({NOTE.format(change="'closed'")})
SELECT state FROM probed"""  # noqa: S608

_PROBE_FAILED = f"""
WITH changed AS (
  UPDATE circuits
     SET state = 'open', generation = generation + 1, changed_at = {NOW}, actor = '',
         retry_at = {NOW} + make_interval(secs => %(cool_down)s),
         reason = %(reason)s, error_class = %(error_class)s,
         needs_call = needs_call OR %(is_auth)s OR %(is_deaf)s AND probe_detail = '{ANSWERED}',
         probe_detail = %(detail)s, {NO_PROBE}
   WHERE name = %(name)s AND state = 'half_open' AND generation = %(generation)s
  RETURNING circuits.*),
noted AS ({NOTE.format(change="'opened'")})
SELECT name FROM changed"""  # noqa: S608

_RELEASE_PROBE = f"""
UPDATE circuits SET probe_token = NULL, probe_expires_at = NULL,
       retry_at = {NOW} + make_interval(secs => %(quiet)s)
 WHERE name = %(name)s AND state = 'half_open' AND probe_token = %(token)s"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Probe:
    """The right to make the one probe of a half-open circuit."""

    generation: int
    token: UUID


@dataclass(frozen=True, slots=True)
class Stopped:
    """A circuit that is not closed.

    `needs_call`: only a real call closes it. `is_refused`: our credentials were, and that opened it.
    """

    state: CircuitState
    needs_call: bool
    is_refused: bool


@dataclass(frozen=True, slots=True)
class Counted:
    """What became of a failure's report.

    `was_open`: the circuit had opened before, since the call began; `retry_in_seconds` is then
    what is left of the cool-down.
    """

    was_open: bool
    retry_in_seconds: float = 0.0


def create(name: str) -> None:
    """Write the row of a dependency that is called for the first time."""
    prepared.rows(_CREATE, {"name": name})


def open_circuits() -> dict[str, Stopped]:
    """Return name -> what holds it of the circuits that are not closed, a hundred at most."""
    return {
        str(row["name"]): Stopped(CircuitState(row["state"]), row["needs_call"], row["error_class"] in AUTH)
        for row in prepared.rows(_NOT_CLOSED)
    }


def count_success(name: str, generation: int, pace_generation: int) -> None:
    """Count an answered call; a row of refused credentials, or of pauses, is broken by it."""
    prepared.rows(
        _COUNT_SUCCESS, {"name": name, "generation": generation, "pace_generation": pace_generation}
    )


def count_failure(name: str, generation: int, error_class: str, *, is_auth: bool = False) -> Counted:
    """Count a failed call, and open the circuit when that was the one too many."""
    found = prepared.row(
        _COUNT_AUTH_FAILURE if is_auth else _COUNT_FAILURE,
        {
            "name": name,
            "generation": generation,
            "error_class": error_class,
            "cool_down": outbox.scaled(COOL_DOWN_SECONDS),
        },
    )
    if found is None:
        return Counted(was_open=False)
    if found["has_opened"]:
        log.warning("circuit_opened", dependency=name, error_class=error_class)
        return Counted(was_open=False)
    if found["state"] == CircuitState.FORCED_CLOSED:
        return Counted(was_open=False)
    # must_open without having opened: another report opened it while this one was written.
    was_open = (
        found["state"] != CircuitState.CLOSED or found["generation"] != generation or found["must_open"]
    )
    cools_down = found["state"] != CircuitState.HALF_OPEN
    return Counted(was_open, max(found["retry_in"] or 0.0, 0.0) if cools_down else 0.0)


def lease_probe(name: str, *, has_harmless: bool) -> Probe | None:
    """Take the probe of a circuit whose cool-down is over; None when another has it."""
    found = prepared.row(
        _LEASE_PROBE,
        {
            "name": name,
            # Below two seconds a lease would only say that no call answers so fast.
            "lease": max(outbox.scaled(PROBE_LEASE_SECONDS), 2.0),
            "grace": outbox.scaled(HARMLESS_GRACE_SECONDS) if has_harmless else 0.0,
            "call": settings.CALL_SECONDS,
        },
    )
    return Probe(found["generation"], found["probe_token"]) if found else None


def probe_succeeded(name: str, probe: Probe, *, is_harmless: bool = False) -> None:
    """Count a probe that was answered: the second in a row closes the circuit."""
    # The circuit closes and the work that waits for it is due, or neither.
    with transaction.atomic():
        found = prepared.row(
            _PROBE_SUCCEEDED,
            {
                "name": name,
                "generation": probe.generation,
                "token": probe.token,
                "quiet": quiet_seconds(),
                "is_harmless": is_harmless,
            },
        )
        if found is None:
            return
        closed = found["state"] == CircuitState.CLOSED
        woken = outbox.wake(name, limit=None if closed else 1)
    if closed:
        log.info("circuit_closed", dependency=name, woken=woken)


def probe_failed(name: str, probe: Probe, error_class: str, *, harmless_detail: str = "") -> None:
    """Open a half-open circuit again: any failure of a probe does.

    `harmless_detail`: what the harmless question was answered, where that was the probe.
    """
    is_real = not harmless_detail
    if prepared.rows(
        _PROBE_FAILED,
        {
            "name": name,
            "generation": probe.generation,
            "error_class": error_class,
            "reason": f"a {'harmless ' if harmless_detail else ''}probe failed with {error_class}",
            "detail": harmless_detail,
            "is_auth": is_real and error_class in AUTH,
            # Whether anybody listens is what the harmless question finds out too.
            "is_deaf": is_real and error_class != ErrorClass.NETWORK_UNREACHABLE,
            "cool_down": outbox.scaled(COOL_DOWN_SECONDS),
        },
    ):
        log.warning("circuit_opened", dependency=name, error_class=error_class, probe=True)


def release_probe(name: str, probe: Probe) -> None:
    """Give the probe back: its call said nothing about the dependency."""
    prepared.rows(_RELEASE_PROBE, {"name": name, "token": probe.token, "quiet": quiet_seconds()})


def quiet_seconds() -> float:
    """Return how long a half-open circuit awaits a real call."""
    return outbox.scaled(QUIET_SECONDS)
