"""Backoff: exponential with full jitter, a maximum and a ceiling."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from email.utils import formatdate

import pytest

from criticizer.http_client import retry_after
from criticizer.resilience import retry
from criticizer.resilience.retry import BACKOFF


def _upper(low: float, high: float) -> float:
    return high


def _lower(low: float, high: float) -> float:
    return low


@pytest.mark.parametrize(
    ("attempt", "bound"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60), (5000, 60)]
)
def test_delay_is_drawn_from_zero_to_the_doubled_bound(
    attempt: int, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "draw", _upper)
    assert BACKOFF.delay(attempt) == bound
    monkeypatch.setattr(retry, "draw", _lower)
    assert BACKOFF.delay(attempt) == 0


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
    drawn: float, retry_after: float | None, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "draw", lambda low, high: drawn)
    assert BACKOFF.delay(1, retry_after) == expected


def test_each_attempt_draws_another_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([0.1, 0.7])
    monkeypatch.setattr(retry, "draw", lambda low, high: next(drawn))
    assert [BACKOFF.delay(1) for _ in range(2)] == [0.1, 0.7]


def test_attempts_count_from_one() -> None:
    with pytest.raises(ValueError, match="counts from 1"):
        BACKOFF.delay(0)


@pytest.mark.parametrize(("attempt", "bound"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60)])
def test_ten_thousand_draws_fill_the_range_of_their_attempt(
    attempt: int, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "draw", random.Random(attempt).uniform)
    delays = [BACKOFF.delay(attempt) for _ in range(10_000)]
    assert all(0 <= delay <= bound for delay in delays)
    assert len(set(delays)) > 9_990  # drawn, not looked up
    assert statistics.fmean(delays) == pytest.approx(bound / 2, rel=0.02)
    tenths = Counter(min(9, int(10 * delay / bound)) for delay in delays)
    assert all(900 < tenths[tenth] < 1_100 for tenth in range(10))  # full jitter is uniform from zero


def test_nothing_about_the_waits_is_computed_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, or one after a restart, never share a schedule."""
    monkeypatch.setattr(retry, "draw", random.uniform)
    schedules = [[BACKOFF.delay(attempt) for attempt in range(1, 6)] for _ in range(100)]
    for delays in zip(*schedules, strict=True):
        assert len(set(delays)) == len(schedules)


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("7", 7.0),
        ("400", 300.0),  # the ceiling
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW + 3_600, usegmt=True), 300.0),
        (formatdate(NOW - 60, usegmt=True), 0.5),  # over: the backoff alone
        ("soon", 0.5),
        ("-3", 0.5),
        ("", 0.5),
    ],
)
def test_retry_after_is_honoured_in_both_forms_and_capped(
    header: str, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = retry_after({"retry-after": header}, lambda: NOW)
    monkeypatch.setattr(retry, "draw", lambda low, high: 0.5)
    assert BACKOFF.delay(1, asked) == expected
