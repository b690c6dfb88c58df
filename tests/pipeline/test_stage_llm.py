"""The stage llm with a model in trouble: waits, degradation, alerts, interrupted reviews.

The model is a server on a loopback socket; circuits, progress and results are rows in PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, connection
from structlog.testing import capture_logs

from criticizer.db import prepared
from criticizer.models import Circuit, OutboxMessage, SecurityEvent
from criticizer.queue import outbox
from criticizer.queue.lease_renewer import LeaseRenewer
from criticizer.redaction import Redactor
from criticizer.resilience import circuit_breaker, gate
from criticizer.resilience.failures import DependencyUnavailable, ErrorClass
from criticizer.resilience.states import CircuitState
from deadletters.models import DeadLetter, OperatorAlert
from notifications.delivery.snapshot import token_for
from notifications.rendering import render
from reviews import pipeline, verdicts
from reviews.artifacts import recipe, redactor, store
from reviews.models import (
    AllowListEntry,
    Artifact,
    Attempt,
    CoverageRow,
    FindingEvent,
    FindingFate,
    FindingRow,
    JobEvent,
    ReviewJob,
    StageRun,
)
from reviews.pipeline import Due, StageClaim, async_executor, executor
from reviews.recipients.viewing_scopes import EVERYTHING, Scope
from reviews.reviewers import model_calls
from reviews.reviewers import redactor as process
from reviews.reviewers.base import Stopped
from reviews.reviewers.coverage_texts import NO_MODEL_BANNER, UNAVAILABLE, UNREACHED
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.reviewers.prompt_leaks import marks_of
from reviews.sources import change_codec
from reviews.sources.base import Change, ContextFile
from reviews.stages import llm as stage
from reviews.stages import model_client, units, versions
from reviews.stages.notify import report_of
from reviews.states import JobStatus, Stage
from reviews.web.outcomes import Outcome
from reviews.web.progress import progress_sentence, stages_of
from tests import factories, scripted
from tests.fakes.llm import FakeLlm, Recorded, Reply, SmallWindow, error
from tests.reviewers.build import change as change_of
from tests.reviewers.build import edited
from tests.reviewers.test_answer import answer_of, raw_finding
from tests.reviewers.test_review import BAD, FINDING, ONE, D, big, failing_on, holds
from tests.reviewers.test_verifying import CODE, FALSE, TRUE, is_verify, perfect, saying, verdict
from tests.reviewers.test_verifying import FOUND as FIVE
from tests.reviewers.test_verifying import ONE as VERIFIED

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "llm:openai"
MAIL = "mail:ann@example.com"
TITLES = [*TRUE, *FALSE]
DOWN = error(503, "x")
REFUSED = error(401, "x")


@dataclass
class Bench:
    """Jobs whose change is ready to be reviewed, and the model that reviews it."""

    llm: FakeLlm
    settings: Any
    post: Callable[..., Any]
    work: Callable[[], int]
    make_due: Callable[[], None]
    monkeypatch: pytest.MonkeyPatch

    def job(self, change: Change = ONE, key: str = "1", version: int = 1) -> int:
        """Request a review of `change`; its stage fetch stores it without a source.

        The default differs from key to key: equal content is asked about once.
        """
        if change is ONE and key != "1":
            change = change_of(edited(D + "a.py", "a\nold\n", f"a\n    total = price * count\n{key} = 0\n"))

        def fetch(claim: StageClaim) -> Any:
            return store.store(claim, Artifact.Kind.CHANGE, change_codec.to_json(change)).save

        scripted.SCRIPT["fetch"].append(fetch)
        made = self.post(f"k{key}-{version}", f"1234{key}", version, rerun=version > 1).job_id
        assert made is not None
        return int(made)

    def one_by_one(self) -> None:
        limits = ReviewLimits(max_input_tokens=8_000, max_parallel_calls=1)
        self.monkeypatch.setattr(recipe, "limits", lambda: limits)

    def claim(self, job: int) -> StageClaim:
        """Claim the stage llm of a job as a worker would."""
        run = StageRun.objects.get(job_id=job, stage="llm")
        (message,) = outbox.claim("stages", 1)
        claim = pipeline.claim(Due(message.id, run.pk, message.lease_token), "test")
        assert claim is not None
        return claim

    def fetch_only(self, job: int) -> StageClaim:
        """Run the stage fetch and claim the stage llm."""
        (message,) = outbox.claim("stages", 1)
        fetching = pipeline.claim(Due(message.id, message.aggregate_id, message.lease_token), "test")
        assert fetching is not None
        pipeline.record(fetching, scripted.fetch(fetching))
        return self.claim(job)


@pytest.fixture
def bench(
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    post: Callable[..., Any],
    work: Callable[[], int],
    make_due: Callable[[], None],
) -> Iterator[Bench]:
    pool = ThreadPoolExecutor(1)  # whose connection ends with the test
    monkeypatch.setattr(async_executor, "_pools", {os.getpid(): pool})
    monkeypatch.setattr(executor, "LEASE_RENEWER", LeaseRenewer(lambda held: held))
    monkeypatch.setattr(model_calls, "ASK_EVERY_SECONDS", 0.0)
    gate.forget()
    with FakeLlm() as llm:
        settings.STAGES = {**scripted.STAGES, "llm": ("reviews.stages.llm.run", "stages")}
        settings.LLM_PROVIDER, settings.LLM_REQUIRED, settings.LLM_MODEL = "openai", True, "m"
        settings.LLM_BASE_URL, settings.LLM_API_KEYS = llm.base_url, []
        settings.LLM_MAX_INPUT_TOKENS, settings.LLM_VERIFY = 8_000, "off"
        settings.DEPOT_ALLOW_LIST = [f"{D}..."]
        yield Bench(llm, settings, post, work, make_due, monkeypatch)
    pool.submit(lambda: connection.close()).result()
    pool.shutdown()
    gate.forget()


def open_circuit() -> None:
    """Let the model fail ten times for others."""
    circuit_breaker.create(NAME)
    for _ in range(circuit_breaker.MIN_CALLS):
        circuit_breaker.count_failure(NAME, 0, "UPSTREAM_UNAVAILABLE")
    assert Circuit.objects.get(name=NAME).state == CircuitState.OPEN


def close_circuit() -> None:
    Circuit.objects.filter(name=NAME).delete()
    gate.forget()
    outbox.wake(NAME)


def run_of(job: int) -> StageRun:
    return StageRun.objects.get(job_id=job, stage="llm")


def answers_of(run: StageRun) -> int:
    """Return how many answers of the model a stage has kept."""
    return len(run.progress.keys() - {StageRun.PARTS})


def job_of(job: int) -> ReviewJob:
    return ReviewJob.objects.get(pk=job)


def reasons(job: int) -> dict[str, str]:
    return {
        row.file: row.reason.partition(" (call ")[0]
        for row in CoverageRow.objects.filter(job_id=job)
        if row.reason
    }


# -- parts that fail ---------------------------------------------------------------------------


def test_scenario_01_more_than_a_tenth_of_failing_parts_raises_an_alert(bench: Bench) -> None:
    bench.llm.server.respond = failing_on(2, BAD)
    job = bench.job(big(3))
    bench.work()
    assert job_of(job).status == JobStatus.SUCCEEDED
    alert = JobEvent.objects.get(job_id=job)
    assert (alert.kind, alert.reason) == (
        JobEvent.Kind.ALERT,
        "1 of 3 parts (33%) could not be reviewed by the model",
    )
    assert alert.context == {"failed": 1, "parts": 3, "rate": 0.3333, "classes": {"SCHEMA_INVALID": 1}}
    assert job_of(job).banner.startswith("Warning: 33% of the change could not be reviewed")


def test_scenario_01_the_alert_is_logged_with_the_commit(bench: Bench, caplog: Any) -> None:
    bench.llm.server.respond = failing_on(2, BAD)
    bench.job(big(3))
    bench.work()
    (line,) = [r for r in caplog.records if "chunks_failed_threshold" in r.getMessage()]
    assert line.levelname == "ERROR"


@pytest.mark.parametrize("failing", [pytest.param(0, marks=pytest.mark.long), 1])
def test_scenario_01_up_to_a_tenth_raises_none(bench: Bench, failing: int) -> None:
    bench.llm.server.respond = failing_on(10, BAD) if failing else None
    job = bench.job(big(10))
    bench.work()
    assert len(reasons(job)) == failing
    assert not JobEvent.objects.exists()
    assert job_of(job).banner == ""


def test_requests_that_the_server_cuts_are_one_alert_a_day_with_the_remedy(bench: Bench) -> None:
    bench.llm.server.respond = server = SmallWindow(2_000)
    jobs = [bench.job(big(1, per_file=1_500), key) for key in "12"]
    bench.work()
    assert [job_of(job).status for job in jobs] == [JobStatus.SUCCEEDED] * 2
    assert sum(job_of(job).usage["cut"] for job in jobs) == server.cut > 1
    (alert,) = OperatorAlert.objects.all()
    assert alert.kind == "requests_cut"
    assert "LLM_MAX_INPUT_TOKENS" in alert.text
    assert FindingRow.objects.count() == 0


def test_scenario_02_when_no_part_is_usable_the_job_is_a_dead_letter(bench: Bench) -> None:
    bench.llm.server.respond = lambda _: BAD
    job = bench.job(big(2))
    bench.work()
    letter = DeadLetter.objects.get(job_id=job)
    assert (letter.error_class, letter.stage, letter.attempts) == ("SCHEMA_INVALID", "llm", 1)


def test_scenario_04_message_without_findings_says_so(bench: Bench) -> None:
    job = bench.job()
    bench.work()
    assert job_of(job).status == JobStatus.SUCCEEDED
    assert job_of(job).banner == ""
    report = report_of(job_of(job))
    message = render(report, MAIL, token_for(report.changelist_id, MAIL, 1))
    assert "no findings, 1 of 1 file read" in message.text
    assert not JobEvent.objects.exists()


# -- a model that is away ------------------------------------------------------------------------


def test_an_open_circuit_costs_no_attempt_and_no_call(bench: Bench) -> None:
    open_circuit()
    job = bench.job()
    bench.monkeypatch.setattr(redactor, "load", None)  # nor the preparation
    bench.work()
    assert (run_of(job).status, run_of(job).attempts, len(bench.llm.requests)) == ("pending", 0, 0)
    assert OutboxMessage.objects.get().waiting_for == NAME


def test_when_the_circuit_closes_the_review_goes_on(bench: Bench) -> None:
    open_circuit()
    job = bench.job()
    bench.work()
    close_circuit()
    bench.make_due()
    bench.work()
    assert (job_of(job).status, run_of(job).attempts) == (JobStatus.SUCCEEDED, 1)


@pytest.mark.long
def test_failures_that_find_the_circuit_open_cost_no_attempt(bench: Bench) -> None:
    bench.llm.server.respond = lambda _: DOWN
    jobs = [bench.job(key=str(n)) for n in range(14)]
    bench.work()
    spent = [run_of(job).attempts for job in jobs]
    assert sum(spent) == circuit_breaker.MIN_CALLS
    assert len(bench.llm.requests) == circuit_breaker.MIN_CALLS
    bench.llm.server.respond = None
    close_circuit()
    bench.make_due()
    bench.work()
    assert {job_of(job).status for job in jobs} == {JobStatus.SUCCEEDED}


def test_refused_credentials_make_a_handful_of_dead_letters_and_the_rest_waits(bench: Bench) -> None:
    bench.llm.server.respond = lambda _: REFUSED
    jobs = [bench.job(key=str(n)) for n in range(6)]
    bench.work()
    assert (
        DeadLetter.objects.filter(error_class="AUTH_DENIED").count() == circuit_breaker.AUTH_FAILURES_IN_A_ROW
    )
    assert [run_of(job).attempts for job in jobs[circuit_breaker.AUTH_FAILURES_IN_A_ROW :]] == [0, 0, 0]


def test_without_a_required_model_an_open_circuit_becomes_a_banner_at_once(bench: Bench) -> None:
    bench.settings.LLM_REQUIRED = False
    open_circuit()
    job = bench.job()
    bench.work()
    assert (job_of(job).status, run_of(job).attempts, len(bench.llm.requests)) == (
        JobStatus.SUCCEEDED,
        1,
        0,
    )
    assert job_of(job).banner == (
        "Only deterministic checks ran. The language model is not available at the moment."
        " A rerun gets the full review."
    )
    assert reasons(job) == {D + "a.py": UNAVAILABLE}


def test_without_a_required_model_a_circuit_that_opens_keeps_the_parts_before_it(bench: Bench) -> None:
    bench.settings.LLM_REQUIRED = False
    bench.one_by_one()

    def respond(request: Recorded) -> Reply | None:
        if holds(2) in request.body["messages"][1]["content"]:
            elsewhere(open_circuit)
        return None

    bench.llm.server.respond = respond
    job = bench.job(big(3))
    bench.work()
    assert job_of(job).banner.startswith("The language model reviewed 2 of 3 parts, deterministic checks all")
    assert (len(bench.llm.requests), reasons(job)) == (2, {D + "f2.py": UNAVAILABLE})


def test_without_a_required_model_a_reachable_one_reviews_as_ever(bench: Bench) -> None:
    bench.settings.LLM_REQUIRED = False
    job = bench.job()
    bench.work()
    assert (job_of(job).status, job_of(job).banner, reasons(job)) == (JobStatus.SUCCEEDED, "", {})


def test_without_a_required_model_a_refused_key_becomes_a_banner(bench: Bench) -> None:
    bench.settings.LLM_REQUIRED = False
    bench.llm.server.respond = lambda _: REFUSED
    job = bench.job()
    bench.work()
    assert job_of(job).banner == (
        "Only deterministic checks ran. The language model refused our credentials."
        " A rerun gets the full review."
    )


def test_a_required_model_that_is_not_configured_is_a_configuration_error(bench: Bench) -> None:
    bench.settings.LLM_PROVIDER = "none"
    job = bench.job()
    bench.work()
    assert DeadLetter.objects.get(job_id=job).error_class == "CONFIG_INVALID"


def test_a_model_that_is_neither_required_nor_configured_is_said_in_the_banner(bench: Bench) -> None:
    bench.settings.LLM_PROVIDER, bench.settings.LLM_REQUIRED = "none", False
    job = bench.job()
    bench.work()
    assert (job_of(job).status, job_of(job).banner) == (JobStatus.SUCCEEDED, NO_MODEL_BANNER)


# -- rate limits ---------------------------------------------------------------------------------


def test_scenario_08_one_429_pauses_all_and_costs_one_attempt(bench: Bench) -> None:
    bench.llm.script(error(429, "x", Retry_After="7"))
    jobs = [bench.job(key=str(n)) for n in range(4)]
    bench.work()
    assert len(bench.llm.requests) == 1
    assert sorted(run_of(job).attempts for job in jobs) == [0, 0, 0, 1]
    paused_until = prepared.value("SELECT paused_until FROM paces WHERE name = %(name)s", {"name": NAME})
    assert paused_until >= Attempt.objects.get(error_class="RATE_LIMITED").started_at + timedelta(seconds=7)
    assert prepared.value("SELECT min(available_at) FROM outbox_messages") >= paused_until
    assert prepared.value("SELECT min(extract(epoch FROM available_at - now())) FROM outbox_messages") <= 8.0


@pytest.mark.long
def test_scenario_08_after_the_pause_all_are_reviewed(bench: Bench) -> None:
    bench.llm.script(error(429, "x", Retry_After="7"))
    jobs = [bench.job(key=str(n)) for n in range(4)]
    bench.work()
    prepared.rows(
        "UPDATE paces SET paused_until = now(), slow_rate = NULL, base_rate = NULL, slow_since = NULL"
    )
    gate.forget()
    bench.make_due()
    bench.work()
    assert {job_of(job).status for job in jobs} == {JobStatus.SUCCEEDED}
    assert len(bench.llm.requests) == 5


def test_scenario_08_the_part_that_was_refused_is_all_that_is_asked_for_again(bench: Bench) -> None:
    bench.one_by_one()
    bench.llm.script(Reply(), Reply(), error(429, "x", Retry_After="7"))
    job = bench.job(big(4))
    bench.work()
    assert answers_of(run_of(job)) == 2
    close_circuit()
    prepared.rows("DELETE FROM paces")
    bench.make_due()
    bench.work()
    assert (job_of(job).status, len(bench.llm.requests)) == (JobStatus.SUCCEEDED, 5)


def admitting(*waits: float) -> Callable[[str], gate.Permit]:
    """Let the next calls wait for so long each, one after the other."""
    real, left = gate.acquire_permit, list(waits)

    def admit(name: str) -> gate.Permit:
        if left:
            raise DependencyUnavailable(name, left.pop(0))
        return real(name)

    return admit


def test_short_waits_are_slept_in_place(bench: Bench) -> None:
    bench.monkeypatch.setattr(gate, "acquire_permit", admitting(0.01, 0.02))
    job = bench.job()
    bench.work()
    assert (job_of(job).status, run_of(job).attempts) == (JobStatus.SUCCEEDED, 1)
    assert Attempt.objects.filter(stage_run=run_of(job)).count() == 1


def test_a_long_wait_gives_the_attempt_back_with_what_is_finished(bench: Bench) -> None:
    bench.one_by_one()
    real, calls = gate.acquire_permit, [0]

    def admit(name: str) -> gate.Permit:
        calls[0] += 1
        if calls[0] == 3:
            raise DependencyUnavailable(name, 20.0)
        return real(name)

    bench.monkeypatch.setattr(gate, "acquire_permit", admit)
    job = bench.job(big(4))
    bench.work()
    assert (run_of(job).status, run_of(job).attempts, answers_of(run_of(job))) == ("pending", 0, 2)
    bench.make_due()
    bench.work()
    assert (job_of(job).status, len(bench.llm.requests)) == (JobStatus.SUCCEEDED, 4)


def test_many_short_waits_end_like_a_long_one(bench: Bench) -> None:
    bench.monkeypatch.setattr(model_client, "PATIENCE_SECONDS", 0.05)
    bench.monkeypatch.setattr(gate, "acquire_permit", admitting(*[0.02] * 50))
    job = bench.job()
    bench.work()
    assert (run_of(job).attempts, len(bench.llm.requests)) == (0, 0)


# -- ends in the middle of a review --------------------------------------------------------------


# -- the allow-list ----------------------------------------------------------------------------


def test_no_call_begins_after_an_edit_of_the_allow_list(bench: Bench) -> None:
    bench.one_by_one()

    def respond(request: Recorded) -> Reply | None:
        if holds(2) in request.body["messages"][1]["content"]:
            elsewhere(lambda: factories.AllowListEntryFactory(kind="exclude", pattern=f"{D}f3.py"))
        return None

    bench.llm.server.respond = respond
    job = bench.job(big(4))
    bench.work()
    assert len(bench.llm.requests) == 2
    assert (job_of(job).status, run_of(job).error_class) == (JobStatus.DEAD_LETTERED, "PATH_DENIED")
    assert SecurityEvent.objects.get().path == f"{D}f3.py"


def test_an_edit_that_allows_the_change_stops_nothing(bench: Bench) -> None:
    bench.one_by_one()
    bench.llm.server.respond = lambda _: elsewhere(  # type: ignore[func-returns-value]
        lambda: AllowListEntry.objects.get_or_create(kind="exclude", pattern="//depot/other/...")
    )
    job = bench.job(big(3))
    bench.work()
    assert (job_of(job).status, len(bench.llm.requests)) == (JobStatus.SUCCEEDED, 3)


@pytest.mark.parametrize("when", ["before", "during"])
def test_context_outside_the_edited_allow_list_is_never_sent_again(bench: Bench, when: str) -> None:
    bench.one_by_one()
    lib = f"{D}lib/prices.py"
    files = [edited(f"{D}f{n}.py", "", "discounted()\n" + "x = 1  # filler\n" * 700) for n in range(3)]
    change = replace(
        change_of(*files), context=(ContextFile(lib, "def discounted(rate):\n    pass\n", ("discounted",)),)
    )

    def narrow() -> None:
        AllowListEntry.objects.get_or_create(kind="exclude", pattern=f"{D}lib/...")

    def sent() -> list[bool]:
        return [
            "def discounted(rate)" in request.body["messages"][1]["content"] for request in bench.llm.requests
        ]

    if when == "during":
        bench.llm.server.respond = lambda _: elsewhere(narrow)  # type: ignore[func-returns-value]
    job = bench.job(change)
    if when == "before":
        narrow()
    bench.work()
    bench.make_due()
    bench.work()
    assert job_of(job).status == JobStatus.SUCCEEDED
    assert sent() == ([True] if when == "during" else []) + [False] * 3
    assert not SecurityEvent.objects.exists()


def elsewhere(work: Callable[[], object]) -> None:
    """Do something to the database in the middle of a call: in a thread of its own."""

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()


def ends_at(part: int, end: Callable[[], object]) -> Callable[[Recorded], Any]:
    """End the job while the model is at work on a part."""

    def respond(request: Recorded) -> Reply | None:
        if holds(part) in request.body["messages"][1]["content"]:
            elsewhere(end)
        return Reply(answer=FINDING) if holds(1) in request.body["messages"][1]["content"] else None

    return respond


def test_scenario_20_a_job_cancelled_in_the_middle_keeps_what_is_finished(bench: Bench) -> None:
    bench.one_by_one()
    job = bench.job(big(4))
    bench.llm.server.respond = ends_at(2, lambda: pipeline.cancel(job, "ann", "not needed"))
    bench.work()
    assert (job_of(job).status, job_of(job).is_late, len(bench.llm.requests)) == ("cancelled", False, 2)
    assert job_of(job).banner == (
        "Review was cancelled after 2 of 4 parts. Results shown are from the completed portion"
        "; the rest will be checked with the next version."
    )
    assert reasons(job) == dict.fromkeys([D + "f2.py", D + "f3.py"], UNREACHED[Stopped.ENDED])
    assert [call[0] for call in scripted.CALLS] == ["fetch"], "nobody is told"
    assert not JobEvent.objects.filter(kind=JobEvent.Kind.ALERT).exists()


def test_scenario_20_a_job_past_its_deadline_stops_and_says_how_far_it_came(bench: Bench) -> None:
    bench.one_by_one()
    job = bench.job(big(4))

    def expire() -> None:
        prepared.rows("UPDATE jobs SET deadline_at = now() WHERE id = %(job)s", {"job": job})

    bench.llm.server.respond = ends_at(1, expire)
    bench.work()
    assert (job_of(job).status, job_of(job).is_late, len(bench.llm.requests)) == ("timed_out", True, 1)
    assert job_of(job).banner == (
        "Review timed out after 1 of 4 parts. Results shown are from the completed portion"
        "; the rest will be checked with the next version."
    )


def test_scenario_20_a_job_within_its_deadline_is_reviewed_to_its_end(bench: Bench) -> None:
    bench.one_by_one()
    job = bench.job(big(4))
    bench.work()
    assert (job_of(job).status, len(bench.llm.requests), reasons(job)) == (JobStatus.SUCCEEDED, 4, {})


def test_redacting_again_keeps_no_thread_from_claims_and_records(bench: Bench) -> None:
    redact, answered = process.redact_change, []

    def slow(*arguments: Any) -> bytes:
        answered.append(async_executor._pools[os.getpid()].submit(os.getpid).result(10))
        return redact(*arguments)

    bench.monkeypatch.setattr(process, "redact_change", slow)
    job = bench.job()
    bench.work()
    assert answered == [os.getpid()]
    assert job_of(job).status == JobStatus.SUCCEEDED


def test_lost_database_during_the_review_does_not_stop_it(bench: Bench) -> None:
    def lost(_: StageClaim) -> bool:
        raise OperationalError("the connection is lost")

    bench.monkeypatch.setattr(pipeline, "still_ours", lost)
    bench.one_by_one()
    job = bench.job(big(3))
    bench.work()
    assert job_of(job).status == JobStatus.SUCCEEDED


# -- workers that go away ------------------------------------------------------------------------


async def until(is_so: Callable[[], object]) -> None:
    for _ in range(2000):
        if await async_executor.in_thread(is_so):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to pass")


def cut_short(bench: Bench, claim: StageClaim, is_far_enough: Callable[[], object]) -> None:
    """Run the stage until `is_far_enough`, then stop its worker."""

    async def run() -> None:
        work = asyncio.create_task(stage.run(claim))
        await until(is_far_enough)
        work.cancel()
        await asyncio.wait([work])
        assert work.cancelled()

    asyncio.run(run())


def test_a_worker_that_is_shut_down_leaves_what_was_answered(bench: Bench) -> None:
    bench.one_by_one()
    job = bench.job(big(3))
    claim = bench.fetch_only(job)
    bench.llm.script(Reply(), Reply(hang=True))
    cut_short(bench, claim, lambda: len(bench.llm.requests) == 2)
    assert answers_of(run_of(job)) == 1
    pipeline.give_back(claim)
    bench.work()
    assert (job_of(job).status, run_of(job).attempts) == (JobStatus.SUCCEEDED, 1)
    assert len(bench.llm.requests) == 4, "two that were begun, and the two that were not finished"


def test_give_back_that_fails_at_shutdown_is_not_a_failure_of_the_stage(bench: Bench) -> None:
    """The lease expires and the stage is repeated; a clean stop must not dead-letter a job."""

    def broken(_: StageClaim) -> None:
        raise RuntimeError("give_back failed")

    job = bench.job()
    claim = bench.fetch_only(job)
    bench.monkeypatch.setattr(pipeline, "claim", lambda *_: claim)
    bench.monkeypatch.setattr(pipeline, "give_back", broken)
    bench.monkeypatch.setattr(async_executor, "LEASE_RENEWER", LeaseRenewer(lambda held: held))
    driver = async_executor.Driver("stages", 1)
    driver._is_giving_back = True
    with capture_logs() as logged:
        asyncio.run(driver._run_one(Due(claim.outbox_id, claim.stage_run_id, claim.token)))
    assert "stage_not_recorded" in {entry["event"] for entry in logged}
    assert run_of(job).status == "running"
    assert job_of(job).status == JobStatus.IN_PROGRESS
    assert not DeadLetter.objects.exists()


def test_a_worker_that_is_shut_down_gives_its_permit_back(bench: Bench) -> None:
    bench.settings.CONCURRENCY_LIMITS = {"llm": 1}
    job = bench.job()
    claim = bench.fetch_only(job)
    bench.llm.script(Reply(hang=True))
    cut_short(bench, claim, lambda: len(bench.llm.requests) == 1)
    assert prepared.value("SELECT count(*) FROM pace_slots WHERE token IS NOT NULL") == 0


def test_scenario_13_finished_parts_are_kept_while_others_are_under_way(bench: Bench) -> None:
    bench.monkeypatch.setattr(model_client, "KEEP_SECONDS", 0.01)
    # Whatever the end of the worker would still write is gone with it.
    bench.monkeypatch.setattr(model_client.ProgressKeeper, "keep_rest", model_client.ProgressKeeper.close)
    bench.one_by_one()
    job = bench.job(big(3))
    claim = bench.fetch_only(job)
    bench.llm.script(Reply(), Reply(), Reply(hang=True))
    cut_short(bench, claim, lambda: answers_of(run_of(job)) == 2)


def test_how_many_parts_are_finished_is_kept_with_them_and_shown_while_the_stage_runs(bench: Bench) -> None:
    bench.monkeypatch.setattr(model_client, "KEEP_SECONDS", 0.01)
    bench.one_by_one()
    job = bench.job(big(3))
    claim = bench.fetch_only(job)
    bench.llm.script(Reply(), Reply(hang=True))
    shown: list[str] = []

    def is_kept() -> bool:
        if answers_of(run_of(job)) == 1 and not shown:
            shown.extend(view.parts for view in stages_of(job_of(job), EVERYTHING))
            hidden = [view.parts for view in stages_of(job_of(job), Scope(prefixes=("//depot/main/",)))]
            shown.append(progress_sentence(job_of(job), stages_of(job_of(job), EVERYTHING), Outcome("", "")))
            assert hidden == ["", "", ""]
        return bool(shown)

    # The second question must have reached the server, or its silence is left for the next worker.
    cut_short(bench, claim, lambda: is_kept() and len(bench.llm.requests) == 2)
    said = "1 of 3 parts is reviewed"
    assert shown == ["", said, "", f"Review is running, attempt 1 of 5: {said}."]
    pipeline.give_back(claim)
    assert [view.parts for view in stages_of(job_of(job), EVERYTHING)] == ["", "", ""]  # it does not run
    bench.work()
    assert (job_of(job).status, run_of(job).progress) == (JobStatus.SUCCEEDED, {})
    assert len(bench.llm.requests) == 4


def test_scenario_13_the_next_worker_pays_only_for_the_parts_that_are_not_finished(bench: Bench) -> None:
    bench.monkeypatch.setattr(model_client, "KEEP_SECONDS", 0.01)
    bench.monkeypatch.setattr(model_client.ProgressKeeper, "keep_rest", model_client.ProgressKeeper.close)
    bench.one_by_one()
    job = bench.job(big(3))
    claim = bench.fetch_only(job)
    bench.llm.script(Reply(answer=FINDING), Reply(), Reply(hang=True))
    # The third question must have reached the server, or its silence is left for the next worker.
    cut_short(bench, claim, lambda: len(bench.llm.requests) == 3 and answers_of(run_of(job)) == 2)
    bench.make_due()
    bench.work()
    assert (job_of(job).status, run_of(job).attempts) == (JobStatus.SUCCEEDED, 2)
    assert len(bench.llm.requests) == 4
    assert Attempt.objects.filter(stage_run=run_of(job), outcome="lost").count() == 1


def test_progress_that_cannot_be_written_does_not_stop_the_review(bench: Bench) -> None:
    def lost(*_: object) -> None:
        raise OperationalError("the connection is lost")

    bench.monkeypatch.setattr(model_client, "KEEP_SECONDS", 0.0)
    bench.monkeypatch.setattr(pipeline, "keep_progress", lost)
    bench.one_by_one()
    job = bench.job(big(3))
    bench.work()
    assert job_of(job).status == JobStatus.SUCCEEDED


@pytest.mark.long
def test_scenario_11_with_its_budget_gone_the_slow_part_is_left_out(bench: Bench) -> None:
    bench.settings.LLM_TIMEOUT_SECONDS = 3.0  # the other parts are answered by then, also on a busy machine
    bench.llm.server.respond = failing_on(3, Reply(hang=True))
    job = bench.job(big(3))
    prepared.rows("UPDATE stage_runs SET max_attempts = 2 WHERE stage = 'llm'")
    bench.work()
    assert (run_of(job).status, run_of(job).error_class) == ("retry_wait", str(ErrorClass.NETWORK_TIMEOUT))
    bench.make_due()
    bench.work()
    assert job_of(job).status == JobStatus.SUCCEEDED
    assert reasons(job) == {D + "f2.py": "not reviewed: the model did not answer in time; a rerun may help"}
    assert job_of(job).banner.startswith("Warning: 33% of the change could not be reviewed")
    assert JobEvent.objects.get(job_id=job).context["classes"] == {"NETWORK_TIMEOUT": 1}


@pytest.mark.long
def test_scenario_11_a_part_that_answers_within_the_budget_is_reviewed(bench: Bench) -> None:
    bench.settings.LLM_TIMEOUT_SECONDS = 3.0  # the other parts are answered by then, also on a busy machine
    bench.llm.server.respond = failing_on(3, Reply(hang=True))
    job = bench.job(big(3))
    bench.work()
    bench.llm.server.respond = None
    bench.make_due()
    bench.work()
    assert (job_of(job).status, job_of(job).banner, reasons(job)) == (JobStatus.SUCCEEDED, "", {})
    assert FindingRow.objects.filter(job_id=job).count() == 0


def test_a_model_that_gives_the_requests_markers_away_has_that_finding_dropped_from_the_review(
    bench: Bench,
) -> None:
    def talkative(request: Recorded) -> Reply:
        boundary, canary = marks_of(request.body["messages"][1]["content"])
        findings = [raw_finding(problem=f"I was told {canary} and {boundary}"), raw_finding(title="honest")]
        return Reply(answer=answer_of(*findings))

    bench.llm.server.respond = talkative
    job = bench.job()
    bench.work()
    assert job_of(job).status == JobStatus.SUCCEEDED
    assert [row.title for row in FindingRow.objects.filter(job_id=job)] == ["honest"]


# -- versions ----------------------------------------------------------------------------------

AGAIN = change_of(edited(D + "a.py", "a\nold\n", "a\n    total = price * (count or 1)\n"))
FOUND, SILENT = Reply(answer=FINDING), Reply(answer={**FINDING, "findings": []})


@pytest.mark.parametrize(
    ("change", "reply", "statuses", "told"),
    [
        (ONE, SILENT, ["not_reported_again"], "0 new, 0 still there, 1 not reported again"),
        (AGAIN, SILENT, ["fixed"], "0 new, 0 still there, 1 fixed"),
        pytest.param(ONE, FOUND, ["new", "still_there"], "0 new, 1 still there", marks=pytest.mark.long),
    ],
)
def test_a_finding_is_fixed_only_if_its_lines_changed(
    bench: Bench, change: Change, reply: Reply, statuses: list[str], told: str
) -> None:
    bench.llm.script(FOUND, reply)
    bench.job()
    bench.work()
    second = bench.job(change, version=2)
    bench.work()
    rows = FindingRow.objects.order_by("pk")
    assert [row.status for row in rows] == statuses
    assert len({row.identity for row in rows}) == 1
    message = render(report_of(job_of(second)), MAIL, token_for("12341", MAIL, 2))
    assert told in message.text


def test_a_dismissed_finding_stays_dismissed_in_later_versions(bench: Bench) -> None:
    """Also if a version in between does not report it; another defect of the same line is not."""
    said = {"title": "Cents are lost", "problem": "Floats round prices.", "trigger": "Most prices."}
    another = Reply(answer=answer_of(raw_finding(**said)))
    bench.llm.script(FOUND, SILENT, FOUND, another)
    first = bench.job()
    bench.work()
    (row,) = FindingRow.objects.filter(job=first)
    verdicts.give(row, "wrong", "bob")
    identities = []
    for version in (2, 3, 4):
        job = bench.job(ONE, version=version)
        bench.work()
        identities += FindingRow.objects.filter(job=job).values_list("identity", flat=True)
    assert identities[:1] == [row.identity]
    assert len(set(identities)) == 2
    (finding,) = report_of(ReviewJob.objects.get(review_version=3)).findings
    assert (finding.verdict, finding.is_dismissed) == ("wrong", True)


def test_a_finding_dismissed_in_one_change_is_folded_once_in_the_next_also_if_its_commit_is_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The match is part of the commit of the review."""
    bench.llm.server.respond = lambda _: FOUND
    first = bench.job()
    bench.work()
    verdicts.give(FindingRow.objects.get(job=first), "intended", "bob", "prices are whole")
    second, save, lost = bench.job(key="2"), units.save_units, []

    def lose_once(*given: Any) -> None:
        save(*given)
        if not lost:
            lost.append(FindingEvent.objects.count())
            raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr("reviews.stages.units.save_units", lose_once)
    bench.work()
    if FindingEvent.objects.count() == 1:  # the match went with the commit
        bench.make_due()
        bench.work()
    assert lost == [2]
    assert job_of(second).status == JobStatus.SUCCEEDED
    (finding,) = report_of(job_of(second)).findings
    assert (finding.verdict, finding.is_dismissed) == ("intended", True)
    match = FindingEvent.objects.exclude(matches=None).get()
    assert (match.job_id, match.actor, match.text) == (second, "bob", "prices are whole")
    assert ", 1 dismissed, " in render(report_of(job_of(second)), MAIL, token_for("12342", MAIL, 1)).text


