"""Stages for the flood: each takes a little while."""

from __future__ import annotations

import asyncio
import time

from reviews.pipeline import StageClaim


def fetch(claim: StageClaim) -> None:
    time.sleep(0.1)


async def llm(claim: StageClaim) -> None:
    await asyncio.sleep(0.1)


def notify(claim: StageClaim) -> None:
    time.sleep(0.02)
