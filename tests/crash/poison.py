"""Stages for the poison job: the llm stage of one changelist kills its worker, every time.

On the first attempt it waits until all its neighbours are in flight in the same worker, and they
wait to be killed: every one of them loses that attempt.
"""

from __future__ import annotations

import asyncio
import os
import signal

from reviews.models import StageRun
from reviews.pipeline import StageClaim
from reviews.pipeline.async_executor import in_thread

POISON = "poison"
NEIGHBOURS = 199


def fetch(claim: StageClaim) -> None:
    """Do nothing."""


async def llm(claim: StageClaim) -> None:
    if claim.changelist_id == POISON:
        while claim.attempt == 1 and await in_thread(_in_flight) <= NEIGHBOURS:
            await asyncio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(600 if claim.attempt == 1 else 0.01)


def notify(claim: StageClaim) -> None:
    """Do nothing."""


def _in_flight() -> int:
    return StageRun.objects.filter(stage="llm", status="running").count()
