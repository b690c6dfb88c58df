"""The real stages, with a place right before each where a test can let something happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reviews.pipeline import StageClaim
from reviews.stages import fetch as real_fetch
from reviews.stages import llm as real_llm
from reviews.stages import notify as real_notify

BEFORE: dict[str, Callable[[], object]] = {}


def reset() -> None:
    BEFORE.clear()


def _before(stage: str) -> None:
    if stage in BEFORE:
        BEFORE[stage]()


def fetch(claim: StageClaim) -> Any:
    _before("fetch")
    return real_fetch.run(claim)


def llm(claim: StageClaim) -> Any:
    _before("llm")
    return real_llm.run(claim)


def notify(claim: StageClaim) -> Any:
    _before("notify")
    return real_notify.run(claim)
