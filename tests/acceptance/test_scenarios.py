"""Failure scenarios through the real pipeline against real servers.

A claim there is a part or a finding of a review here, "uncertain" there is an entry of the
coverage here. Each failure has a twin in which it passes. `INDEX` names the tests elsewhere that
prove the same scenarios.
"""

from __future__ import annotations

import ast
import functools
import re
import threading
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection

from criticizer.db import prepared
from criticizer.models import OutboxMessage
from criticizer.resilience.failures import ErrorClass
from deadletters.models import DeadLetter
from notifications.models import Delivery
from reviews import pipeline
from reviews.artifacts import recipe
from reviews.models import CoverageRow, FindingRow, JobEvent, ReviewJob
from reviews.reviewers import coverage_texts
from reviews.reviewers.base import Stopped
from reviews.reviewers.coverage_texts import NOT_REVIEWED
from reviews.reviewers.prepare import ReviewLimits
from tests.acceptance import troubles
from tests.acceptance.world import AFTER, BEFORE, MAIL, World
from tests.beside import session
from tests.fakes.llm import Recorded, Reply, error
from tests.fakes.p4.server import added, edited
from tests.fakes.webhook import Behaviour, Received, WebhookReceiver
from tests.reviewers.test_answer import answer_of, raw_finding
from tests.reviewers.test_review import holds
from tests.reviewers.test_verifying import is_verify

E = ErrorClass
UNPARSEABLE = Reply(answer="Here are my thoughts: the code looks {fine")
WRONG_STRUCTURE = Reply(answer={"findings": [{"severity": "urgent"}], "files_read": []})
TOO_LONG = error(400, "constructed", "context_length_exceeded")
FOUND = raw_finding(file="//depot/main/a.c", quote="int answer(void) { return 2; }", severity="high")


# -- what the scenarios share ------------------------------------------------------------------


def change_in_parts(world: World, count: int = 3) -> str:
    """Submit a change of which each file needs a call of its own."""
    world.settings.LLM_MAX_INPUT_TOKENS = 8_000
    return world.depot.submit(
        *(
            added(f"//depot/main/f{number}.py", "".join(f"v{number}_{line}\n" for line in range(600)))
            for number in range(1, count + 1)
        )
    )


def one_call_at_a_time(world: World) -> None:
    limits = ReviewLimits(max_input_tokens=8_000, max_parallel_calls=1)
    world.monkeypatch.setattr(recipe, "limits", lambda: limits)


def part_of(request: Recorded) -> int:
    """Return which file of `change_in_parts` a request is about."""
    text = request.body["messages"][1]["content"]
    return next(number for number in range(1, 10) if holds(number) in text)


def on_part(number: int, reply: Reply | Callable[[], Reply | None]) -> Callable[[Recorded], Reply | None]:
    """Answer every request about one part with `reply`; the others get the ordinary answer."""

    def respond(request: Recorded) -> Reply | None:
        if part_of(request) != number:
            return None
        return reply() if callable(reply) else reply

    return respond


def calls(world: World) -> list[int]:
    """Return the parts that were asked about, sorted."""
    return sorted(part_of(request) for request in world.llm.requests)


def left_out(job: int) -> dict[str, str]:
    """Return the files that were not reviewed and why, without the id of the call."""
    rows = CoverageRow.objects.filter(job_id=job).exclude(reason="")
    return {row.file.rpartition("/")[2]: row.reason.partition(" (call ")[0] for row in rows}


def banner(job: int) -> str:
    return ReviewJob.objects.get(pk=job).banner


def outcomes(world: World, job: int, stage: str) -> list[str]:
    return [f"{each.outcome} {each.error_class}".strip() for each in world.attempts(job, stage)]


def assert_told_once(world: World, job: int) -> None:
    assert world.status(job) == "succeeded"
    assert list(Delivery.objects.filter(job_id=job).values_list("status", flat=True)) == ["sent"]
    assert list(world.receiver.processed.values()) == [1]
    assert not DeadLetter.objects.exists()
    assert not OutboxMessage.objects.exists()