def test_a_review_that_is_restarted_keeps_the_verdicts_on_its_findings(bench: Bench) -> None:
    bench.llm.script(FOUND, FOUND)
    job = bench.job()
    bench.work()
    (before,) = FindingRow.objects.filter(job=job)
    verdicts.give(before, "useful", "bob")
    claim = StageClaim(1, uuid4(), 1, Stage.LLM, 1, 5, 1, job, "12341", 1)
    after = factories.FindingRowFactory.build(
        job_id=job, **{name: getattr(before, name) for name in FindingRow.PUBLISHED}, excerpt=before.excerpt
    )
    versions.compare(claim, [after], [], prepare(ONE, Redactor(), ReviewLimits()))
    assert after.identity == before.identity


# -- the second pass -----------------------------------------------------------------------------


@pytest.fixture
def verifying(bench: Bench) -> Bench:
    bench.settings.LLM_VERIFY, bench.settings.LLM_MAX_INPUT_TOKENS = "on", 24_000
    return bench


def judging(each: Callable[[str, str], dict[str, Any]], found: object = FIVE) -> Callable[[Recorded], Reply]:
    return lambda request: saying(each)(request) if is_verify(request) else Reply(answer=found)


def test_the_ledger_holds_each_raw_finding_once_and_each_shown_one(verifying: Bench) -> None:
    found = {**FIVE, "findings": [*FIVE["findings"], {"title": "no place"}, FIVE["findings"][0]]}
    verifying.llm.server.respond = judging(perfect, found)
    job = verifying.job(VERIFIED)
    verifying.work()
    assert job_of(job).status == JobStatus.SUCCEEDED
    fates = FindingFate.objects.filter(job=job)
    assert sorted(fates.values_list("part", "place")) == [(1, n) for n in range(7)]
    assert Counter(fates.values_list("fate", "reason")) == {
        ("shown", ""): 2,
        ("refuted", "Line 2: So."): 2,
        ("refuted", "Line 3: So."): 1,
        ("dropped", "incomplete"): 1,
        ("dropped", "repeated"): 1,
    }
    shown = set(FindingRow.objects.filter(job=job).values_list("fate_id", "verification"))
    assert shown == {(fate.pk, "confirmed") for fate in fates.filter(fate="shown")}
    assert set(fates.filter(fate="refuted").values_list("title", flat=True)) == set(FALSE)
    assert job_of(job).usage["verify_calls"] == 1


