"""Stages that only wait, as long as real ones do for a source, a model and a receiver."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reviews.pipeline import StageClaim

FETCH_SECONDS = 0.25
LLM_SECONDS = 2.0
NOTIFY_SECONDS = 0.5


def fetch(claim: StageClaim) -> None:
    time.sleep(FETCH_SECONDS)


async def llm(claim: StageClaim) -> None:
    await asyncio.sleep(LLM_SECONDS)


def notify(claim: StageClaim) -> None:
    time.sleep(NOTIFY_SECONDS)
