"""A dependency that is away: work waits for it, uses no budget and continues automatically."""

from __future__ import annotations

import os
import time

import pytest

from criticizer.models import Circuit, OutboxMessage
from deadletters.models import DeadLetter
from reviews.models import Attempt, ReviewJob, StageRun
from tests.crash.conftest import World
from tests.fakes.llm import Recorded, Reply, error
from tests.stack import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.long]
# OUTAGE_FULL=1 runs the outage at its whole length: ten minutes (scaled) under 200 jobs.
IS_FULL = bool(os.environ.get("OUTAGE_FULL"))
JOBS = 200 if IS_FULL else 50
# The breaker opens at the tenth failure of its window; an authentication failure at the third.
FIRST_FAILURES = 10
FIRST_REFUSALS = 3
OUTAGE_MINUTES = 10 if IS_FULL else 3


class Outage:
    """An outage of the model server: it answers with `reply` until `ends` is called."""

    def __init__(self, world: World, reply: Reply) -> None:
        self.reply: Reply | None = reply
        world.llm.server.respond = self._respond

    def _respond(self, request: Recorded) -> Reply | None:
        return self.reply

    def ends(self) -> None:
        self.reply = None


def _waiting() -> int:
    return OutboxMessage.objects.filter(queue="llm").count()


def _is_open() -> bool:
    return Circuit.objects.filter(name="llm:openai", state="open").exists()


def _failed_calls() -> int:
    return Attempt.objects.filter(stage_run__stage="llm", outcome="failed").count()


@pytest.mark.parametrize("world", [{"commits": JOBS, "scale": 0.05}], indirect=True)
def test_a_long_outage_of_the_model_costs_nobody_its_review(world: World) -> None:
    outage = Outage(world, error(503, "overloaded"))
    began = time.monotonic()
    jobs = [world.post(number) for number in range(JOBS)]
    eventually(_is_open, 60)
    eventually(lambda: _waiting() == JOBS, 60)
    time.sleep(max(0.0, OUTAGE_MINUTES * 60 * world.scale - (time.monotonic() - began)))
    assert _waiting() == JOBS
    assert _failed_calls() <= FIRST_FAILURES

    outage.ends()

    assert world.succeeded(*jobs, seconds=120)
    assert DeadLetter.objects.count() == 0
    assert _failed_calls() <= FIRST_FAILURES
    # One attempt a job, and nothing beyond the first failures, whoever they met.
    attempts = list(StageRun.objects.filter(stage="llm").values_list("attempts", flat=True))
    assert sum(attempts) <= JOBS + FIRST_FAILURES
    world.seen_once(JOBS)


@pytest.mark.parametrize("world", [{"commits": JOBS, "scale": 0.05}], indirect=True)
def test_a_refused_key_makes_a_handful_of_dead_letters_not_one_for_each_job(world: World) -> None:
    outage = Outage(world, error(401, "invalid key", "invalid_api_key"))
    jobs = [world.post(number) for number in range(JOBS)]
    eventually(_is_open, 60)
    eventually(lambda: _waiting() == JOBS - DeadLetter.objects.count(), 60)
    time.sleep(120 * world.scale)  # some cool-downs, each with its probe
    dead = DeadLetter.objects.count()
    assert 1 <= dead <= FIRST_REFUSALS
    assert set(DeadLetter.objects.values_list("error_class", flat=True)) == {"AUTH_DENIED"}

    outage.ends()  # the operator has renewed the key

    def others_are_done() -> bool:
        return ReviewJob.objects.filter(pk__in=jobs, status="succeeded").count() == JOBS - dead

    eventually(others_are_done, 120)
    assert DeadLetter.objects.count() == dead
