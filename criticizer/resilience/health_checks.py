"""Harmless probes: ask a dependency without doing anything (settings.CIRCUIT_PROBES).

Open: one that is answered lets the next real call be the probe that decides; one that is not
keeps the circuit open for another cool-down. Half-open, while nobody calls and no work waits,
for the circuit or to be retried: it is the probe itself, leased and counted as a real call is,
so that a circuit that nobody needs closes too. Not where only a real call closes it
(`needs_call`): the next one, such as a replay, is the probe. A thread beside each
cluster's caretaker asks; the lease on the circuit's row sees to it that one asks at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.utils.module_loading import import_string

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.redaction import clean
from criticizer.resilience import circuit_breaker, gate, overrides
from criticizer.resilience.circuit_breaker import (
    ANSWERED,
    COOL_DOWN_SECONDS,
    NO_PROBE,
    NOTE,
    NOW,
    PROBES_TO_CLOSE,
)
from criticizer.resilience.failures import Failure
from criticizer.resilience.states import CircuitState

log = structlog.get_logger(__name__)

LEASE_SECONDS = 30.0  # above the strict limits of every harmless probe

# Of a half-open circuit, work that waits makes the probe: what it needs is what must answer.
_MAY_BE_ASKED = f"""
coalesce(retry_at, changed_at) <= {NOW} AND (probe_expires_at IS NULL OR probe_expires_at <= {NOW})
   AND (state = 'open' OR state = 'half_open' AND NOT needs_call
        AND NOT EXISTS (SELECT FROM outbox_messages m WHERE m.waiting_for = circuits.name))"""

DUE = f"""
SELECT name, state FROM circuits
 WHERE {_MAY_BE_ASKED}
   AND EXISTS (SELECT FROM unnest(%(names)s::text[]) AS n (part) WHERE starts_with(name || ':', part || ':'))
 ORDER BY retry_at LIMIT 1000"""  # noqa: S608

_BEGIN = f"""
UPDATE circuits SET probe_token = gen_random_uuid(),
       probe_expires_at = {NOW} + make_interval(secs => {LEASE_SECONDS})
 WHERE name = %(name)s AND {_MAY_BE_ASKED}
RETURNING state, generation, probe_token"""  # noqa: S608

_ANSWERED = f"""
WITH changed AS (
  UPDATE circuits
     SET state = 'half_open', generation = generation + 1, changed_at = {NOW}, probe_detail = '{ANSWERED}',
         retry_at = {NOW} + make_interval(secs => %(quiet)s), {NO_PROBE}
   WHERE name = %(name)s AND state = 'open' AND generation = %(generation)s
  RETURNING name, generation, NULL::timestamptz AS retry_at, actor,
            'a harmless probe was answered'::text AS reason),
noted AS ({NOTE.format(change="'half_opened'")})
SELECT name FROM changed"""  # noqa: S608

_FAILED = f"""
UPDATE circuits SET retry_at = {NOW} + make_interval(secs => %(cool_down)s), probe_detail = %(detail)s,
       {NO_PROBE}
 WHERE name = %(name)s AND state = 'open' AND generation = %(generation)s"""  # noqa: S608

# A receiver that was called once must not stay in the tables for ever.
_FORGET = f"""
WITH old AS (DELETE FROM circuit_buckets WHERE started_at < {NOW} - interval '5 minutes'),
gone AS (
  DELETE FROM circuits c
   WHERE state = 'closed' AND changed_at < {NOW} - interval '7 days' AND auth_failures = 0
     AND NOT EXISTS (SELECT FROM circuit_buckets b WHERE b.name = c.name)
  RETURNING name)
DELETE FROM paces USING gone WHERE paces.name = gone.name"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Turn:
    """The right to ask once. `is_probe`: of a half-open circuit, so that the answer counts."""

    probe: circuit_breaker.Probe
    is_probe: bool