# -- 1 and 2: unparseable output, wrong structure ------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(UNPARSEABLE, id="scenario_01_unparseable"),
        pytest.param(WRONG_STRUCTURE, id="scenario_02_wrong_structure", marks=pytest.mark.long),
    ],
)
def test_scenario_01_02_output_that_cannot_be_used_twice_leaves_one_part_out(
    world: World, reply: Reply
) -> None:
    world.llm.server.respond = on_part(1, reply)
    job = world.job(change_in_parts(world), world.hook)
    world.work()
    assert_told_once(world, job)
    assert calls(world) == [1, 1, 2, 3]  # one repair turn, with the same input
    first, second = (each.body["messages"][1]["content"] for each in world.llm.requests if part_of(each) == 1)
    assert "v1_599" in first
    assert "v1_599" in second
    assert left_out(job) == {"f1.py": NOT_REVIEWED[E.SCHEMA_INVALID]}
    assert banner(job) == coverage_texts.incomplete_banner(1, 3)  # above a fifth
    assert JobEvent.objects.get(job_id=job, kind="alert").reason == coverage_texts.alert_text(
        1, 3
    )  # above a tenth
    assert outcomes(world, job, "llm") == ["succeeded"]


@pytest.mark.long
@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(UNPARSEABLE, id="scenario_01_unparseable"),
        pytest.param(WRONG_STRUCTURE, id="scenario_02_wrong_structure", marks=pytest.mark.long),
    ],
)
def test_scenario_01_02_recovery_the_repair_turn_is_used(world: World, reply: Reply) -> None:
    world.llm.script(reply, Reply(answer=answer_of(FOUND)))
    job = world.job(world.change(), world.hook)
    world.work()
    assert_told_once(world, job)
    assert [is_verify(request) for request in world.llm.requests] == [False, False, True]
    assert left_out(job) == {}
    assert FindingRow.objects.get(job_id=job, source="llm").title == FOUND["title"]
    assert not JobEvent.objects.filter(job_id=job, kind="alert").exists()


@pytest.mark.long
def test_scenario_02_when_no_part_can_be_used_the_job_is_dead_lettered_and_a_replay_recovers(
    world: World,
) -> None:
    mended = troubles.llm(WRONG_STRUCTURE)(world)
    job = world.job(world.change(), world.hook)
    world.work()
    assert world.status(job) == "dead_lettered"
    assert world.letter(job).error_class == E.SCHEMA_INVALID
    assert world.receiver.requests == []
    mended()
    world.replay(job)
    world.settle()
    assert world.status(job) == "succeeded"
    assert list(world.receiver.processed.values()) == [1]


# -- 4: nothing found ----------------------------------------------------------------------------


@pytest.mark.long
def test_scenario_04_zero_findings_is_a_result_and_not_retried(world: World) -> None:
    job = world.job(world.change(), world.hook)
    world.work()
    assert_told_once(world, job)
    assert len(world.llm.requests) == 1
    assert not FindingRow.objects.filter(job_id=job).exists()
    assert CoverageRow.objects.get(job_id=job).status == "reviewed"


@pytest.mark.long
def test_scenario_04_recovery_a_finding_is_shown_in_the_same_place(world: World) -> None:
    world.llm.script(Reply(answer=answer_of(FOUND)))
    job = world.job(world.change(), world.hook)
    world.work()
    assert_told_once(world, job)
    assert FindingRow.objects.get(job_id=job).severity == "high"


# -- 5: no evidence ------------------------------------------------------------------------------


@pytest.mark.long
def test_scenario_05_a_finding_without_evidence_is_demoted(world: World) -> None:
    world.llm.script(Reply(answer=answer_of({**FOUND, "quote": "int other(void) { return 3; }"})))
    job = world.job(world.change(), world.hook)
    world.work()
    assert_told_once(world, job)
    finding = FindingRow.objects.get(job_id=job)
    assert (finding.demoted, finding.line, finding.severity) == (True, None, "medium")