def test_merged_findings_name_the_one_that_stands_for_them(verifying: Bench) -> None:
    again = {**FIVE["findings"][0], "confidence": 3}
    verifying.llm.server.respond = judging(perfect, {**FIVE, "findings": [*FIVE["findings"][:2], again]})
    job = verifying.job(VERIFIED)
    verifying.work()
    (merged,) = FindingFate.objects.filter(job=job, fate="merged")
    assert merged.merged_into in FindingFate.objects.filter(job=job, fate="shown")


def test_a_verifier_that_refutes_nearly_all_raises_an_alert(verifying: Bench) -> None:
    verifying.llm.server.respond = judging(lambda t, n: verdict(n, t, "refuted", CODE[TITLES.index(t)]))
    job = verifying.job(VERIFIED)
    verifying.work()
    alert = JobEvent.objects.get(job_id=job)
    assert alert.context == {"refuted": 5, "findings": 5}
    assert alert.reason.startswith("the second pass called 5 of 5 findings wrong")


def test_without_a_second_pass_no_finding_is_judged(verifying: Bench) -> None:
    verifying.settings.LLM_VERIFY = "off"
    verifying.llm.server.respond = judging(perfect)
    job = verifying.job(VERIFIED)
    verifying.work()
    assert len(verifying.llm.requests) == 1
    assert set(FindingRow.objects.filter(job=job).values_list("verification", flat=True)) == {""}


