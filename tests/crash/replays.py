"""Stages of replayed jobs (TEST_STAGES=tests.crash.replays)."""

from benchmarks.replay_stages import fetch, llm, notify

__all__ = ["fetch", "llm", "notify"]
