"""Tasks that wait for agents, offered as the stage llm does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from criticizer.models import OutboxMessage
from reviews.agents import offer
from reviews.agents.rows import Caller
from reviews.models import AgentTask, ReviewJob, StageRun
from reviews.states import AgentTaskType, Stage, StageStatus
from tests import factories, scripted
from tests.pipeline.conftest import make_due, post, work  # noqa: F401  fixtures

MAIN, OTHER = "//depot/main/", "//depot/other/"
PAYLOAD = {"type": "review_chunk", "instructions": "review", "request": "x", "answer_schema": {}}
CHUNK: dict[str, Any] = {"type": "review_chunk", "findings": []}


@pytest.fixture(autouse=True)
def _scripted() -> Iterator[None]:
    scripted.reset()
    yield
    scripted.reset()


def caller(*prefixes: str, key: str = "ci") -> Caller:
    return Caller(key, prefixes or (MAIN,))


def waiting_job(minutes: float = 60, **fields: Any) -> ReviewJob:
    """Return a job in progress whose stage llm has given its attempt back to wait for agents."""
    deadline = timezone.now() + timedelta(minutes=minutes)
    job: ReviewJob = factories.ReviewJobFactory(status="in_progress", deadline_at=deadline, **fields)
    factories.StageRunFactory(job=job, stage=Stage.FETCH, status=StageStatus.SUCCEEDED)
    run = factories.StageRunFactory(job=job, stage=Stage.LLM, progress={"agents": "1"})
    factories.StageRunFactory(job=job, stage=Stage.NOTIFY)
    message = factories.OutboxMessageFactory(aggregate_id=run.pk, queue="llm")
    OutboxMessage.objects.filter(pk=message.pk).update(available_at=deadline)
    return job


def add_tasks(job: ReviewJob, count: int = 1, directory: str = MAIN, digest: str = "d") -> list[AgentTask]:
    """Offer tasks of a job's stage llm; return them in their order."""
    run = StageRun.objects.get(job=job, stage=Stage.LLM)
    drafts = [offer.Draft(AgentTaskType.REVIEW_CHUNK, n, f"{digest}{n}", PAYLOAD) for n in range(count)]
    with transaction.atomic():
        offer.offer(job.pk, run.pk, drafts, [directory])
    return list(AgentTask.objects.filter(job=job).order_by("ordinal"))


def is_due(job: ReviewJob) -> bool:
    """Say whether the stage llm of a job is due now."""
    run = StageRun.objects.get(job=job, stage=Stage.LLM)
    return OutboxMessage.objects.filter(aggregate_id=run.pk, available_at__lte=timezone.now()).exists()


@pytest.fixture
def tasks() -> Callable[..., list[AgentTask]]:
    """Make a waiting job with tasks."""
    return lambda count=1, **more: add_tasks(waiting_job(), count, **more)
