"""The states of agent tasks: offered, claimed, given back, submitted, expired, cancelled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import Mock
from uuid import UUID, uuid4

import pytest
from django.db import ProgrammingError, connection, transaction
from django.db.models import F
from django.utils import timezone

from criticizer.db import prepared
from criticizer.security import expired_copies
from reviews import pipeline
from reviews.agents import claim, expire, offer, rows, submit
from reviews.agents.rows import Refusal, Refused, directories_of
from reviews.agents.submit import Answer, Invalid, Result
from reviews.intake import api_keys
from reviews.models import AgentSubmission, AgentTask, JobEvent
from reviews.states import SubmissionVerdict
from tests import factories
from tests.agents.conftest import CHUNK, MAIN, OTHER, PAYLOAD, add_tasks, caller, is_due, waiting_job

pytestmark = pytest.mark.django_db

Tasks = Callable[..., list[AgentTask]]


def body(token: str, **more: Any) -> bytes:
    return json.dumps({"claim_token": token, "success": True, "data": CHUNK, **more}).encode()


def read(kind: str, content: Mapping[str, Any]) -> Result:
    if content.get("data") == "bad":
        raise Invalid([{"path": "data", "message": "is bad"}])
    return Result(content["data"] if content["success"] else None, content.get("error", ""))


def send(task: AgentTask, content: bytes, *prefixes: str) -> Answer | Refusal:
    try:
        return submit.submit(caller(*prefixes), task.pk, lambda: content, read)
    except Refused as refused:
        return refused.kind


def refused(call: Callable[[], object]) -> Refusal:
    with pytest.raises(Refused) as error:
        call()
    return error.value.kind


def lapse(task: AgentTask) -> None:
    AgentTask.objects.filter(pk=task.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def overdue(task: AgentTask) -> None:
    AgentTask.objects.filter(pk=task.pk).update(expires_at=timezone.now() - timedelta(milliseconds=1))


def status(task: AgentTask) -> str:
    return AgentTask.objects.values_list("status", flat=True).get(pk=task.pk)


ACCEPTED = Answer(SubmissionVerdict.ACCEPTED)


def test_a_claim_hands_out_payload_and_token_once(tasks: Tasks) -> None:
    (task,) = tasks()
    found = claim.claim(caller(), task.pk, "ci-1")
    assert found["payload"] == PAYLOAD
    assert found["status"] == "in_progress"
    assert refused(lambda: claim.claim(caller(), task.pk)) == Refusal.CLAIMED
    stored = AgentTask.objects.filter(pk=task.pk).values().get()
    assert stored["claimed_by"] == "ci-1"
    assert found["claim_token"] not in str(stored)
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload FROM agent_tasks")
        assert "review_chunk" not in cursor.fetchone()[0]


def test_the_last_result_makes_the_stage_due(tasks: Tasks) -> None:
    first, second = tasks(2)
    job = first.job
    taken = claim.claim_next(caller())
    assert taken is not None
    assert taken["id"] == first.pk
    assert send(first, body(taken["claim_token"])) == ACCEPTED
    assert not is_due(job)
    taken = claim.claim_next(caller())
    assert taken is not None
    assert send(second, body(taken["claim_token"])) == ACCEPTED
    assert is_due(job)
    assert claim.claim_next(caller()) is None
    assert AgentTask.objects.get(pk=second.pk).result == [CHUNK]


def test_a_lapsed_claim_goes_to_the_next_agent_and_the_first_one_is_refused(tasks: Tasks) -> None:
    (task,) = tasks()
    first = claim.claim(caller(), task.pk)
    lapse(task)
    second = claim.claim(caller(), task.pk)  # before any sweep
    assert send(task, body(first["claim_token"])) == Refusal.CLAIM_LOST
    assert refused(lambda: claim.heartbeat(caller(), task.pk, first["claim_token"])) == Refusal.CLAIM_LOST
    assert refused(lambda: claim.release(caller(), task.pk, first["claim_token"])) == Refusal.CLAIM_LOST
    assert status(task) == "in_progress"
    assert claim.heartbeat(caller(), task.pk, second["claim_token"], "half")[1] is False
    lapse(task)
    expire.sweep()
    assert status(task) == "pending"
    assert send(task, body(second["claim_token"])) == Refusal.CLAIM_LOST


def test_a_revoked_key_holds_no_task(tasks: Tasks) -> None:
    api_keys.create("stolen", "agent", [f"{MAIN}..."])
    first, second = tasks(2)
    token = claim.claim(caller(key="stolen"), first.pk)["claim_token"]
    held = claim.claim(caller(), second.pk)["claim_token"]
    assert api_keys.revoke("stolen")
    assert send(first, body(token)) == Refusal.CLAIM_LOST
    assert AgentTask.objects.values_list("claims", flat=True).get(pk=first.pk) == 0
    assert send(first, body(claim.claim(caller(), first.pk)["claim_token"])) == ACCEPTED
    assert send(second, body(held)) == ACCEPTED


def test_what_a_call_took_while_its_key_was_revoked_is_given_back(tasks: Tasks) -> None:
    """The call was authenticated before, and is carried out after (G579)."""
    api_keys.create("stolen", "agent", [f"{MAIN}..."])
    first, second = tasks(2)
    held = claim.claim(caller(), second.pk)["claim_token"]
    assert api_keys.revoke("stolen")
    token = claim.claim(caller(key="stolen"), first.pk)["claim_token"]
    expire.sweep()
    assert status(first) == "pending"
    assert AgentTask.objects.values_list("claims", flat=True).get(pk=first.pk) == 0
    assert send(first, body(token)) == Refusal.CLAIM_LOST
    assert send(second, body(held)) == ACCEPTED


def test_a_key_that_sees_less_by_now_can_do_nothing_with_the_task_it_holds(tasks: Tasks) -> None:
    """Only the database's owner can narrow a key, as the admin changes no prefixes.

    The task is offered again once its claim lapses.
    """
    (task,) = tasks()
    token = claim.claim(caller(key="narrow"), task.pk)["claim_token"]
    narrowed = caller(f"{MAIN}elsewhere/", key="narrow")
    assert send(task, body(token), f"{MAIN}elsewhere/") == Refusal.NOT_FOUND
    assert refused(lambda: claim.heartbeat(narrowed, task.pk, token)) == Refusal.NOT_FOUND
    assert refused(lambda: claim.release(narrowed, task.pk, token)) == Refusal.NOT_FOUND
    assert status(task) == "in_progress"
    lapse(task)
    assert send(task, body(claim.claim(caller(), task.pk)["claim_token"])) == ACCEPTED


def test_three_lost_claims_expire_a_task_and_released_ones_do_not_count(tasks: Tasks) -> None:
    (task,) = tasks()
    for _ in range(4):
        claim.release(caller(), task.pk, claim.claim(caller(), task.pk)["claim_token"])
    for _ in range(3):
        claim.claim(caller(), task.pk)
        lapse(task)
        expire.sweep()
    assert status(task) == "expired"
    assert AgentTask.objects.get(pk=task.pk).error_class == expire.LOST
    assert is_due(task.job)
    assert refused(lambda: claim.claim(caller(), task.pk)) == Refusal.EXPIRED


def test_the_end_of_a_task_decides_before_the_sweep_does(tasks: Tasks) -> None:
    (task,) = tasks()
    token = claim.claim(caller(), task.pk)["claim_token"]
    overdue(task)
    assert send(task, body(token)) == Refusal.EXPIRED
    assert refused(lambda: claim.heartbeat(caller(), task.pk, token)) == Refusal.EXPIRED
    assert claim.listed(caller()) == []
    assert AgentSubmission.objects.get().late_by_ms is not None
    assert status(task) == "in_progress"
    assert expire.sweep() == 1
    assert status(task) == "expired"
    assert AgentSubmission.objects.count() == 1


def test_a_task_ends_a_minute_before_the_deadline_of_its_review(settings: Any) -> None:
    (task,) = add_tasks(waiting_job(minutes=20))
    assert abs(task.job.deadline_at - task.expires_at - timedelta(minutes=1)) < timedelta(seconds=2)
    settings.AGENT_TASK_TIMEOUT_MINUTES = 5
    (task,) = add_tasks(waiting_job(minutes=20))
    assert abs(task.expires_at - timezone.now() - timedelta(minutes=5)) < timedelta(seconds=2)


def test_the_same_submission_has_the_same_answer_and_another_one_is_refused(tasks: Tasks) -> None:
    (task,) = tasks()
    token = claim.claim(caller(), task.pk)["claim_token"]
    assert send(task, body(token)) == ACCEPTED
    again = json.dumps(json.loads(body(token)), indent=2, sort_keys=True).encode()
    assert send(task, again) == Answer(SubmissionVerdict.ACCEPTED, is_duplicate=True)
    assert send(task, body(token, error="x")) == Refusal.DONE
    assert send(task, b"{") == Refusal.DONE


@pytest.mark.parametrize("at", ["submission", "message"])
def test_a_submission_that_dies_before_its_commit_leaves_nothing_and_is_accepted_again(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Result, record and message of the stage are one transaction (check 8 of agents)."""
    (task,) = tasks()
    token = claim.claim(caller(), task.pk)["claim_token"]
    dies = {"submission": (submit.AgentSubmission.objects, "create"), "message": (rows, "wake_if_last")}[at]
    with monkeypatch.context() as patch:
        patch.setattr(*dies, Mock(side_effect=ConnectionError("killed")))
        with pytest.raises(ConnectionError):
            send(task, body(token))
    task.refresh_from_db()
    assert (task.status, task.result) == ("in_progress", [])
    assert not AgentSubmission.objects.exists()
    assert not is_due(task.job)
    assert send(task, body(token)) == ACCEPTED
    assert is_due(task.job)


