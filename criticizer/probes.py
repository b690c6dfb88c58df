"""Harmless probes: ask an open circuit's dependency without doing anything (settings.CIRCUIT_PROBES).

One that is answered lets the next real call be the probe that decides; one that is not keeps
the circuit open for another cool-down. A thread beside each cluster's caretaker asks; the
lease on the circuit's row sees to it that one asks at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import structlog
from django.db import connection, transaction
from django.utils.module_loading import import_string

from criticizer import dependencies, forcing, outbox, sql
from criticizer.circuit import COOL_DOWN_SECONDS, NO_PROBE, NOTE, NOW, PROBES_TO_CLOSE
from criticizer.failures import Failure
from criticizer.redaction import clean

log = structlog.get_logger(__name__)

LEASE_SECONDS = 30.0  # above the strict limits of every harmless probe

DUE = f"""
SELECT name FROM circuits
 WHERE state = 'open' AND retry_at <= {NOW} AND (probe_expires_at IS NULL OR probe_expires_at <= {NOW})
 ORDER BY retry_at LIMIT 1000"""  # noqa: S608

_BEGIN = f"""
UPDATE circuits SET probe_token = gen_random_uuid(),
       probe_expires_at = {NOW} + make_interval(secs => {LEASE_SECONDS})
 WHERE name = %(name)s AND state = 'open' AND retry_at <= {NOW}
   AND (probe_expires_at IS NULL OR probe_expires_at <= {NOW})
RETURNING generation"""  # noqa: S608

_ANSWERED = f"""
WITH changed AS (
  UPDATE circuits
     SET state = 'half_open', generation = generation + 1, changed_at = {NOW}, probe_detail = 'answered',
         {NO_PROBE}
   WHERE name = %(name)s AND state = 'open' AND generation = %(generation)s
  RETURNING name, generation, retry_at, actor, 'a harmless probe was answered'::text AS reason),
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


def due() -> list[str]:
    """Return the open circuits whose cool-down is over and that nobody probes."""
    return [str(row["name"]) for row in sql.rows(DUE)]


def any_due(names: Iterable[str]) -> bool:
    """Say whether one of the circuits that `DUE` returned can be asked harmlessly: webhooks cannot."""
    return any(dependencies.has_harmless_probe(name) for name in names)


def begin(name: str) -> int | None:
    """Lease the harmless probe of an open circuit; return its generation, or None."""
    found = sql.row(_BEGIN, {"name": name})
    return int(found["generation"]) if found else None


def answered(name: str, generation: int) -> bool:
    """Let the next real call be the probe, and wake a few that wait for it."""
    with transaction.atomic():
        moved = bool(sql.rows(_ANSWERED, {"name": name, "generation": generation}))
        if moved:
            outbox.wake(name, limit=PROBES_TO_CLOSE)
    return moved


def failed(name: str, generation: int, detail: str) -> None:
    """Keep the circuit open for another cool-down."""
    sql.rows(
        _FAILED,
        {
            "name": name,
            "generation": generation,
            "detail": clean(detail, 512),
            "cool_down": outbox.scaled(COOL_DOWN_SECONDS),
        },
    )


def run_due() -> int:
    """Make every harmless probe that is due; return how many were made.

    A probe is a function of the dependency's name that returns when it was answered and raises
    `Failure` when not; it bounds its own time. Lets database errors through.
    """
    made = 0
    for name in due():
        path = dependencies.probe_path(name)
        if path is None or (generation := begin(name)) is None:
            continue
        made += 1
        try:
            import_string(path)(name)
        except Failure as failure:
            log.info("harmless_probe_failed", dependency=name, error_class=str(failure.error_class))
            failed(name, generation, f"{failure.error_class}: {failure.detail}")
        except Exception as error:
            log.exception("harmless_probe_defect", dependency=name)
            failed(name, generation, f"the probe itself failed: {type(error).__name__}")
        else:
            log.info("harmless_probe_answered", dependency=name)
            answered(name, generation)
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
    forcing.expire_forced()
    sql.rows(_FORGET)
