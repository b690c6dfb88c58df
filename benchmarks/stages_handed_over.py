"""The stages of `benchmarks.stages`, each going back through the queue even on the same one."""

from __future__ import annotations

from typing import Any

from benchmarks.stages import fetch, llm, notify
from reviews import pipeline
from reviews.pipeline import executor

__all__ = ["fetch", "llm", "notify"]


class _Announcing:
    """The pipeline, without carrying on in the same worker."""

    def __getattr__(self, name: str) -> Any:
        return getattr(pipeline, name)

    @staticmethod
    def record(*arguments: Any, **options: Any) -> Any:
        return pipeline.record(*arguments, **{**options, "inline": False})


executor.pipeline = _Announcing()  # type: ignore[assignment]
