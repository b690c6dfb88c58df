"""States of circuit breakers and their transitions."""

from __future__ import annotations

from django.db import models


class CircuitState(models.TextChoices):
    CLOSED = "closed", "Closed"  # two trial calls in a row were answered; forced closed ended
    OPEN = "open", "Open"  # more than half of at least ten calls failed; a trial call failed
    HALF_OPEN = "half_open", "Half-open"  # the cool-down is over: one trial call at a time
    FORCED_OPEN = "forced_open", "Forced open"  # an operator stopped all calls, for a time
    FORCED_CLOSED = "forced_closed", "Forced closed"  # an operator lets all calls pass, for a time


FORCED = (CircuitState.FORCED_OPEN, CircuitState.FORCED_CLOSED)
# State -> its class in states.css.
CIRCUIT_LOOKS = {
    CircuitState.CLOSED: "alive",
    CircuitState.OPEN: "failed",
    CircuitState.HALF_OPEN: "running",
    CircuitState.FORCED_OPEN: "failed",
    CircuitState.FORCED_CLOSED: "reconciling",
}
CIRCUIT_TRANSITIONS: tuple[tuple[CircuitState, CircuitState], ...] = (
    (CircuitState.CLOSED, CircuitState.OPEN),
    (CircuitState.OPEN, CircuitState.HALF_OPEN),
    (CircuitState.HALF_OPEN, CircuitState.OPEN),
    (CircuitState.HALF_OPEN, CircuitState.CLOSED),
    (CircuitState.FORCED_OPEN, CircuitState.HALF_OPEN),  # released or expired: tried first
    (CircuitState.FORCED_CLOSED, CircuitState.CLOSED),  # released or expired
    *((before, after) for before in CircuitState for after in FORCED if before is not after),
)


class CircuitChange(models.TextChoices):
    """Kinds of entries in a circuit's history."""

    OPENED = "opened", "Opened"
    HALF_OPENED = "half_opened", "Half-opened"
    CLOSED = "closed", "Closed"
    FORCED_OPEN = "forced_open", "Forced open"
    FORCED_CLOSED = "forced_closed", "Forced closed"
    RELEASED = "released", "Released"
