"""A pull request from its webhook to the mail: real web server, workers, git and git server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from notifications.models import Delivery
from reviews.models import HostVersion, ReviewJob
from tests.fakes.git_http import GitHost, PullRequests
from tests.hosts import deliveries
from tests.hosts.deliveries import comment, pull_request
from tests.stack import Stack, eventually

pytestmark = [pytest.mark.cluster(seconds=20), pytest.mark.long, pytest.mark.django_db(transaction=True)]
CONFLICT = "<<<<<<< ours\none = 1\n=======\none = 2\n>>>>>>> theirs\n"


class Installation:
    def __init__(self, stack: Stack, repository: PullRequests) -> None:
        self.stack, self.repository = stack, repository

    def send(self, event: str, content: Any, **named: str) -> tuple[int, Any]:
        body = json.dumps(content).encode()
        sent = deliveries.headers(body, event, **named)
        address = self.stack.base_url + deliveries.PATH
        answer = httpx.post(address, content=body, headers=sent, timeout=30, trust_env=False)
        return answer.status_code, answer.json()

    def ended(self, job: int) -> ReviewJob:
        eventually(lambda: ReviewJob.objects.get(pk=job).finished_at)
        return ReviewJob.objects.get(pk=job)


@pytest.fixture
def installation(tmp_path: Path, transactional_db: None) -> Iterator[Installation]:
    with GitHost(tmp_path / "host") as host:
        repository = PullRequests(host, tmp_path, "Acme/Website")
        environment = {
            "GITHUB_WEBHOOK_SECRETS": deliveries.SECRET,
            "GITHUB_API_URL": host.url,
            "DEPOT_ALLOW_LIST": "//github/acme/website/...",
            "DEFAULT_RECIPIENTS": "mail:ann@example.com",
            "RETRY_TIME_SCALE": "0.05",
        }
        stack = Stack(tmp_path, with_web=True, environment=environment)
        try:
            stack.start()
            yield Installation(stack, repository)
        finally:
            stack.stop()


def test_a_pull_request_is_reviewed_and_mailed_and_a_force_push_supersedes_it(
    installation: Installation,
) -> None:
    repository = installation.repository
    repository.branch("topic")
    head = repository.pull(7, {"src/a.py": CONFLICT}, "Change a.")
    names = {"repository": {"id": 500, "full_name": "Acme/Website"}}
    status, answer = installation.send("pull_request", pull_request(head=head, **names))
    assert status == 202
    job = installation.ended(answer["job"])
    assert (job.status, job.changelist_id, job.author) == ("succeeded", "github:acme/website#7", "Ann")
    assert job.title.startswith("Change a.")
    assert {finding.file for finding in job.findings.all()} == {"//github/acme/website/src/a.py"}
    assert Delivery.objects.get(job=job, recipient="mail:ann@example.com").status == "sent"
    # Reported late: the head is gone from the host, which has a newer one that no webhook told of.
    repository.branch("topic")
    dropped = repository.pull(7, {"src/a.py": "one = 3\n"}, "Dropped.")
    repository.branch("topic")
    newest = repository.pull(7, {"src/a.py": "one = 4\n"}, "Newest.")
    repository.bare.git("gc", "-q", "--prune=now")
    _, answer = installation.send("pull_request", pull_request("synchronize", head=dropped, at=1, **names))
    assert installation.ended(answer["job"]).status == "superseded"
    version = HostVersion.objects.latest("pk")
    assert (version.head_sha, version.is_automatic) == (newest, True)
    assert installation.ended(version.job_id).title.startswith("Newest.")
    # Its own webhook comes after all, and then somebody asks for another review.
    late = installation.send("pull_request", pull_request("synchronize", head=newest, at=2, **names))
    assert late == (200, {"job": version.job_id, "duplicate": True})
    status, answer = installation.send("issue_comment", comment())
    assert installation.ended(answer["job"]).status == "succeeded"
    assert ReviewJob.objects.filter(status="succeeded").count() == 3
