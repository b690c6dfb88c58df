"""The reference agent as a process, with the real server and a loopback model server."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.db import transaction

from reviews.agents import expire, offer
from reviews.intake import api_keys
from reviews.models import AgentSubmission, AgentTask, StageRun
from reviews.reviewers.document_prompt import AGENT_SYSTEM, verification_schema
from reviews.states import AgentTaskType, Stage
from tests.agents.conftest import CHUNK, OTHER, add_tasks, is_due, waiting_job
from tests.fakes.llm import FakeLlm, Reply
from tests.stack import Stack, eventually, web_of_module

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.cluster,
]
URL = "/api/v1/agent-tasks/"
SCALE = "0.02"  # of leases: twelve seconds


@pytest.fixture(scope="module")
def web(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[Stack]:
    """Return the web server, which serves all tests of the module."""
    with web_of_module(tmp_path_factory, django_db_blocker, RETRY_TIME_SCALE=SCALE) as made:
        yield made


@pytest.fixture
def key(transactional_db: None) -> str:
    return api_keys.create("ci", "agent", ["//depot/main/..."])


def agent(web: Stack, key: str, *options: str, idle: str = "1") -> subprocess.Popen[str]:
    # No settings and no database: only what a CI job has.
    environment = {
        "PATH": os.environ["PATH"],
        "CRITICIZER_AGENT_KEY": key,
        "RETRY_TIME_SCALE": SCALE,
        "SECRET_OF_CI": "x",
    }
    command = [sys.executable, "-m", "criticizer", "agent", "--url", web.base_url, "--exit-when-idle", idle]
    return subprocess.Popen(
        [*command, *options], env=environment, cwd=settings.BASE_DIR, stderr=subprocess.PIPE, text=True
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def model(llm: FakeLlm) -> tuple[str, ...]:
    return ("--llm-base-url", llm.base_url, "--llm-model", "m")


def test_the_agent_answers_by_a_model_and_corrects_an_answer_once(web: Stack, key: str) -> None:
    first, second = add_tasks(waiting_job(), 2)
    with FakeLlm() as llm:
        llm.script(Reply(answer={"findings": [{"severity": "urgent"}]}))
        code, said = finished(agent(web, key, *model(llm)))
        assert "could not be used" in llm.requests[1].body["messages"][1]["content"]
    assert (code, "2 submitted" in said) == (0, True), said
    assert [AgentTask.objects.get(pk=task.pk).status for task in (first, second)] == ["completed"] * 2
    assert AgentTask.objects.get(pk=first.pk).metadata["model_used"]
    assert is_due(first.job)


@pytest.mark.long
def test_the_agent_answers_a_verification_by_its_schema(web: Stack, key: str) -> None:
    job = waiting_job()
    run = StageRun.objects.get(job=job, stage=Stage.LLM)
    payload = {
        "type": "verification", "instructions": AGENT_SYSTEM, "request": "Is it so?",
        "answer_schema": verification_schema(),
    }  # fmt: skip
    drafts = [offer.Draft(AgentTaskType.VERIFICATION, 0, "d", payload)]
    with transaction.atomic():
        offer.offer(job.pk, run.pk, drafts, ["//depot/main/"])
    answer = {
        "verdict": "drifted", "confidence": 0.9, "reasoning": "It waits five.",
        "evidence_files": ["//depot/main/a.py"], "specific_mismatch": "It waits one.", "suggested_fix": None,
        "quote_document": "It waits one.", "quote_code": "wait(5)",
    }  # fmt: skip
    with FakeLlm() as llm:
        llm.script(Reply(answer=answer))
        code, said = finished(agent(web, key, *model(llm)))
        assert "specific_mismatch" in llm.requests[0].body["messages"][0]["content"]
    assert (code, "1 submitted" in said) == (0, True), said
    task = AgentTask.objects.get(job=job)
    assert (task.status, task.result) == ("completed", [{"type": "verification", **answer}])
    assert is_due(job)


def test_the_agent_runs_a_command_without_the_credentials_around_it(
    web: Stack, key: str, tmp_path: Path
) -> None:
    (task,) = add_tasks(waiting_job())
    program = tmp_path / "work.py"
    seen = tmp_path / "seen"
    program.write_text(
        "import json, os, sys\n"
        f"open({str(seen)!r}, 'w').write(json.dumps([json.load(sys.stdin), dict(os.environ)]))\n"
        "print('Here it is: {\"findings\": []}')\n"
    )
    code, said = finished(agent(web, key, "--command", f"{sys.executable} {program}"))
    assert code == 0, said
    payload, environment = json.loads(seen.read_text())
    assert payload["request"] == "x"
    assert not {"CRITICIZER_AGENT_KEY", "SECRET_OF_CI"} & set(environment)
    assert AgentTask.objects.get(pk=task.pk).status == "completed"


def test_the_agent_stops_at_a_key_that_is_not_accepted_and_at_a_task_that_is_gone(
    web: Stack, key: str, tmp_path: Path
) -> None:
    code, said = finished(agent(web, "crz_" + "x" * 43, "--command", "true"))
    assert (code, "401" in said) == (1, True)
    trigger = api_keys.create("t", "trigger")
    code, said = finished(agent(web, trigger, "--command", "true"))
    assert (code, "403" in said) == (1, True)
    (task,) = add_tasks(waiting_job())
    running = agent(web, key, "--command", "sleep 60")
    eventually(lambda: AgentTask.objects.get(pk=task.pk).status == "in_progress")
    expire.cancel([task.job_id])
    code, said = finished(running)  # a heartbeat tells it, long before the command ends
    assert (code, "gone" in said) == (0, True), said


@pytest.mark.long
def test_two_agents_that_die_and_one_that_lies_leave_every_task_final_once(web: Stack, key: str) -> None:
    """Of 300 tasks each ends once, although two agents die and a third breaks every rule.

    The two are killed and started again at random.
    """
    jobs = [waiting_job() for _ in range(3)]
    tasks = [task for job in jobs for task in add_tasks(job, 100)]
    (foreign,) = add_tasks(waiting_job(), 1, directory=OTHER)
    lies: Counter[tuple[str, int]] = Counter()
    stop = threading.Event()
    chance = random.Random(7)

    def lie() -> None:
        with httpx.Client(
            base_url=web.base_url, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=60
        ) as client:
            while not stop.is_set():
                for name, answer in _lies(client, chance.choice(tasks).pk, foreign.pk):
                    lies[name, answer.status_code] += 1

    liar = threading.Thread(target=lie)
    kills = 0
    with FakeLlm() as llm:
        running = [agent(web, key, *model(llm), idle="600") for _ in range(2)]
        liar.start()
        try:
            began = time.monotonic()
            while AgentTask.objects.filter(job__in=jobs, status__in=("pending", "in_progress")).exists():
                assert time.monotonic() - began < 480
                time.sleep(chance.uniform(1, 3))
                expire.sweep()
                place = chance.randrange(2)
                running[place].kill()
                running[place].communicate()
                running[place] = agent(web, key, *model(llm), idle="600")
                kills += 1
        finally:
            stop.set()
            liar.join()
            for process in running:
                process.kill()
                process.communicate()
    ends = Counter(AgentTask.objects.filter(job__in=jobs).values_list("status", flat=True))
    accepted = AgentSubmission.objects.filter(verdict="accepted", task__job__in=jobs)
    print(f"kills={kills} ends={dict(ends)} lies={dict(lies)}")
    assert sum(ends.values()) == 300
    assert set(ends) <= {"completed", "expired", "failed"}
    assert ends["completed"] == accepted.filter(task__status="completed").values("task").distinct().count()
    per_task = Counter(accepted.filter(task__status="completed").values_list("task", flat=True))
    assert set(per_task.values()) <= {1}
    assert all(is_due(job) for job in jobs)
    assert kills >= 5
    assert {status for (name, status) in lies if name == "foreign"} == {404}
    assert {status for (name, status) in lies if name == "wrong token"} <= {409, 410}
    assert not any(status >= 500 for _, status in lies)
    assert AgentTask.objects.get(pk=foreign.pk).status == "pending"


def _lies(client: httpx.Client, task: uuid.UUID, foreign: uuid.UUID) -> Iterator[tuple[str, httpx.Response]]:
    result: Callable[[str], dict[str, Any]] = lambda token: {  # noqa: E731
        "claim_token": token, "success": True, "data": CHUNK,
    }  # fmt: skip
    wrong = "crt_" + "x" * 43
    yield "wrong token", client.post(f"{URL}{task}/result/", json=result(wrong))
    yield "garbage", client.post(f"{URL}{task}/result/", content=b'{"claim_token": "')
    yield "deep", client.post(f"{URL}{task}/result/", content=b"[" * 50_000)
    for call in ("claim", "heartbeat", "release", "result"):
        body = {"claim_token": wrong} if call in ("heartbeat", "release") else {}
        yield (
            "foreign",
            client.post(f"{URL}{foreign}/{call}/", json=result(wrong) if call == "result" else body),
        )
    claimed = client.post(f"{URL}{task}/claim/", json={"agent": "liar"})
    yield "claim", claimed
    if claimed.status_code == 200:
        token = claimed.json()["claim_token"]
        yield "invalid", client.post(f"{URL}{task}/result/", json={**result(token), "data": 1})
        yield "release", client.post(f"{URL}{task}/release/", json={"claim_token": token})
        yield "late", client.post(f"{URL}{task}/result/", json=result(token))
