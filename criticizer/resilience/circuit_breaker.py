"""Circuit breakers: one row per dependency in PostgreSQL, shared by all processes.

    closed    -> open       more than half of at least 10 calls in 60 s failed,
                            or our credentials were refused 3 times in a row;
                            a provider: or two failures or more took 30 of the last 60 s;
                            a receiver of webhooks: or 3 calls in a row timed out
    open      -> half-open  30 s later, by an answered health check or by the next call
    half-open -> closed     2 trial calls in a row were answered
    half-open -> open       a trial call failed

A trial call is a real call; half-open admits one at a time. Where no call was made for 15 s and no
work waits, a health check takes its place, so that an idle circuit closes too. It does not while
`needs_call` is set: after refused credentials, and after a trial call that failed although health
checks were answered, only a real call can close the circuit.

Each change locks the row, decides in `next_state` and writes once, on the database's clock. A call
keeps the generation in which it began; its report in another one changes nothing. Callers use `gate`,
operators `overrides`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Sum
from django.db.models.functions import Now

from criticizer.db import prepared
from criticizer.models import Circuit, CircuitBucket, CircuitEvent
from criticizer.queue import outbox
from criticizer.resilience.failures import ErrorClass
from criticizer.resilience.rate_limit import RECEIVERS
from criticizer.resilience.states import CircuitChange, CircuitState

log = structlog.get_logger(__name__)

AUTH = frozenset({ErrorClass.AUTH_DENIED, ErrorClass.PERMISSION_DENIED})
WINDOW_SECONDS = 60.0
MIN_CALLS = 10
AUTH_FAILURES_IN_A_ROW = 3
COOL_DOWN_SECONDS = 30.0
# A call to a dependency of this prefix holds a worker process: one that hangs is called a few times a minute.
HOLDS_WORKER = "provider:"
SECONDS_LOST = 30.0  # to two failures or more within the window
TIMEOUTS_IN_A_ROW = 3  # of a receiver, which few messages depend on
TRIALS_TO_CLOSE = 2  # in a row: above the required 80 %
# After so long another trial call may start, as the worker of the first may be lost. A slower trial
# call still counts.
TRIAL_LEASE_SECONDS = 30.0
# A half-open circuit waits so long for a real call before a health check may take its place.
QUIET_SECONDS = 15.0

ANSWERED = "answered"  # `probe_detail` while health checks are answered
NO_TRIAL: dict[str, Any] = {"probe_token": None, "probe_expires_at": None}

# One statement for each answered call. `failures` is 0 or 1.
_COUNT = """
WITH counted AS (
  INSERT INTO circuit_buckets AS b (name, generation, started_at, calls, failures, seconds_lost)
  SELECT name, generation, date_bin('10 seconds', statement_timestamp(), 'epoch'::timestamptz), 1,
         %(failures)s, %(seconds)s
    FROM circuits WHERE name = %(name)s AND state = 'closed' AND generation = %(generation)s
  ON CONFLICT (name, generation, started_at)
  DO UPDATE SET calls = b.calls + 1, failures = b.failures + excluded.failures,
                seconds_lost = b.seconds_lost + excluded.seconds_lost),
accepted AS (
  UPDATE circuits SET auth_failures = 0, timeouts = 0
   WHERE name = %(name)s AND auth_failures + timeouts > 0 AND generation = %(generation)s
     AND %(failures)s = 0)
UPDATE paces SET refusals = 0
 WHERE name = %(name)s AND refusals > 0 AND generation = %(rate_generation)s AND %(failures)s = 0"""


class Signal(Enum):
    """An event that may change the state of a circuit."""

    FAILED = auto()
    REFUSED = auto()  # failed: our credentials were refused
    TRIED = auto()  # the cool-down is over, and a call is allowed or a health check was answered
    ANSWERED = auto()  # a trial call, or the health check in its place, was answered
    RELEASED = auto()  # a forced state ended


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of calls, the present one included."""

    calls: int = 0  # in the last minute
    failures: int = 0  # of these
    refusals: int = 0  # of our credentials, in a row
    timeouts: int = 0  # in a row, of a receiver
    seconds_lost: float = 0.0  # to the failures, where a call holds a worker
    answers: int = 0  # to trial calls, in a row

    @property
    def fail_often(self) -> bool:
        return self.calls >= MIN_CALLS and 2 * self.failures > self.calls

    @property
    def hold_workers(self) -> bool:
        is_slow = self.failures >= 2 and self.seconds_lost >= SECONDS_LOST
        return is_slow or self.timeouts >= TIMEOUTS_IN_A_ROW


