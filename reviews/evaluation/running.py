"""Reviews of prepared changes with any model client."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from criticizer.resilience.failures import ErrorClass, PermanentFailure
from reviews.evaluation.figures import Result
from reviews.evaluation.matching import Remark
from reviews.reviewers.model import ModelClient
from reviews.reviewers.prepare import Prepared, ReviewLimits
from reviews.reviewers.review import review_prepared
from reviews.reviewers.review_context import ReviewContext

# A review that fails so has found nothing; any other failure ends the measuring.
_OF_THE_CHANGE = {
    ErrorClass.SCHEMA_INVALID,
    ErrorClass.POLICY_REJECTED,
    ErrorClass.REDACTION_BLOCKED,
    ErrorClass.TOKEN_LIMIT,
}


@dataclass(frozen=True, slots=True)
class Ready:
    """A prepared change, the remarks that its review should make, and secrets that it holds."""

    name: str
    prepared: Prepared
    remarks: tuple[Remark, ...]
    secrets: tuple[str, ...] = ()


class Models(NamedTuple):
    """The model that finds, and the one that tries to refute, or None for no second pass."""

    finder: ModelClient
    verifier: ModelClient | None


async def reviewed(
    changes: Sequence[Ready],
    models_of: Callable[[str], Models],
    limits: ReviewLimits,
    seed: int,
    at_once: int = 1,
) -> list[Result]:
    """Review changes, `at_once` at a time, each with the models of its name. Raises as `review_prepared`."""
    slots = asyncio.Semaphore(at_once)

    async def one(ready: Ready) -> Result:
        async with slots:
            return await _reviewed(ready, models_of(ready.name), limits, seed)

    tasks = [asyncio.ensure_future(one(ready)) for ready in changes]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _reviewed(ready: Ready, models: Models, limits: ReviewLimits, seed: int) -> Result:
    # The marker follows from name and seed, so that equal requests are equal to the byte.
    mark = hashlib.sha256(f"{seed} {ready.name}".encode()).hexdigest()[:12]
    around = ReviewContext(boundary=lambda: f"data-{mark}", is_last_attempt=True, verifier=models.verifier)
    try:
        outcome = await review_prepared(ready.prepared, models.finder, limits, {}, around)
    except PermanentFailure as failure:
        if failure.error_class not in _OF_THE_CHANGE:
            raise
        return Result(ready.name, (), ready.remarks, failed=len(ready.prepared.chunks))
    return Result(
        name=ready.name,
        # What a page folds away is not shown.
        findings=tuple(f for f in outcome.review.findings if f.source == "llm" and not f.folded),
        remarks=ready.remarks,
        leaked=sum(secret in prompt for prompt in outcome.prompts for secret in ready.secrets),
        failed=sum(outcome.failed.values()),
        calls=outcome.review.usage.calls,
        characters=sum(map(len, outcome.prompts)),
    )
