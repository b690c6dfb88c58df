"""SIGKILL of any process at any moment: the work ends, and is told once."""

from __future__ import annotations

import time
from itertools import product

import pytest
from django.db import connection

from criticizer.models import OutboxMessage
from criticizer.queue import outbox
from reviews.models import Attempt, ReviewJob, StageRun
from tests.crash.conftest import World
from tests.stack import eventually

pytestmark = pytest.mark.cluster(seconds=30)

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


@pytest.mark.parametrize("world", [{"commits": len(POINTS)}], indirect=True)
def test_a_worker_killed_at_each_point_of_a_stage(world: World) -> None:
    """One installation, one job for each point: what a kill leaves behind would meet the next job."""
    for number, point in enumerate(POINTS):
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


ROLES = ["idle", "pusher", "monitor"]
QUEUES = outbox.queues()


@pytest.mark.parametrize("world", [{"commits": len(ROLES) * len(QUEUES)}], indirect=True)
def test_idle_processes_killed(world: World) -> None:
    for number, (queue, role) in enumerate(product(QUEUES, ROLES)):
        processes = eventually(lambda queue=queue, role=role: world.stack.named(queue, role))
        for process in processes:
            world.stack.kill(process)
        job = world.post(number)
        # An idle worker may hold the lock of the queue: the watchdog then ends the cluster.
        assert world.succeeded(job, seconds=60), (queue, role)
        world.seen_once(number + 1)


@pytest.mark.parametrize("world", [{"commits": 2 * len(QUEUES)}], indirect=True)
def test_the_head_of_a_cluster_killed(world: World) -> None:
    for number, (queue, whole) in enumerate(product(QUEUES, [False, True])):
        eventually(lambda queue=queue: world.stack.named(queue, "pusher"), 60)
        main, sentinel = world.stack.main(queue), world.stack.sentinel(queue)
        family = [*sentinel.children(), sentinel, main]
        if whole:
            world.stack.kill(main)
        world.stack.kill(sentinel)
        # No process is left behind to run tasks unguarded.
        eventually(
            lambda family=family: (
                not any(process.is_running() and process.status() != "zombie" for process in family)
            ),
            10,
        )
        job = world.post(number)
        assert world.succeeded(job, seconds=60), (queue, whole)
        world.seen_once(number + 1)


@pytest.mark.parametrize("world", [{"commits": 12, "delay": 0.3}], indirect=True)
def test_a_whole_cluster_killed_under_load_loses_nothing(world: World) -> None:
    jobs = [world.post(number) for number in range(12)]
    eventually(lambda: ReviewJob.objects.filter(status="succeeded").count() >= 2)
    for queue in outbox.queues():
        world.stack.kill(world.stack.main(queue))
    assert world.succeeded(*jobs, seconds=90)
    world.seen_once(12)


@pytest.mark.parametrize("world", [{"commits": 12, "delay": 0.3}], indirect=True)
def test_postgresql_restarted_under_load(world: World, postgres: object) -> None:
    jobs = [world.post(number) for number in range(12)]
    eventually(lambda: ReviewJob.objects.filter(status="succeeded").count() >= 2)
    postgres.kill()  # type: ignore[attr-defined]
    time.sleep(1)
    postgres.start()  # type: ignore[attr-defined]
    connection.close()
    assert world.succeeded(*jobs, seconds=90)
    world.seen_once(12)


@pytest.mark.parametrize("world", [{"commits": 12, "delay": 60.0}], indirect=True)
def test_a_clean_stop_gives_every_attempt_back(world: World) -> None:
    jobs = [world.post(number) for number in range(12)]
    eventually(lambda: len(world.llm.requests) == 12)
    world.stack.stop()
    runs = StageRun.objects.filter(job_id__in=jobs, stage="llm")
    assert {(run.status, run.attempts) for run in runs} == {("pending", 0)}
    outcomes = Attempt.objects.filter(stage_run__in=runs).values_list("outcome", flat=True)
    assert list(outcomes) == ["given_back"] * 12


@pytest.mark.parametrize("world", [{"commits": 4, "delay": 3.0}], indirect=True)
def test_calls_in_flight_survive_a_restart_of_postgresql(world: World, postgres: object) -> None:
    jobs = [world.post(number) for number in range(4)]
    eventually(lambda: len(world.llm.requests) == 4)
    postgres.kill()  # type: ignore[attr-defined]
    postgres.start()  # type: ignore[attr-defined]
    connection.close()
    assert world.succeeded(*jobs, seconds=60)
    assert len(world.llm.requests) == 4  # nobody paid twice
