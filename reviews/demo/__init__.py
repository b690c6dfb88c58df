"""The demo: commits of a git repository, reviewed by real processes on this machine.

Without a repository it plays a story: two commits made for it, with a language model that replays
recorded answers (`recorded`, `story`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from criticizer.environment import WORK_DIR
from criticizer.resilience.failures import Failure
from criticizer.workers import subprocesses
from reviews.demo import example as demo_example
from reviews.demo import recorded

COMMITS = 6
REPOSITORY = "demo"  # in GIT_REPOSITORIES
START_SECONDS = 60.0
REVIEW_SECONDS = 150.0
RECIPIENT = "mail:demo@example.com"
_FINAL = {"succeeded", "dead_lettered", "timed_out", "cancelled", "superseded"}
# Variables of a `.env` file that the demo ignores: it has its own database and files and sends nothing
# outside. Empty means unset.
_NOT_THE_DEMOS = (
    "DATABASE_URL",
    "DATABASE_URL_FILE",
    "DATABASE_OWNER_URL",
    "DATABASE_OWNER_URL_FILE",
    "ARTIFACT_STORAGE",
    "DEFAULT_RECIPIENTS",
    "OPERATOR_ALERTS",
    "GIT_WATCH",
)


class DemoError(Exception):
    """Reason why the demo cannot continue, and what to do."""


@dataclass(frozen=True)
class Commit:
    """A commit to review, by the name of its repository in GIT_REPOSITORIES."""

    repository: str
    sha: str
    subject: str

    @property
    def changelist_id(self) -> str:
        return f"git:{self.repository}@{self.sha}"


def set_environment(arguments: list[str]) -> None:
    """Prepare the environment of the demo, and its example, before settings are read.

    `arguments` are those of `manage.py demo`; only `--repo` matters here. Ends the process with
    a sentence where the repository cannot be reviewed: settings would name another variable.
    """
    repository = _repository(arguments)
    data_dir = Path(os.environ.get("CRITICIZER_DATA_DIR") or WORK_DIR / "var").absolute() / "demo"
    example = data_dir / demo_example.NAME
    is_help = bool({"-h", "--help"} & set(arguments))
    if not is_help:
        try:
            if repository:
                newest_commits(repository, 1)
            data_dir.mkdir(parents=True, exist_ok=True)
            demo_example.make(example, git_command())
        except (DemoError, demo_example.ExampleError, Failure, OSError) as error:
            sys.exit(f"The demo failed: {error}")
    os.environ.update(dict.fromkeys(_NOT_THE_DEMOS, ""))
    repositories = {**({REPOSITORY: repository} if repository else {}), demo_example.NAME: example}
    os.environ.update(
        CRITICIZER_DATA_DIR=str(data_dir),
        CHANGE_SOURCES="git",
        GIT_REPOSITORIES=",".join(f"{name}={path}" for name, path in repositories.items()),
        DEPOT_ALLOW_LIST=",".join(f"//{name}/..." for name in repositories),
        ALLOWED_HOSTS="127.0.0.1,localhost",
        API_THROTTLE="6000/min",
        MAIL_PROVIDER="maildir",
    )
    if repository is None and not is_help:
        os.environ.update(recorded.ENVIRONMENT, LLM_BASE_URL=recorded.RecordedModel().base_url)
    os.environ.setdefault("LOG_LEVEL", "WARNING")


def _repository(arguments: list[str]) -> Path | None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--repo", type=Path, nargs="?")  # the command itself says what is missing
    repository: Path | None = parser.parse_known_args(arguments)[0].repo
    return repository and repository.expanduser().absolute()


def free_port() -> int:
    """Return a free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def example_commits(data_dir: Path, count: int) -> list[Commit]:
    """Return the newest commits of the repository that `set_environment` made. Raises DemoError."""
    newest = newest_commits(data_dir / demo_example.NAME, count)
    return [replace(commit, repository=demo_example.NAME) for commit in newest]


def git_command() -> str:
    """Return the absolute path of git. Raises DemoError."""
    git = shutil.which("git")
    if git is None:
        raise DemoError("git is not installed: install it, then run the demo again.")
    return str(Path(git).absolute())


def newest_commits(repository: Path, count: int) -> list[Commit]:
    """Return up to `count` commits of a repository, oldest of them first. Raises DemoError."""
    log = ["log", f"-{count}", "--no-merges", "--format=%H %s"]
    trust = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    done = subprocesses.run(
        [git_command(), "-C", str(repository.absolute()), *log],
        timeout_seconds=30,
        environment={**os.environ, **trust},
    )
    lines = [line.partition(" ") for line in done.text.splitlines()]
    if done.exit_code != 0 or not lines:
        problem = done.stderr.strip().splitlines()[-1:] or ["it has no commits"]
        raise DemoError(
            f"{repository} cannot be reviewed ({problem[0]}): set REPO to a git repository with commits."
        )
    return [Commit(REPOSITORY, sha, subject) for sha, _, subject in reversed(lines)]


@dataclass
class Client:
    """HTTP client of the demo, which uses the API only, as a trigger does."""

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
        """Wait for web and workers; `tend` keeps the processes alive. Raises DemoError."""
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

    def post(self, commit: Commit, version: int = 1) -> int:
        """Request a review of a commit and return the job's id. Raises DemoError."""
        answer = self._http.post(
            "/api/v1/reviews/",
            json={
                "idempotency_key": f"demo-{commit.sha}-{version}",
                "changelist_id": commit.changelist_id,
                "recipients": [RECIPIENT],
                # Of an equal commit nothing would be asked.
                **({"review_version": version, "rerun": True, "from_scratch": True} if version > 1 else {}),
            },
        )
        if answer.status_code not in (200, 201):
            problem = f"{answer.status_code} {answer.text[:300]}"
            raise DemoError(f"the API refused commit {commit.sha[:12]}: {problem}")
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
    """Yield about four times a second for `seconds`; `tend` runs before each."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        tend()
        yield
        time.sleep(0.25)
