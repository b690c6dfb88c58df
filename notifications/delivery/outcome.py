"""Combines the results of a job's deliveries into the one result of its stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from criticizer.resilience.failures import (
    DependencyUnavailable,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)

RowResult = Literal["sent", "already_sent", "withdrawn", "stopped"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of `deliver`. `stopped`: `may_continue` ended it before all rows were done."""

    sent: int = 0
    already_sent: int = 0
    withdrawn: int = 0  # superseded, cancelled or abandoned rows
    stopped: bool = False


@dataclass(slots=True)
class Tally:
    ended: Counter[RowResult] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    waits: list[DependencyUnavailable] = field(default_factory=list)
    defects: list[Exception] = field(default_factory=list)

    def outcome(self) -> Outcome:
        return Outcome(
            self.ended["sent"], self.ended["already_sent"], self.ended["withdrawn"], self.ended["stopped"] > 0
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
                worst.place,
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
