"""One figure of `review_quality`."""

from __future__ import annotations

from typing import Literal

from benchmarks.figures import Figure, Must


def figure_of(
    name: str, value: float, sign: Literal["<=", ">="], bound: float, unit: str = "share"
) -> Figure:
    """Return a figure with what its value has to reach; a bound of 0 is none."""
    must = Must("value", sign, bound) if bound else None
    return Figure(f"review_quality: {name}", value, unit, must=must)
