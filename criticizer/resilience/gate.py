"""Gate in front of every call to a dependency: circuit breaker and rate limits.

    permit = acquire_permit("llm:openai")  # raises DependencyUnavailable
    try: answer = call()
    except Failure as failure:
        if waiting := permit.report(failure): raise waiting from failure
        raise
    permit.report(None)

`with guarded(name): call()` does the same. Waiting costs no attempt.

Each process remembers for half a second that a dependency is closed, not slowed and not paused, so
that most permits cost no statement; each report costs one.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.resilience import circuit_breaker, health_checks, overrides, rate_limit, receivers
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    QuotaExceeded,
)
from criticizer.resilience.retry import BACKOFF
from criticizer.resilience.states import FORCED, CircuitState

log = structlog.get_logger(__name__)

MAX_NAME = 128  # characters of the column
PACE_SECONDS = 2.5  # the longest wait for the next of some calls a second
SPREAD_SECONDS = 5.0  # work that waits for the same moment becomes due over this time
LONGEST_WAIT_SECONDS = 60.0  # of work that waits for an unknown time; it is woken when it can continue

_UNAVAILABLE = frozenset(
    {
        ErrorClass.NETWORK_TIMEOUT,
        ErrorClass.NETWORK_UNREACHABLE,
        ErrorClass.UPSTREAM_UNAVAILABLE,
        ErrorClass.UPSTREAM_INTERNAL,
        # An SMTP server that did not answer after the whole message.
        ErrorClass.DELIVERY_UNCERTAIN,
    }
)
_OUTSIDE = frozenset({Component.SOURCE, Component.REVIEWER, Component.PROVIDER})

_SNAPSHOT = """
SELECT c.state, c.generation,
       extract(epoch FROM c.retry_at - statement_timestamp())::float8 AS retry_in,
       extract(epoch FROM c.probe_expires_at - statement_timestamp())::float8 AS trial_in,
       coalesce(p.generation, 0) AS rate_generation,
       extract(epoch FROM p.paused_until - statement_timestamp())::float8 AS paused_in,
       coalesce(p.slow_since + make_interval(secs => %(recover)s) > statement_timestamp(), false) AS is_slow
  FROM circuits c LEFT JOIN paces p ON p.name = c.name WHERE c.name = %(name)s"""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """State of a dependency. Fields `…_in` are seconds from now, negative in the past."""

    state: str
    generation: int
    retry_in: float | None
    trial_in: float | None
    rate_generation: int
    paused_in: float | None
    is_slow: bool


# name -> until when (monotonic clock) it counts as closed, not slowed and not paused
_free: dict[str, tuple[float, _Snapshot]] = {}
_MAX_REMEMBERED = 1000  # each receiver of webhooks is a dependency of its own


class _Outcome(Enum):
    """Kind of outcome as which a reported call counts."""

    SUCCESS = auto()
    FAILURE = auto()
    AUTH = auto()
    RATE = auto()
    NOTHING = auto()


def name_of(*parts: str) -> str:
    """Return the name of a dependency: its parts joined by colons, at most 128 characters."""
    name = ":".join(parts)
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 17]}#{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def check(name: str) -> None:
    """Raise DependencyUnavailable unless calls are allowed now; take no permit.

    For a check before expensive work. Lets database errors through.
    """
    look = _snapshot(name)
    if (waiting := _waits(name, look)) is not None and not _is_excepted(receivers.of(name), look):
        raise waiting


def acquire_permit(name: str) -> Permit:
    """Return the permit for one call, to be reported once, or raise DependencyUnavailable.

    Never waits. Lets database errors through.
    """
    try:
        return _acquired(name)
    except DependencyUnavailable:
        if receivers.is_one(name):
            # Not before the work ends: another receiver of the message can use the slot that is kept for it.
            outbox.at_end_of_work(_pass_on_slot)
        raise


def _acquired(name: str) -> Permit:
    receiver, look = receivers.of(name), _snapshot(name)
    is_excepted = _is_excepted(receiver, look)
    if not is_excepted and (waiting := _waits(name, look)) is not None:
        raise waiting
    permit = Permit(name, look.generation, look.rate_generation, receiver=receiver)
    limits = receiver.slots if receiver else rate_limit.slots_of(name)
    is_trial = look.state in {CircuitState.OPEN, CircuitState.HALF_OPEN}
    is_limited = (look.is_slow and not is_excepted) or rate_limit.rate_of(name) is not None
    # A pause empties the bucket. Requesters to whom it does not apply take from another one until it is over.
    bucket = receivers.bucket_of_rest(name) if is_excepted and (look.paused_in or 0.0) > 0 else name
    if is_limited and (later := rate_limit.take_token(name, bucket)) is not None:
        # Spread the waiting work over the time in which there will be tokens for all of it.
        crowd = (rate_limit.backlog(name) + 1) / later.rate
        seconds = later.seconds + random.uniform(0, min(crowd, LONGEST_WAIT_SECONDS))  # noqa: S311
        raise DependencyUnavailable(name, seconds, "The rate limit is reached.")
    try:
        permit.take(limits)
        if is_trial:
            permit.trial = circuit_breaker.lease_trial(name, grace_seconds=health_checks.grace_seconds(name))
            if permit.trial is not None:
                permit.generation = permit.trial.generation
            elif not is_excepted:
                raise _waits_for_trial(name)
    except DependencyUnavailable:
        if is_limited:
            rate_limit.give_token_back(bucket)
        permit.release()
        raise
    return permit


def acquire_paced_permit(name: str) -> Permit:
    """Return the permit for one call; wait up to PACE_SECONDS for it.

    Raises DependencyUnavailable, as `acquire_permit` does, when it would have to wait longer.
    """
    try:
        return acquire_permit(name)
    except DependencyUnavailable as waiting:
        if waiting.seconds > PACE_SECONDS:
            raise
        time.sleep(waiting.seconds)
    return acquire_permit(name)


@contextmanager
def guarded(name: str, *, acquire: Callable[[str], Permit] | None = None) -> Iterator[Permit]:
    """Acquire a permit, run the block and report its outcome.

    Raises DependencyUnavailable while calls are not allowed, and instead of a failure that must
    cost no attempt. `acquire` replaces `acquire_permit`.
    """
    permit = (acquire or acquire_permit)(name)
    try:
        yield permit
    except BaseException as error:
        waiting = permit.report(error)
        if waiting is not None:
            raise waiting from error
        raise
    permit.report(None)


@dataclass(slots=True)
class Permit:
    """The right to make one call to a dependency. Report it once, also after an exception."""

    name: str
    generation: int
    rate_generation: int
    trial: circuit_breaker.Trial | None = None
    slots: list[tuple[str, UUID]] = field(default_factory=list)
    receiver: receivers.Receiver | None = None
    began_at: float = field(default_factory=time.monotonic)
    _slow_seconds: float = field(default=0.0, repr=False)  # of the pause after this call, and of slower calls
    _is_reported: bool = field(default=False, repr=False)

    def take(self, limits: Sequence[rate_limit.Slots]) -> None:
        """Take a slot of each limit; the report frees them.

        Raises DependencyUnavailable when a limit has no free slot.
        """
        self.slots = rate_limit.take_slots(limits) if limits else []
        if self.slots:
            return
        for slots in limits:  # one that is full, or has no rows yet
            token = rate_limit.take_slot(slots)
            if token is None:
                seconds = _spread(SPREAD_SECONDS) + _crowd_seconds(slots.name)
                raise DependencyUnavailable(slots.name, seconds, "The concurrency limit is reached.")
            self.slots.append((slots.name, token))

    def report(self, error: BaseException | None) -> DependencyUnavailable | None:
        """Record the outcome of the call; a second report changes nothing.

        `error` is None when the call was answered. Returns DependencyUnavailable, to be raised, when the
        failure must cost no attempt: the circuit was already open or a pause in force, the call was a trial
        call, or a quota is used up. Never raises because of the database: the caller's answer must not be
        lost.
        """
        if self._is_reported:
            return None
        self._is_reported = True
        waiting: DependencyUnavailable | None = None

        def record() -> None:
            nonlocal waiting
            waiting = self._record(error)

        _report_safely(record, self.name)
        outcome, receiver = _outcome_of(error), self.receiver
        if receiver is not None and outcome is not _Outcome.NOTHING:
            # Before the slots are freed, so that the next call sees the marks.
            took, is_answered = time.monotonic() - self.began_at, outcome is _Outcome.SUCCESS
            mark = partial(receiver.ended, took, is_answered=is_answered, slow_seconds=self._slow_seconds)
            _report_safely(mark, self.name)
        self._free_slots()
        return waiting

    def release(self) -> None:
        """Give the permit back: no call was made."""
        if not self._is_reported:
            self._is_reported = True
            _report_safely(self._release_trial, self.name)
            self._free_slots()

    def _record(self, error: BaseException | None) -> DependencyUnavailable | None:
        outcome = _outcome_of(error)
        if outcome is _Outcome.NOTHING:
            self._release_trial()
            return None
        if outcome is _Outcome.SUCCESS:
            if self.trial is not None:
                circuit_breaker.trial_succeeded(self.name, self.trial)
            else:
                circuit_breaker.count_success(self.name, self.generation, self.rate_generation)
            return None
        _free.pop(self.name, None)
        assert isinstance(error, Failure)
        if outcome is _Outcome.RATE:
            return self._slow_down(error)
        if self.trial is not None:
            circuit_breaker.trial_failed(self.name, self.trial, str(error.error_class))
            cool_down = outbox.scaled(circuit_breaker.COOL_DOWN_SECONDS)
            return _after_cool_down(self.name, cool_down, error.retry_after_seconds)
        retry_in = circuit_breaker.count_failure(
            self.name, self.generation, str(error.error_class), is_auth=outcome is _Outcome.AUTH,
            seconds=time.monotonic() - self.began_at,
        )  # fmt: skip
        return None if retry_in is None else _after_cool_down(self.name, retry_in, error.retry_after_seconds)

    def _slow_down(self, error: Failure) -> DependencyUnavailable | None:
        self._release_trial()
        is_quota = isinstance(error, QuotaExceeded)
        paused = rate_limit.pause(
            self.name, self.rate_generation, error.retry_after_seconds, is_quota=is_quota
        )
        self._slow_seconds = paused.seconds + rate_limit.recover_seconds()
        if not paused.was_in_force and self.trial is None and not is_quota:
            return None
        return _after_pause(self.name, paused.seconds, paused.rate)

    def _release_trial(self) -> None:
        if self.trial is not None:
            circuit_breaker.release_trial(self.name, self.trial)

    def _free_slots(self) -> None:
        held, self.slots = self.slots, []
        if held:
            seconds = time.monotonic() - self.began_at
            _report_safely(partial(rate_limit.free_slots, held, seconds), self.name)


def forget() -> None:
    """Forget what this process remembers of dependencies."""
    _free.clear()


def _pass_on_slot(message_id: int) -> None:
    _report_safely(partial(rate_limit.pass_on, message_id), rate_limit.RECEIVERS)


def _snapshot(name: str) -> _Snapshot:
    known = _free.get(name)
    if known is not None and known[0] > time.monotonic():
        return known[1]
    look = _read(name)
    if look.state in FORCED and (look.retry_in or 0.0) <= 0:
        overrides.expire(name)
        look = _read(name)
    if look.state == CircuitState.CLOSED and not look.is_slow and (look.paused_in or 0.0) <= 0:
        if len(_free) >= _MAX_REMEMBERED:
            _free.clear()
        _free[name] = (time.monotonic() + settings.CIRCUIT_CACHE_SECONDS, look)
    return look


def _read(name: str) -> _Snapshot:
    row = prepared.row(_SNAPSHOT, {"name": name, "recover": rate_limit.recover_seconds()})
    if row is None:
        circuit_breaker.create(name)
        return _read(name)
    return _Snapshot(**row)


def _is_excepted(receiver: receivers.Receiver | None, look: _Snapshot) -> bool:
    """Return whether the receiver's circuit and pauses do not apply to this requester (G585).

    Only calls of others failed, maybe at another address of its host.
    """
    return receiver is not None and not receiver.is_blamed and look.state != CircuitState.FORCED_OPEN


def _waits(name: str, look: _Snapshot) -> DependencyUnavailable | None:
    if look.paused_in is not None and look.paused_in > 0:
        return _after_pause(name, look.paused_in, rate_limit.rate_of(name) or rate_limit.ASSUMED_RATE)
    retry_in = look.retry_in or 0.0
    if look.state == CircuitState.FORCED_OPEN:
        seconds = min(retry_in, LONGEST_WAIT_SECONDS) + _spread(SPREAD_SECONDS)
        return DependencyUnavailable(name, seconds, "An operator stopped all calls.")
    if look.state == CircuitState.OPEN:
        if retry_in > 0:
            return _after_cool_down(name, retry_in)
        if retry_in > -health_checks.grace_seconds(name):
            return _waits_for_trial(name)
    if look.state == CircuitState.HALF_OPEN and (look.trial_in or 0.0) > 0:
        return _waits_for_trial(name)
    return None


def _after_cool_down(name: str, seconds: float, asked: float | None = None) -> DependencyUnavailable:
    """Return the wait for a cool-down, or for as long as the failed call asks if longer."""
    seconds = max(seconds, outbox.scaled(min(asked or 0.0, BACKOFF.ceiling)), 0.0) + _spread(SPREAD_SECONDS)
    return DependencyUnavailable(name, seconds, "Circuit open: too many recent failures.")


def _waits_for_trial(name: str) -> DependencyUnavailable:
    seconds = outbox.scaled(1.0) + _crowd_seconds(name)
    return DependencyUnavailable(name, seconds, "A trial call is checking whether it answers again.")


def _after_pause(name: str, seconds: float, rate: float) -> DependencyUnavailable:
    crowd = min((rate_limit.backlog(name) + 1) / rate, LONGEST_WAIT_SECONDS)
    return DependencyUnavailable(name, seconds + random.uniform(0, crowd), "It asked for a pause (429).")  # noqa: S311


def _crowd_seconds(name: str) -> float:
    crowd = min((rate_limit.backlog(name) + 1) / outbox.WAKE_PER_SECOND, LONGEST_WAIT_SECONDS)
    return _spread(max(crowd, 1.0))


def _spread(seconds: float) -> float:
    return outbox.scaled(random.uniform(0, seconds))  # noqa: S311


def _outcome_of(error: BaseException | None) -> _Outcome:
    if error is None:
        return _Outcome.SUCCESS
    # An error of our own (database, configuration, a defect, a stop) says nothing about the dependency.
    if not isinstance(error, Failure) or error.component not in _OUTSIDE:
        return _Outcome.NOTHING
    if error.error_class is ErrorClass.CONFIG_INVALID or error.error_class is ErrorClass.INTERNAL_BUG:
        return _Outcome.NOTHING
    if error.error_class is ErrorClass.RATE_LIMITED:
        return _Outcome.RATE
    if error.error_class in circuit_breaker.AUTH:
        return _Outcome.AUTH
    return _Outcome.FAILURE if error.error_class in _UNAVAILABLE else _Outcome.SUCCESS


def _report_safely(write: Callable[[], None], name: str) -> None:
    """Do a write; a database error is logged, so that the caller's result is not lost."""
    try:
        write()
    except (DatabaseError, InterfaceError) as error:
        log.warning("dependency_not_reported", dependency=name, error=type(error).__name__)
        if not connection.in_atomic_block:
            connection.close()
