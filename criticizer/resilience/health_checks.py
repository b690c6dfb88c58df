"""Health checks: ask a dependency whether it answers, without any effect.

An answer half-opens an open circuit, so that the next real call is the trial call; without one it stays
open for another cool-down. In a half-open circuit that no work waits for, the health check takes the
place of the trial call, so that an idle circuit closes too (`circuit_breaker`).

Each app registers its checks in `apps.py`. One thread per cluster makes those that are due; the
lease on the circuit's row lets one cluster ask at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from datetime import timedelta
from uuid import uuid4

import structlog
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce, Now

from criticizer.db import prepared, reconnect
from criticizer.models import Circuit, OutboxMessage
from criticizer.queue import outbox
from criticizer.redaction import clean
from criticizer.resilience import circuit_breaker, overrides, rate_limit
from criticizer.resilience.circuit_breaker import ANSWERED, NO_TRIAL, Trial
from criticizer.resilience.failures import Failure
from criticizer.resilience.states import CircuitState

log = structlog.get_logger(__name__)

# Takes the dependency's name, returns when it answered, raises `Failure` when not, and limits its own time.
HealthCheck = Callable[[str], object]

PERIOD_SECONDS = 1.0
LEASE_SECONDS = 30.0  # longer than any health check takes
GRACE_SECONDS = 60.0  # after the cool-down, before a call is made without a health check

CHECKS: dict[str, HealthCheck] = {}  # by the beginning of the dependency's name, up to a colon
PENDING: list[Callable[[], Collection[str]]] = []  # return the dependencies that failed work will call again

# Dependencies that are not called any more must not stay in the tables for ever.
_FORGET = """
WITH old AS (DELETE FROM circuit_buckets WHERE started_at < statement_timestamp() - interval '5 minutes'),
free AS (DELETE FROM pace_slots WHERE expires_at < statement_timestamp() - interval '7 days'),
gone AS (
  DELETE FROM circuits c
   WHERE state = 'closed' AND changed_at < statement_timestamp() - interval '7 days' AND auth_failures = 0
     AND NOT EXISTS (SELECT FROM circuit_buckets b WHERE b.name = c.name)
  RETURNING name)
DELETE FROM paces USING gone WHERE paces.name IN (gone.name, left(gone.name, 122) || '#rest')"""


def check_of(name: str) -> HealthCheck | None:
    """Return the health check of a dependency, or None."""
    return rate_limit.configured(CHECKS, name)


def grace_seconds(name: str) -> float:
    """Return how long an open circuit that has cooled down waits for its health check."""
    return outbox.scaled(GRACE_SECONDS) if check_of(name) else 0.0


def due() -> list[str]:
    """Return the circuits to check: open and cooled down, or half-open and idle."""
    has_check = Q(name__in=CHECKS)
    for part in CHECKS:
        has_check |= Q(name__startswith=f"{part}:")
    found = dict(_due().filter(has_check).order_by("retry_at").values_list("name", "state")[:1000])
    idle = {name for name, state in found.items() if state == CircuitState.HALF_OPEN}
    if idle:
        idle -= {name for pending in PENDING for name in pending()}
    return [name for name, state in found.items() if state == CircuitState.OPEN or name in idle]


def _due() -> QuerySet[Circuit]:
    # Work that waits for a half-open circuit makes the trial call itself.
    waiting = OutboxMessage.objects.filter(waiting_for=OuterRef("name"))
    return Circuit.objects.alias(since=Coalesce("retry_at", "changed_at")).filter(
        Q(state=CircuitState.OPEN) | (Q(state=CircuitState.HALF_OPEN, needs_call=False) & ~Exists(waiting)),
        Q(probe_expires_at=None) | Q(probe_expires_at__lte=Now()),
        since__lte=Now(),
    )


def begin(name: str) -> Trial | None:
    """Lease the health check of a circuit; None when it is not due."""
    with transaction.atomic():
        circuit = _due().filter(pk=name).select_for_update().first()
        if circuit is None:
            return None
        trial = Trial(circuit.generation, uuid4())
        expires_at = Now() + timedelta(seconds=LEASE_SECONDS)
        circuit_breaker.update(circuit, probe_token=trial.token, probe_expires_at=expires_at)
        return trial


def answered(name: str, trial: Trial) -> None:
    """Half-open an open circuit and wake a few messages; count the answer for a half-open one."""
    with transaction.atomic():
        found = circuit_breaker.lock(name, CircuitState.OPEN, trial.generation)
        if found is None:
            circuit_breaker.trial_succeeded(name, trial, is_health_check=True)
            return
        circuit_breaker.try_again(
            *found, reason="a health check was answered", retry_seconds=circuit_breaker.quiet_seconds(),
            probe_detail=ANSWERED, **NO_TRIAL,
        )  # fmt: skip
        outbox.wake(name, limit=circuit_breaker.TRIALS_TO_CLOSE)


def failed(name: str, trial: Trial, error_class: str, detail: str) -> None:
    """Keep the circuit open for another cool-down, or open it again."""
    detail = clean(f"{error_class}: {detail}", 512)
    if not _stays_open(name, trial, detail, error_class):
        circuit_breaker.trial_failed(name, trial, error_class, health_check_detail=detail)


def _stays_open(name: str, trial: Trial, detail: str, error_class: str = "") -> bool:
    """Keep an open circuit open; return False when it is no longer open.

    A cause other than the one that opened it becomes its reason (G224).
    """
    opened = Circuit.objects.filter(pk=name, state=CircuitState.OPEN, generation=trial.generation)
    retry_at = Now() + timedelta(seconds=outbox.scaled(circuit_breaker.COOL_DOWN_SECONDS))
    cause = {"error_class": error_class, "reason": f"a health check failed with {error_class}"}
    with transaction.atomic():
        if error_class:
            opened.exclude(error_class=error_class).update(**cause)
        return bool(opened.update(retry_at=retry_at, probe_detail=detail, **NO_TRIAL))


def run_due() -> int:
    """Make every due health check; return their number. Lets database errors through."""
    made = 0
    for name in due():
        check = check_of(name)
        if check is None or (trial := begin(name)) is None:
            continue
        made += 1
        try:
            check(name)
        except Failure as failure:
            log.info("harmless_probe_failed", dependency=name, **failure.facts)
            failed(name, trial, str(failure.error_class), failure.detail)
        except Exception as error:
            # A defect of ours says nothing about the dependency: try again later.
            log.exception("harmless_probe_defect", dependency=name)
            if not _stays_open(name, trial, f"the health check itself failed: {type(error).__name__}"):
                circuit_breaker.release_trial(name, trial)
        else:
            log.info("harmless_probe_answered", dependency=name)
            answered(name, trial)
    return made


def start(stop: threading.Event | None = None) -> threading.Thread:
    """Start a thread that makes due health checks until `stop` is set.

    It has a database connection of its own.
    """
    stopped = stop or threading.Event()

    def run() -> None:
        while not stopped.wait(PERIOD_SECONDS):
            try:
                run_due()
            except (OperationalError, InterfaceError) as error:
                log.warning("harmless_probes_failed", error=type(error).__name__)
                if reconnect.is_disconnect(error):
                    reconnect.note_loss()
                connection.close()
            except Exception:
                log.exception("harmless_probes_failed")
                connection.close()
        connection.close()

    thread = threading.Thread(target=run, name="health-checks", daemon=True)
    thread.start()
    return thread


def maintain() -> None:
    """End forced states whose time is over and delete circuits that are not called any more."""
    overrides.expire_forced()
    prepared.rows(_FORGET)
