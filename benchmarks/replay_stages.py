"""Stages of replayed jobs: the review stores its coverage.

Used by BENCHMARK_STAGES=benchmarks.replay_stages.
"""

from __future__ import annotations

from collections.abc import Callable

from reviews.models import CoverageRow
from reviews.pipeline import StageClaim


def fetch(claim: StageClaim) -> None:
    """Do nothing."""


def llm(claim: StageClaim) -> Callable[[], None]:
    def write() -> None:
        CoverageRow.objects.create(job_id=claim.job_id, file="//bench/a.py", status="reviewed")

    return write


def notify(claim: StageClaim) -> None:
    """Do nothing."""