def test_no_finding_is_verified_after_an_edit_of_the_allow_list(verifying: Bench) -> None:
    verifying.one_by_one()
    verifying.monkeypatch.setattr("reviews.reviewers.verifying.MAX_FINDINGS", 1)

    def narrow() -> None:
        AllowListEntry.objects.get_or_create(kind="exclude", pattern="//depot/p/...")

    def respond(request: Recorded) -> Reply:
        if is_verify(request):
            elsewhere(narrow)
        return judging(perfect)(request)

    verifying.llm.server.respond = respond
    job = verifying.job(VERIFIED)
    verifying.work()
    assert [is_verify(request) for request in verifying.llm.requests] == [False, True]
    assert (job_of(job).status, run_of(job).error_class) == (JobStatus.DEAD_LETTERED, "PATH_DENIED")


def test_another_model_may_be_the_verifier(verifying: Bench) -> None:
    verifying.settings.LLM_VERIFY = "small"
    verifying.llm.server.respond = judging(perfect)
    verifying.job(VERIFIED)
    verifying.work()
    assert [request.body["model"] for request in verifying.llm.requests] == ["m", "small"]


def test_scenario_13_what_was_found_is_kept_before_it_is_verified(verifying: Bench) -> None:
    """A worker killed in the second pass has nothing left to write.

    The next worker asks no finder again.
    """
    verifying.monkeypatch.setattr(model_client.ProgressKeeper, "keep_rest", model_client.ProgressKeeper.close)
    job = verifying.job(VERIFIED)
    claim = verifying.fetch_only(job)
    verifying.llm.script(Reply(answer=FIVE), Reply(hang=True))
    cut_short(verifying, claim, lambda: len(verifying.llm.requests) == 2)
    assert answers_of(run_of(job)) == 1
    verifying.llm.server.respond = judging(perfect)
    verifying.make_due()
    verifying.work()
    assert (job_of(job).status, run_of(job).attempts) == (JobStatus.SUCCEEDED, 2)
    assert [is_verify(request) for request in verifying.llm.requests] == [False, True, True]
