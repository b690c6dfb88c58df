"""Stages for the poison job: the llm stage of one changelist kills its worker, every time.

The first time it waits until all its neighbours are in flight in the same worker, and they wait to be
killed: every one of them loses its worker.
"""

from __future__ import annotations

import asyncio
import os
import signal

from reviews.models import Attempt, StageRun
from reviews.pipeline import StageClaim
from reviews.pipeline.async_executor import in_thread

POISON = "poison"
NEIGHBOURS = 199


def fetch(claim: StageClaim) -> None:
    """Do nothing."""


async def llm(claim: StageClaim) -> None:
    is_first = await in_thread(Attempt.objects.filter(stage_run=claim.stage_run_id).count) == 1
    if claim.changelist_id == POISON:
        while is_first and await in_thread(_in_flight) <= NEIGHBOURS:
            await asyncio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(600 if is_first else 0.01)


def notify(claim: StageClaim) -> None:
    """Do nothing."""


def _in_flight() -> int:
    return StageRun.objects.filter(stage="llm", status="running").count()
