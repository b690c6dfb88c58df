"""Every row of the failure table, from the real error to job, budget and dead letter."""

from __future__ import annotations

from typing import Any

import pytest

from criticizer.models import OutboxMessage
from criticizer.resilience.failures import TABLE, Component, kind_of
from deadletters import workflow
from deadletters.models import DeadLetter, OperatorAlert
from deadletters.states import LetterStatus
from reviews.models import StageRun
from reviews.states import STAGE_ORDER
from tests.acceptance import troubles
from tests.acceptance.troubles import Case
from tests.acceptance.world import MAIL, World

CEILING = 300.0


def begin(world: World, case: Case) -> tuple[int, troubles.End]:
    """Make the trouble, request a review that meets it, and work once."""
    end = case.trouble(world)
    changelist = world.change() if case.name.startswith("p4") else world.commit
    job = world.job(changelist, MAIL if case.name.startswith("smtp") else world.hook)
    world.work()
    return job, end


def used(job: int) -> dict[str, int]:
    """Return the attempts used per stage."""
    return dict(StageRun.objects.filter(job_id=job).values_list("stage", "attempts"))


def expected_use(stage: str, attempts: int) -> dict[str, int]:
    """Return what a failure in `stage` may have used: one attempt before it, none after it."""
    order = [each.value for each in STAGE_ORDER]
    at = order.index(stage)
    return {each: (1, attempts, 0)[(index >= at) + (index > at)] for index, each in enumerate(order)}


def assert_letter(job: int, case: Case, attempts: int) -> None:
    """Check the dead letter and its payload (8.4)."""
    letter = DeadLetter.objects.get(job_id=job)
    kind = kind_of(case.error_class, case.component)
    assert (letter.error_class, letter.stage, letter.status) == (
        case.error_class, case.stage, LetterStatus.NEW,
    )  # fmt: skip
    assert (letter.code, letter.severity) == (kind.code, kind.severity)
    assert letter.attempts == attempts
    assert letter.detail
    assert letter.last_stack.strip()
    assert letter.payload_reference
    facts = letter.sanitized_context
    assert {key: facts[key] for key in ("job", "stage", "attempts", "max_attempts")} == {
        "job": job, "stage": case.stage, "attempts": attempts, "max_attempts": 5,
    }  # fmt: skip
    assert facts["changelist_id"]
    assert letter.first_failure_at <= letter.last_failure_at


def quick_and_long(cases: list[Case]) -> list[Any]:
    """Return the cases, of which `make test` runs each class and each component once.

    `make test-all` runs all of them.
    """

    def kinds(case: Case) -> set[object]:
        return {case.error_class, case.component, ("waits", case.wait > 0)}

    left = set[object]().union(*map(kinds, cases))
    quick = []
    while left:  # as few as show all: each time the one that shows most of what is left
        quick.append(max(cases, key=lambda case: len(kinds(case) & left)))
        left -= kinds(quick[-1])
    return [
        pytest.param(case, marks=() if case in quick else pytest.mark.long, id=case.name) for case in cases
    ]


@pytest.mark.parametrize("case", quick_and_long(troubles.RETRYABLE))
def test_a_retryable_failure_waits_and_is_repeated(world: World, case: Case) -> None:
    job, end = begin(world, case)
    assert world.status(job) == "retryable_failed"
    run = world.stage(job, case.stage)
    assert (run.status, run.error_class) == ("retry_wait", case.error_class)
    assert used(job) == expected_use(case.stage, 1)
    (attempt,) = world.attempts(job, case.stage)
    assert (attempt.outcome, attempt.error_class) == ("failed", case.error_class)
    assert attempt.code == kind_of(case.error_class, case.component).code
    # The middle of 0 to 1 s after the first attempt, or what the upstream asked for, to the ceiling.
    delay = attempt.retry_delay_seconds
    assert delay == pytest.approx(min(max(0.5, case.wait), CEILING))
    due = OutboxMessage.objects.get()
    assert run.next_attempt_at == due.available_at
    assert run.last_failure_at is not None
    assert (due.available_at - run.last_failure_at).total_seconds() == pytest.approx(delay, abs=0.001)
    assert not DeadLetter.objects.exists()

    end()
    world.make_due()
    world.work()
    assert world.status(job) == "succeeded"
    assert used(job)[case.stage] == 2
    assert not DeadLetter.objects.exists()