@pytest.mark.long
def test_scenario_05_recovery_with_evidence_it_keeps_its_line_and_severity(world: World) -> None:
    world.llm.script(Reply(answer=answer_of(FOUND)))
    job = world.job(world.change(), world.hook)
    world.work()
    finding = FindingRow.objects.get(job_id=job)
    assert (finding.demoted, finding.line, finding.severity) == (False, 1, "high")


# -- 6: token limit ------------------------------------------------------------------------------


@pytest.mark.long
def test_scenario_06_a_part_beyond_the_window_is_left_out_and_not_asked_for_again(world: World) -> None:
    world.llm.server.respond = on_part(2, TOO_LONG)
    job = world.job(change_in_parts(world), world.hook)
    world.work()
    assert_told_once(world, job)
    assert calls(world) == [1, 2, 3]
    assert left_out(job) == {"f2.py": NOT_REVIEWED[E.TOKEN_LIMIT]}
    assert outcomes(world, job, "llm") == ["succeeded"]


@pytest.mark.long
def test_scenario_06_recovery_a_rerun_with_a_larger_window_reviews_it(world: World) -> None:
    world.llm.server.respond = on_part(2, TOO_LONG)
    changelist = change_in_parts(world)
    world.job(changelist, world.hook)
    world.work()
    world.llm.server.respond = None
    rerun = world.job(changelist, world.hook, key="k-2", version=2, rerun=True)
    world.work()
    assert world.status(rerun) == "succeeded"
    assert left_out(rerun) == {}


# -- 8: rate limit in the middle -------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("header", "waits"),
    [
        ("7", 7),
        pytest.param("400", 300, marks=pytest.mark.long),
        pytest.param("date", 90, marks=pytest.mark.long),
    ],
    ids=["seconds", "above_the_ceiling", "http_date"],
)
def test_scenario_08_a_rate_limit_in_the_middle_of_a_review_keeps_what_is_finished_and_recovers(
    world: World, header: str, waits: float
) -> None:
    one_call_at_a_time(world)
    began = django_now()
    asked = formatdate(began + 90, usegmt=True) if header == "date" else header
    world.llm.server.respond = on_part(2, error(429, "constructed", Retry_After=asked))
    job = world.job(change_in_parts(world), world.hook)
    world.work()
    assert world.status(job) == "retryable_failed"
    assert outcomes(world, job, "llm") == ["failed RATE_LIMITED"]
    passed = django_now() - began if header == "date" else 0.0  # a date comes nearer meanwhile
    assert waits - 2 - passed <= world.attempts(job, "llm")[0].retry_delay_seconds <= waits + 2
    assert calls(world) == [1, 2]
    assert world.receiver.requests == []

    # Recovery: after the pause only the rest is asked for, and the budget is nearly whole.
    world.llm.server.respond = None
    world.make_due()
    world.work()
    assert_told_once(world, job)
    assert calls(world) == [1, 2, 2, 3]
    assert world.stage(job, "llm").attempts == 2


@pytest.mark.long
def test_scenario_08_a_rate_limit_among_recipients_defers_one_and_recovers(world: World) -> None:
    limited = world.enter(
        WebhookReceiver(respond=lambda _: Behaviour(status=429, headers={"Retry-After": "9"}))
    )
    job = world.job(world.change(), world.hook, f"webhook:{limited.url}", MAIL)
    world.work()
    assert world.status(job) == "retryable_failed"
    assert len(world.mails()) == 1
    assert list(world.receiver.processed.values()) == [1]
    assert world.attempts(job, "notify")[0].retry_delay_seconds == pytest.approx(9, abs=1)

    # Recovery: the deferred one is sent, the others are not sent twice.
    limited.respond = None
    world.make_due()
    world.work()
    assert world.status(job) == "succeeded"
    assert list(limited.processed.values()) == [1]
    assert len(world.mails()) == 1
    assert len(world.receiver.requests) == 1


def django_now() -> float:
    return float(prepared.value("SELECT extract(epoch FROM now())::float8"))