def test_the_second_unusable_result_is_accepted_as_a_failure(tasks: Tasks) -> None:
    task, other = tasks(2)
    token = claim.claim(caller(), task.pk)["claim_token"]
    lapse_before = AgentTask.objects.get(pk=task.pk).lease_expires_at
    broken = b'{"claim_token": "' + token.encode() + b'", "data": '
    assert send(task, broken) == Answer(SubmissionVerdict.NOT_JSON)
    assert AgentTask.objects.get(pk=task.pk).lease_expires_at >= lapse_before
    bad = body(token, data="bad")
    assert send(task, bad) == Answer(SubmissionVerdict.ACCEPTED_AS_FAILED)
    assert send(task, bad) == Answer(SubmissionVerdict.ACCEPTED_AS_FAILED, is_duplicate=True)
    stored = AgentTask.objects.get(pk=task.pk)
    assert (stored.status, stored.error_class) == ("failed", "llm_parse_error")
    token = claim.claim(caller(), other.pk)["claim_token"]
    first = send(other, body(token, data="bad"))
    assert first == Answer(SubmissionVerdict.INVALID, details=({"path": "data", "message": "is bad"},))
    assert send(other, body(token)) == ACCEPTED


def test_garbage_without_the_token_costs_nobody_a_claim(tasks: Tasks) -> None:
    (task,) = tasks()
    claim.claim(caller(), task.pk)
    for _ in range(3):
        assert send(task, b"{" * 100) == Answer(SubmissionVerdict.NOT_JSON)
        assert send(task, b"[" * 100_000) == Answer(SubmissionVerdict.NOT_JSON)
        assert send(task, b'{"\\ud800": 1}') == Answer(SubmissionVerdict.NOT_JSON)
        assert send(task, b"[]") == Refusal.CLAIM_LOST
        assert send(task, body("crt_" + "x" * 43, data="bad")) == Refusal.CLAIM_LOST
        assert send(task, b"{", OTHER) == Refusal.NOT_FOUND
    stored = AgentTask.objects.get(pk=task.pk)
    assert (stored.status, stored.parse_failures) == ("in_progress", 0)


