"""A pull request that no webhook reports, from the poll to the comment.

Its repository's name has capitals.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from criticizer.codehosts.registry import repositories_variable
from notifications.models import Delivery
from reviews.models import HostChange, ReviewJob
from reviews.sources.pull import pull_request_id
from tests.fakes.accounts import TOKEN, AccountServer
from tests.fakes.git_http import GitHost, PullRequests
from tests.fakes.github import GitHubServer, Pull, private_key, tokens_of
from tests.hosts.kinds import KINDS, Kind
from tests.hosts.test_whole_way import CONFLICT
from tests.stack import Stack, eventually

pytestmark = [pytest.mark.cluster(seconds=40), pytest.mark.long, pytest.mark.django_db(transaction=True)]
NAME = "Acme/Web-Site"


def connected(kind: Kind, directory: Path, doubles: ExitStack) -> tuple[GitHubServer, Any, dict[str, str]]:
    """Start a host's double with an open pull request; return API, repository and environment."""
    host = doubles.enter_context(GitHost(directory / "host", TOKEN))
    api = doubles.enter_context(kind.server())
    repository = PullRequests(host, directory, NAME)
    repository.branch("topic")
    head = repository.work.commit_files({"Src/A.py": CONFLICT}, "Change A.")
    repository.push(kind.head)
    repo = api.add(NAME, {7: Pull(head, hunks={"Src/A.py": ((0, 0, 1, 5),)})})
    host.api, api.url = api.answer, host.url  # one address for both
    if not isinstance(api, AccountServer):
        host.accepts = api.accepts
    environment = {key: value if isinstance(value, str) else value[0]
                   for key, value in kind.connected(host.url).items()}  # fmt: skip
    if "GITHUB_PRIVATE_KEY" in environment:
        environment["GITHUB_PRIVATE_KEY"] = private_key().replace("\n", "\\n")
    return api, repo, {**environment, repositories_variable(kind.name): NAME}


def test_a_repository_with_capitals_is_polled_reviewed_and_commented_on(
    tmp_path: Path, transactional_db: None
) -> None:
    """On every host: one installation polls them all."""
    environment = {
        "DEPOT_ALLOW_LIST": ",".join(f"//{name}/{NAME.lower()}/..." for name in KINDS),
        "SOURCE_POLL_SECONDS": "1",
        "RETRY_TIME_SCALE": "0.05",
    }
    apis, repositories = {}, {}
    with ExitStack() as doubles:
        for name, kind in KINDS.items():
            apis[name], repositories[name], further = connected(kind, tmp_path / name, doubles)
            environment |= further
        stack = Stack(tmp_path, with_web=True, environment=environment)
        try:
            stack.start()
            for name, repo in repositories.items():
                polled = ReviewJob.objects.filter(changelist_id__startswith=name, finished_at__isnull=False)
                eventually(lambda polled=polled: polled.exists())
                eventually(lambda repo=repo: tokens_of(repo))
        finally:
            stack.stop()
    for name, repo in repositories.items():
        job = ReviewJob.objects.get(changelist_id__startswith=name)
        assert (job.status, job.changelist_id) == ("succeeded", pull_request_id(name, NAME, 7))
        assert HostChange.objects.get(host=name).full_name == NAME
        assert {finding.file for finding in job.findings.all()} == {f"//{name}/{NAME.lower()}/Src/A.py"}
        assert tokens_of(repo) == [str(Delivery.objects.get(job=job, recipient=job.changelist_id).token)]
        assert apis[name].faults == []
