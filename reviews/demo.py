"""The demo: real commits of a git repository, reviewed by real processes on this machine."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from criticizer import processes

COMMITS = 6
START_SECONDS = 60.0
REVIEW_SECONDS = 150.0
RECIPIENT = "mail:demo@example.com"
BASE_DIR = Path(__file__).resolve().parent.parent
_FINAL = {"succeeded", "dead_lettered", "timed_out", "cancelled", "superseded"}


class DemoError(Exception):
    """The demo cannot go on; the text says why and what to do."""


def set_environment(arguments: list[str]) -> None:
    """Prepare the environment of the demo before settings are read from it.

    `arguments` are those of `manage.py demo`; only `--repo` matters here.
    """
    repository = BASE_DIR
    for position, argument in enumerate(arguments):
        if argument.startswith("--repo="):
            repository = Path(argument.removeprefix("--repo="))
        elif argument == "--repo" and position + 1 < len(arguments):
            repository = Path(arguments[position + 1])
    os.environ.pop("DATABASE_URL", None)
    os.environ.update(
        CRITICIZER_DATA_DIR=str(BASE_DIR / "var" / "demo"),
        CHANGE_SOURCES="git",
        GIT_REPOSITORIES=f"demo={repository.expanduser().absolute()}",
        DEPOT_ALLOW_LIST="//demo/...",
        ALLOWED_HOSTS="127.0.0.1,localhost",
        API_THROTTLE="6000/min",
    )
    os.environ.setdefault("LOG_LEVEL", "WARNING")


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def newest_commits(repository: Path, count: int) -> list[str]:
    """Return up to `count` commit ids of a repository, oldest of them first. Raises DemoError."""
    git = shutil.which("git")
    if git is None:
        raise DemoError("git is not installed: install it, then run the demo again.")
    status, output, errors = processes.run(
        [
            git,
            "-c",
            "safe.directory=*",
            "-C",
            str(repository),
            "log",
            f"-{count}",
            "--no-merges",
            "--format=%H",
        ],
        timeout_seconds=30,
        environment={
            **os.environ,
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        },
    )
    commits = output.split()
    if status != 0 or not commits:
        why = errors.strip().splitlines()[-1:] or ["it has no commits"]
        raise DemoError(
            f"{repository} cannot be reviewed ({why[0]}): set REPO to a git repository with commits."
        )
    return commits[::-1]


@dataclass
class Client:
    """The demo as a trigger: it knows only the HTTP API."""

    base_url: str
    key: str

    def __post_init__(self) -> None:
        self._http = httpx.Client(
            base_url=self.base_url,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=10,
            trust_env=False,  # loopback needs no proxy
        )

    def wait_until_ready(self, tend: Callable[[], None]) -> None:
        """Wait for web and workers; `tend` keeps the processes alive meanwhile. Raises DemoError."""
        last = "no answer"
        for _ in ticks(START_SECONDS, tend):
            try:
                answer = self._http.get("/readyz")
            except httpx.TransportError:
                continue
            if answer.status_code == 200:
                return
            last = str(answer.json().get("reason", answer.status_code))
        raise DemoError(f"the service did not become ready in {START_SECONDS:.0f} s ({last}); see the logs.")

    def post(self, commit: str) -> int:
        """Request the review of a commit and return the job's id. Raises DemoError."""
        answer = self._http.post(
            "/api/v1/reviews/",
            json={
                "idempotency_key": f"demo-{commit}",
                "changelist_id": f"git:demo@{commit}",
                "recipients": [RECIPIENT],
            },
        )
        if answer.status_code not in (200, 201):
            raise DemoError(f"the API refused commit {commit[:12]}: {answer.status_code} {answer.text[:300]}")
        return int(answer.json()["id"])

    def job(self, job_id: int) -> dict[str, Any]:
        answer = self._http.get(f"/api/v1/reviews/{job_id}/")
        answer.raise_for_status()
        job: dict[str, Any] = answer.json()
        return job

    def follow(self, job_ids: list[int], tend: Callable[[], None]) -> Iterator[dict[str, Any]]:
        """Yield each job as it ends. Raises DemoError when one does not."""
        open_jobs = dict.fromkeys(job_ids)
        for _ in ticks(REVIEW_SECONDS, tend):
            for job_id in list(open_jobs):
                job = self.job(job_id)
                if job["status"] in _FINAL:
                    del open_jobs[job_id]
                    yield job
            if not open_jobs:
                return
        raise DemoError(f"{len(open_jobs)} reviews did not end in {REVIEW_SECONDS:.0f} s; see the logs.")


def ticks(seconds: float, tend: Callable[[], None]) -> Iterator[None]:
    """Yield about four times a second for `seconds`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        tend()
        yield
        time.sleep(0.25)
