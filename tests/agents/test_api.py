"""The API of agents: status codes in their order, over HTTP."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from http import client as http_client
from typing import Any

import httpx
import pytest
from django.db import connection
from django.utils import timezone
from structlog.testing import capture_logs

from criticizer.models import OutboxMessage
from reviews import pipeline
from reviews.agents import expire
from reviews.api import parsers
from reviews.api.throttling import ApiKeyThrottle
from reviews.intake import api_keys, review_requests
from reviews.models import AgentSubmission, AgentTask, CoverageRow, FindingRow, JobEvent, ReviewJob, StageRun
from tests.agents.conftest import CHUNK, add_tasks, is_due, waiting_job
from tests.api.conftest import ApiClient
from tests.stack import Stack, eventually, web_of_module

pytestmark = pytest.mark.django_db
URL = "/api/v1/agent-tasks/"
JSON = {"Content-Type": "application/json"}
FINDING = {
    "file": "a.py", "quote": "total = price * count", "severity": "high", "title": "Overflow",
    "message": "It overflows.",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh_throttle() -> None:
    ApiKeyThrottle.reset()


@pytest.fixture
def agent(db: None) -> ApiClient:
    return ApiClient(api_keys.create("ci", "agent", ["//depot/main/..."]))


@pytest.fixture
def stranger(db: None) -> ApiClient:
    return ApiClient(api_keys.create("other", "agent", ["//depot/other/..."]))


def claimed(agent: ApiClient, task: AgentTask) -> str:
    response: Any = agent.post_json(f"{URL}{task.pk}/claim/", {"agent": "ci-1"})
    assert response.status_code == 200, response.content
    return str(response.json()["claim_token"])


def result(token: str, **more: Any) -> dict[str, Any]:
    return {"claim_token": token, "success": True, "data": CHUNK, **more}


def told(response: Any) -> tuple[int, str]:
    return response.status_code, response.json().get("error") or response.json().get("status")


def test_a_task_from_the_list_to_its_result(agent: ApiClient) -> None:
    (task,) = add_tasks(waiting_job())
    listed: Any = agent.get(URL)
    assert listed["Cache-Control"] == "no-store"
    (found,) = listed.json()["tasks"]
    assert found["id"] == str(task.pk)
    assert set(found) == {"id", "type", "job", "status", "created_at", "expires_at"}
    token = claimed(agent, task)
    assert agent.get(URL).json() == {"tasks": [], "more": False}  # type: ignore[attr-defined]
    beat: Any = agent.post_json(f"{URL}{task.pk}/heartbeat/", {"claim_token": token, "progress": "half"})
    assert beat.json()["cancelled"] is False
    answer: Any = agent.post_json(f"{URL}{task.pk}/result/", result(token, metadata={"duration_ms": 5}))
    assert answer.json() == {"status": "accepted", "task_id": str(task.pk)}
    assert is_due(task.job)


def test_claim_next_takes_the_oldest_and_answers_204_when_there_is_none(agent: ApiClient) -> None:
    first, second = add_tasks(waiting_job(), 2)
    for task in (first, second):
        response: Any = agent.post_json(f"{URL}claim/", {"type": ["review_chunk"]})
        assert response.json()["id"] == str(task.pk)
        assert response.json()["payload"]["request"] == "x"
    response = agent.post_json(f"{URL}claim/", {})
    assert (response.status_code, response.content) == (204, b"")


def test_a_foreign_task_and_one_that_does_not_exist_have_the_same_answer(stranger: ApiClient) -> None:
    (task,) = add_tasks(waiting_job())
    for call, body in {
        "claim/": {}, "heartbeat/": {"claim_token": "x"}, "release/": {"claim_token": "x"},
        "result/": result("x"),
    }.items():  # fmt: skip
        foreign, unknown = (
            stranger.post_json(f"{URL}{task_id}/{call}", body) for task_id in (task.pk, uuid.uuid4())
        )
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.content == unknown.content
        assert dict(foreign.items()) | {"X-Request-ID": ""} == dict(unknown.items()) | {"X-Request-ID": ""}
        assert json.loads(foreign.content)["message"] == "Task not found."
    raw: Any = stranger.post(f"{URL}{task.pk}/result/", b"{", content_type="application/json")
    assert raw.status_code == 404
    assert AgentTask.objects.get(pk=task.pk).parse_failures == 0
    assert not AgentSubmission.objects.exists()


def test_the_first_rule_that_applies_decides_the_status(agent: ApiClient) -> None:
    first, second, third = add_tasks(waiting_job(), 3)
    address = f"{URL}{first.pk}/result/"
    token = claimed(agent, first)
    assert told(agent.post_json(f"{URL}{first.pk}/claim/", {})) == (409, "TASK_CLAIMED")
    assert told(agent.post_json(address, result("crt_other"))) == (409, "CLAIM_LOST")
    assert told(agent.post_json(address, {"success": True})) == (409, "CLAIM_LOST")
    bad: Any = agent.post_json(address, result(token, data={"type": "review_chunk", "findings": [{}]}, x=1))
    assert told(bad) == (400, "RESULT_INVALID")
    assert {each["path"] for each in bad.json()["details"]} == {"x"}
    assert told(agent.post_json(address, result(token))) == (200, "accepted")
    assert told(agent.post_json(address, result(token))) == (200, "accepted")
    assert told(agent.post_json(address, result(token, error="x"))) == (409, "TASK_DONE")
    assert told(agent.post_json(f"{URL}{first.pk}/claim/", {})) == (409, "TASK_DONE")
    token = claimed(agent, second)
    address = f"{URL}{second.pk}/result/"
    assert told(agent.post_json(address, result(token, data='{"\\ud800": NaN}'))) == (400, "RESULT_NOT_JSON")
    assert told(agent.post_json(address, result(token, data=json.dumps(CHUNK)))) == (200, "accepted")
    token = claimed(agent, third)
    AgentTask.objects.filter(pk=third.pk).update(expires_at=timezone.now() - timedelta(milliseconds=1))
    for body in (b"{", json.dumps(result(token)).encode(), json.dumps(result("x")).encode()):
        late: Any = agent.post(f"{URL}{third.pk}/result/", body, content_type="application/json")
        assert told(late) == (410, "TASK_EXPIRED")


def _swept(task: AgentTask) -> None:
    AgentTask.objects.filter(pk=task.pk).update(expires_at=timezone.now())
    assert expire.sweep() == 1


def _overdue(task: AgentTask) -> None:
    AgentTask.objects.filter(pk=task.pk).update(expires_at=timezone.now())


def _stopped_by_operator(task: AgentTask) -> None:
    assert expire.expire_now(task.pk, "ann", "OPS-1") == ""


def _cancelled(task: AgentTask) -> None:
    assert pipeline.cancel(task.job_id, "ann", "done")


@pytest.mark.parametrize("end", [_swept, _overdue, _stopped_by_operator, _cancelled])
def test_scenario_12_a_late_result_is_answered_410_recorded_and_changes_nothing(
    agent: ApiClient, end: Callable[[AgentTask], None]
) -> None:
    (task,) = add_tasks(waiting_job())
    token = claimed(agent, task)
    end(task)
    before = _everything()
    for body in (result(token), result(token, data="{"), result("crt_other")):
        with capture_logs() as logs:
            late: Any = agent.post_json(f"{URL}{task.pk}/result/", body)
        assert late.status_code == 410
        assert late.json() == {
            "error": "TASK_EXPIRED", "code": "CRITICIZER_E464",
            "message": "Task has expired. Result rejected.", "details": {},
        }  # fmt: skip
        (line,) = [one for one in logs if one["event"] == "agent_result_late"]
        assert (line["log_level"], line["task"]) == ("info", str(task.pk))
        assert line["late_by_ms"] >= 0
        assert datetime.fromisoformat(line["expired_at"]) <= timezone.now()
        assert token not in json.dumps(logs, default=str)
    assert _everything() == before
    recorded = AgentSubmission.objects.filter(task=task).order_by("id")
    assert [(one.verdict, one.key) for one in recorded] == [("expired", "ci")] * 3
    assert all(one.late_by_ms is not None and one.late_by_ms >= 0 for one in recorded)


def test_a_result_after_the_last_one_is_answered_409_recorded_and_changes_nothing(agent: ApiClient) -> None:
    (task,) = add_tasks(waiting_job())
    token = claimed(agent, task)
    assert told(agent.post_json(f"{URL}{task.pk}/result/", result(token))) == (200, "accepted")
    before = _everything()
    again: Any = agent.post_json(f"{URL}{task.pk}/result/", result(token, error="x"))
    assert (again.status_code, again.json()["message"]) == (409, "Task already completed by another run.")
    assert _everything() == before
    assert [one.verdict for one in AgentSubmission.objects.order_by("id")] == ["accepted", "done"]


def _everything() -> list[Any]:
    """Return every row that an answer could change, but for what is recorded of submissions."""
    kinds = (AgentTask, ReviewJob, StageRun, OutboxMessage, FindingRow, CoverageRow, JobEvent)
    return [list(kind._default_manager.order_by("pk").values()) for kind in kinds]


def test_each_type_of_result_has_its_schema(agent: ApiClient) -> None:
    chunk = {"type": "review_chunk", "findings": [FINDING]}
    checked = {
        "type": "verification", "verdict": "drifted", "confidence": 0.9, "reasoning": "x",
        "evidence_files": ["../../etc/passwd", "/etc/passwd"], "specific_mismatch": None,
    }  # fmt: skip
    claims = {
        "type": "claim_extraction",
        "claims": [
            {"claim_text": "x", "claim_type": "path", "source_file": "README.md", "source_line": 1,
             "confidence": 1, "keywords": []}
        ],
    }  # fmt: skip
    fix = {
        "type": "fix_generation", "file_path": "a.md", "line_start": 1, "line_end": 2, "new_text": "x",
        "explanation": "y",
    }  # fmt: skip
    tasks = add_tasks(waiting_job(), 8)
    cases = [
        (chunk, {**chunk, "findings": [{**FINDING, "title": "x" * 201}]}),
        (checked, {**checked, "confidence": 1.1}),
        (claims, {**claims, "claims": [{}]}),
        (fix, {**fix, "line_start": "1"}),
    ]
    for place, (good, bad) in enumerate(cases):
        for task, data, status in ((tasks[2 * place], good, 200), (tasks[2 * place + 1], bad, 400)):
            AgentTask.objects.filter(pk=task.pk).update(type=good["type"], ordinal=100 + place * 2 + status)
            answer: Any = agent.post_json(f"{URL}{task.pk}/result/", result(claimed(agent, task), data=data))
            assert answer.status_code == status, (good["type"], answer.content)
    (stored,) = AgentTask.objects.get(pk=tasks[2].pk).result
    assert (stored["verdict"], stored["evidence_files"]) == ("uncertain", [])


def test_a_result_is_redacted_before_it_is_stored(agent: ApiClient) -> None:
    (task,) = add_tasks(waiting_job())
    secret = "ghp_" + "a1B2" * 9
    finding = {**FINDING, "message": f"The key {secret} is in the code.", "quote": "x" * 200_000}
    data = {"type": "review_chunk", "findings": [finding]}
    said = {"model_used": f"m {secret}", "tokens_used": 5, "cost_usd": 0.1}
    token = claimed(agent, task)
    assert told(agent.post_json(f"{URL}{task.pk}/result/", result(token, data=data, metadata=said)))[0] == 200
    stored = AgentTask.objects.get(pk=task.pk)
    assert secret not in json.dumps([stored.result, stored.metadata])
    assert "REDACTED" in stored.result[0]["findings"][0]["problem"]


def test_a_body_over_the_limit_is_refused_unread_and_a_depth_bomb_is_no_json(agent: ApiClient) -> None:
    (task,) = add_tasks(waiting_job())
    claimed(agent, task)
    large: Any = agent.post(f"{URL}{task.pk}/result/", b"x" * (513 * 1024), content_type="application/json")
    assert told(large) == (413, "PAYLOAD_TOO_LARGE")
    for bomb in (b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 90_000):
        deep: Any = agent.post(f"{URL}{task.pk}/result/", bomb, content_type="application/json")
        assert told(deep) == (400, "RESULT_NOT_JSON")
    foreign: Any = agent.post(f"{URL}{uuid.uuid4()}/result/", b"x" * (513 * 1024), content_type="text/plain")
    assert foreign.status_code == 404


@pytest.mark.parametrize("number", ["9" * 4000, "-" + "9" * 4000, "1e400", "9" * 5000, '"0.12"'])
def test_a_number_beyond_every_type_or_as_text_is_refused(agent: ApiClient, number: str) -> None:
    verification, chunk = add_tasks(waiting_job(), 2)
    AgentTask.objects.filter(pk=verification.pk).update(type="verification")
    judged = {"type": "verification", "verdict": "uncertain", "reasoning": "r", "evidence_files": []}
    for task, body in (
        (verification, {"data": {**judged, "confidence": "HERE"}}),
        (chunk, {"metadata": {"cost_usd": "HERE"}}),
    ):
        raw = json.dumps(result(claimed(agent, task), **body)).replace('"HERE"', number)
        answer: Any = agent.post(f"{URL}{task.pk}/result/", raw, content_type="application/json")
        assert told(answer)[1] in {"RESULT_INVALID", "RESULT_NOT_JSON"}


def test_parameters_of_the_list_are_checked(agent: ApiClient) -> None:
    for query in ("wait=26", "wait=x", "type=other", "job=0", "agent=x"):
        response: Any = agent.get(f"{URL}?{query}")
        assert response.status_code == 400, query
    (task,) = add_tasks(waiting_job())
    add_tasks(waiting_job())
    found: Any = agent.get(f"{URL}?job={task.job_id}&type=review_chunk&wait=3")
    assert [each["id"] for each in found.json()["tasks"]] == [str(task.pk)]


def test_a_superseded_review_tells_the_agent_and_refuses_its_result(agent: ApiClient) -> None:
    job = waiting_job(changelist_id="777")
    (task,) = add_tasks(job)
    token = claimed(agent, task)
    newer = review_requests.ReviewRequest("k2", "777", 2, rerun=True)
    made = review_requests.request_review(newer)
    assert ReviewJob.objects.get(pk=job.pk).status == "superseded"
    beat: Any = agent.post_json(f"{URL}{task.pk}/heartbeat/", {"claim_token": token})
    assert beat.json() == {"lease_expires_at": None, "cancelled": True}
    assert told(agent.post_json(f"{URL}{task.pk}/result/", result(token))) == (410, "TASK_EXPIRED")
    assert made.job_id is not None
    assert made.job_id != job.pk


# -- through the real server -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def web(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[Stack]:
    """Return the web server, which serves all tests of the module."""
    with web_of_module(tmp_path_factory, django_db_blocker) as made:
        yield made


def http(web: Stack, key: str) -> httpx.Client:
    limits = httpx.Limits(max_connections=300)
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=web.base_url, headers=headers, trust_env=False, timeout=60, limits=limits)


@pytest.mark.cluster
@pytest.mark.django_db(transaction=True)
def test_a_body_over_its_limit_is_answered_413_with_the_limit_before_it_is_read(web: Stack) -> None:
    key = api_keys.create("ci", "agent", ["//depot/main/..."])
    (task,) = add_tasks(waiting_job())
    limits = {f"{task.pk}/result/": "512 KiB"} | dict.fromkeys(
        ["claim/", *(f"{task.pk}/{call}/" for call in ("claim", "heartbeat", "release"))], "64 KiB"
    )
    for path, limit in limits.items():
        head = (
            f"POST {URL}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\n"
        )
        least = (512 if path.endswith("result/") else 64) * 1024 + 1
        for told in ("Content-Length: 99000000\r\n\r\n{", f"Content-Length: {least}\r\n\r\n{{"):
            with socket.create_connection(("127.0.0.1", web.port), timeout=30) as connected:
                connected.sendall((head + told).encode())  # and never the rest
                answer = http_client.HTTPResponse(connected)
                answer.begin()
                said = json.loads(answer.read())
            assert (answer.status, said["error"]) == (413, "PAYLOAD_TOO_LARGE"), path
            assert said["message"] == f"The body is over {limit}, the limit of this address.", path
    with http(web, key) as client:
        for path, limit in limits.items():
            large = iter([b"x" * 4096] * 200)  # without a length
            answered = client.post(f"{URL}{path}", content=large, headers=JSON)
            assert (answered.status_code, limit in answered.json()["message"]) == (413, True), path
        whole = client.post(
            f"{URL}claim/", content=b'{"agent": "ci"}'.ljust(parsers.MAX_BODY_BYTES), headers=JSON
        )
        assert whole.status_code == 200
        result_of = f"{URL}{task.pk}/result/"
        body = json.dumps(result(whole.json()["claim_token"])).encode().ljust(512 * 1024)
        assert client.post(result_of, content=body, headers=JSON).json()["status"] == "accepted"


@pytest.mark.cluster
@pytest.mark.django_db(transaction=True)
def test_fifty_agents_at_once_share_tasks_without_a_collision(web: Stack) -> None:
    key = api_keys.create("ci", "agent", ["//depot/main/..."])
    tasks = add_tasks(waiting_job(), 31)
    with http(web, key) as client, ThreadPoolExecutor(50) as pool:
        one = f"{URL}{tasks[0].pk}/claim/"
        found = list(pool.map(lambda _: client.post(one, json={}), range(50)))
        assert sorted(answer.status_code for answer in found) == [200] + [409] * 49
        found = list(pool.map(lambda _: client.post(f"{URL}claim/", json={}), range(50)))
        assert sorted(answer.status_code for answer in found) == [200] * 30 + [204] * 20
        taken = [answer.json() for answer in found if answer.status_code == 200]
        assert len({task["id"] for task in taken}) == 30
        # The same submission ten times in parallel: one result, one message.
        task = taken[0]
        body = {"claim_token": task["claim_token"], "success": True, "data": CHUNK}
        address = f"{URL}{task['id']}/result/"
        found = list(pool.map(lambda _: client.post(address, json=body), range(10)))
        assert [answer.status_code for answer in found] == [200] * 10
        assert sum(answer.json().get("duplicate", False) for answer in found) == 9
        assert client.post(address, json={**body, "error": "x"}).status_code == 409
    assert AgentSubmission.objects.filter(task=task["id"], verdict="accepted").count() == 1
    assert OutboxMessage.objects.count() == 1


@pytest.mark.cluster
@pytest.mark.django_db(transaction=True)
def test_waiting_agents_hold_no_connection_and_leave_the_server_to_others(web: Stack) -> None:
    key = api_keys.create("ci", "agent", ["//depot/main/..."])
    with http(web, key) as client, ThreadPoolExecutor(200) as pool:
        waits = [pool.submit(client.get, f"{URL}?wait=25") for _ in range(200)]
        eventually(lambda: sum(wait.done() for wait in waits) >= 190)  # the others do wait
        in_use = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        with connection.cursor() as cursor:
            cursor.execute(in_use)
            assert cursor.fetchone()[0] <= 12  # the threads' own, however many clients wait
        assert client.get("/livez").status_code == 200
        # On a busy machine the first may have waited their 25 s by now.
        waits += [pool.submit(client.get, f"{URL}?wait=25") for _ in range(20)]
        (task,) = add_tasks(waiting_job())
        answers = [wait.result() for wait in waits]
    assert {answer.status_code for answer in answers} == {200}
    waited = [answer for answer in answers if "Retry-After" not in answer.headers]
    assert any(answer.json()["tasks"] for answer in waited)
    assert pipeline.cancel(task.job_id, "ann", "done")
