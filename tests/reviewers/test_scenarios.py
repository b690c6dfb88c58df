"""Failures of the model server and what becomes of the affected parts of a review.

Each failure has a twin in which the server recovers. The server speaks over a real socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, MutableMapping
from typing import Any

import pytest

from criticizer.redaction import Redactor
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
)
from reviews.reviewers.base import CoverageStatus, FindingSeverity, Stopped
from reviews.reviewers.coverage_texts import UNAVAILABLE, UNREACHED, alert_text, stopped_banner
from reviews.reviewers.model import LlmConfig, ModelAnswer, ModelClient
from reviews.reviewers.openai import OpenAIClient
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.reviewers.review import ReviewOutcome, review_prepared, review_without_model
from reviews.reviewers.review_context import ReviewContext
from reviews.sources.base import Change
from tests.fakes.llm import FakeLlm, Recorded, Reply, error
from tests.reviewers.build import change, edited
from tests.reviewers.test_answer import answer_of, raw_finding
from tests.reviewers.test_review import BAD, FINDING, ONE, D, big, coverage, failing_on, holds

LIMITS = ReviewLimits(max_input_tokens=8_000)
ONE_BY_ONE = ReviewLimits(max_input_tokens=8_000, max_parallel_calls=1)
UNPARSEABLE = Reply(answer="Here are my thoughts: the code looks {fine")
TOO_LONG = error(400, "x", "context_length_exceeded")
SLOW = Reply(hang=True)
WINDOW = "not reviewed: too long for the model's window; split the file or the change"
UNUSABLE = "not reviewed: the model's answer could not be used; a rerun may help"
IN_TIME = "not reviewed: the model did not answer in time; a rerun may help"


def review(
    llm: FakeLlm,
    reviewed: Change,
    limits: ReviewLimits = LIMITS,
    progress: MutableMapping[str, str] | None = None,
    timeout_seconds: float = 20.0,
    gate: Gate | None = None,
    **around: Any,
) -> ReviewOutcome:
    async def run() -> ReviewOutcome:
        config = LlmConfig(llm.base_url, "m", timeout_seconds=timeout_seconds)
        async with OpenAIClient(config) as client:
            prepared = prepare(reviewed, Redactor(), limits)
            asked = Gated(client, gate) if gate else client
            return await review_prepared(prepared, asked, limits, progress, ReviewContext(**around))

    return asyncio.run(run())


def reasons(outcome: ReviewOutcome) -> dict[str, str]:
    """Return why files were not reviewed, without the id of the call."""
    return {file: why.partition(" (call ")[0] for file, (_, why) in coverage(outcome).items() if why}


@pytest.mark.parametrize(
    "trouble",
    [UNPARSEABLE, *(pytest.param(Reply(answer=one), marks=pytest.mark.long) for one in ("", "[1, 2]"))],
)
def test_scenario_01_unparseable_output_twice_leaves_one_part_out_and_the_review_goes_on(
    trouble: Reply,
) -> None:
    with FakeLlm(respond=failing_on(2, trouble)) as llm:
        outcome = review(llm, big(5))
        asked = [r for r in llm.requests if holds(2) in r.body["messages"][1]["content"]]
    assert reasons(outcome) == {D + "f1.py": UNUSABLE}
    assert len(asked) == 2, "one repair turn with the same input"
    first, second = (request.body["messages"][1]["content"] for request in asked)
    assert second.startswith(first)
    assert (outcome.parts, outcome.reviewed, outcome.failed) == (5, 4, {"SCHEMA_INVALID": 1})
    assert outcome.review.banner == "", "a fifth is said in the coverage, not above the review"


def test_scenario_01_unparseable_output_is_repaired_in_the_second_turn() -> None:
    with FakeLlm() as llm:
        llm.script(UNPARSEABLE, Reply(answer=FINDING))
        outcome = review(llm, ONE)
    assert reasons(outcome) == {}
    assert (outcome.reviewed, outcome.failed, outcome.review.usage.repaired) == (1, {}, 1)
    assert len(outcome.review.findings) == 1


def test_scenario_01_a_reason_names_the_call_and_nothing_that_the_model_said() -> None:
    with FakeLlm(respond=failing_on(1, UNPARSEABLE)) as llm:
        outcome = review(llm, big(2), new_call_id=lambda: "c0ffee")
    _, why = coverage(outcome)[D + "f0.py"]
    assert why == f"{UNUSABLE} (call c0ffee)"


def test_scenario_02_wrong_structure_twice_in_every_part_is_schema_invalid() -> None:
    with FakeLlm(respond=lambda _: BAD) as llm, pytest.raises(PermanentFailure) as raised:
        review(llm, big(2))
    assert (raised.value.error_class, raised.value.component) == (
        ErrorClass.SCHEMA_INVALID,
        Component.REVIEWER,
    )
    assert len(llm.requests) == 4


def test_scenario_02_wrong_structure_is_repaired_in_the_second_turn() -> None:
    with FakeLlm() as llm:
        llm.script(BAD, Reply(answer=FINDING))
        outcome = review(llm, ONE)
    assert (outcome.reviewed, len(outcome.review.findings)) == (1, 1)


def test_scenario_04_no_findings_is_a_result_and_asked_for_once() -> None:
    with FakeLlm() as llm:
        outcome = review(llm, ONE)
    assert outcome.review.findings == ()
    assert coverage(outcome)[D + "a.py"] == (CoverageStatus.REVIEWED, "")
    assert (outcome.review.banner, len(llm.requests)) == ("", 1)


def test_scenario_04_a_finding_in_the_same_change_is_shown() -> None:
    with FakeLlm() as llm:
        llm.script(Reply(answer=FINDING))
        assert len(review(llm, ONE).review.findings) == 1


@pytest.mark.parametrize("quote", ["", "   ", "this line is nowhere in the change"])
def test_scenario_05_a_finding_without_evidence_is_demoted(quote: str) -> None:
    with FakeLlm() as llm:
        llm.script(Reply(answer=answer_of(raw_finding(quote=quote, severity="critical"))))
        (finding,) = review(llm, ONE).review.findings
    assert (finding.line, finding.demoted, finding.severity) == (None, True, FindingSeverity.MEDIUM)


@pytest.mark.parametrize(("sure", "left"), [(90, 60), (45, 20), (10, 10), (None, None)])
def test_scenario_05_a_finding_without_evidence_is_less_certain(sure: int | None, left: int | None) -> None:
    with FakeLlm() as llm:
        llm.script(Reply(answer=answer_of(raw_finding(quote="nowhere", confidence=sure))))
        (finding,) = review(llm, ONE).review.findings
        llm.script(Reply(answer=answer_of(raw_finding(confidence=sure))))
        (placed,) = review(llm, ONE).review.findings
    assert (finding.confidence, placed.confidence) == (left, sure)


def test_scenario_05_a_finding_with_evidence_keeps_its_place_and_severity() -> None:
    with FakeLlm() as llm:
        llm.script(Reply(answer=answer_of(raw_finding(severity="critical"))))
        (finding,) = review(llm, ONE).review.findings
    assert (finding.line, finding.demoted, finding.severity) == (2, False, FindingSeverity.CRITICAL)


@pytest.mark.parametrize(
    "trouble",
    [
        TOO_LONG,
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in (error(413, "x"), error(400, "prompt is too long: 250000 tokens > 200000 maximum"))
        ),
    ],
)
def test_scenario_06_a_part_beyond_the_window_is_not_asked_for_again(trouble: Reply) -> None:
    with FakeLlm(respond=failing_on(1, trouble)) as llm:
        outcome = review(llm, big(5))
        assert len(llm.requests) == 5
    assert reasons(outcome) == {D + "f0.py": WINDOW}
    assert outcome.failed == {"TOKEN_LIMIT": 1}


def test_scenario_06_the_same_part_inside_the_window_is_reviewed() -> None:
    with FakeLlm() as llm:
        assert reasons(review(llm, big(5))) == {}


@pytest.mark.parametrize(("failing", "percent"), [(2, 40), (5, 100)])
def test_scenario_06_many_parts_beyond_the_window_are_said_above_the_review(
    failing: int, percent: int
) -> None:
    def respond(request: Recorded) -> Reply | None:
        text = request.body["messages"][1]["content"]
        return TOO_LONG if any(holds(n) in text for n in range(1, failing + 1)) else None

    with FakeLlm(respond=respond) as llm:
        banner = review(llm, big(5)).review.banner
    assert banner.startswith(f"Warning: {percent}% of the change could not be reviewed")
    assert "Check the model's configuration, then request a rerun." in banner


@pytest.mark.long
def test_scenario_11_a_part_that_times_out_ends_the_attempt_and_what_is_finished_is_kept() -> None:
    progress: dict[str, str] = {}
    with FakeLlm(respond=failing_on(3, SLOW)) as llm, pytest.raises(RetryableFailure) as raised:
        review(llm, big(3), progress=progress, timeout_seconds=6)
    assert raised.value.error_class is ErrorClass.NETWORK_TIMEOUT
    assert len(progress) == 2


@pytest.mark.long
def test_scenario_11_a_part_that_answers_in_the_next_attempt_is_all_that_is_paid_for() -> None:
    progress: dict[str, str] = {}
    with FakeLlm(respond=failing_on(3, SLOW)) as llm:
        with pytest.raises(RetryableFailure):
            review(llm, big(3), progress=progress, timeout_seconds=6)
        llm.server.respond = None
        asked = len(llm.requests)
        outcome = review(llm, big(3), progress=progress, timeout_seconds=20)
        assert len(llm.requests) == asked + 1
    assert (outcome.reviewed, reasons(outcome), outcome.review.banner) == (3, {}, "")


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        pytest.param(SLOW, IN_TIME, marks=pytest.mark.long),
        (error(500, "x"), "not reviewed: the model server failed on this part; a rerun may help"),
    ],
)
def test_scenario_11_with_the_budget_gone_the_part_is_left_out_and_the_rest_is_shown(
    trouble: Reply, why: str
) -> None:
    with FakeLlm(respond=failing_on(3, trouble)) as llm:
        outcome = review(llm, big(3), timeout_seconds=1.5, is_last_attempt=True)
    assert reasons(outcome) == {D + "f2.py": why}
    assert outcome.review.banner.startswith("Warning: 33% of the change could not be reviewed")


@pytest.mark.long
def test_scenario_11_up_to_a_fifth_the_coverage_alone_says_it() -> None:
    with FakeLlm(respond=failing_on(3, SLOW)) as llm:
        outcome = review(llm, big(5), timeout_seconds=1.5, is_last_attempt=True)
    assert (reasons(outcome), outcome.review.banner) == ({D + "f2.py": IN_TIME}, "")


def test_scenario_11_when_no_part_answers_the_failure_stays_a_failure() -> None:
    with FakeLlm(respond=lambda _: SLOW) as llm, pytest.raises(RetryableFailure) as raised:
        review(llm, big(2), timeout_seconds=0.4, is_last_attempt=True)
    assert raised.value.error_class is ErrorClass.NETWORK_TIMEOUT


@pytest.mark.parametrize("trouble", [error(503, "x"), error(429, "x"), Reply(reset=True)])
def test_scenario_11_an_outage_is_no_fault_of_the_part_even_in_the_last_attempt(trouble: Reply) -> None:
    with FakeLlm(respond=failing_on(2, trouble)) as llm, pytest.raises(RetryableFailure):
        review(llm, big(3), is_last_attempt=True)


def test_scenario_13_each_finished_part_is_announced_while_others_are_open() -> None:
    progress: dict[str, str] = {}
    seen: list[int] = []
    with FakeLlm() as llm:
        review(llm, big(4), ONE_BY_ONE, progress, on_progress=lambda: seen.append(len(progress)))
    assert seen == [1, 2, 3]


def test_scenario_13_one_part_alone_announces_nothing() -> None:
    seen: list[int] = []
    with FakeLlm() as llm:
        review(llm, ONE, on_progress=lambda: seen.append(1))
    assert seen == []


def stops_after(calls: int, llm: FakeLlm) -> Callable[[], Any]:
    async def may_continue() -> bool:
        return len(llm.requests) < calls

    return may_continue


def ticking() -> Callable[[], float]:
    """Return a clock that moves by two seconds with each look."""
    moments = iter(range(0, 10_000, 2))
    return lambda: float(next(moments))


def test_scenario_20_a_review_that_may_not_continue_ends_with_what_is_finished() -> None:
    with FakeLlm() as llm:
        llm.script(Reply(), Reply(answer=answer_of(raw_finding(file=D + "f1.py", quote="v1_7"))))
        outcome = review(llm, big(4), ONE_BY_ONE, may_continue=stops_after(2, llm), now=ticking())
        assert len(llm.requests) == 2
    assert outcome.stopped is Stopped.ENDED
    assert (outcome.parts, outcome.reviewed, outcome.failed) == (4, 2, {})
    assert [finding.file for finding in outcome.review.findings] == [D + "f1.py"]
    assert reasons(outcome) == {D + "f2.py": UNREACHED[Stopped.ENDED], D + "f3.py": UNREACHED[Stopped.ENDED]}
    assert outcome.review.banner == "", "how the job has ended is known only where it is stored"


def test_scenario_20_a_review_that_may_continue_ends_complete() -> None:
    with FakeLlm() as llm:
        outcome = review(llm, big(4), ONE_BY_ONE, may_continue=stops_after(9, llm), now=ticking())
    assert (outcome.stopped, outcome.reviewed, reasons(outcome)) == (None, 4, {})


def test_scenario_20_calls_in_flight_end_and_a_repair_turn_does_not_begin() -> None:
    def respond(request: Recorded) -> Reply:
        return UNPARSEABLE if holds(1) in request.body["messages"][1]["content"] else Reply(delay=0.3)

    async def no() -> bool:
        return False

    started = iter([0.0, 0.0, 0.0, 0.0])  # three calls start within the first second
    limits = ReviewLimits(max_input_tokens=8_000, max_parallel_calls=3)
    with FakeLlm(respond=respond) as llm:
        outcome = review(llm, big(4), limits, may_continue=no, now=lambda: next(started, 5.0))
        assert len(llm.requests) == 3
    assert (outcome.stopped, outcome.reviewed) == (Stopped.ENDED, 2)
    assert reasons(outcome) == {D + "f0.py": UNREACHED[Stopped.ENDED], D + "f3.py": UNREACHED[Stopped.ENDED]}


def test_scenario_20_parts_of_an_earlier_attempt_are_shown_although_nothing_is_asked() -> None:
    progress: dict[str, str] = {}
    with FakeLlm(respond=failing_on(3, error(503, "x"))) as llm:
        with pytest.raises(RetryableFailure):
            review(llm, big(3), progress=progress)
        asked = len(llm.requests)
        outcome = review(llm, big(3), progress=progress, may_continue=stops_after(0, llm), now=ticking())
        assert len(llm.requests) == asked
    assert (outcome.stopped, outcome.reviewed) == (Stopped.ENDED, 2)


@pytest.mark.parametrize("until", [6.0, pytest.param(0.0, marks=pytest.mark.long)])
def test_scenario_20_at_the_soft_deadline_the_reviewed_parts_are_the_review(until: float) -> None:
    """A deadline that passed before anything was reviewed waits for the first part."""
    progress: dict[str, str] = {}
    clock = [0.0]

    def respond(request: Recorded) -> Reply:
        clock[0] += 3.0
        return Reply(answer=answer_of(raw_finding(file=D + "f0.py", quote="v0_7"))) if until else Reply()

    with FakeLlm(respond=respond) as llm:
        around = {"now": lambda: clock[0], "until": until}
        outcome = review(llm, big(4), ONE_BY_ONE, progress, **around)
        assert len(llm.requests) == (2 if until else 1)
        again = review(llm, big(4), ONE_BY_ONE, progress, **around)
        assert len(llm.requests) == (2 if until else 1), "another attempt publishes the same without a call"
        assert (again.stopped, again.reviewed) == (outcome.stopped, outcome.reviewed)
        whole = review(llm, big(4), ONE_BY_ONE, progress)
        assert (len(llm.requests), whole.stopped) == (4, None)
    assert (outcome.stopped, outcome.parts) == (Stopped.TIMED_OUT, 4)
    assert outcome.reviewed == (2 if until else 1)
    assert set(reasons(outcome).values()) == {UNREACHED[Stopped.TIMED_OUT]}


def test_scenario_20_a_model_that_fails_after_the_soft_deadline_ends_the_review_with_its_parts() -> None:
    clock = [0.0]

    def respond(request: Recorded) -> Reply:
        clock[0] += 1.0
        return error(503, "x") if len(llm.requests) > 2 else Reply()

    with FakeLlm(respond=respond) as llm:
        outcome = review(llm, big(4), ONE_BY_ONE, now=lambda: clock[0], until=2.5)
    assert (outcome.stopped, outcome.reviewed) == (Stopped.TIMED_OUT, 2)


def test_scenario_20_a_refused_key_after_the_soft_deadline_is_the_failure_that_it_is() -> None:
    clock = [0.0]

    def respond(request: Recorded) -> Reply:
        clock[0] += 1.0
        return error(401, "x") if len(llm.requests) > 2 else Reply()

    with FakeLlm(respond=respond) as llm, pytest.raises(PermanentFailure):
        review(llm, big(4), ONE_BY_ONE, now=lambda: clock[0], until=2.5)


def test_continuation_is_checked_once_a_second_at_most() -> None:
    asked: list[float] = []
    clock = [0.0]

    async def may_continue() -> bool:
        asked.append(clock[0])
        return True

    def now() -> float:
        clock[0] += 0.1
        return clock[0]

    with FakeLlm() as llm:
        review(llm, big(6), ONE_BY_ONE, may_continue=may_continue, now=now)
    assert len(asked) < 6
    assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(asked))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (
            "timed_out",
            "Review timed out after 2 of 5 parts. Results shown are from the completed portion"
            "; the rest will be checked with the next version.",
        ),
        (
            "cancelled",
            "Review was cancelled after 2 of 5 parts. Results shown are from the completed portion"
            "; the rest will be checked with the next version.",
        ),
    ],
)
def test_scenario_20_the_banner_says_how_far_it_came(status: str, text: str) -> None:
    assert stopped_banner(status, 2, 5) == text


class Gate:
    """A gate that admits the first `admitted` calls."""

    def __init__(self, admitted: int, turn: DependencyUnavailable | None = None) -> None:
        self.left = admitted
        self.turn = turn
        self.reported: list[str] = []

    @contextlib.asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        if self.left < 1:
            raise DependencyUnavailable("llm:openai", 30.0 + self.left)
        self.left -= 1
        try:
            yield
        except Failure as failure:
            self.reported.append(str(failure.error_class))
            if self.turn is not None:
                raise self.turn from failure
            raise
        self.reported.append("")


class Gated:
    """A model behind a gate, as the stage hands it in."""

    def __init__(self, client: ModelClient, gate: Gate) -> None:
        self.client, self.gate, self.model = client, gate, client.model

    async def complete(self, *request: Any, **options: Any) -> ModelAnswer:
        async with self.gate.calling():
            return await self.client.complete(*request, **options)

    async def aclose(self) -> None:
        pass


def test_scenario_08_a_call_that_is_not_admitted_ends_the_attempt_as_a_wait_and_keeps_the_rest() -> None:
    progress: dict[str, str] = {}
    gate = Gate(2)
    with FakeLlm() as llm, pytest.raises(DependencyUnavailable):
        review(llm, big(4), ONE_BY_ONE, progress, gate=gate)
    assert (len(llm.requests), len(progress), gate.reported) == (2, 2, ["", ""])


def test_scenario_08_after_the_wait_only_the_rest_is_asked_for() -> None:
    progress: dict[str, str] = {}
    with FakeLlm() as llm:
        with pytest.raises(DependencyUnavailable):
            review(llm, big(4), ONE_BY_ONE, progress, gate=Gate(2))
        outcome = review(llm, big(4), ONE_BY_ONE, progress, gate=Gate(2))
        assert len(llm.requests) == 4
    assert (outcome.reviewed, reasons(outcome)) == (4, {})


def test_scenario_08_a_refusal_during_a_pause_is_a_wait() -> None:
    gate = Gate(9, turn=DependencyUnavailable("llm:openai", 7.0))
    refused = error(429, "x", Retry_After="7")
    with FakeLlm(respond=lambda _: refused) as llm, pytest.raises(DependencyUnavailable) as raised:
        review(llm, ONE, gate=gate)
    assert raised.value.seconds == 7.0
    assert gate.reported == ["RATE_LIMITED"]


def test_a_failure_that_costs_an_attempt_is_not_hidden_by_a_wait_beside_it() -> None:
    with FakeLlm(respond=lambda _: error(503, "x")) as llm, pytest.raises(RetryableFailure):
        review(llm, big(3), gate=Gate(1))


def test_the_calls_of_one_loop_share_their_slots() -> None:
    async def run(llm: FakeLlm) -> None:
        slots = asyncio.Semaphore(2)
        async with OpenAIClient(LlmConfig(llm.base_url, "m")) as client:
            prepared = [prepare(big(3), Redactor(), LIMITS) for _ in range(2)]
            await asyncio.gather(
                *(
                    review_prepared(each, client, LIMITS, None, ReviewContext(slots=slots))
                    for each in prepared
                )
            )

    with FakeLlm(delay=0.05) as llm:
        asyncio.run(run(llm))
        assert (llm.peak_in_flight, len(llm.requests)) == (2, 6)


def test_a_review_without_its_model_shows_what_was_answered_before() -> None:
    progress: dict[str, str] = {}
    why = "The language model is temporarily unavailable."
    debugger = edited(D + "z.py", "a\n", "a\nbreakpoint()\n")
    reviewed = change(*big(2).files, debugger)
    prepared = prepare(reviewed, Redactor(), LIMITS)
    with FakeLlm(respond=failing_on(2, error(503, "x"))) as llm:
        with pytest.raises(RetryableFailure):
            review(llm, reviewed, ONE_BY_ONE, progress)
        client = OpenAIClient(LlmConfig(llm.base_url, "m"))
        some = review_without_model(prepared, client, LIMITS, progress, why)
        nothing = review_without_model(prepared, client, LIMITS, {}, why)
    assert some.review.banner == (
        f"The language model reviewed 1 of 2 parts, deterministic checks all of them. {why}"
        " A rerun gets the full review."
    )
    assert reasons(some) == {D + "f1.py": UNAVAILABLE, D + "z.py": UNAVAILABLE}
    assert nothing.review.banner == f"Only deterministic checks ran. {why} A rerun gets the full review."
    assert [finding.source for finding in nothing.review.findings] == ["check:debugger_leftovers"]


def test_the_alert_says_how_many_parts_failed() -> None:
    assert alert_text(3, 8) == "3 of 8 parts (38%) could not be reviewed by the model"
