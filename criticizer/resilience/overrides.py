"""Operators' overrides of circuit breakers: forced open or closed for a time, with a reason."""

from __future__ import annotations

import structlog
from django.db import transaction
from django.db.models.functions import Now

from criticizer.models import Circuit
from criticizer.queue import outbox
from criticizer.redaction import clean
from criticizer.resilience.circuit_breaker import (
    TRIALS_TO_CLOSE,
    Signal,
    change_state,
    lock,
    next_state,
    quiet_seconds,
)
from criticizer.resilience.states import FORCED, CircuitChange, CircuitState

log = structlog.get_logger(__name__)

MAX_FORCED_SECONDS = 24 * 3600


def force(name: str, state: CircuitState, *, actor: str, reason: str, seconds: float) -> bool:
    """Force a circuit open or closed for `seconds`; False when no circuit has that name.

    Raises ValueError for another state, without a reason, or for more than 24 hours.
    """
    if state not in FORCED:
        raise ValueError("A circuit can be forced open or forced closed only.")
    _require_reason(reason)
    if not 0 < seconds <= MAX_FORCED_SECONDS:
        raise ValueError("Force a circuit for 24 hours at most.")
    with transaction.atomic():
        found = lock(name)
        if found is None:
            return False
        change_state(
            *found, state, CircuitChange(state.value), actor=actor[:255], reason=clean(reason, 512),
            retry_seconds=seconds, probe_detail="",
        )  # fmt: skip
        if state is CircuitState.FORCED_CLOSED:
            outbox.wake(name)
    log.warning("circuit_forced", dependency=name, state=state.value, actor=actor)
    return True


def release(name: str, *, actor: str, reason: str) -> bool:
    """End a forced state: forced closed becomes closed, forced open becomes half-open.

    False when the circuit is not forced. Raises ValueError without a reason.
    """
    _require_reason(reason)
    return _release(name, actor=actor[:255], reason=clean(reason, 512), is_expired=False)


def expire(name: str) -> bool:
    """End a forced state whose time is over; False when there is none."""
    return _release(name, actor="", reason="its time was over", is_expired=True)


def expire_forced() -> int:
    """End every forced state whose time is over; return their number."""
    expired = Circuit.objects.filter(state__in=FORCED, retry_at__lte=Now()).order_by("name")
    return sum(expire(name) for name in expired.values_list("name", flat=True)[:100])


def _release(name: str, *, actor: str, reason: str, is_expired: bool) -> bool:
    with transaction.atomic():
        found = lock(name)
        if found is None:
            return False
        circuit, now = found
        if circuit.state not in FORCED or (is_expired and not (circuit.retry_at and circuit.retry_at <= now)):
            return False
        state = next_state(CircuitState(circuit.state), Signal.RELEASED)
        is_tried = state == CircuitState.HALF_OPEN
        change_state(
            circuit, now, state, CircuitChange.RELEASED, actor=actor, reason=reason,
            retry_seconds=quiet_seconds() if is_tried else None,
        )  # fmt: skip
        outbox.wake(name, limit=TRIALS_TO_CLOSE if is_tried else None)
    log.info("circuit_released", dependency=name, state=str(state), actor=actor)
    return True


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise ValueError("Enter a reason; it is saved with the circuit.")
