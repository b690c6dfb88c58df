"""Partial reviews: the soft deadline, the costs of retry and replay, messages (G385, G386)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone
from structlog.testing import capture_logs

from criticizer.db import prepared
from criticizer.models import OutboxMessage
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from deadletters.models import DeadLetter
from reviews import pipeline
from reviews.models import CoverageRow, FindingRow, StageRun
from reviews.reviewers.base import Stopped
from reviews.reviewers.coverage_texts import UNREACHED
from reviews.sources.base import ChangeStatus
from reviews.states import JobStatus
from tests import scripted
from tests.fakes.llm import Recorded, Reply, error
from tests.letters import walk_and_replay
from tests.pipeline.test_stage_llm import Bench, bench, job_of, open_circuit  # noqa: F401 - a fixture
from tests.reviewers.test_answer import answer_of, raw_finding
from tests.reviewers.test_review import D, big, holds

pytestmark = pytest.mark.django_db(transaction=True)
TOLD = (
    "Review timed out after {} of 4 parts. Results shown are from the completed portion;"
    " the rest will be checked with the next version."
)
MARGIN = 180.0  # LLM_TIMEOUT_SECONDS and a minute
FOUND = answer_of(raw_finding(file=D + "f0.py", quote="v0_7", severity="high"))
SUBMITTED = replace(big(4), status=ChangeStatus.SUBMITTED)
FAILED = PermanentFailure(ErrorClass.AUTH_DENIED, Component.PROVIDER, "x")


@pytest.fixture
def parts(bench: Bench) -> Bench:  # noqa: F811 - the fixture
    bench.one_by_one()
    return bench


def let_soft_deadline_come_in(seconds: float, job: int | None) -> None:
    """Move the deadline of a job whose model has been at work for an hour."""
    prepared.rows(
        "WITH job AS (UPDATE jobs SET deadline_at = now() + make_interval(secs => %(at)s) WHERE id = %(job)s)"
        " UPDATE stage_runs SET started_at = now() - interval '1 hour'"
        " WHERE job_id = %(job)s AND stage = 'llm'",
        {"job": job, "at": MARGIN + seconds},
    )


def part_of(request: Recorded) -> int:
    text = request.body["messages"][1]["content"]
    return next(part for part in range(1, 5) if holds(part) in text)


def asked(bench: Bench) -> list[int]:  # noqa: F811 - the type
    """Return the parts that were asked about since the last look."""
    found = list(map(part_of, bench.llm.requests))
    bench.llm.requests.clear()
    return found


def notified(job: int) -> int:
    return sum(call[:2] == ("notify", job) for call in scripted.CALLS)


def assert_partial(job: int, reviewed: int) -> None:
    assert (job_of(job).status, job_of(job).stopped) == (JobStatus.SUCCEEDED, "timed_out")
    assert job_of(job).banner == TOLD.format(reviewed)
    unread = CoverageRow.objects.filter(job=job, reason=UNREACHED[Stopped.TIMED_OUT])
    assert list(unread.values_list("status", flat=True)) == ["checked"] * (4 - reviewed)
    assert notified(job) == 1


def fail_from(part: int, bench: Bench) -> None:  # noqa: F811 - the type
    """Let the model be away from this part on; part 1 has a finding."""

    def respond(request: Recorded) -> Reply | None:
        if part_of(request) >= part:
            return error(503, "x")
        return Reply(answer=FOUND) if part_of(request) == 1 else None

    bench.llm.server.respond = respond


def test_scenario_20_at_its_soft_deadline_a_review_is_published_as_it_is(parts: Bench) -> None:
    job = parts.job(big(4))
    fetch: Any = scripted.SCRIPT["fetch"].pop()

    passed: list[float] = []

    def fetched(claim: Any) -> Any:
        let_soft_deadline_come_in(1.0, job)
        passed.append(time.monotonic() + 1.2)
        return fetch(claim)

    scripted.SCRIPT["fetch"].append(fetched)

    def respond(request: Recorded) -> None:
        time.sleep(max(0.0, passed[0] - time.monotonic()))

    parts.llm.server.respond = respond
    with capture_logs() as logs:
        parts.work()
    assert asked(parts) == [1]
    assert_partial(job, 1)
    (said,) = [line for line in logs if line["event"] == "review_partial"]
    assert (said["log_level"], said["code"], said["stopped"]) == ("warning", "CRITICIZER_E407", "timed_out")
    assert (said["job"], said["interrupted_stage"]) == (job, "llm")
    assert (said["parts_completed"], said["parts_remaining"]) == (1, 3)
    assert said["elapsed_ms"] > 0


def test_scenario_20_a_retry_after_the_soft_deadline_publishes_without_a_call(parts: Bench) -> None:
    """A killed worker leaves its answers in the row, and a lease that is over.

    They are published after the soft deadline too.
    """
    job = parts.job(big(4))
    fail_from(3, parts)
    parts.work()
    assert asked(parts) == [1, 2, 3]
    let_soft_deadline_come_in(-1.0, job)
    parts.make_due()
    parts.work()
    assert asked(parts) == []
    assert_partial(job, 2)
    assert FindingRow.objects.filter(job=job).count() == 1


@pytest.mark.parametrize("has_answers", [True, False])
def test_scenario_20_what_waits_is_due_at_its_soft_deadline_if_there_is_something_to_publish(
    parts: Bench, has_answers: bool
) -> None:
    job = parts.job(big(4))
    fail_from(3 if has_answers else 1, parts)
    parts.work()
    open_circuit()
    let_soft_deadline_come_in(5.0, job)
    parts.make_due()
    parts.work()
    assert OutboxMessage.objects.get().waiting_for == "llm:openai"
    due = OutboxMessage.objects.get().available_at - timezone.now()
    assert (due.total_seconds() <= 5.0) == has_answers
    asked(parts)
    let_soft_deadline_come_in(-1.0, job)
    parts.make_due()
    parts.work()
    assert asked(parts) == []
    if has_answers:
        assert_partial(job, 2)
    else:
        assert (job_of(job).status, notified(job)) == (JobStatus.IN_PROGRESS, 0), "it still waits"


def test_scenario_20_a_review_without_any_result_is_the_failure_that_it_is(parts: Bench) -> None:
    job = parts.job(big(4))
    fail_from(1, parts)
    parts.work()
    let_soft_deadline_come_in(-1.0, job)
    parts.make_due()
    parts.work()
    assert asked(parts) == [1, 1]
    assert (job_of(job).status, job_of(job).stopped) == (JobStatus.RETRYABLE_FAILED, "")
    prepared.rows("UPDATE jobs SET deadline_at = now() WHERE id = %(job)s", {"job": job})
    pipeline.expire_overdue()
    assert (job_of(job).status, notified(job)) == (JobStatus.TIMED_OUT, 0)


def test_scenario_20_a_replay_asks_only_for_what_is_missing(parts: Bench) -> None:
    """A submitted change, whose units are asked about anew otherwise."""
    job = parts.job(SUBMITTED)
    fetch = scripted.SCRIPT["fetch"][0]
    fail_from(3, parts)
    parts.work()
    let_soft_deadline_come_in(-1.0, job)
    parts.make_due()
    scripted.SCRIPT["notify"].append(FAILED)
    parts.work()
    asked(parts)
    assert (job_of(job).status, job_of(job).stopped) == (JobStatus.DEAD_LETTERED, "timed_out")
    assert StageRun.objects.get(job=job, stage="llm").progress == {}
    parts.llm.server.respond = None
    scripted.SCRIPT["fetch"].append(fetch)
    assert walk_and_replay(DeadLetter.objects.get(job=job).pk, restart=True).ok
    parts.work()
    assert asked(parts) == [3, 4]
    assert (job_of(job).status, job_of(job).stopped, job_of(job).banner) == (JobStatus.SUCCEEDED, "", "")
    assert not CoverageRow.objects.filter(job=job).exclude(status="reviewed").exists()
    assert FindingRow.objects.filter(job=job).count() == 1
