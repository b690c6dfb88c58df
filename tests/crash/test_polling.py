"""The poll in real worker processes: it repeats, and a killed run costs one lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reviews.intake import polling
from reviews.models import ReviewJob, SourceEvent, SourcePosition
from tests.crash.conftest import LEASE, SCALE
from tests.sources.gitrepo import GitRepo
from tests.stack import Stack, eventually, running


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    made = GitRepo(tmp_path / "repo")
    made.commit_files({"a": "first\n"})
    return made


@pytest.fixture
def stack(repo: GitRepo, tmp_path: Path, transactional_db: Any) -> Iterator[Stack]:
    environment = {
        "RETRY_TIME_SCALE": str(SCALE),
        "CHANGE_SOURCES": "git",
        "GIT_REPOSITORIES": f"demo={repo.path}",
        "GIT_WATCH": "demo:main",
        "DEPOT_ALLOW_LIST": "//demo/...",
        "SOURCE_POLL_SECONDS": "1",
        "LLM_PROVIDER": "none",
    }
    files = tmp_path / "files"
    files.mkdir()
    # What maintenance does within half a minute of the start.
    polling.CLOCK.ensure(is_enabled=True)
    with running(files, environment=environment) as made:
        yield made


def reviewed(sha: str) -> bool:
    return ReviewJob.objects.filter(changelist_id=f"git:demo@{sha}", status="succeeded").exists()


@pytest.mark.long
def test_commits_nobody_told_of_are_reviewed_by_the_workers(stack: Stack, repo: GitRepo) -> None:
    eventually(lambda: SourcePosition.objects.exists())
    for number in range(2):  # the message is due again after each run
        sha = repo.commit_files({"a": f"{number}\n"})
        eventually(lambda sha=sha: reviewed(sha))
    assert ReviewJob.objects.count() == 2
    assert set(SourceEvent.objects.values_list("outcome", flat=True)) == {"found_by_poll"}
    _assert_goes_on_after_a_kill(stack, repo, 3)
    assert ReviewJob.objects.count() == 5


@pytest.mark.long
def test_a_poll_goes_on_after_its_worker_was_killed(stack: Stack, repo: GitRepo) -> None:
    eventually(lambda: SourcePosition.objects.exists())
    _assert_goes_on_after_a_kill(stack, repo, 20)
    assert ReviewJob.objects.count() == 20


def _assert_goes_on_after_a_kill(stack: Stack, repo: GitRepo, commits: int) -> None:
    shas = [repo.commit_files({"a": f"after {number}\n"}) for number in range(commits)]
    for role in ("idle", "processing"):
        for process in stack.named("stages", role):
            process.kill()
    eventually(lambda: all(map(reviewed, shas)), 60 + LEASE)