# -- 9: the database is lost in the middle ---------------------------------------------------------


def lose_all_connections() -> None:
    """End every session on the test's database, as a restart of the server does."""
    with session() as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.parametrize(
    "stage", ["llm", *(pytest.param(stage, marks=pytest.mark.long) for stage in ("fetch", "notify"))]
)
def test_scenario_09_a_stage_that_loses_the_database_at_its_start_is_repeated_from_there(
    world: World, stage: str
) -> None:
    end = troubles.before(stage, troubles.connection_lost)(world)
    job = world.job(world.change(), world.hook)
    world.work()
    assert world.status(job) == "retryable_failed"
    assert outcomes(world, job, stage) == ["failed DATABASE_UNAVAILABLE"]
    end()
    world.make_due()
    world.work()
    assert_told_once(world, job)
    attempts = {each: world.stage(job, each).attempts for each in ("fetch", "llm", "notify")}
    assert attempts == {**dict.fromkeys(attempts, 1), stage: 2}  # nothing before it is done again
    assert len(world.llm.requests) == 1


def test_scenario_09_recovery_a_call_in_flight_is_recorded_when_the_database_is_back(world: World) -> None:
    def respond(_: Recorded) -> Reply | None:
        lose_all_connections()
        return None

    world.llm.server.respond = respond
    job = world.job(world.change(), world.hook)
    world.work()
    assert_told_once(world, job)
    assert outcomes(world, job, "llm") == ["succeeded"]
    assert len(world.llm.requests) == 1


def test_scenario_09_recovery_a_message_that_was_accepted_is_marked_when_the_database_is_back(
    world: World,
) -> None:
    def respond(_: Received) -> Behaviour | None:
        lose_all_connections()
        return None

    world.receiver.respond = respond
    job = world.job(world.change(), world.hook)
    world.work()
    world.settle()
    assert_told_once(world, job)
    assert len(world.receiver.requests) == 1


# -- 10: concurrent events of one change -----------------------------------------------------------


def tell(world: World, event: str, change: str) -> dict[str, Any]:
    answer = world.api.post_json(
        "/api/v1/triggers/perforce/", {"event": event, "change": int(change), "server": "main"}
    )
    assert answer.status_code == 202, answer.content
    told: dict[str, Any] = answer.json()  # type: ignore[attr-defined]
    return told


@pytest.mark.long
def test_scenario_10_events_inside_the_minute_are_one_job_with_the_newest_content(world: World) -> None:
    world.settings.DEFAULT_RECIPIENTS = [world.hook]
    number = world.depot.shelve(edited("//depot/main/a.c", BEFORE, "int answer(void) { return 7; }\n"))
    first = tell(world, "shelve-commit", number)
    world.depot.shelve(edited("//depot/main/a.c", BEFORE, AFTER), change=number)
    assert tell(world, "shelve-commit", number)["job"] == first["job"]
    world.settle()
    assert_told_once(world, first["job"])
    (request,) = world.llm.requests
    assert "return 2" in request.body["messages"][1]["content"]
    assert "return 7" not in request.body["messages"][1]["content"]


@pytest.mark.long
def test_scenario_10_recovery_an_event_during_the_work_replaces_it_without_a_failure(world: World) -> None:
    world.settings.DEFAULT_RECIPIENTS = [world.hook]
    number = world.depot.shelve(edited("//depot/main/a.c", BEFORE, "int answer(void) { return 7; }\n"))
    first = tell(world, "shelve-commit", number)["job"]
    happened: list[int] = []

    def shelve_again(world: World) -> None:
        if not happened:
            happened.append(1)
            world.depot.shelve(edited("//depot/main/a.c", BEFORE, AFTER), change=number)
            happened.append(tell(world, "shelve-commit", number)["job"])

    end = troubles.before("llm", shelve_again)(world)
    world.make_due()
    world.settle()
    end()
    second = happened[1]
    assert second != first
    assert world.status(first) == "superseded"
    assert outcomes(world, first, "llm") == ["given_back"]  # cancellation is no failure
    assert world.stage(first, "llm").attempts == 0
    assert not DeadLetter.objects.exists()
    assert world.status(second) == "succeeded"
    assert list(world.receiver.processed.values()) == [1]  # only the newest is told