def test_refused_submissions_are_recorded_up_to_a_bound(tasks: Tasks) -> None:
    (task,) = tasks()
    token = claim.claim(caller(), task.pk)["claim_token"]
    for _ in range(submit.MAX_REFUSED + 5):
        send(task, b"{}")
    assert AgentSubmission.objects.count() == submit.MAX_REFUSED
    assert send(task, body(token)) == ACCEPTED
    assert AgentSubmission.objects.filter(verdict="accepted").count() == 1


def test_a_failure_of_the_agent_is_tried_once_more_and_a_token_limit_is_not(tasks: Tasks) -> None:
    first, second = tasks(2)
    said = {"success": False, "data": None, "error": "the model crashed"}
    token = claim.claim(caller(), first.pk)["claim_token"]
    assert send(first, body(token, **said)) == ACCEPTED
    assert status(first) == "pending"
    assert send(first, body(token, **said)) == Answer(SubmissionVerdict.ACCEPTED, is_duplicate=True)
    assert status(first) == "pending"
    token = claim.claim(caller(), first.pk)["claim_token"]
    assert send(first, body(token, **said)) == ACCEPTED
    assert status(first) == "failed"
    token = claim.claim(caller(), second.pk)["claim_token"]
    assert send(second, body(token, **{**said, "error": "token_limit_exceeded"})) == ACCEPTED
    assert AgentTask.objects.get(pk=second.pk).error_class == "token_limit"
    assert is_due(first.job)


