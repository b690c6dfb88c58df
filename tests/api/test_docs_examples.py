"""Every example of docs/api.md and docs/api/, run in order against real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from reviews.api import schemas, serializers
from reviews.api.error_catalog import API_TABLE
from reviews.demo import free_port
from reviews.intake import api_keys
from reviews.models import ReviewJob
from tests.sources.gitrepo import GitRepo
from tests.stack import eventually, running

DOCS = Path(settings.BASE_DIR) / "docs"
PAGES = [DOCS / name for name in ("api.md", "api/reviews.md", "api/errors.md", "api/clients.md")]
SECRET = "whsec_" + "c2VjcmV0" * 4
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text_of_pages() -> str:
    return "\n".join(page.read_text() for page in PAGES)


def blocks() -> list[tuple[str, str]]:
    """Return (language, text) of each code block, in the order of the pages."""
    return _FENCE.findall(text_of_pages())


def holds(shown: Any, found: Any) -> bool:
    """Say whether an answer is what the page shows of it: "…" stands for anything."""
    if shown == "…":
        return found is not None
    if isinstance(shown, dict):
        return isinstance(found, dict) and all(holds(value, found.get(name)) for name, value in shown.items())
    if isinstance(shown, list):
        return isinstance(found, list) and all(any(holds(one, other) for other in found) for one in shown)
    return bool(shown == found)


@dataclass
class Shell:
    """A shell that runs the page's commands one after another; variables stay."""

    where: Path
    environment: dict[str, str]
    state: Path = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.where.parent / "state"
        self.state.touch()

    def run(self, text: str) -> str:
        kept = f'. "{self.state}"\n{text}\ndeclare -p commit id answer > "{self.state}" 2>/dev/null || true'
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", kept],
            cwd=self.where, env=self.environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), text
        return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> GitRepo:
    made = GitRepo(tmp_path / "app")
    made.commit_files({"a.py": "print(1)\n"})
    made.commit_files({"a.py": "<<<<<<< ours\nprint(2)\n=======\nprint(3)\n>>>>>>> theirs\n"})
    made.commit_files({"a.py": "print(4)\n"})
    return made


@pytest.mark.cluster(seconds=20)
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(not shutil.which("curl"), reason="the examples of the page use curl")
def test_every_example_does_what_the_page_says(repository: GitRepo, tmp_path: Path) -> None:
    environment = {
        "CHANGE_SOURCES": "perforce,git",
        "GIT_REPOSITORIES": f"app={repository.path}",
        "DEPOT_ALLOW_LIST": "//app/...,//depot/main/...",
        "OUTBOUND_ALLOW": "127.0.0.0/8",
        "WEBHOOK_SECRETS": SECRET,
    }
    known = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with ExitStack() as everything:
        # Without workers first, so that what the examples cancel is still waiting.
        web = everything.enter_context(running(tmp_path, environment=environment, queues=(), with_web=True))
        shell = Shell(
            repository.path,
            {
                **known,
                "CRITICIZER": web.base_url,
                "KEY": api_keys.create("ci", "trigger"),
                "OPERATOR_KEY": api_keys.create("ann", "operator"),
            },
        )
        found = ""
        checked = 0
        for language, text in blocks():
            if language == "sh":
                found = shell.run(text)
            elif language == "json":
                assert holds(json.loads(text), json.loads(found)), (text, found)
                checked += 1
        assert checked > 8
        everything.enter_context(running(tmp_path, environment={**environment, "BASE_URL": web.base_url}))
        _the_programs(shell, repository, tmp_path)


def _the_programs(shell: Shell, repository: GitRepo, files: Path) -> None:
    """The client waits for a review that tells the receiver, which the page has as well."""
    client, receiver = (text for language, text in blocks() if language == "python")
    (files / "client.py").write_text(client)
    (files / "receiver.py").write_text(receiver)
    port = free_port()
    with (files / "received").open("w") as received:
        listening = subprocess.Popen(
            [sys.executable, "-I", str(files / "receiver.py"), str(port)],
            env={**shell.environment, "WEBHOOK_SECRET": SECRET}, stdout=received, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        eventually(lambda: _status(port) == "401")  # not signed
        commit = repository.git("rev-parse", "HEAD~1")
        arguments = [f"git:app@{commit}", f"webhook:http://127.0.0.1:{port}/hook"]
        done = subprocess.run(
            [sys.executable, "-I", str(files / "client.py"), *arguments],
            env=shell.environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        job = ReviewJob.objects.get(idempotency_key=f"build-git:app@{commit}")
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert "//app/a.py:1 " in done.stdout
        assert done.stdout.splitlines()[-1].startswith("succeeded http://127.0.0.1:")
        assert job.deliveries.get().status == "sent"
        told = (files / "received").read_text()
        assert len([line for line in told.splitlines() if '"POST ' not in line]) == 1, told
        assert '" 204 -' in told
        # Again: the same review, and nobody is told twice.
        again = subprocess.run(
            [sys.executable, "-I", str(files / "client.py"), *arguments],
            env=shell.environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert again.stdout == done.stdout
    finally:
        listening.terminate()
        listening.wait()


def _status(port: int) -> str:
    """Return what the receiver answers to a post that nobody signed; empty while it starts."""
    done = subprocess.run(
        ["curl", "-sS", "-o", os.devnull, "-w", "%{http_code}", "-d", "{}", f"http://127.0.0.1:{port}/"],
        capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout if done.returncode == 0 else ""


@pytest.mark.parametrize("kind", API_TABLE, ids=lambda kind: kind.code)
def test_every_error_stands_in_the_table(kind: Any) -> None:
    assert f"| {kind.status} | `{kind.error}` | `{kind.code}` |" in text_of_pages()


@pytest.mark.parametrize(
    "shape",
    [
        serializers.ReviewRequestSerializer,
        serializers.PerforceEventSerializer,
        schemas.JobSerializer,
        schemas.StageSerializer,
        schemas.DeliverySerializer,
        schemas.FindingSerializer,
        schemas.CoverageSerializer,
    ],
)
def test_every_field_is_explained(shape: Any) -> None:
    page = text_of_pages()
    assert [name for name in shape().fields if f"`{name}`" not in page and f'"{name}"' not in page] == []
