"""Stages that do nothing, for the product's own pipeline.

Used by BENCHMARK_STAGES=benchmarks.stages.
"""

from __future__ import annotations

from benchmarks import retries
from criticizer.resilience.failures import Component, ErrorClass, RetryableFailure
from reviews.pipeline import StageClaim


def fetch(claim: StageClaim) -> None:
    seconds = retries.seconds_of(claim.changelist_id)
    if seconds is not None and claim.attempt == 1:
        raise RetryableFailure(
            ErrorClass.RATE_LIMITED, Component.SOURCE, "asked to come back later", retry_after_seconds=seconds
        )


def llm(claim: StageClaim) -> None:
    """Do nothing."""


def notify(claim: StageClaim) -> None:
    """Do nothing."""
