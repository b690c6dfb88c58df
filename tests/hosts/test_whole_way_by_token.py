"""A pull request of Gitea and GitLab from webhook to comment and status: real web server, workers and git."""

from __future__ import annotations

from pathlib import Path

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

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]
REFERENCES = {"gitea": "refs/pull/7/head", "gitlab": "refs/merge-requests/7/head"}


@pytest.mark.parametrize(("name", "server"), [("gitea", GiteaServer), ("gitlab", GitLabServer)])
def test_a_pull_request_is_reviewed_commented_and_has_its_status(
    name: str, server: type[AccountServer], tmp_path: Path, transactional_db: None
) -> None:
    kind = KINDS[name]
    with GitHost(tmp_path / "host", TOKEN) as host, server() as api:
        repository = PullRequests(host, tmp_path, "Acme/Website")
        repository.branch("topic")
        head = repository.work.commit_files({"src/a.py": CONFLICT}, "Change a.")
        repository.push(REFERENCES[name])
        added = [(0, number) for number in range(1, 6)]  # a new file
        repo = api.add("acme/website", {7: Pull(head, lines={"src/a.py": added})})
        host.api = api.answer
        environment = {
            f"{name.upper()}_URL": host.url,
            f"{name.upper()}_TOKEN": TOKEN,
            f"{name.upper()}_WEBHOOK_SECRETS": SIGNING_KEY if name == "gitlab" else "a secret of the tests",
            "DEPOT_ALLOW_LIST": f"//{name}/acme/website/...",
            "RETRY_TIME_SCALE": "0.05",
        }
        stack = Stack(tmp_path, with_web=True, environment=environment)
        try:
            stack.start()
            event = kind.event(head=head, repository={"id": repo.number, "full_name": "Acme/Website"})
            body = as_bytes(event)
            answer = httpx.post(
                stack.base_url + kind.path, content=body, headers=kind.headers(body), timeout=30,
                trust_env=False,
            )  # fmt: skip
            assert answer.status_code == 202
            job = answer.json()["job"]
            eventually(lambda: ReviewJob.objects.get(pk=job).finished_at, 60)
            eventually(lambda: api.statuses and api.statuses[-1]["state"] == "success", 60)
        finally:
            stack.stop()
    row = ReviewJob.objects.get(pk=job)
    assert (row.status, row.changelist_id) == ("succeeded", kind.pull)
    assert row.recipients == [kind.pull, inline_recipient(kind.pull)]
    assert {finding.file for finding in row.findings.all()} == {f"//{name}/acme/website/src/a.py"}
    comment, *threads = repo.comments.values()
    assert f"v=1 sha={head}" in comment["body"]
    token = str(Delivery.objects.get(job=job, recipient=inline_recipient(kind.pull)).token)
    assert reviewed_tokens_of(repo) == [token]
    lines = [one["position"]["new_line"] for one in threads]
    lines += [one["new_position"] for review in repo.reviews for one in review["comments"]]
    assert lines
    assert set(lines) <= set(range(1, 6))
    assert "`src/a.py:" in comment["body"]
    assert {status["sha"] for status in api.statuses} == {head}
    assert api.faults == []
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size < 5_000_000]
    assert [str(file) for file in files if TOKEN.encode() in file.read_bytes()] == []
