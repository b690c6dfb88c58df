"""PostgreSQL is away for a while under a hundred jobs, with real processes on every side.

What is accepted goes on by itself, nothing is told twice, and the web says 503 and means it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest
from django.db import connection

from criticizer.db.embedded import EmbeddedServer
from criticizer.models import OutboxMessage
from deadletters.models import DeadLetter
from reviews.models import Attempt, ReviewJob, StageRun
from tests.crash.conftest import SCALE, World
from tests.stack import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.long]

JOBS = 100
OUTAGE_SECONDS = 30.0 if SCALE >= 1 else 10.0
PAGES = ["/", "/login/", "/reviews/1/", "/admin/", "/admin/login/", "/nowhere/"]
API = ["/api/v1/reviews/", "/api/v1/reviews/1/", "/api/v1/nothing/", "/api/docs/", "/api/schema/"]
SERVED_ALWAYS = {"/livez": 200, "/readyz": 503}
GENEROUS_SECONDS = 10.0  # 2 s are asked for; this machine may be busy with other things


@dataclass
class Poster:
    """A client that posts reviews of distinct commits under distinct keys, one after another.

    It runs until it is told to stop.
    """

    client: httpx.Client
    commits: Iterator[str]
    name: str
    stop: threading.Event
    recorded: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    strange: list[str] = field(default_factory=list)

    def run(self) -> None:
        number, commit = 0, next(self.commits)
        while not self.stop.is_set():
            number += 1
            key = f"post-{self.name}-{number}"
            body = {
                "idempotency_key": key,
                "changelist_id": f"git:demo@{commit}",
                "recipients": ["mail:bob@example.com"],
            }
            answer = self.client.post("/api/v1/reviews/", json=body)
            if answer.status_code in {200, 201} and answer.json()["idempotency_key"] == key:
                self.recorded.add(key)
                commit = next(self.commits)
            elif answer.status_code == 503 and answer.json()["code"] != "CRITICIZER_E460":
                # The commit is posted again under another key: were it recorded, that would show.
                self.refused.add(key)
            else:
                self.strange.append(f"{key}: {answer.status_code} {answer.text[:200]}")
            time.sleep(0.05)


@pytest.mark.parametrize("world", [{"commits": 3 * JOBS, "delay": 3.0, "with_web": True}], indirect=True)
def test_a_lost_database_under_a_hundred_jobs(world: World, postgres: EmbeddedServer) -> None:
    with contextlib.ExitStack() as clients:
        lose_and_compare(world, postgres, clients)


def lose_and_compare(world: World, postgres: EmbeddedServer, clients: contextlib.ExitStack) -> None:
    free = iter(world.commits[JOBS:])
    stop = threading.Event()
    posters = [Poster(clients.enter_context(world.stack.api()), free, name, stop) for name in ("a", "b", "c")]
    for poster in posters:
        poster.client.timeout = httpx.Timeout(60)  # a commit in doubt is answered when the database is back
    with_key = clients.enter_context(world.stack.api("reviewer"))
    page = clients.enter_context(httpx.Client(base_url=world.stack.base_url, trust_env=False, timeout=30))
    stylesheet = page.get("/login/").text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    assert page.get(stylesheet).status_code == 200
    jobs = [world.post(number) for number in range(JOBS)]
    threads = [threading.Thread(target=poster.run) for poster in posters]
    *first, late = threads
    eventually(lambda: len(world.llm.requests) >= JOBS // 2)
    for thread in first:  # only now: the commits last for the outage and for what follows
        thread.start()
    eventually(lambda: all(len(poster.recorded) >= 5 for poster in posters[: len(first)]))

    postgres.kill()
    late.start()  # the commits of the first may both be in doubt now: these wait for the database
    until = time.monotonic() + OUTAGE_SECONDS
    while time.monotonic() < until:
        for path, status in SERVED_ALWAYS.items():
            assert page.get(path).status_code == status, path
        assert page.get(stylesheet).status_code == 200
        for path in PAGES:
            assert_unavailable(page.get(path), "text/html")
        for path in API:
            assert_unavailable(page.get(path), "application/json")
            assert_unavailable(with_key.get(path), "application/json")
        time.sleep(0.2)
    postgres.start()
    back = time.monotonic()
    connection.close()
    recovered = [seconds_until_served(page, path, back) for path in ("/login/", "/api/v1/reviews/", "/")]

    time.sleep(2)  # requests beside the recovery
    stop.set()
    for thread in threads:
        thread.join()
    recorded = set().union(*(poster.recorded for poster in posters))
    refused = set().union(*(poster.refused for poster in posters))
    rows = ReviewJob.objects.filter(idempotency_key__startswith="post-")
    assert [poster.strange for poster in posters] == [[], [], []]
    assert len(refused) > OUTAGE_SECONDS  # the outage was seen
    assert set(rows.values_list("idempotency_key", flat=True)) == recorded
    assert not recorded & refused

    jobs += rows.values_list("pk", flat=True)
    assert world.succeeded(*jobs, seconds=180)
    assert not OutboxMessage.objects.exists()
    assert not DeadLetter.objects.exists()
    told_once(world, jobs)
    repeated = explained_repeats(jobs)
    print(
        f"outage {OUTAGE_SECONDS:g} s; web back after {max(recovered):.2f} s; "
        f"{len(recorded)} posts recorded, {len(refused)} refused; "
        f"{len(world.llm.requests)} model calls for {len(jobs)} jobs; "
        f"repeated attempts: {repeated or 'none'}; jobs done {time.monotonic() - back:.1f} s after the return"
    )
    assert max(recovered) < GENEROUS_SECONDS


def assert_unavailable(answer: httpx.Response, content_type: str) -> None:
    assert answer.status_code == 503, answer.url
    assert answer.headers["Content-Type"].startswith(content_type), answer.url
    assert int(answer.headers["Retry-After"]) > 0
    if content_type == "application/json":
        body = answer.json()
        assert set(body) == {"error", "code", "message", "details"}
        assert body["error"] == "DATABASE_UNAVAILABLE"
    else:
        assert "Not available right now" in answer.text
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]


def seconds_until_served(client: httpx.Client, path: str, since: float) -> float:
    eventually(lambda: client.get(path).status_code != 503)
    return time.monotonic() - since


def told_once(world: World, jobs: list[int]) -> None:
    """Assert that each recipient of each job was told exactly once."""
    mails = world.mails()
    assert len(mails) == len(set(mails)) == len(jobs)
    assert len(world.receiver.processed) == JOBS
    assert set(world.receiver.processed.values()) == {1}


def explained_repeats(jobs: list[int]) -> dict[str, int]:
    """Return why attempts were repeated; each failed one must say that it was the database.

    One that waited for its turn and was given back did nothing, so it is no repeat.
    """
    runs = StageRun.objects.filter(job_id__in=jobs)
    assert {run.status for run in runs} == {"succeeded"}
    assert max(run.attempts for run in runs) <= 3
    reasons: dict[str, int] = {}
    attempts = Attempt.objects.filter(stage_run__in=runs)
    waited = attempts.filter(outcome="given_back", error_class="")
    for attempt in attempts.exclude(outcome="succeeded").exclude(pk__in=waited):
        reason = f"{attempt.outcome} {attempt.error_class}".strip()
        reasons[reason] = reasons.get(reason, 0) + 1
    assert set(reasons) <= {"failed DATABASE_UNAVAILABLE", "lost WORKER_LOST"}, reasons
    return reasons


@pytest.mark.parametrize("world", [{"commits": 3, "delay": 2.0}], indirect=True)
def test_calls_that_outlive_their_lease_while_the_database_is_away_are_not_repeated(
    world: World, postgres: EmbeddedServer
) -> None:
    """A result that waits for the database keeps its lease, so nobody repeats the work."""
    jobs = [world.post(number) for number in range(3)]
    eventually(lambda: len(world.llm.requests) == 3)
    postgres.kill()
    time.sleep(4 * 30 * SCALE if SCALE < 1 else 40)  # longer than a lease
    postgres.start()
    connection.close()
    assert world.succeeded(*jobs, seconds=90)
    world.seen_once(3)
    assert len(world.llm.requests) == 3  # nobody paid twice
    calls = Attempt.objects.filter(stage_run__job_id__in=jobs, stage_run__stage="llm")
    assert [call.outcome for call in calls] == ["succeeded"] * 3


@pytest.mark.parametrize("world", [{"commits": 2}], indirect=True)
def test_workers_killed_while_the_database_is_away_are_replaced(
    world: World, postgres: EmbeddedServer
) -> None:
    """Guarantee G485: the worker that holds the queue's lock may be among them."""
    assert world.succeeded(world.post(0))
    postgres.kill()
    eventually(lambda: "dequeue_failed" in world.stack.logs())
    for process in world.stack.named("stages", "idle"):
        world.stack.kill(process)
    postgres.start()
    connection.close()
    assert world.succeeded(world.post(1), seconds=60)
    world.seen_once(2)
