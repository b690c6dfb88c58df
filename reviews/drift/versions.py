"""Comparison of a documented version with that of a manifest or a lock file."""

from __future__ import annotations

import re
from typing import NamedTuple

_PART = re.compile(r"(>=|<=|==|~=|!=|>|<|\^|~>|~|=|)\s*v?(\d+(?:\.\d+){0,3})(\.[x*])?(?:[-+.]?[a-z][\w.]*)?")
_TOP: tuple[int, ...] = (10**9,)


class Span(NamedTuple):
    """The versions from `low` up to, without, `high`."""

    low: tuple[int, ...]
    high: tuple[int, ...]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _after(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers[:-1], numbers[-1] + 1)


def _padded(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers, 0, 0, 0, 0)[:4]


def span_of(text: str, *, is_locked: bool = False) -> Span | None:
    """Return the versions that a specification allows, or None where it is of another form."""
    if "||" in text or not text.strip():
        return None
    low: tuple[int, ...] = (0,)
    high: tuple[int, ...] = _TOP
    for part in re.split(r"[,\s]+(?=[<>=~^!v\d])", text.strip()):
        found = _PART.fullmatch(part.strip())
        if found is None:
            return None
        op, numbers = found[1], _numbers(found[2])
        if op in ("", "=", "=="):
            low, high = numbers, _after(numbers if found[3] or not is_locked else _padded(numbers))
        elif op == ">=":
            low = numbers
        elif op == ">":
            low = _after(numbers)
        elif op in ("<", "<="):
            high = numbers if op == "<" else _after(numbers)
        elif op == "^":
            kept = next((n for n, part_ in enumerate(numbers) if part_), len(numbers) - 1)
            low, high = numbers, _after(numbers[: kept + 1])
        elif op in ("~=", "~", "~>"):
            kept = len(numbers) - 1 if op != "~" or len(numbers) < 3 else 2
            low, high = numbers, _after(numbers[: max(1, kept)])
    return Span(low, high)


def agrees(documented: str, actual: Span) -> bool:
    """Return whether a documented version is true.

    A bare one compares as many components as it has; `>=` is true where nothing older does.
    """
    numbers = _numbers(documented.removeprefix(">="))
    low, high = _padded(actual.low), _padded(actual.high) if actual.high != _TOP else _TOP
    if documented.startswith(">="):
        is_point = high != _TOP and actual.high == _after(_padded(actual.low))
        return low >= _padded(numbers) if is_point else low <= _padded(numbers) < high
    return _padded(numbers) < high and low < _padded(_after(numbers))