def next_state(state: CircuitState, signal: Signal, counts: Counts = Counts()) -> CircuitState:
    """Return the state that follows; all rules of the breaker are here."""
    match state, signal:
        case CircuitState.CLOSED, Signal.FAILED:
            if counts.fail_often or counts.hold_workers:
                return CircuitState.OPEN
        case CircuitState.CLOSED, Signal.REFUSED:
            if counts.refusals >= AUTH_FAILURES_IN_A_ROW:
                return CircuitState.OPEN
        case CircuitState.OPEN, Signal.TRIED:
            return CircuitState.HALF_OPEN
        case CircuitState.HALF_OPEN, Signal.ANSWERED:
            if counts.answers >= TRIALS_TO_CLOSE:
                return CircuitState.CLOSED
        case CircuitState.HALF_OPEN, Signal.FAILED | Signal.REFUSED:
            return CircuitState.OPEN
        case CircuitState.FORCED_OPEN, Signal.RELEASED:
            return CircuitState.HALF_OPEN  # nothing is known about the dependency
        case CircuitState.FORCED_CLOSED, Signal.RELEASED:
            return CircuitState.CLOSED
    return state


@dataclass(frozen=True, slots=True)
class Trial:
    """The lease of the one trial call, or the one health check, of a circuit."""

    generation: int
    token: UUID


@dataclass(frozen=True, slots=True)
class Stopped:
    """A circuit that is not closed.

    `needs_call`: only a real call closes it. `is_refused`: refused credentials opened it.
    """

    state: CircuitState
    needs_call: bool
    is_refused: bool


def create(name: str) -> None:
    """Write the row of a dependency that is called for the first time."""
    Circuit.objects.bulk_create([Circuit(name=name)], ignore_conflicts=True)


def open_circuits() -> dict[str, Stopped]:
    """Return the circuits that are not closed, by their names, a hundred at most."""
    found = Circuit.objects.exclude(state=CircuitState.CLOSED).order_by("name")[:100]
    return {
        row.name: Stopped(CircuitState(row.state), row.needs_call, row.error_class in AUTH) for row in found
    }


# -- reports of calls -------------------------------------------------------------------------


def count_success(name: str, generation: int, rate_generation: int) -> None:
    """Count an answered call; it resets the counts of refused credentials, timeouts and pauses."""
    _count(name, generation, failures=0, rate_generation=rate_generation)


def count_failure(
    name: str, generation: int, error_class: str, *, is_auth: bool = False, seconds: float = 0.0
) -> float | None:
    """Count a failed call that took `seconds`; open the circuit when a limit is reached.

    Returns the seconds left of the cool-down when the circuit has opened since the call began.
    """
    with transaction.atomic():
        # The circuit before the bucket, as answered calls do: two orders would deadlock.
        found = lock(name)
        if found is None or found[0].state == CircuitState.FORCED_CLOSED:
            return None
        circuit, now = found
        if circuit.state != CircuitState.CLOSED or circuit.generation != generation:
            if circuit.retry_at is None or circuit.state == CircuitState.HALF_OPEN:
                return 0.0
            return max((circuit.retry_at - now).total_seconds(), 0.0)
        if is_auth:
            counts = Counts(refusals=circuit.auth_failures + 1)
            reason = f"our credentials were refused {counts.refusals} times in a row"
        else:
            _count(name, generation, failures=1, seconds=seconds if name.startswith(HOLDS_WORKER) else 0.0)
            is_timeout = name.startswith(f"{RECEIVERS}:") and error_class == ErrorClass.NETWORK_TIMEOUT
            counts = _counts_of_window(circuit, now, timeouts=circuit.timeouts + 1 if is_timeout else 0)
            reason = f"{counts.failures} of {counts.calls} calls within a minute failed"
            if counts.seconds_lost >= 1:
                reason += f" and took {counts.seconds_lost:.0f} s"
        state = next_state(CircuitState.CLOSED, Signal.REFUSED if is_auth else Signal.FAILED, counts)
        if state == CircuitState.CLOSED:
            if is_auth:
                update(circuit, auth_failures=counts.refusals)
            elif counts.timeouts != circuit.timeouts:
                update(circuit, timeouts=counts.timeouts)
            return None
        change_state(
            circuit, now, state, CircuitChange.OPENED,
            reason=f"{reason}, the last with {error_class}", retry_seconds=outbox.scaled(COOL_DOWN_SECONDS),
            error_class=error_class, needs_call=is_auth, probe_detail="",
        )  # fmt: skip
    log.warning("circuit_opened", dependency=name, error_class=error_class)
    return None


