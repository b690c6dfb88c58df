"""A replay that is not finished before its deadline costs the replay, never the letter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from criticizer.db import prepared
from criticizer.resilience import overrides
from criticizer.resilience.circuit_breaker import create
from criticizer.resilience.health_checks import CHECKS
from criticizer.resilience.states import CircuitState
from deadletters import batches, workflow
from deadletters.models import DeadLetter, OperatorAlert
from deadletters.states import LetterStatus
from reviews import pipeline
from reviews.models import ReviewJob, StageRun
from reviews.states import JobStatus, StageStatus
from tests import scripted
from tests.deadletters.conftest import Fail, Look, Work
from tests.letters import walk, walk_and_replay

pytestmark = pytest.mark.django_db
LLM = "llm:openai"


def deadline_passes() -> None:
    ReviewJob.objects.update(deadline_at="2001-01-01T00:00:00Z")
    pipeline.expire_overdue()


def stage(letter: DeadLetter, name: str = "llm") -> StageRun:
    return StageRun.objects.get(job=letter.job, stage=name)


def circuit_is(state: CircuitState) -> None:
    if state == CircuitState.FORCED_OPEN:
        overrides.force(LLM, state, actor="bob", reason="INC-7", seconds=60)
        return
    prepared.rows(
        "UPDATE circuits SET state = %(state)s, retry_at = now() + interval '20 seconds'", {"state": state}
    )


@pytest.fixture
def letter(fail: Fail, settings: Any) -> DeadLetter:
    settings.LLM_PROVIDER, settings.LLM_MODEL, settings.LLM_API_KEYS = "openai", "m", []
    CHECKS.clear()
    create(LLM)
    return fail()


def test_a_letter_whose_replay_waits_past_its_deadline_is_new_again_and_can_be_replayed(
    letter: DeadLetter, work: Work
) -> None:
    assert walk_and_replay(letter.pk).ok
    deadline_passes()
    letter.refresh_from_db()
    assert (letter.status, letter.error_class) == (LetterStatus.NEW, "DEADLINE_EXCEEDED")
    assert (letter.failed_replay_count, letter.is_escalated) == (1, False)
    assert letter.detail == "the replay was not finished before its deadline"
    assert (letter.job.status, letter.job.status_reason) == (JobStatus.DEAD_LETTERED, "DEADLINE_EXCEEDED")
    assert (stage(letter).status, stage(letter).error_class) == (StageStatus.FAILED, "DEADLINE_EXCEEDED")
    assert not letter.job.events.filter(kind="timed_out").exists()
    assert work() == 0

    assert walk_and_replay(letter.pk).ok
    work()
    letter.refresh_from_db()
    assert (letter.status, letter.job.status) == (LetterStatus.VERIFYING, JobStatus.SUCCEEDED)


def test_result_after_the_deadline_is_dropped(letter: DeadLetter, work: Work) -> None:
    assert walk_and_replay(letter.pk).ok
    written: list[str] = []

    def slow(claim: Any) -> Callable[[], None]:
        deadline_passes()
        return lambda: written.append("a result")

    scripted.SCRIPT["llm"].append(slow)
    work()
    letter.refresh_from_db()
    assert (letter.status, letter.error_class, written) == (LetterStatus.NEW, "DEADLINE_EXCEEDED", [])
    attempts = stage(letter).attempt_rows.order_by("-id")
    assert (attempts[0].outcome, attempts[0].error_class) == ("failed", "DEADLINE_EXCEEDED")


def test_a_second_deadline_in_a_row_escalates(letter: DeadLetter) -> None:
    for _ in range(2):
        assert walk_and_replay(letter.pk).ok
        deadline_passes()
    letter.refresh_from_db()
    assert (letter.failed_replay_count, letter.is_escalated) == (2, True)
    assert OperatorAlert.objects.filter(kind="escalated").count() == 1


def test_batch_stops_when_a_canary_misses_its_deadline(fail: Fail, look: Look) -> None:
    letters = [fail(str(number)) for number in range(3)]
    batch = batches.draft(
        filter={},
        ids=[letter.pk for letter in letters],
        actor="ann",
        reason="OPS-1",
        evidence_note="OPS-1: mended",
        canary_size=1,
        rate_per_minute=6000,
    )
    batches.submit(batch.pk, actor="ann")
    look(batch.pk)
    deadline_passes()
    look(batch.pk)
    batch.refresh_from_db()
    outcomes = [item.status for item in batch.items.order_by("id")]
    assert (batch.status, outcomes) == ("stopped", ["failed", "pending", "pending"])
    assert OperatorAlert.objects.filter(kind="batch_stopped").count() == 1
    assert DeadLetter.objects.filter(status=LetterStatus.DISCARDED).count() == 0


def test_replay_reports_the_circuit_it_waits_for(letter: DeadLetter) -> None:
    walk(letter.pk)
    DeadLetter.objects.filter(pk=letter.pk).update(override_reason="")  # all checks passed
    circuit_is(CircuitState.OPEN)
    replayed = workflow.replay(letter.pk, actor="ann", reason="OPS-1")
    assert (replayed.ok, replayed.message) == (
        True, "replayed from stage llm; it waits for circuit llm:openai to close",
    )  # fmt: skip


def test_forced_open_circuit_refuses_a_replay(letter: DeadLetter) -> None:
    walk(letter.pk)
    DeadLetter.objects.filter(pk=letter.pk).update(override_reason="")  # all checks passed
    circuit_is(CircuitState.FORCED_OPEN)
    refused = workflow.replay(letter.pk, actor="ann", reason="OPS-1")
    assert not refused.ok
    assert "forced open: an operator stopped all calls; release it" in refused.message
    letter.refresh_from_db()
    assert letter.status == LetterStatus.VALIDATED

    overrides.release(LLM, actor="ann", reason="INC-7 is over")
    assert workflow.replay(letter.pk, actor="ann", reason="OPS-1").ok
