"""States of circuits, each with what moves a circuit there (specification 003, 5.1)."""

from __future__ import annotations

from django.db import models


class CircuitState(models.TextChoices):
    CLOSED = "closed", "Closed"  # two probes in a row succeeded; a forced state ended
    OPEN = "open", "Open"  # more than half of at least ten calls failed; a probe failed
    HALF_OPEN = "half_open", "Half-open"  # the cool-down is over: one probe at a time
    FORCED_OPEN = "forced_open", "Forced open"  # an operator stopped all calls, for a time
    FORCED_CLOSED = "forced_closed", "Forced closed"  # an operator lets all calls pass, for a time


FORCED = (CircuitState.FORCED_OPEN, CircuitState.FORCED_CLOSED)
# State -> the word of states.css that it looks like.
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
    (
        CircuitState.FORCED_OPEN,
        CircuitState.HALF_OPEN,
    ),  # released or expired: nobody knows, so it is tried first
    (CircuitState.FORCED_CLOSED, CircuitState.CLOSED),  # released or expired
    *((before, after) for before in CircuitState for after in FORCED if before is not after),
)


class CircuitChange(models.TextChoices):
    """What the history of a circuit says."""

    OPENED = "opened", "Opened"
    HALF_OPENED = "half_opened", "Half-opened"
    CLOSED = "closed", "Closed"
    FORCED_OPEN = "forced_open", "Forced open"
    FORCED_CLOSED = "forced_closed", "Forced closed"
    RELEASED = "released", "Released"