def lease_trial(name: str, *, grace_seconds: float) -> Trial | None:
    """Lease the trial call of a circuit; None while it is leased or the circuit cools down.

    `grace_seconds`: how much longer an open circuit waits for its health check.
    """
    with transaction.atomic():
        found = lock(name)
        if found is None:
            return None
        circuit, now = found
        # At least two seconds: a shorter lease would end before a call is answered.
        seconds = max(outbox.scaled(TRIAL_LEASE_SECONDS), 2.0)
        token = uuid4()
        lease: dict[str, Any] = {"probe_token": token, "probe_expires_at": now + timedelta(seconds=seconds)}
        if circuit.state == CircuitState.OPEN:
            if circuit.retry_at is None or circuit.retry_at + timedelta(seconds=grace_seconds) > now:
                return None
            # No health check beside this call.
            try_again(circuit, now, retry_seconds=settings.CALL_SECONDS, **lease)
            return Trial(circuit.generation + 1, token)
        if circuit.state != CircuitState.HALF_OPEN or is_leased(circuit, now):
            return None
        update(circuit, retry_at=now + timedelta(seconds=settings.CALL_SECONDS), **lease)
        return Trial(circuit.generation, token)


def trial_succeeded(name: str, trial: Trial, *, is_health_check: bool = False) -> None:
    """Count an answered trial call: the second in a row closes the circuit."""
    # The circuit closes and the work that waits for it is made due, or neither happens.
    with transaction.atomic():
        found = lock(name, CircuitState.HALF_OPEN, trial.generation)
        if found is None:
            return
        circuit, now = found
        answers = circuit.probe_successes + 1
        state = next_state(CircuitState.HALF_OPEN, Signal.ANSWERED, Counts(answers=answers))
        fields: dict[str, Any] = {"probe_detail": ANSWERED} if is_health_check else {}
        if state == CircuitState.CLOSED:
            change_state(circuit, now, state, CircuitChange.CLOSED, **fields)
        else:
            if circuit.probe_token == trial.token:
                fields |= NO_TRIAL
            retry_at = now + timedelta(seconds=quiet_seconds())
            update(circuit, probe_successes=answers, needs_call=False, retry_at=retry_at, **fields)
        woken = outbox.wake(name, limit=None if state == CircuitState.CLOSED else 1)
    if state == CircuitState.CLOSED:
        log.info("circuit_closed", dependency=name, woken=woken)


def trial_failed(name: str, trial: Trial, error_class: str, *, health_check_detail: str = "") -> None:
    """Open a half-open circuit again.

    `health_check_detail` is set when a health check took the place of the trial call: why it failed.
    """
    is_call = not health_check_detail
    with transaction.atomic():
        found = lock(name, CircuitState.HALF_OPEN, trial.generation)
        if found is None:
            return
        circuit, now = found
        # A server that cannot be reached fails its health check too, which therefore shows when it is back.
        is_unseen = error_class != ErrorClass.NETWORK_UNREACHABLE and circuit.probe_detail == ANSWERED
        change_state(
            circuit, now, next_state(CircuitState.HALF_OPEN, Signal.FAILED), CircuitChange.OPENED,
            reason=f"a {'trial call' if is_call else 'health check'} failed with {error_class}",
            retry_seconds=outbox.scaled(COOL_DOWN_SECONDS), error_class=error_class,
            needs_call=circuit.needs_call or (is_call and (error_class in AUTH or is_unseen)),
            probe_detail=health_check_detail,
        )  # fmt: skip
    log.warning("circuit_opened", dependency=name, error_class=error_class, probe=True)


