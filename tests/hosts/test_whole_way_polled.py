"""A pull request that no webhook reports, from the poll to the comment; its repository has capitals."""

from __future__ import annotations

from pathlib import Path

import pytest

from criticizer.codehosts.registry import repositories_variable
from notifications.models import Delivery
from reviews.models import HostChange, ReviewJob
from tests.fakes.accounts import TOKEN, AccountServer
from tests.fakes.git_http import GitHost, PullRequests
from tests.fakes.github import Pull, private_key, tokens_of
from tests.hosts.kinds import KINDS
from tests.hosts.test_whole_way import CONFLICT
from tests.stack import Stack, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]
NAME = "Acme/Web-Site"


@pytest.mark.parametrize("name", KINDS)
def test_a_repository_with_capitals_is_polled_reviewed_and_commented_on(
    name: str, tmp_path: Path, transactional_db: None
) -> None:
    kind = KINDS[name]
    with GitHost(tmp_path / "host", TOKEN) as host, kind.server() as api:
        repository = PullRequests(host, tmp_path, NAME)
        repository.branch("topic")
        head = repository.work.commit_files({"Src/A.py": CONFLICT}, "Change A.")
        repository.push(kind.head)
        repo = api.add(NAME, {7: Pull(head, hunks={"Src/A.py": ((0, 0, 1, 5),)})})
        host.api, api.url = api.answer, host.url  # one address for both
        if not isinstance(api, AccountServer):
            host.accepts = api.accepts
        connected = {key: value if isinstance(value, str) else value[0]
                     for key, value in kind.connected(host.url).items()}  # fmt: skip
        if "GITHUB_PRIVATE_KEY" in connected:
            connected["GITHUB_PRIVATE_KEY"] = private_key().replace("\n", "\\n")
        environment = {
            **connected,
            repositories_variable(name): NAME,
            "DEPOT_ALLOW_LIST": f"//{name}/{NAME.lower()}/...",
            "SOURCE_POLL_SECONDS": "1",
            "RETRY_TIME_SCALE": "0.05",
        }
        stack = Stack(tmp_path, with_web=True, environment=environment)
        try:
            stack.start()
            eventually(lambda: ReviewJob.objects.filter(finished_at__isnull=False).exists(), 90)
            eventually(lambda: tokens_of(repo), 60)
        finally:
            stack.stop()
    job = ReviewJob.objects.get()
    assert (job.status, job.changelist_id) == ("succeeded", f"{name}:{NAME.lower()}#7")
    assert HostChange.objects.get().full_name == NAME
    assert {finding.file for finding in job.findings.all()} == {f"//{name}/{NAME.lower()}/Src/A.py"}
    assert tokens_of(repo) == [str(Delivery.objects.get(job=job, recipient=job.changelist_id).token)]
    assert api.faults == []
