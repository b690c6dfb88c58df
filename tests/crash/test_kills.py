"""SIGKILL of any process at any moment: the work ends, and is told once."""

from __future__ import annotations

import time
from itertools import count, product

import pytest
from django.db import connection

from criticizer.db.embedded import EmbeddedServer
from criticizer.models import OutboxMessage
from criticizer.queue import outbox
from reviews.models import Attempt, ReviewJob, StageRun
from tests.crash.conftest import World
from tests.stack import eventually

pytestmark = pytest.mark.cluster(seconds=30)

SECONDS = 90.0  # a busy machine starts a cluster anew in this time
POINTS = [
    "fetch-before",
    "fetch-after",
    "llm-before",
    "llm-after",
    "notify-before",
    "notify-before-send",
    "notify-after-send",
    "notify-after",
]


ROLES = ["idle", "pusher", "monitor"]
QUEUES = outbox.queues()
LOAD = 12  # jobs at once


@pytest.mark.cluster(seconds=60)
@pytest.mark.parametrize("world", [{"commits": 2 * len(QUEUES) + 2}], indirect=True)
def test_a_kill_of_each_kind_loses_nothing(world: World) -> None:
    """Each stage has done its work when its worker dies; each queue and each role is met once."""
    jobs = count()
    for point in ("fetch-after", "llm-after", "notify-after-send"):
        _killed_at(world, point, next(jobs))
    for queue, role in zip(QUEUES, ROLES, strict=True):
        _idle_killed(world, queue, role, next(jobs))
    for queue, whole in zip(QUEUES, [False, True], strict=False):
        _head_killed(world, queue, whole, next(jobs))


@pytest.mark.long
@pytest.mark.cluster(seconds=60)
@pytest.mark.parametrize("world", [{"commits": LOAD + 4 + LOAD, "delay": 0.3}], indirect=True)
def test_whole_clusters_killed_and_a_restarted_database_under_load_lose_nothing(
    world: World, postgres: EmbeddedServer
) -> None:
    """And a clean stop, at the end, gives every attempt back."""
    _whole_clusters_killed(world)
    asked = len(world.llm.requests)
    world.llm.server.delay = 3.0
    _calls_in_flight_survive_a_restart(world, postgres, LOAD, asked)
    asked = len(world.llm.requests)
    world.llm.server.delay = 60.0
    _clean_stop(world, LOAD + 4, asked)


@pytest.mark.long
@pytest.mark.parametrize("world", [{"commits": len(POINTS)}], indirect=True)
def test_a_worker_killed_at_each_point_of_a_stage(world: World) -> None:
    """One installation has a job for each point: what a kill leaves behind meets the next job."""
    for number, point in enumerate(POINTS):
        _killed_at(world, point, number)


def _killed_at(world: World, point: str, number: int) -> None:
    world.crash_at(point)
    job = world.post(number)
    assert world.succeeded(job), point
    world.seen_once(number + 1)
    assert not (world.points / point).exists(), f"the worker did not die at {point}"
    stage = point.split("-")[0]
    attempts = Attempt.objects.filter(stage_run__job_id=job, stage_run__stage=stage).order_by("id")
    # The first losses of a worker that many stages share cost none of them an attempt (G141).
    lost = "given_back" if stage == "llm" else "lost"
    assert [attempt.outcome for attempt in attempts] == [lost, "succeeded"], point
    assert not OutboxMessage.objects.exists(), point


@pytest.mark.long
@pytest.mark.parametrize("world", [{"commits": len(ROLES) * len(QUEUES)}], indirect=True)
def test_idle_processes_killed(world: World) -> None:
    for number, (queue, role) in enumerate(product(QUEUES, ROLES)):
        _idle_killed(world, queue, role, number)


def _idle_killed(world: World, queue: str, role: str, number: int) -> None:
    processes = eventually(lambda: world.stack.named(queue, role))
    for process in processes:
        world.stack.kill(process)
    job = world.post(number)
    # An idle worker may hold the lock of the queue: the watchdog then ends the cluster.
    assert world.succeeded(job, seconds=SECONDS), (queue, role)
    world.seen_once(number + 1)