def release_trial(name: str, trial: Trial) -> None:
    """Give the trial call back, because its outcome says nothing about the dependency."""
    Circuit.objects.filter(pk=name, state=CircuitState.HALF_OPEN, probe_token=trial.token).update(
        retry_at=Now() + timedelta(seconds=quiet_seconds()), **NO_TRIAL
    )


def quiet_seconds() -> float:
    """Return how long a half-open circuit waits for a real call."""
    return outbox.scaled(QUIET_SECONDS)


# -- the row, locked --------------------------------------------------------------------------


def lock(
    name: str, state: CircuitState | None = None, generation: int | None = None
) -> tuple[Circuit, datetime] | None:
    """Lock a circuit until the transaction ends and return it with the database's time.

    None when there is no such circuit, or none in this state and generation.
    """
    found = Circuit.objects.select_for_update().annotate(now=Now()).filter(pk=name)
    circuit = found.first()
    if circuit is None or (state is not None and (circuit.state, circuit.generation) != (state, generation)):
        return None
    return circuit, circuit.now


def is_leased(circuit: Circuit, now: datetime) -> bool:
    """Return whether the trial call or the health check of a locked circuit is leased."""
    return circuit.probe_expires_at is not None and circuit.probe_expires_at > now


def update(circuit: Circuit, **fields: Any) -> None:
    """Write some columns of a locked circuit."""
    Circuit.objects.filter(pk=circuit.pk).update(**fields)


def change_state(
    circuit: Circuit, now: datetime, state: CircuitState, change: CircuitChange,
    *, actor: str = "", reason: str = "", retry_seconds: float | None = None, **fields: Any,
) -> None:  # fmt: skip
    """Write the next state of a locked circuit, under a new generation, and its line of history."""
    retry_at = None if retry_seconds is None else now + timedelta(seconds=retry_seconds)
    written = {
        "state": state, "generation": circuit.generation + 1, "changed_at": now, "actor": actor,
        "reason": reason, "retry_at": retry_at, "error_class": "", "needs_call": False,
        "auth_failures": 0, "timeouts": 0, "probe_successes": 0, **NO_TRIAL,
    }  # fmt: skip
    update(circuit, **(written | fields))
    _record(circuit, change, actor, reason, retry_at)


def try_again(
    circuit: Circuit, now: datetime, *, reason: str = "", retry_seconds: float, **fields: Any
) -> None:
    """Half-open a locked circuit, which keeps the reason why it opened."""
    update(
        circuit, state=next_state(CircuitState(circuit.state), Signal.TRIED), changed_at=now,
        generation=circuit.generation + 1, probe_successes=0,
        retry_at=now + timedelta(seconds=retry_seconds), **fields,
    )  # fmt: skip
    _record(circuit, CircuitChange.HALF_OPENED, "", reason, until=None)


def _record(circuit: Circuit, change: str, actor: str, reason: str, until: datetime | None) -> None:
    CircuitEvent.objects.create(
        name=circuit.name,
        change=change,
        generation=circuit.generation + 1,
        actor=actor,
        reason=reason,
        until=until,
    )


def _count(
    name: str, generation: int, *, failures: int, seconds: float = 0.0, rate_generation: int = -1
) -> None:
    parameters = {
        "name": name,
        "generation": generation,
        "failures": failures,
        "seconds": seconds,
        "rate_generation": rate_generation,
    }
    prepared.rows(_COUNT, parameters)


def _counts_of_window(circuit: Circuit, now: datetime, *, timeouts: int) -> Counts:
    """Return the counts of the last minute since the last change of state."""
    since = now - timedelta(seconds=WINDOW_SECONDS)
    buckets = CircuitBucket.objects.filter(
        name=circuit.name, generation=circuit.generation, started_at__gt=since
    )
    found = buckets.aggregate(
        calls=Sum("calls", default=0),
        failures=Sum("failures", default=0),
        seconds_lost=Sum("seconds_lost", default=0.0),
    )
    return Counts(**found, timeouts=timeouts)
