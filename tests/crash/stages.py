"""The real stages with crash points, at which the worker kills itself once.

A file named after the point asks for it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from notifications import config
from reviews.pipeline import StageClaim
from reviews.stages import fetch as real_fetch
from reviews.stages import llm as real_llm
from reviews.stages import notify as real_notify

POINTS = Path(os.environ.get("CRASH_POINTS", "/nonexistent"))


def crash(point: str) -> None:
    """Die here if the test asked for it; the file goes first, so that it happens once."""
    try:
        (POINTS / point).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class _Dying:
    """A provider whose worker dies around the send."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def send(self, message: Any) -> str:
        crash("notify-before-send")
        notification_id: str = self._provider.send(message)
        crash("notify-after-send")
        return notification_id


def fetch(claim: StageClaim) -> Any:
    crash("fetch-before")
    write = real_fetch.run(claim)
    crash("fetch-after")
    return write


async def llm(claim: StageClaim) -> Any:
    crash("llm-before")
    write = await real_llm.run(claim)
    crash("llm-after")
    return write


def notify(claim: StageClaim) -> Any:
    crash("notify-before")
    real_notify.config = _DyingConfig  # type: ignore[assignment]
    write = real_notify.run(claim)
    crash("notify-after")
    return write


class _DyingConfig:
    @staticmethod
    def providers() -> dict[str, Any]:
        return {channel: _Dying(provider) for channel, provider in config.providers().items()}
