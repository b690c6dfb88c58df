"""Combines the results of a job's deliveries into the one result of its stage."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)

RowResult = Literal["sent", "already_sent", "withdrawn", "stopped", "out_of_time"]
WAITS = "waits:"  # begins the reason of a row that waits; the name of its dependency follows
# Ends the key of the time until which a row's provider asked to wait. A key of its own: a worker of an older
# version, on another machine, reads the class of the row.
_UNTIL = "@"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of `deliver`.

    `stopped`: `may_continue` ended it before all rows were done. `is_out_of_time`: its time did, and `tried`
    has the deliveries to be repeated (id -> error class; id and "@" -> when the pause ends that was asked
    for) and those that wait (id -> `WAITS` and for what).
    """

    sent: int = 0
    already_sent: int = 0
    withdrawn: int = 0  # superseded, cancelled or abandoned rows
    stopped: bool = False
    is_out_of_time: bool = False
    tried: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    ended: Counter[RowResult] = field(default_factory=Counter)
    seconds: float = 0.0  # spent on rows that were tried
    tried: dict[str, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    waits: list[DependencyUnavailable] = field(default_factory=list)
    defects: list[Exception] = field(default_factory=list)

    def add(self, delivery_id: int, result: Failure | DependencyUnavailable) -> None:
        """Record that a row was not delivered, and why."""
        if isinstance(result, DependencyUnavailable):
            self.waits.append(result)
            self.tried[str(delivery_id)] = WAITS + result.dependency
            return
        result.context.setdefault("delivery", delivery_id)
        self.failures.append(result)
        if isinstance(result, RetryableFailure):
            self.tried[str(delivery_id)] = str(result.error_class)
            if result.retry_after_seconds is not None:
                self.tried[f"{delivery_id}{_UNTIL}"] = f"{time.time() + result.retry_after_seconds:.0f}"

    def tried_before(self, delivery_id: int, reason: str) -> None:
        """Count a row of an earlier run by its reason in `tried`."""
        if reason.startswith(WAITS):
            self.waits.append(
                DependencyUnavailable(reason.removeprefix(WAITS), 0.0, "It was not asked again.")
            )
            return
        until = self.tried.get(f"{delivery_id}{_UNTIL}")
        self.failures.append(
            RetryableFailure(
                ErrorClass(reason),
                Component.PROVIDER,
                "a delivery failed earlier in this attempt and is repeated",
                retry_after_seconds=max(float(until) - time.time(), 0.0) if until else None,
            )
        )

    def outcome(self) -> Outcome:
        return Outcome(
            self.ended["sent"],
            self.ended["already_sent"],
            self.ended["withdrawn"],
            self.ended["stopped"] > 0,
            self.ended["out_of_time"] > 0,
            self.tried,
        )

    def raise_worst(self) -> None:
        """Raise the worst result, if any; `send.deliver` documents the order."""
        if self.defects:
            raise self.defects[0]
        self._raise_worst(RetryableFailure)
        if self.waits:
            raise min(self.waits, key=lambda waiting: waiting.seconds)
        self._raise_worst(UncertainFailure)
        self._raise_worst(PermanentFailure)

    def _raise_worst(self, kind: type[Failure]) -> None:
        found = [failure for failure in self.failures if isinstance(failure, kind)]
        if found:
            worst = max(found, key=lambda failure: failure.retry_after_seconds or 0.0)
            raise kind(
                worst.error_class,
                worst.component,
                worst.detail,
                context={**worst.context, **_counts(self.failures)},
                retry_after_seconds=worst.retry_after_seconds,
            ) from worst


def _counts(failures: Iterable[Failure]) -> dict[str, object]:
    counts = {"to_repeat": 0, "uncertain": 0, "refused": 0}
    names = {RetryableFailure: "to_repeat", UncertainFailure: "uncertain"}
    for failure in failures:
        counts[names.get(type(failure), "refused")] += 1
    return dict(counts)
