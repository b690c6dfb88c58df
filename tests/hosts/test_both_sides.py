"""A pull request on a strict GitHub, API and git: real web server, real workers, real git."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from criticizer.models import OutboxMessage
from notifications.models import Delivery
from reviews.models import HostChange, ReviewJob
from tests.fakes.git_http import GitHost, PullRequests
from tests.fakes.github import APP_ID, SLUG, GitHubServer, Pull, private_key, tokens_of
from tests.hosts import deliveries
from tests.hosts.deliveries import installation, pull_request
from tests.stack import Stack, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]
CONFLICT = "<<<<<<< ours\none = {0}\n=======\none = 2\n>>>>>>> theirs\n"
HUNKS = {"src/a.py": ((1, 1, 1, 5),)}


class BothSides:
    """An installation of the product, and a host with one repository."""

    def __init__(self, stack: Stack, host: GitHost, api: GitHubServer, repository: PullRequests) -> None:
        self.stack, self.host, self.api, self.repository = stack, host, api, repository
        self.repo = api.repos["acme/website"]
        self.named = {"repository": {"id": self.repo.number, "full_name": "Acme/Website"}}

    def push(self, number: int) -> str:
        """Push another head of pull request 7, which replaces the one before."""
        self.repository.branch("topic")
        head = self.repository.pull(7, {"src/a.py": CONFLICT.format(number)}, f"Change {number}.")
        self.repo.pulls[7] = Pull(head, hunks=HUNKS)
        return head

    def send(self, event: str, content: Any) -> Any:
        body = json.dumps(content).encode()
        address = self.stack.base_url + deliveries.PATH
        sent = deliveries.headers(body, event)
        answer = httpx.post(address, content=body, headers=sent, timeout=30, trust_env=False)
        assert answer.status_code in {200, 202}, answer.text
        return answer.json()

    def opened(self, head: str) -> bool:
        return any(check["head_sha"] == head for check in self.repo.checks.values())


@pytest.fixture
def sides(tmp_path: Path, transactional_db: None) -> Iterator[BothSides]:
    with GitHost(tmp_path / "host") as host, GitHubServer() as api:
        api.url, host.api = host.url, api.answer
        api.add("acme/website")
        repository = PullRequests(host, tmp_path, "Acme/Website")
        environment = {
            "GITHUB_WEBHOOK_SECRETS": deliveries.SECRET,
            "GITHUB_API_URL": host.url,
            "GITHUB_APP_ID": str(APP_ID),
            "GITHUB_APP_SLUG": SLUG,
            "GITHUB_PRIVATE_KEY": private_key().replace("\n", "\\n"),
            "DEPOT_ALLOW_LIST": "//github/acme/website/...",
            "DEFAULT_RECIPIENTS": "mail:ann@example.com",
            "RETRY_TIME_SCALE": "0.05",
            "SOURCE_POLL_SECONDS": "0",  # the poll asks for repositories whatever becomes of a review
        }
        stack = Stack(tmp_path, with_web=True, environment=environment)
        try:
            stack.start()
            yield BothSides(stack, host, api, repository)
        finally:
            stack.stop()
        assert api.faults == []


def test_a_head_that_moves_three_times_within_a_review_ends_as_one_summary_of_the_last(
    sides: BothSides,
) -> None:
    sides.host.waits_for = release = threading.Event()  # git: the first review is at work until then
    heads = [sides.push(1)]
    jobs = [sides.send("pull_request", pull_request(head=heads[0], **sides.named))["job"]]
    eventually(lambda: sides.opened(heads[0]), 60)
    for number in (2, 3, 4):
        heads.append(sides.push(number))
        moved = pull_request("synchronize", head=heads[-1], at=number, **sides.named)
        jobs.append(sides.send("pull_request", moved)["job"])
    sides.host.waits_for = None
    release.set()
    eventually(lambda: ReviewJob.objects.get(pk=jobs[-1]).finished_at, 60)
    assert [ReviewJob.objects.get(pk=job).status for job in jobs] == ["superseded"] * 3 + ["succeeded"]
    (summary,) = sides.repo.comments.values()
    assert f"sha={heads[-1]}" in summary["body"]
    assert "Note:" not in summary["body"]
    assert tokens_of(sides.repo) == [
        str(Delivery.objects.get(job=jobs[-1], recipient="github:acme/website#7").token)
    ]
    (review,) = sides.repo.reviews
    assert review["commit_id"] == heads[-1]
    assert {comment["path"] for comment in review["comments"]} == {"src/a.py"}

    def closed() -> bool:
        checks = list(sides.repo.checks.values())
        return heads[-1] in {check["head_sha"] for check in checks} and all(
            check["status"] == "completed" for check in checks
        )

    eventually(closed, 60)
    ends = {check["head_sha"]: check["conclusion"] for check in sides.repo.checks.values()}
    assert (ends.pop(heads[-1]), ends.pop(heads[0])) == ("neutral", "cancelled")
    assert set(ends.values()) <= {"cancelled"}  # of those that were opened at all
    assert len(sides.repo.checks) == len(ends) + 2


def test_an_app_that_is_uninstalled_within_a_review_ends_it_without_another_call(sides: BothSides) -> None:
    sides.host.waits_for = release = threading.Event()
    head = sides.push(1)
    job = sides.send("pull_request", pull_request(head=head, **sides.named))["job"]
    eventually(lambda: sides.opened(head) and sides.host.asked, 60)
    sides.api.is_installed = False
    sides.send("installation", installation("deleted"))
    called, tokens = len(sides.api.calls), dict(sides.api.tokens)
    ended = ReviewJob.objects.get(pk=job)
    assert (ended.status, HostChange.objects.get().state) == ("cancelled", "removed")
    sides.host.waits_for = None
    release.set()
    clock = OutboxMessage.objects.filter(message_type="tell_check_runs")
    for _ in range(4):  # the worker of check runs looks again and again
        before = clock.values_list("available_at", flat=True).get()
        eventually(lambda at=before: clock.exclude(available_at=at).exists(), 60)
    assert ReviewJob.objects.get(pk=job).status == "cancelled"
    assert not Delivery.objects.filter(job=job).exists()
    assert (len(sides.api.calls), sides.api.tokens) == (called, tokens)
    assert not sides.repo.comments
    assert not sides.repo.reviews