# -- 11: a call times out --------------------------------------------------------------------------


@pytest.mark.long
def test_scenario_11_a_part_that_never_answers_is_left_out_when_the_budget_is_gone(world: World) -> None:
    world.settings.LLM_TIMEOUT_SECONDS = 4.0  # the other parts are answered by then, also on a busy machine
    world.llm.server.respond = on_part(1, Reply(hang=True))
    job = world.job(change_in_parts(world), world.hook)
    world.settle()
    assert_told_once(world, job)
    assert outcomes(world, job, "llm") == [*["failed NETWORK_TIMEOUT"] * 4, "succeeded"]
    assert calls(world) == [1, 1, 1, 1, 1, 2, 3]  # finished parts are paid for once
    assert left_out(job) == {"f1.py": NOT_REVIEWED[E.NETWORK_TIMEOUT]}
    assert banner(job) == coverage_texts.incomplete_banner(1, 3)
    assert "model" in world.receiver.requests[0].raw.decode()


@pytest.mark.long
def test_scenario_11_recovery_a_part_that_answers_later_is_all_that_is_asked_for(world: World) -> None:
    world.settings.LLM_TIMEOUT_SECONDS = 4.0  # the other parts are answered by then, also on a busy machine
    world.llm.server.respond = on_part(1, Reply(hang=True))
    job = world.job(change_in_parts(world), world.hook)
    world.work()
    world.llm.server.respond = None
    world.make_due()
    world.work()
    assert_told_once(world, job)
    assert calls(world) == [1, 1, 2, 3]
    assert left_out(job) == {}
    assert banner(job) == ""


# -- 12: a late result -----------------------------------------------------------------------------


def deadline_passes() -> None:
    """Time every job out, as the sweep of another process does."""

    def expire() -> None:
        prepared.rows("UPDATE jobs SET deadline_at = now() - interval '1 s'")
        pipeline.expire_overdue()
        connection.close()

    elsewhere = threading.Thread(target=expire)
    elsewhere.start()
    elsewhere.join()


def late_answer() -> Callable[[Recorded], Reply | None]:
    """Let the deadline pass while the model thinks."""

    def respond(_: Recorded) -> Reply | None:
        deadline_passes()
        return Reply(answer=answer_of(FOUND))

    return respond


@pytest.mark.long
def test_scenario_12_a_late_result_is_stored_and_changes_nothing(world: World) -> None:
    world.llm.server.respond = late_answer()
    job = world.job(world.change(), world.hook)
    world.work()
    world.settle()
    row = ReviewJob.objects.get(pk=job)
    assert (row.status, row.is_late) == ("timed_out", True)
    assert FindingRow.objects.get(job_id=job).title == FOUND["title"]
    assert world.receiver.requests == []
    assert not DeadLetter.objects.exists()
    kinds = list(JobEvent.objects.filter(job_id=job).order_by("id").values_list("kind", flat=True))
    assert kinds == ["timed_out", "late_stored"]


@pytest.mark.long
def test_scenario_12_recovery_an_accepted_late_result_is_delivered_once(world: World) -> None:
    world.llm.server.respond = late_answer()
    job = world.job(world.change(), world.hook)
    world.work()
    assert pipeline.accept_late(job, "ann", "OPS-7: the model is slow today") == ""
    world.settle()
    assert_told_once(world, job)
    assert ReviewJob.objects.get(pk=job).is_late
    assert len(world.llm.requests) == 1


# -- 13: the worker fails in the middle: tests/crash/test_kill_mid_review.py ------------------------


# -- 20: the deadline passes in the middle ---------------------------------------------------------


