"""Characters a token, learned from what the model's server reports (guarantee G187)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from django.utils import timezone

from criticizer.db import prepared
from reviews import token_counts
from reviews.artifacts import recipe
from reviews.metrics import GAUGES
from reviews.models import ReviewJob
from reviews.reviewers.chunks import CHARS_PER_TOKEN
from tests import factories, skips
from tests.fakes.llm import SmallWindow
from tests.pipeline.test_stage_llm import Bench, bench, job_of
from tests.reviewers.test_review import big

__all__ = ["bench"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def unknown() -> Iterator[None]:
    token_counts.forget()
    yield
    token_counts.forget()


def pieces(text: str) -> int:
    """Count as byte-pair encodings do, roughly: short words, numbers and signs each are one."""
    return len(re.findall(r" ?[A-Za-z]{1,6}|\d{1,3}|\s+|[^\w\s]{1,2}", text))


def test_after_twenty_calls_requests_are_packed_as_the_server_counts(bench: Bench) -> None:
    bench.settings.LLM_MAX_INPUT_TOKENS = 8_000
    bench.llm.server.respond = SmallWindow(None, tokens=pieces)
    assert recipe.limits_for_packing().chars_per_token == CHARS_PER_TOKEN
    jobs = [
        bench.job(big(2 + n % 3, per_file=150 + 20 * n), key=str(n))
        for n in range(24 if skips.is_all() else 16)
    ]
    bench.work()
    assert sum(job_of(job).usage["calls"] for job in jobs) >= 20
    token_counts.forget()
    ratio = token_counts.measured()["m"]
    for request in bench.llm.requests[-5:]:
        text = "\n".join(message["content"] for message in request.body["messages"])
        assert abs(len(text) / ratio - pieces(text)) / pieces(text) <= 0.08
    assert recipe.limits_for_packing().chars_per_token == pytest.approx(ratio * token_counts.MARGIN)
    assert recipe.limits().chars_per_token == CHARS_PER_TOKEN, "it makes no redacted change stale"
    (gauge,) = [one for one in GAUGES if one.name == "criticizer_characters_per_token"]
    assert prepared.rows(gauge.query, {}) == [{"model": "m", "ratio": pytest.approx(ratio)}]


def used(*ratios: float, **fields: Any) -> None:
    """Make a review that has ended of each ratio, the oldest first."""
    now = timezone.now()
    usage = {"asked": "m", "calls": 5, "input_tokens": 1_000, "cut": 0}
    jobs = [
        factories.ReviewJobFactory.build(
            status="succeeded",
            deadline_at=now,
            usage={**usage, "characters": int(1_000 * ratio), **fields},
        )
        for ratio in ratios
    ]
    ReviewJob.objects.bulk_create(jobs)


@pytest.mark.long
def test_a_backlog_does_not_hide_what_was_counted() -> None:
    used(*[3.0] * 5)
    waiting = [factories.ReviewJobFactory.build(deadline_at=timezone.now()) for _ in range(600)]
    ReviewJob.objects.bulk_create(waiting)
    assert token_counts.measured()["m"] == pytest.approx(3.0)


def test_the_newest_reviews_count_most() -> None:
    chance = Random(4)
    used(*[2.2] * 60)
    used(*[chance.uniform(3.9, 4.1) for _ in range(30)])
    assert token_counts.measured()["m"] == pytest.approx(4.0, rel=0.08)


@pytest.mark.parametrize(("counted", "ratio"), [(0.3, 1.8), (40.0, 5.0)])
def test_a_count_out_of_reason_is_bounded(counted: float, ratio: float) -> None:
    for _ in range(5):
        used(counted)
    assert token_counts.measured()["m"] == ratio
    assert token_counts.LEAST <= token_counts.chars_per_token("m") <= token_counts.MOST


@pytest.mark.parametrize("fields", [{"cut": 1}, {"asked": ""}, {"characters": 0}, {"calls": 1}])
def test_cut_requests_other_models_and_few_calls_count_for_none(fields: dict[str, Any]) -> None:
    for _ in range(5):
        used(4.0, **fields)
    assert token_counts.chars_per_token("m") == CHARS_PER_TOKEN
