"""Check runs whose worker is killed by SIGKILL before each statement: one for each head, never left open."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings as django_settings

from criticizer.db import prepared
from reviews import check_runs
from reviews.models import HostVersion
from reviews.states import JobStatus
from tests.fakes.github import GitHubServer, private_key
from tests.hosts.test_check_runs import checks, github, make_due, pull_request, to
from tests.stack import process_environment

__all__ = ["github"]  # a fixture
pytestmark = pytest.mark.django_db(transaction=True)  # the workers are other processes

Run = Callable[[str, int], tuple[int, int]]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def worker(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return a function that runs a worker: (URL, kill before this statement) -> (exit code, statements)."""
    folder = tmp_path_factory.mktemp("workers")
    environment = process_environment(
        folder, CRITICIZER_DATA_DIR=str(django_settings.DATA_DIR), TEST_APP_KEY=private_key()
    )
    with (folder / "errors").open("w+") as errors:
        command = [sys.executable, "-m", "tests.hosts.check_run_child"]
        workers = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=-1, stdout=-1, stderr=errors, text=True
        )
        assert workers.stdin is not None
        assert workers.stdout is not None

        def run(url: str, kill_at: int) -> tuple[int, int]:
            print(url, kill_at, file=workers.stdin, flush=True)
            code, reached = workers.stdout.readline().split()  # type: ignore[union-attr]
            assert code in {"0", str(-signal.SIGKILL)}, (folder / "errors").read_text()
            return int(code), int(reached)

        with workers:
            yield run
            workers.stdin.close()


def version_of(github: GitHubServer, number: int) -> HostVersion:
    """Return the newest version, of a head of its own: the double keeps all check runs together."""
    job = pull_request(github, version=number)
    version = HostVersion.objects.get(job=job)
    HostVersion.objects.filter(pk=version.pk).update(head_sha=f"{number:040x}")
    return HostVersion.objects.get(pk=version.pk)


def of(github: GitHubServer, version: HostVersion) -> list[tuple[str, str | None]]:
    found = [check for check in checks(github) if check["head_sha"] == version.head_sha]
    return [(check["status"], check["conclusion"]) for check in found]


def goes_on() -> None:
    """Let claim and slot of the dead worker run out, and the next one look."""
    for _ in range(2):
        prepared.rows("UPDATE pace_slots SET token = NULL, expires_at = now()")
        make_due()
        check_runs.run()


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
def test_a_worker_that_is_killed_before_any_statement_leaves_one_check_run(
    github: GitHubServer, worker: Run, every: int
) -> None:
    made = []
    for ends in (False, True):  # killed while it opens the check run, and while it closes it
        number, at = 1000 * (1 + ends), 0
        while True:
            number += 1
            version = version_of(github, number)
            if ends:
                goes_on()
                to(version.job, JobStatus.SUCCEEDED)
            code, reached = worker(github.url, at)
            goes_on()
            assert of(github, version) == [("completed", "success") if ends else ("in_progress", None)], at
            to(version.job, JobStatus.SUCCEEDED)
            goes_on()
            assert of(github, version) == [("completed", "success")], at
            if code == 0:
                assert reached > 40
                break
            made.append(of(github, version))
            at += every
    assert len(made) > 60 // every
    assert check_runs.run() == 0
