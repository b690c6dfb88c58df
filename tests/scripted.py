"""Stages whose behaviour a test writes down, for everything that is not about real stages."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from reviews.pipeline import StageClaim
from reviews.pipeline.executor import Written

Step = Callable[[StageClaim], Written] | BaseException | None
SCRIPT: dict[str, deque[Step]] = defaultdict(deque)
CALLS: list[tuple[str, int, int]] = []  # (stage, job, attempt)

STAGES = {
    "fetch": ("tests.scripted.fetch", "stages"),
    "llm": ("tests.scripted.llm", "stages"),
    "notify": ("tests.scripted.notify", "stages"),
}


def reset() -> None:
    SCRIPT.clear()
    CALLS.clear()


def _run(stage: str, claim: StageClaim) -> Written:
    CALLS.append((stage, claim.job_id, claim.attempt))
    step: Any = SCRIPT[stage].popleft() if SCRIPT[stage] else None
    if isinstance(step, BaseException):
        raise step
    return step(claim) if step else None


def fetch(claim: StageClaim) -> Written:
    return _run("fetch", claim)


def llm(claim: StageClaim) -> Written:
    return _run("llm", claim)


def notify(claim: StageClaim) -> Written:
    return _run("notify", claim)
