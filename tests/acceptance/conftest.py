"""A whole installation on loopback sockets: real stages, and a worker in the test's process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from criticizer.queue.lease_renewer import LeaseRenewer
from criticizer.resilience import retry
from reviews.pipeline import async_executor, executor
from tests.acceptance import line, stages
from tests.acceptance.pulls import github as github
from tests.acceptance.world import AFTER, BEFORE, World
from tests.fakes.llm import FakeLlm
from tests.fakes.p4.server import FakeDepot
from tests.fakes.webhook import WebhookReceiver
from tests.sources.gitrepo import GitRepo

# No lease runs out within a test, and a heartbeat's own connection would outlive the database.
LEASE_RENEWER = LeaseRenewer(lambda held: held)


@pytest.fixture
def driver_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give database work of the llm stage a thread whose connection ends with the test."""
    pool = ThreadPoolExecutor(1)
    monkeypatch.setattr(async_executor, "_pools", {os.getpid(): pool})
    yield
    pool.submit(lambda: connection.close()).result()
    pool.shutdown()


@pytest.fixture
def lines() -> Iterator[Callable[[int, str], line.Line]]:
    """Return a maker of troubled lines to a port: `lines(port, "refuse")`."""
    opened: list[line.Line] = []

    def make(target: int, mode: str) -> line.Line:
        opened.append(line.Line(target, mode))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> GitRepo:
    """A git repository with one change; tests only read it."""
    made = GitRepo(tmp_path_factory.mktemp("git") / "demo")
    made.commit_files({"a.c": BEFORE})
    made.commit_files({"a.c": AFTER})
    return made


@pytest.fixture
def world(
    tmp_path: Path,
    transactional_db: None,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    driver_threads: None,
    lines: Callable[[int, str], line.Line],
    repository: GitRepo,
) -> Iterator[World]:
    stages.reset()
    monkeypatch.setattr(retry, "draw", lambda shortest, longest: (shortest + longest) / 2)
    monkeypatch.setattr(executor, "LEASE_RENEWER", LEASE_RENEWER)
    commit = f"git:demo@{repository.git('rev-parse', 'HEAD')}"
    depot = FakeDepot(tmp_path)
    with WebhookReceiver() as receiver, FakeLlm() as llm, ExitStack() as servers:
        settings.STAGES = {
            stage: (f"tests.acceptance.stages.{stage}", queue)
            for stage, (_, queue) in settings.STAGES.items()
        }
        settings.DATA_DIR = tmp_path
        settings.CHANGE_SOURCES = ["perforce", "git"]
        settings.GIT_REPOSITORIES = {"demo": repository.path}
        settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "//demo/..."]
        settings.P4_EXECUTABLE = str(depot.executable)
        settings.P4PORT, settings.P4USER = "127.0.0.1:1666", "criticizer"
        settings.LLM_PROVIDER, settings.LLM_REQUIRED, settings.LLM_MODEL = "openai", True, "test-model"
        settings.LLM_BASE_URL, settings.LLM_API_KEYS = llm.base_url, ["a-key-for-tests"]
        settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
        yield World(
            tmp_path, settings, monkeypatch, commit, depot, receiver, llm, lines, servers.enter_context
        )
    stages.reset()