@pytest.mark.long
@pytest.mark.parametrize("world", [{"commits": 2 * len(QUEUES)}], indirect=True)
def test_the_head_of_a_cluster_killed(world: World) -> None:
    for number, (queue, whole) in enumerate(product(QUEUES, [False, True])):
        _head_killed(world, queue, whole, number)


def _head_killed(world: World, queue: str, whole: bool, number: int) -> None:
    eventually(lambda: world.stack.named(queue, "pusher"), SECONDS)
    main, sentinel = world.stack.main(queue), world.stack.sentinel(queue)
    family = [*sentinel.children(), sentinel, main]
    if whole:
        world.stack.kill(main)
    world.stack.kill(sentinel)
    # No process is left behind to run tasks unguarded.
    eventually(lambda: not any(process.is_running() and process.status() != "zombie" for process in family))
    job = world.post(number)
    assert world.succeeded(job, seconds=SECONDS), (queue, whole)
    world.seen_once(number + 1)


@pytest.mark.long
@pytest.mark.parametrize("world", [{"commits": LOAD, "delay": 0.3}], indirect=True)
def test_a_whole_cluster_killed_under_load_loses_nothing(world: World) -> None:
    _whole_clusters_killed(world)


def _whole_clusters_killed(world: World) -> None:
    jobs = [world.post(number) for number in range(LOAD)]
    eventually(lambda: ReviewJob.objects.filter(status="succeeded").count() >= 2, SECONDS)
    for queue in outbox.queues():
        world.stack.kill(world.stack.main(queue))
    assert world.succeeded(*jobs, seconds=SECONDS)
    world.seen_once(LOAD)


@pytest.mark.long
@pytest.mark.parametrize("world", [{"commits": LOAD, "delay": 0.3}], indirect=True)
def test_postgresql_restarted_under_load(world: World, postgres: EmbeddedServer) -> None:
    jobs = [world.post(number) for number in range(LOAD)]
    eventually(lambda: ReviewJob.objects.filter(status="succeeded").count() >= 2, SECONDS)
    postgres.kill()
    time.sleep(1)
    postgres.start()
    connection.close()
    assert world.succeeded(*jobs, seconds=SECONDS)
    world.seen_once(LOAD)


@pytest.mark.long
@pytest.mark.parametrize("world", [{"commits": LOAD, "delay": 60.0}], indirect=True)
def test_a_clean_stop_gives_every_attempt_back(world: World) -> None:
    _clean_stop(world)


def _clean_stop(world: World, first: int = 0, asked: int = 0) -> None:
    jobs = [world.post(number) for number in range(first, first + LOAD)]
    eventually(lambda: len(world.llm.requests) == asked + LOAD, SECONDS)
    world.stack.stop()
    runs = StageRun.objects.filter(job_id__in=jobs, stage="llm")
    assert {(run.status, run.attempts) for run in runs} == {("pending", 0)}
    outcomes = Attempt.objects.filter(stage_run__in=runs).values_list("outcome", flat=True)
    assert list(outcomes) == ["given_back"] * LOAD


@pytest.mark.long
@pytest.mark.parametrize("world", [{"commits": 4, "delay": 3.0}], indirect=True)
def test_calls_in_flight_survive_a_restart_of_postgresql(world: World, postgres: EmbeddedServer) -> None:
    _calls_in_flight_survive_a_restart(world, postgres)


def _calls_in_flight_survive_a_restart(
    world: World, postgres: EmbeddedServer, first: int = 0, asked: int = 0
) -> None:
    jobs = [world.post(number) for number in range(first, first + 4)]
    eventually(lambda: len(world.llm.requests) == asked + 4, SECONDS)
    postgres.kill()
    postgres.start()
    connection.close()
    assert world.succeeded(*jobs, seconds=SECONDS)
    assert len(world.llm.requests) == asked + 4  # nobody paid twice