@pytest.mark.parametrize("case", quick_and_long(troubles.NOT_RETRYABLE))
def test_a_failure_that_is_not_retryable_is_dead_lettered_at_once(world: World, case: Case) -> None:
    keys = world.settings.ARTIFACT_KEYS
    job, end = begin(world, case)
    assert world.status(job) == "dead_lettered"
    run = world.stage(job, case.stage)
    assert (run.status, run.error_class) == ("failed", case.error_class)
    assert used(job) == expected_use(case.stage, 1)
    (attempt,) = world.attempts(job, case.stage)
    assert (attempt.outcome, attempt.retry_delay_seconds) == ("failed", None)
    assert_letter(job, case, attempts=1)
    assert not OutboxMessage.objects.exists()

    end()
    world.settings.ARTIFACT_KEYS = keys
    world.replay(job, restart=case.restart)
    world.settle()
    assert world.status(job) == "succeeded"
    letter = world.letter(job)
    assert letter.status == LetterStatus.VERIFYING
    verified = workflow.verify(letter.pk, actor="ann")
    assert verified.ok, verified
    assert workflow.resolve(letter.pk, actor="ann", resolution="OPS-1: mended").ok


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.stage, marks=() if case.stage == "llm" else pytest.mark.long)
        for case in troubles.RETRYABLE
        if case.name in {"p4-busy", "llm-503", "hook-500"}
    ],
)
def test_a_stage_that_uses_up_its_budget_of_five_is_dead_lettered(world: World, case: Case) -> None:
    job, end = begin(world, case)
    world.settle()
    assert world.status(job) == "dead_lettered"
    assert used(job) == expected_use(case.stage, 5)
    attempts = world.attempts(job, case.stage)
    assert [attempt.number for attempt in attempts] == [1, 2, 3, 4, 5]
    # The middle of 0 to 1, 2, 4 and 8 s: computed anew after each attempt (8.2).
    assert [attempt.retry_delay_seconds for attempt in attempts] == [0.5, 1, 2, 4, None]
    assert_letter(job, case, attempts=5)

    end()
    world.replay(job)  # from the failed stage, with a fresh budget
    world.settle()
    assert world.status(job) == "succeeded"
    assert used(job) == {"fetch": 1, "llm": 1, "notify": 1}


def test_retries_stop_when_a_failure_turns_out_not_to_be_retryable(world: World) -> None:
    mended = troubles.llm_status(503)(world)
    job = world.job(world.commit, world.hook)
    world.work()
    mended()
    troubles.llm_key_refused(world)
    world.settle()
    assert world.status(job) == "dead_lettered"
    assert [attempt.error_class for attempt in world.attempts(job, "llm")] == [
        "UPSTREAM_UNAVAILABLE",
        "AUTH_DENIED",
    ]
    assert world.letter(job).error_class == "AUTH_DENIED"


@pytest.mark.long
def test_malformed_model_output_gets_one_repair_turn_and_no_more(world: World) -> None:
    case = next(case for case in troubles.SCHEMA if case.name == "llm-malformed-twice")
    begin(world, case)
    assert len(world.llm.requests) == 2


def test_a_bug_pages_the_operator(world: World, caplog: pytest.LogCaptureFixture) -> None:
    case = next(case for case in troubles.CONFIGURATION if case.name == "null-dereference")
    begin(world, case)
    events = {record.msg["event"]: record for record in caplog.records if isinstance(record.msg, dict)}
    assert events["internal_bug"].levelname == "ERROR"
    assert events["dead_letter_created"].levelname == "ERROR"
    assert OperatorAlert.objects.get().kind == "critical"  # sent at once, to whom OPERATOR_ALERTS names


def test_the_cases_meet_every_class_that_a_stage_can_end_with() -> None:
    """Other tests cover the missing classes: worker loss, deadline, held deliveries."""
    met = {case.error_class for case in (*troubles.RETRYABLE, *troubles.NOT_RETRYABLE)}
    known = {error_class for error_class, _ in TABLE}
    assert {str(error_class) for error_class in known - met} == {
        "WORKER_LOST",
        "DEADLINE_EXCEEDED",
        "DELIVERY_UNCERTAIN",
        "REDACTION_BLOCKED",
        "TOKEN_LIMIT",  # costs a chunk, not the job
    }
    assert {case.component for case in troubles.RETRYABLE} >= {
        Component.SOURCE, Component.REVIEWER, Component.PROVIDER, Component.DATABASE,
    }  # fmt: skip
