"""Retries by the name of a changelist: "retry-in:2.5:7" asks for one after 2.5 s."""

from __future__ import annotations

_PREFIX = "retry-in:"


def changelist(seconds: float, number: int) -> str:
    """Return a changelist whose first attempt fails, to be repeated after `seconds`.

    `number` tells changelists apart.
    """
    return f"{_PREFIX}{seconds:.3f}:{number}"


def seconds_of(changelist_id: str) -> float | None:
    """Return after how many seconds the changelist wants its retry, or None."""
    return float(changelist_id.split(":")[1]) if changelist_id.startswith(_PREFIX) else None