def test_a_refusal_is_final_and_a_refused_connection_is_not(tasks: Tasks) -> None:
    for task, error, ends_as in zip(
        tasks(3),
        ("refused", "refused: a policy of the model", "the model: connection refused"),
        ("failed", "failed", "pending"),
        strict=True,
    ):
        token = claim.claim(caller(), task.pk)["claim_token"]
        assert send(task, body(token, success=False, data=None, error=error)) == ACCEPTED
        assert status(task) == ends_as, error


def test_tasks_of_a_cancelled_review_are_cancelled_in_its_commit(tasks: Tasks) -> None:
    first, second = tasks(2)
    token = claim.claim(caller(), first.pk)["claim_token"]
    assert pipeline.cancel(first.job_id, "ann", "not needed")
    assert (status(first), status(second)) == ("cancelled", "cancelled")
    assert claim.heartbeat(caller(), first.pk, token) == (None, True)
    assert send(first, body(token)) == Refusal.EXPIRED
    assert refused(lambda: claim.claim(caller(), second.pk)) == Refusal.EXPIRED


def test_a_key_sees_tasks_only_whose_every_directory_it_may_see(tasks: Tasks) -> None:
    (task,) = tasks()
    AgentTask.objects.filter(pk=task.pk).update(directories=[MAIN, OTHER])
    assert claim.listed(caller(MAIN)) == []
    assert len(claim.listed(caller(MAIN, OTHER))) == 1
    assert len(claim.listed(caller("//depot/"))) == 1
    calls: list[Callable[[UUID], object]] = [
        lambda task_id: claim.claim(caller(MAIN), task_id),
        lambda task_id: claim.heartbeat(caller(MAIN), task_id, "x"),
        lambda task_id: claim.release(caller(MAIN), task_id, "x"),
        lambda task_id: submit.submit(caller(MAIN), task_id, lambda: b"{", read),
    ]
    for call in calls:
        for task_id in (task.pk, uuid4()):
            assert refused(lambda call=call, task_id=task_id: call(task_id)) == Refusal.NOT_FOUND  # type: ignore[misc]


DIRECTORIES = [
    ["//a/"], ["//a/b/"], ["//a/b/c/"], ["//a/b/c/d/e/"], ["//a/b/c/d/f/", "//a/b/c/x/"], ["//a/b/", "//c/"],
    ["//ab/b/"], ["//c/d/"], ["//c/d/e/", "//c/f/"], ["//a b/\u00e9/c/"],
]  # fmt: skip


PREFIXES = [
    ("//",), ("//a/",), ("//a/b/",), ("//a/b/c/",), ("//a/b/c/d/",), ("//a/b/c/d/e/f/",), ("//ab/",),
    ("//a/b/", "//c/"), ("//a/", "//a/b/c/"), ("//a/b/c/d/e/", "//a/b/c/d/f/"), ("//c/d/", "//c/f/"),
    ("//a b/\u00e9/",), ("//a", "//x/"), ("//a/b",), ("//none/",),
]  # fmt: skip


