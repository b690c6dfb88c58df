"""One figure, one JSON line: the only thing a benchmark writes to standard output."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

KEYS = ("figure", "value", "unit", "peer", "peer_value", "ratio", "must", "ok")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Must:
    """Bound that a figure has to reach: `Must("ratio", ">=", 1.5)`."""

    of: Literal["value", "ratio"]
    sign: Literal["<=", ">="]
    bound: float

    def __str__(self) -> str:
        return f"{self.of} {self.sign} {self.bound:g}"

    def holds(self, value: float, ratio: float | None) -> bool:
        """Return whether the figure reaches it. A ratio that could not be measured does not."""
        measured = value if self.of == "value" else ratio
        if measured is None:
            return False
        return measured >= self.bound if self.sign == ">=" else measured <= self.bound


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value beside the peer's. `ratio` above 1 means that ours is the better one."""

    figure: str
    value: float
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    lower_is_better: bool = False
    must: Must | None = None

    @property
    def ratio(self) -> float | None:
        if self.peer_value is None:
            return None
        above, below = (
            (self.peer_value, self.value) if self.lower_is_better else (self.value, self.peer_value)
        )
        return above / below if below else None

    @property
    def ok(self) -> bool:
        return self.must is None or self.must.holds(self.value, self.ratio)

    def line(self) -> str:
        """Return the figure in the form of the contract (`make bench`)."""
        values = (
            self.figure,
            _rounded(self.value),
            self.unit,
            self.peer,
            _rounded(self.peer_value),
            _rounded(self.ratio),
            str(self.must) if self.must else None,
            self.ok,
        )
        return json.dumps(dict(zip(KEYS, values, strict=True)))


def _rounded(value: float | None) -> float | None:
    """Keep four digits that mean something, and whole numbers whole."""
    return None if value is None else float(f"{value:.4g}") if value != int(value) else int(value)


def emit(figures: Sequence[Figure]) -> None:
    """Write the figures to standard output."""
    for figure in figures:
        print(figure.line(), flush=True)


def say(text: str) -> None:
    """Write progress, for people, to standard error."""
    print(text, file=sys.stderr, flush=True)


def median_by(rounds: Sequence[T], of: Callable[[T], float]) -> T:
    """Return the round whose `of` is the (lower) median: its values belong together."""
    return sorted(rounds, key=of)[(len(rounds) - 1) // 2]


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile from 1 to 99; of a single value, that value."""
    if len(values) < 2:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
