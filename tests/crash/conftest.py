"""A running installation with a git repository, a webhook receiver and a model server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reviews.intake.review_requests import ReviewRequest, request_review
from reviews.models import ReviewJob
from tests.fakes.llm import FakeLlm
from tests.fakes.webhook import WebhookReceiver
from tests.stack import Stack, eventually, git_repository, running

# Waits are a tenth of the real ones: a lease is 3 s. CRASH_TIME_SCALE=1 runs them as they are.
SCALE = float(os.environ.get("CRASH_TIME_SCALE", "0.1"))
LEASE = 30 * SCALE


@dataclass
class World:
    stack: Stack
    commits: list[str]
    receiver: WebhookReceiver
    llm: FakeLlm
    points: Path
    files: Path
    scale: float = SCALE

    def crash_at(self, point: str) -> None:
        (self.points / point).touch()

    def post(self, number: int = 0) -> int:
        """Request the review of a commit for a mailbox and a webhook; return the job's id."""
        result = request_review(
            ReviewRequest(
                f"key-{number}",
                f"git:demo@{self.commits[number]}",
                recipients=("mail:ann@example.com", f"webhook:{self.receiver.url}"),
            )
        )
        assert result.job_id is not None
        return result.job_id

    def succeeded(self, *jobs: int, seconds: float = LEASE + 60) -> bool:
        def done() -> bool:
            found = ReviewJob.objects.filter(pk__in=jobs).values_list("status", flat=True)
            return len(found) == len(jobs) and set(found) == {"succeeded"}

        return eventually(done, seconds)

    def mails(self) -> list[str]:
        return [path.name for path in (self.files / "mail").rglob("new/*")]

    def seen_once(self, jobs: int) -> None:
        """Assert that mailbox and receiver have each token exactly once."""
        mails = self.mails()
        assert len(mails) == jobs
        assert len(set(mails)) == jobs
        assert len(self.receiver.processed) == jobs
        assert set(self.receiver.processed.values()) == {1}


@pytest.fixture
def world(tmp_path: Path, transactional_db: Any, request: pytest.FixtureRequest) -> Iterator[World]:
    options = getattr(request, "param", {})
    repository, points, files = tmp_path / "repository", tmp_path / "points", tmp_path / "files"
    scale = options.get("scale", SCALE)
    commits = git_repository(repository, options.get("commits", 1))
    points.mkdir()
    files.mkdir()
    with WebhookReceiver() as receiver, FakeLlm(delay=options.get("delay", 0.0)) as llm:
        environment = {
            "RETRY_TIME_SCALE": str(scale),
            "CHANGE_SOURCES": "git",
            "GIT_REPOSITORIES": f"demo={repository}",
            "DEPOT_ALLOW_LIST": "//demo/...",
            "OUTBOUND_ALLOW": "127.0.0.0/8",
            "CRASH_POINTS": str(points),
            "TEST_STAGES": "tests.crash.stages",
            "LLM_PROVIDER": "openai",
            "LLM_MODEL": "test",
            "LLM_BASE_URL": llm.base_url,
        }
        with running(files, environment=environment, with_web=options.get("with_web", False)) as stack:
            yield World(stack, commits, receiver, llm, points, files, scale)