@pytest.mark.long
def test_scenario_20_a_review_that_runs_out_of_time_keeps_its_finished_parts(world: World) -> None:
    one_call_at_a_time(world)

    def out_of_time() -> Reply | None:
        with session() as other:
            other.execute("UPDATE jobs SET deadline_at = now() - interval '1 s'")
        return None

    world.monkeypatch.setattr("reviews.reviewers.model_calls.ASK_EVERY_SECONDS", 0.0)
    world.llm.server.respond = on_part(2, out_of_time)
    job = world.job(change_in_parts(world), world.hook)
    world.work()
    assert world.status(job) == "timed_out"
    assert calls(world) == [1, 2]  # what was in flight ended; nothing new began
    assert left_out(job) == {"f3.py": coverage_texts.UNREACHED[Stopped.ENDED]}
    assert banner(job) == coverage_texts.stopped_banner("timed_out", 2, 3)
    assert world.receiver.requests == []
    assert not DeadLetter.objects.exists()  # partial is no failure of the pipeline
    assert not OutboxMessage.objects.exists()


@pytest.mark.long
def test_scenario_20_recovery_a_rerun_reviews_everything(world: World) -> None:
    test_scenario_20_a_review_that_runs_out_of_time_keeps_its_finished_parts(world)
    world.llm.server.respond = None
    changelist = ReviewJob.objects.get().changelist_id
    rerun = world.job(changelist, world.hook, key="k-2", version=2, rerun=True)
    world.work()
    assert world.status(rerun) == "succeeded"
    assert left_out(rerun) == {}
    assert list(world.receiver.processed.values()) == [1]


# -- reclassification ----------------------------------------------------------------------------


def test_a_failure_that_turns_permanent_ends_the_retries_at_once(world: World) -> None:
    mended = troubles.llm_status(503)(world)
    job = world.job(world.change(), world.hook)
    world.work()
    world.make_due()
    world.work()
    assert outcomes(world, job, "llm") == ["failed UPSTREAM_UNAVAILABLE"] * 2
    mended()
    key_back = troubles.llm_key_refused(world)
    world.make_due()
    world.work()
    assert world.status(job) == "dead_lettered"
    assert outcomes(world, job, "llm")[2:] == ["failed AUTH_DENIED"]
    assert (world.stage(job, "llm").attempts, world.stage(job, "llm").max_attempts) == (3, 5)  # budget left
    assert not OutboxMessage.objects.exists()
    assert world.letter(job).attempts == 3

    key_back()
    world.replay(job)
    world.settle()
    assert world.status(job) == "succeeded"


# -- the index -------------------------------------------------------------------------------------

HERE = "tests/acceptance/test_scenarios.py"
INDEX: dict[int, tuple[str, ...]] = {
    1: (HERE, "tests/reviewers/test_scenarios.py"),
    2: (HERE, "tests/reviewers/test_scenarios.py"),
    4: (HERE, "tests/reviewers/test_scenarios.py"),
    5: (HERE, "tests/reviewers/test_scenarios.py"),
    6: (HERE, "tests/reviewers/test_scenarios.py"),
    8: (HERE, "tests/reviewers/test_scenarios.py"),
    9: (HERE,),
    10: (HERE,),
    11: (HERE, "tests/reviewers/test_scenarios.py"),
    12: (HERE,),
    13: ("tests/crash/test_kill_mid_review.py", "tests/reviewers/test_scenarios.py"),
    20: (HERE, "tests/reviewers/test_scenarios.py"),
}


@functools.cache
def names_of_tests(path: str) -> list[str]:
    body = ast.parse((django_settings.BASE_DIR / path).read_text()).body
    return [node.name for node in body if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("number", INDEX)
def test_every_scenario_has_named_tests_and_a_recovery_twin(number: int) -> None:
    for path in INDEX[number]:
        wanted = re.compile(rf"test_scenario_(\d\d_)*{number:02}_")
        names = [name for name in names_of_tests(path) if wanted.match(name)]
        assert len(names) >= 2, (number, path)
        if path == HERE or "crash" in path:
            assert any("recover" in name for name in names), (number, path)
