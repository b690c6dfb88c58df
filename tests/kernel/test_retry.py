"""Backoff to the letter of specification 000, 8.2."""

from __future__ import annotations

import pytest

from criticizer.retry import BACKOFF


def _upper(low: float, high: float) -> float:
    return high


def _lower(low: float, high: float) -> float:
    return low


@pytest.mark.parametrize(
    ("attempt", "bound"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60), (5000, 60)]
)
def test_delay_is_drawn_from_zero_to_the_doubled_bound(attempt: int, bound: float) -> None:
    assert BACKOFF.delay(attempt, uniform=_upper) == bound
    assert BACKOFF.delay(attempt, uniform=_lower) == 0


@pytest.mark.parametrize(
    ("drawn", "retry_after", "expected"),
    [
        (0.4, None, 0.4),
        (0.4, 0.0, 0.4),
        (0.4, 7.0, 7.0),  # the larger of both
        (0.9, 0.5, 0.9),
        (0.4, 299.0, 299.0),
        (0.4, 301.0, 300.0),  # operational ceiling of five minutes
        (0.4, 86_400.0, 300.0),
    ],
)
def test_retry_after_raises_the_delay_up_to_the_ceiling(
    drawn: float, retry_after: float | None, expected: float
) -> None:
    assert BACKOFF.delay(1, retry_after, uniform=lambda low, high: drawn) == expected


def test_each_attempt_draws_anew() -> None:
    drawn = iter([0.1, 0.7])
    assert [BACKOFF.delay(1, uniform=lambda low, high: next(drawn)) for _ in range(2)] == [0.1, 0.7]


def test_attempts_count_from_one() -> None:
    with pytest.raises(ValueError, match="counts from 1"):
        BACKOFF.delay(0)
