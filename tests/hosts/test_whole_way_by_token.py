"""A pull request of Gitea and GitLab from webhook to comment and status.

Web server, workers and git are real.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from notifications.models import Delivery
from notifications.recipients import inline_recipient
from reviews.models import ReviewJob
from tests.fakes.accounts import TOKEN, AccountServer, GiteaServer, GitLabServer
from tests.fakes.git_http import GitHost, PullRequests
from tests.fakes.github import Pull, reviewed_tokens_of
from tests.hosts.kinds import KINDS, SIGNING_KEY, as_bytes
from tests.hosts.test_whole_way import CONFLICT
from tests.stack import Stack, eventually

pytestmark = [pytest.mark.cluster(seconds=30), pytest.mark.django_db(transaction=True)]
REFERENCES = {"gitea": "refs/pull/7/head", "gitlab": "refs/merge-requests/7/head"}
SERVERS: dict[str, type[AccountServer]] = {"gitea": GiteaServer, "gitlab": GitLabServer}


class Side:
    """One host's double with a pull request."""

    def __init__(self, name: str, directory: Path, doubles: ExitStack) -> None:
        self.name, self.kind = name, KINDS[name]
        self.host = doubles.enter_context(GitHost(directory / "host", TOKEN))
        self.api = doubles.enter_context(SERVERS[name]())
        repository = PullRequests(self.host, directory, "Acme/Website")
        repository.branch("topic")
        self.head = repository.work.commit_files({"src/a.py": CONFLICT}, "Change a.")
        repository.push(REFERENCES[name])
        added = [(0, number) for number in range(1, 6)]  # a new file
        self.repo: Any = self.api.add("acme/website", {7: Pull(self.head, lines={"src/a.py": added})})
        self.host.api = self.api.answer

    def environment(self) -> dict[str, str]:
        return {
            f"{self.name.upper()}_URL": self.host.url,
            f"{self.name.upper()}_TOKEN": TOKEN,
            f"{self.name.upper()}_WEBHOOK_SECRETS": (
                SIGNING_KEY if self.name == "gitlab" else "a secret of the tests"
            ),
        }

    def report(self, base_url: str) -> int:
        """Send the webhook; return the job."""
        event = self.kind.event(
            head=self.head, repository={"id": self.repo.number, "full_name": "Acme/Website"}
        )
        body = as_bytes(event)
        answer = httpx.post(
            base_url + self.kind.path, content=body, headers=self.kind.headers(body), timeout=30,
            trust_env=False,
        )  # fmt: skip
        assert answer.status_code == 202
        job: int = answer.json()["job"]
        return job

    def check(self, job: int) -> None:
        kind, row = self.kind, ReviewJob.objects.get(pk=job)
        assert (row.status, row.changelist_id) == ("succeeded", kind.pull)
        assert row.recipients == [kind.pull, inline_recipient(kind.pull)]
        assert {finding.file for finding in row.findings.all()} == {f"//{self.name}/acme/website/src/a.py"}
        comment, *threads = self.repo.comments.values()
        assert f"v=1 sha={self.head}" in comment["body"]
        token = str(Delivery.objects.get(job=job, recipient=inline_recipient(kind.pull)).token)
        assert reviewed_tokens_of(self.repo) == [token]
        lines = [one["position"]["new_line"] for one in threads]
        lines += [one["new_position"] for review in self.repo.reviews for one in review["comments"]]
        assert lines
        assert set(lines) <= set(range(1, 6))
        assert "`src/a.py:" in comment["body"]
        assert {status["sha"] for status in self.api.statuses} == {self.head}
        assert self.api.faults == []


def test_a_pull_request_is_reviewed_commented_and_has_its_status(
    tmp_path: Path, transactional_db: None
) -> None:
    """On each host, both connected to one installation."""
    with ExitStack() as doubles:
        sides = [Side(name, tmp_path / name, doubles) for name in SERVERS]
        environment = {
            "DEPOT_ALLOW_LIST": ",".join(f"//{name}/acme/website/..." for name in SERVERS),
            "RETRY_TIME_SCALE": "0.05",
        }
        for side in sides:
            environment |= side.environment()
        stack = Stack(tmp_path, with_web=True, environment=environment)
        try:
            stack.start()
            jobs = [side.report(stack.base_url) for side in sides]
            for side, job in zip(sides, jobs, strict=True):
                eventually(lambda job=job: ReviewJob.objects.get(pk=job).finished_at)
                said = side.api.statuses
                eventually(lambda said=said: said and said[-1]["state"] == "success")
        finally:
            stack.stop()
    for side, job in zip(sides, jobs, strict=True):
        side.check(job)
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size < 5_000_000]
    assert [str(file) for file in files if TOKEN.encode() in file.read_bytes()] == []