def due() -> list[str]:
    """Return the circuits to ask about: open and cooled down, or half-open and not needed."""
    found = prepared.rows(DUE, askable())
    half_open = [str(row["name"]) for row in found if row["state"] == CircuitState.HALF_OPEN]
    needed = _retried() if half_open else frozenset()
    return [str(row["name"]) for row in found if row["name"] not in needed or row["name"] not in half_open]


def askable() -> dict[str, list[str]]:
    """Return the parameters of `DUE`: the beginnings of names that have a harmless question."""
    return {"names": list(settings.CIRCUIT_PROBES)}


def _retried() -> Collection[str]:
    """Return the dependencies that failed work is going to call again."""
    retried: Callable[[], Collection[str]] = import_string(settings.CIRCUIT_RETRIES)
    return retried()


def begin(name: str) -> Turn | None:
    """Lease the harmless probe of a circuit; None when it may not be asked now."""
    found = prepared.row(_BEGIN, {"name": name})
    if found is None:
        return None
    probe = circuit_breaker.Probe(found["generation"], found["probe_token"])
    return Turn(probe, is_probe=found["state"] == CircuitState.HALF_OPEN)


def answered(name: str, turn: Turn) -> None:
    """Open: let the next real call be the probe, and wake a few that wait for it. Half-open: count it."""
    if turn.is_probe:
        circuit_breaker.probe_succeeded(name, turn.probe, is_harmless=True)
        return
    parameters = {"name": name, "generation": turn.probe.generation, "quiet": circuit_breaker.quiet_seconds()}
    with transaction.atomic():
        if prepared.rows(_ANSWERED, parameters):
            outbox.wake(name, limit=PROBES_TO_CLOSE)


def failed(name: str, turn: Turn, error_class: str, detail: str) -> None:
    """Keep the circuit open for another cool-down, or open it again: any failure of a probe does."""
    detail = clean(f"{error_class}: {detail}", 512)
    if turn.is_probe:
        circuit_breaker.probe_failed(name, turn.probe, error_class, harmless_detail=detail)
        return
    _stay_open(name, turn, detail)


def defective(name: str, turn: Turn, error: Exception) -> None:
    """Ask again later: what is wrong with us says nothing about the dependency."""
    if turn.is_probe:
        circuit_breaker.release_probe(name, turn.probe)
        return
    _stay_open(name, turn, f"the probe itself failed: {type(error).__name__}")


def _stay_open(name: str, turn: Turn, detail: str) -> None:
    cool_down = outbox.scaled(COOL_DOWN_SECONDS)
    generation = turn.probe.generation
    prepared.rows(_FAILED, {"name": name, "generation": generation, "detail": detail, "cool_down": cool_down})


def run_due() -> int:
    """Make every harmless probe that is due; return how many were made.

    A probe is a function of the dependency's name that returns when it was answered and raises
    `Failure` when not; it bounds its own time. Lets database errors through.
    """
    made = 0
    for name in due():
        path = gate.probe_path(name)
        if path is None or (turn := begin(name)) is None:
            continue
        made += 1
        try:
            import_string(path)(name)
        except Failure as failure:
            log.info("harmless_probe_failed", dependency=name, error_class=str(failure.error_class))
            failed(name, turn, str(failure.error_class), failure.detail)
        except Exception as error:
            log.exception("harmless_probe_defect", dependency=name)
            defective(name, turn, error)
        else:
            log.info("harmless_probe_answered", dependency=name)
            answered(name, turn)
    return made


def start_due() -> threading.Thread:
    """Run `run_due` in a thread with a database connection of its own."""

    def run() -> None:
        try:
            run_due()
        except Exception:
            log.exception("harmless_probes_failed")
        finally:
            connection.close()

    thread = threading.Thread(target=run, name="harmless-probes", daemon=True)
    thread.start()
    return thread


def maintain() -> None:
    """End forced states whose time is over and delete what nobody counts any more."""
    overrides.expire_forced()
    prepared.rows(_FORGET)