def test_a_key_is_listed_and_handed_exactly_what_lies_below_its_prefixes() -> None:
    for directories in DIRECTORIES:
        (task,) = add_tasks(waiting_job())
        AgentTask.objects.filter(pk=task.pk).update(directories=directories)
    rows = list(AgentTask.objects.order_by("created_at", "ordinal", "id"))
    for prefixes in PREFIXES:
        seen = [
            task.pk for task in rows if all(directory.startswith(prefixes) for directory in task.directories)
        ]
        assert [task["id"] for task in claim.listed(caller(*prefixes))] == seen, prefixes
        assert [task["id"] for task in claim.listed(caller(*prefixes), limit=2)] == seen[:2], prefixes
        with transaction.atomic():
            taken = iter(partial(claim.claim_next, caller(*prefixes)), None)
            assert [task["id"] for task in taken if task is not None] == seen, prefixes
            transaction.set_rollback(True)


@pytest.mark.parametrize("limit", [1, 3, 7, 20, 100])
def test_a_key_of_many_prefixes_is_listed_the_oldest_of_all_of_them(limit: int) -> None:
    """Tasks that come in turns, in one block, and all of one directory; some are claimed."""
    job, later = waiting_job(), timezone.now()
    made = add_tasks(job, 60)
    owners = [*(f"//a/b{n % 8}/x/" for n in range(24)), *["//a/b3/"] * 20, *["//c/d/e/"] * 10, *["//z/"] * 6]
    for number, (task, owner) in enumerate(zip(made, owners, strict=True)):
        AgentTask.objects.filter(pk=task.pk).update(
            directories=[owner], created_at=later + timedelta(seconds=number // 3)
        )
    for task in made[2:30:7]:
        claim.claim(caller("//"), task.pk)
    prefixes = (*(f"//a/b{n}/" for n in range(8)), "//c/d/e/", "//none/")
    expected = [
        task["id"] for task in claim.listed(caller("//")) if not made[-6:].count(AgentTask(pk=task["id"]))
    ]
    assert len(expected) == 54 - 4
    assert [task["id"] for task in claim.listed(caller(*prefixes), limit=limit)] == expected[:limit]


def test_ancestors_hold_every_prefix_once_and_no_deeper_than_the_indexes() -> None:
    assert rows.ancestors_of(["//"]) is None
    assert rows.ancestors_of(["//a/", "//a/b/", "//c/d/", "//e/f/g/h/", "//e/f/g/i/"]) == {
        1: ["a"], 2: ["c/d"], 3: ["e/f/g"],
    }  # fmt: skip
    assert rows.ancestors_of([]) == {1: [], 2: [], 3: []}


def test_a_replayed_stage_asks_again_for_what_is_missing_only() -> None:
    job = waiting_job()
    first, second, third = add_tasks(job, 3)
    send(first, body(claim.claim(caller(), first.pk)["claim_token"]))
    overdue(second)
    expire.sweep()
    again = add_tasks(job, 3)
    assert [task.pk for task in again] == [first.pk, second.pk, third.pk]
    assert [task.status for task in again] == ["completed", "pending", "pending"]
    changed = add_tasks(job, 1, digest="other")
    assert [task.status for task in changed] == ["pending", "cancelled", "cancelled"]


def test_operators_expire_tasks_and_offer_them_again_with_a_reason(tasks: Tasks) -> None:
    (task,) = tasks()
    token = claim.claim(caller(), task.pk)["claim_token"]
    with pytest.raises(ValueError, match="reason"):
        expire.offer_again(task.pk, "ann", " ")
    assert expire.offer_again(task.pk, "ann", "the runner hangs") == ""
    assert send(task, body(token)) == Refusal.CLAIM_LOST
    assert expire.expire_now(task.pk, "ann", "no runner today") == ""
    assert is_due(task.job)
    assert expire.expire_now(task.pk, "ann", "twice") == "it is not open"
    assert expire.offer_again(task.pk, "ann", "a runner is there") == ""
    assert status(task) == "pending"
    pipeline.cancel(task.job_id, "ann", "x")
    assert expire.offer_again(task.pk, "ann", "x") == "its stage does not wait for it any more"
    events = JobEvent.objects.filter(job=task.job, kind="task_decided")
    assert [event.actor for event in events] == ["ann"] * 3


def test_the_sweep_makes_a_stage_due_that_missed_its_last_task(tasks: Tasks) -> None:
    (task,) = tasks()
    AgentTask.objects.filter(pk=task.pk).update(status="expired", finished_at=timezone.now())
    assert not is_due(task.job)
    expire.sweep()
    assert is_due(task.job)


def test_the_sweep_reads_no_work_that_waits_for_something_else(tasks: Tasks) -> None:
    """The sweep finds the tasks by their expiry and reads no messages of the outbox.

    A backlog of a million has a hundred thousand messages that are due later; a history has as many tasks.
    """
    tasks(100)
    AgentTask.objects.update(
        status="expired", finished_at=timezone.now(), expires_at=timezone.now() - timedelta(hours=1)
    )
    tasks()
    later = timezone.now() + timedelta(hours=1)
    for number in range(60):
        factories.StageRunFactory(stage="notify")
        factories.OutboxMessageFactory(aggregate_id=10**9 + number, available_at=later)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE agent_tasks; ANALYZE stage_runs; ANALYZE outbox_messages")
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        cursor.execute(f"EXPLAIN {expire._STAGES}")
        plan = str(cursor.fetchall())
    assert "Index Scan using agent_tasks_by_expiry" in plan
    assert "outbox_due" not in plan


def test_no_index_of_stages_is_written_with_the_parts_of_a_review() -> None:
    """No index of stages has `progress` among its columns or in its condition.

    With such an index each write of a part would write to all indexes (no HOT update).
    """
    found = prepared.rows(
        "SELECT pg_get_indexdef(indexrelid) AS made FROM pg_index WHERE indrelid = 'stage_runs'::regclass"
    )
    assert [row["made"] for row in found if "progress" in row["made"]] == []
    assert len(found) > 2


def test_the_database_refuses_transitions_that_are_not_in_the_table(tasks: Tasks) -> None:
    (task,) = tasks()
    with pytest.raises(ProgrammingError):
        AgentTask.objects.filter(pk=task.pk).update(status="completed")


def test_payload_and_result_are_emptied_when_they_expire(
    tasks: Tasks, settings: Any, monkeypatch: Any
) -> None:
    (task,) = tasks()
    send(task, body(claim.claim(caller(), task.pk)["claim_token"]))
    AgentTask.objects.update(
        created_at=F("created_at") - timedelta(days=settings.ARTIFACT_REDACTED_TTL_DAYS + 1)
    )
    assert dict(expired_copies.overdue(timedelta(0)))["agent_tasks"] == 1
    monkeypatch.setattr(expired_copies, "_ran_at", None)
    assert expired_copies.empty_expired() == 1
    stored = AgentTask.objects.get(pk=task.pk)
    assert (stored.payload, stored.result) == ([], [])
    assert dict(expired_copies.overdue(timedelta(0))) == {}

    add_tasks(task.job)  # its stage is replayed
    monkeypatch.setattr(expired_copies, "_ran_at", None)
    assert expired_copies.empty_expired() == 0
    assert claim.claim(caller(), task.pk)["payload"]


def test_directories_hold_all_paths_without_those_inside_another() -> None:
    paths = ["//d/a/x.py", "//d/a/b/y.py", "//d/ab/z.py", "//d/a/w.py"]
    assert directories_of(paths) == ["//d/a/", "//d/ab/"]


def test_agents_are_configured_where_a_valid_key_covers_the_change() -> None:
    assert not offer.is_configured([MAIN])
    key = factories.ApiKeyFactory(role="agent", prefixes=["//depot/main/..."])
    assert offer.is_configured([MAIN, MAIN + "sub/"])
    assert not offer.is_configured([MAIN, OTHER])
    type(key).objects.update(revoked_at=timezone.now())
    assert not offer.is_configured([MAIN])
