"""A second model server (LLM_FALLBACK_*), which serves while the first cannot (G186)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from criticizer.models import Circuit, OutboxMessage
from criticizer.resilience import circuit_breaker, gate, health_checks
from criticizer.resilience.failures import DependencyUnavailable, ErrorClass, Failure
from criticizer.resilience.states import CircuitState
from criticizer.security.configured_secrets import configured_secrets
from deadletters.models import DeadLetter
from deadletters.types import Failed
from notifications.delivery.snapshot import token_for
from notifications.rendering import render
from reviews import config, secret_inventory
from reviews.models import FindingFate, LedgerEntry
from reviews.pipeline.dependencies import dependencies_of
from reviews.stages.notify import report_of
from reviews.states import JobStatus
from reviews.web.context_processors import stopped_dependencies
from tests.fakes.llm import FakeLlm, Recorded, Reply, error
from tests.pipeline.test_stage_llm import (
    DOWN,
    MAIL,
    NAME,
    ONE,
    REFUSED,
    Bench,
    bench,
    close_circuit,
    elsewhere,
    job_of,
    open_circuit,
    reasons,
    run_of,
)
from tests.reviewers.test_review import BAD, FINDING, D, big, holds

__all__ = ["bench"]
pytestmark = pytest.mark.django_db(transaction=True)
SECOND = "llm:fallback:anthropic"


@pytest.fixture
def second(bench: Bench) -> Iterator[FakeLlm]:
    """A second server of another kind, with a key of its own."""
    with FakeLlm() as llm:
        bench.settings.LLM_FALLBACK_PROVIDER, bench.settings.LLM_FALLBACK_MODEL = "anthropic", "spare"
        bench.settings.LLM_FALLBACK_BASE_URL, bench.settings.LLM_FALLBACK_API_KEY = (
            llm.base_url,
            ("spare-key",),
        )
        yield llm


def away(name: str) -> None:
    circuit_breaker.create(name)
    Circuit.objects.filter(name=name).update(state=CircuitState.FORCED_OPEN)
    gate.forget()


def test_the_second_model_reviews_while_the_circuit_of_the_first_is_open_and_is_named(
    bench: Bench, second: FakeLlm
) -> None:
    second.server.respond = lambda _: Reply(answer=FINDING)
    open_circuit()
    job = bench.job()
    bench.work()
    assert (job_of(job).status, run_of(job).attempts) == (JobStatus.SUCCEEDED, 1)
    assert (len(bench.llm.requests), len(second.requests)) == (0, 1)
    (request,) = second.requests
    assert (request.path, request.headers["x-api-key"]) == ("/v1/messages", "spare-key")
    assert job_of(job).model_name == "spare"
    banner = "The first language model was not available: the second, spare, reviewed all parts."
    assert job_of(job).banner == banner
    report = report_of(job_of(job))
    text = render(report, MAIL, token_for(report.changelist_id, MAIL, 1)).text
    assert banner in " ".join(text.split())
    assert not OutboxMessage.objects.exclude(waiting_for="").exists()


@pytest.mark.long
def test_in_an_outage_of_the_first_nothing_waits_and_only_what_opens_its_circuit_is_tried_again(
    bench: Bench, second: FakeLlm
) -> None:
    bench.llm.server.respond = lambda _: DOWN
    jobs = [bench.job(key=str(n)) for n in range(16)]
    bench.work()
    bench.make_due()  # On a fast machine the pauses of the first attempts are not over yet.
    bench.work()
    assert {job_of(job).status for job in jobs} == {JobStatus.SUCCEEDED}
    assert Circuit.objects.get(name=NAME).state == CircuitState.OPEN
    assert (len(bench.llm.requests), len(second.requests)) == (circuit_breaker.MIN_CALLS, 16)
    assert sum(run_of(job).attempts for job in jobs) == 16 + circuit_breaker.MIN_CALLS


def test_when_the_circuit_of_the_first_closes_it_reviews_again(bench: Bench, second: FakeLlm) -> None:
    open_circuit()
    bench.job()
    bench.work()
    close_circuit()
    job = bench.job(key="2")
    bench.work()
    assert (len(bench.llm.requests), len(second.requests)) == (1, 1)
    assert (job_of(job).model_name, job_of(job).banner) == ("m", "")


@pytest.mark.long
def test_reviews_make_the_trial_calls_of_the_first_and_lose_nothing_when_they_fail(
    bench: Bench, second: FakeLlm
) -> None:
    open_circuit()
    Circuit.objects.filter(name=NAME).update(state=CircuitState.HALF_OPEN, retry_at=None)
    bench.llm.server.respond = lambda _: DOWN
    job = bench.job()
    bench.work()
    assert (job_of(job).status, run_of(job).attempts) == (JobStatus.SUCCEEDED, 1)
    assert (len(bench.llm.requests), len(second.requests)) == (1, 1)
    Circuit.objects.filter(name=NAME).update(state=CircuitState.HALF_OPEN, retry_at=None)
    bench.llm.server.respond = None
    for key in "23":
        bench.job(key=key)
    bench.work()
    assert Circuit.objects.get(name=NAME).state == CircuitState.CLOSED
    assert (len(bench.llm.requests), len(second.requests)) == (3, 1)


def test_a_failure_that_would_end_the_job_goes_to_the_second(bench: Bench, second: FakeLlm) -> None:
    bench.llm.server.respond = lambda _: REFUSED
    job = bench.job()
    bench.work()
    assert (job_of(job).status, job_of(job).model_name) == (JobStatus.SUCCEEDED, "spare")
    bench.llm.server.respond = lambda _: DOWN
    slow = bench.job(key="2")
    for _ in range(run_of(slow).max_attempts):
        bench.work()
        bench.make_due()
    assert (job_of(slow).status, run_of(slow).attempts) == (JobStatus.SUCCEEDED, 5)
    assert len(second.requests) == 2, "the attempts before the last are the first one's"


@pytest.mark.long
def test_an_answer_paid_for_at_one_model_is_not_asked_from_the_other(bench: Bench, second: FakeLlm) -> None:
    bench.one_by_one()
    again: list[str] = []

    def respond(request: Recorded) -> Reply | None:
        text = request.body["messages"][1]["content"]
        if holds(2) in text:
            elsewhere(open_circuit)
        again.append(text)
        return None

    bench.llm.server.respond = respond
    job = bench.job(big(3))
    bench.work()
    assert (len(bench.llm.requests), len(second.requests)) == (2, 1)
    assert job_of(job).model_name == "m, spare"
    assert job_of(job).banner.endswith("the second, spare, reviewed 1 of 3 parts.")


def test_a_review_that_changes_models_between_attempts_pays_for_each_part_once(
    bench: Bench, second: FakeLlm
) -> None:
    bench.one_by_one()
    open_circuit()
    second.script(Reply(answer=FINDING), DOWN)
    job = bench.job(big(3))
    bench.work()
    assert len(second.requests) == 2, "the failure of the second is a wait for the first"
    assert (run_of(job).status, run_of(job).attempts) == ("pending", 0)
    assert OutboxMessage.objects.get().waiting_for == NAME
    close_circuit()
    bench.make_due()
    bench.work()
    assert (job_of(job).status, len(bench.llm.requests), len(second.requests)) == (JobStatus.SUCCEEDED, 2, 2)
    assert sorted(job_of(job).model_name.split(", ")) == ["m", "spare"]


@pytest.mark.parametrize("is_required", [True, False])
def test_with_both_away_a_review_waits_or_goes_on_without_as_ever(
    bench: Bench, second: FakeLlm, is_required: bool
) -> None:
    bench.settings.LLM_REQUIRED = is_required
    open_circuit()
    away(SECOND)
    job = bench.job()
    bench.work()
    assert (len(bench.llm.requests), len(second.requests)) == (0, 0)
    if is_required:
        assert (run_of(job).status, run_of(job).attempts) == ("pending", 0)
        assert OutboxMessage.objects.get().waiting_for in {NAME, SECOND}
    else:
        assert job_of(job).banner.startswith("Only deterministic checks ran. The language model is not")


@pytest.mark.long
def test_without_a_required_model_the_second_goes_before_the_checks_alone(
    bench: Bench, second: FakeLlm
) -> None:
    bench.settings.LLM_REQUIRED = False
    open_circuit()
    job = bench.job()
    bench.work()
    assert (job_of(job).model_name, reasons(job)) == ("spare", {})


def test_a_pause_of_the_first_is_waited_for(bench: Bench, second: FakeLlm) -> None:
    bench.llm.server.respond = lambda _: error(429, "x", Retry_After="60")
    bench.job()
    bench.work()
    bench.make_due()
    bench.work()
    assert second.requests == []


def test_an_answer_that_cannot_be_used_is_no_reason_for_the_second(bench: Bench, second: FakeLlm) -> None:
    bench.llm.server.respond = lambda _: BAD
    job = bench.job()
    bench.work()
    assert DeadLetter.objects.get(job_id=job).error_class == "SCHEMA_INVALID"
    assert second.requests == []


@pytest.mark.long
def test_the_second_has_a_circuit_of_its_own_which_its_health_check_closes(
    bench: Bench, second: FakeLlm
) -> None:
    second.server.respond = lambda _: DOWN
    with pytest.raises(Failure) as raised:
        health_checks.CHECKS["llm"](SECOND)
    assert raised.value.error_class is ErrorClass.UPSTREAM_UNAVAILABLE
    health_checks.CHECKS["llm"](NAME)
    open_circuit()
    for n in range(circuit_breaker.MIN_CALLS):
        bench.job(key=str(n))
    bench.work()
    assert Circuit.objects.get(name=SECOND).state == CircuitState.OPEN
    with pytest.raises(DependencyUnavailable):
        gate.check(SECOND)


def test_pages_say_which_model_is_away_and_what_reviews_do(bench: Bench, second: FakeLlm) -> None:
    open_circuit()
    assert stopped_dependencies() == [
        "The language model is not answering. Reviews are made by the second one."
    ]
    away(SECOND)
    assert stopped_dependencies() == [
        "The language model is not answering. Reviews wait; they continue automatically when it answers.",
        "The second language model is not called: an operator stopped all calls. Reviews wait; they continue"
        " when calls are allowed again.",
    ]
    close_circuit()
    assert stopped_dependencies() == [
        "The second language model is not called: an operator stopped all calls. Reviews are made by the"
        " first one."
    ]


def test_a_replay_needs_the_model_that_can_be_called(bench: Bench, second: FakeLlm) -> None:
    job = bench.job()
    failed = [Failed(job_id=job, stage="llm")]
    assert dependencies_of(failed) == {job: [NAME]}
    open_circuit()
    assert dependencies_of(failed) == {job: [SECOND]}
    away(SECOND)
    assert dependencies_of(failed) == {job: [NAME, SECOND]}


def test_its_key_is_a_known_secret_and_tried_by_the_inventory(bench: Bench, second: FakeLlm) -> None:
    assert "spare-key" in configured_secrets()
    assert "spare-key" not in repr(config.fallback_model())
    assert secret_inventory._answers() == {"LLM_FALLBACK_API_KEY": "accepted now"}
    second.server.refused_keys = frozenset({"spare-key"})
    assert secret_inventory._answers() == {"LLM_FALLBACK_API_KEY": "refused now"}


def test_an_anthropic_model_without_an_address_is_the_hosted_one(settings: Any) -> None:
    settings.LLM_FALLBACK_PROVIDER, settings.LLM_FALLBACK_BASE_URL = "anthropic", ""
    model = config.fallback_model()
    assert model is not None
    assert model.base_url == "https://api.anthropic.com/v1"


def test_a_second_opinion_asks_the_second_model_and_the_ledger_names_the_passes(
    bench: Bench, second: FakeLlm
) -> None:
    bench.settings.LLM_MAX_INPUT_TOKENS = 16_000
    bench.settings.REVIEW_PASSES = [f"{D}...=3"]
    for llm in (bench.llm, second):
        llm.server.respond = lambda _: Reply(answer=FINDING)
    job = bench.job()
    bench.work()
    assert (job_of(job).status, job_of(job).banner) == (JobStatus.SUCCEEDED, "")
    assert (len(bench.llm.requests), len(second.requests)) == (2, 1)
    calls = LedgerEntry.objects.filter(job=job).order_by("id").values_list("call", "model", "state")
    assert sorted((call[32:], model, state) for call, model, state in calls) == [
        ("", "m", "settled"), ("-pass2", "spare", "settled"), ("-pass3", "m", "settled")
    ]  # fmt: skip
    assert sorted(FindingFate.objects.filter(job=job).values_list("turn", "fate")) == [
        (1, "shown"), (2, "merged"), (3, "merged")
    ]  # fmt: skip
    before = len(bench.llm.requests) + len(second.requests)
    again = bench.job(replace(ONE), key="2")
    bench.work()
    assert (job_of(again).status, job_of(again).usage["calls"]) == (JobStatus.SUCCEEDED, 0)
    assert len(bench.llm.requests) + len(second.requests) == before


@pytest.mark.long
def test_a_second_opinion_waits_for_no_second_model(bench: Bench, second: FakeLlm) -> None:
    bench.settings.LLM_MAX_INPUT_TOKENS = 16_000
    bench.settings.REVIEW_PASSES = [f"{D}...=2"]
    bench.llm.server.respond = lambda _: Reply(answer=FINDING)
    away(SECOND)
    job = bench.job()
    bench.work()
    assert (job_of(job).status, job_of(job).model_name) == (JobStatus.SUCCEEDED, "m")
    assert (len(bench.llm.requests), len(second.requests)) == (2, 0)
