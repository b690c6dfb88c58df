"""Pull requests of acceptance tests, on a strict GitHub with the test's repository."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from reviews.models import HostChange, HostVersion, RecipientMode
from reviews.sources.git import GitSource
from reviews.stages import fetch
from tests import factories
from tests.acceptance.world import World
from tests.fakes.github import APP_ID, SLUG, GitHubServer, Pull, private_key

PULL, INLINE = "github:acme/web#7", "github-review:acme/web#7"


class OfPull(GitSource):
    """Content of a pull request, from a repository of the test instead of a mirror."""

    def __init__(self, repository: Path, sha: str) -> None:
        super().__init__("web", repository)
        self._depot = "github/acme/web"
        self._sha = sha

    def _sha_of(self, changelist_id: str) -> str:
        return self._sha


@pytest.fixture
def github(world: World) -> Iterator[GitHubServer]:
    name, sha = world.commit.split("@")
    source = OfPull(world.settings.GIT_REPOSITORIES[name.removeprefix("git:")], sha)
    world.monkeypatch.setattr(fetch.config, "source_of_job", lambda job: source)
    world.settings.DEPOT_ALLOW_LIST = ["//github/acme/web/..."]
    world.settings.LLM_CONTEXT_PERCENT = 0
    with GitHubServer() as server:
        server.add("acme/web", {7: Pull(sha, hunks={"a.c": ((1, 1, 1, 1),)})})
        world.settings.GITHUB_API_URL, world.settings.GITHUB_APP_SLUG = server.url, SLUG
        world.settings.GITHUB_APP_ID, world.settings.GITHUB_PRIVATE_KEY = str(APP_ID), (private_key(),)
        yield server
        assert server.faults == []


def reviewed(world: World, github: GitHubServer, version: int = 1, **fields: Any) -> int:
    """Make the job of the pull request's head, as its webhook does."""
    repo = github.repos["acme/web"]
    job = factories.job_with_stages(
        changelist_id=PULL, review_version=version, recipients=["mail:default@example.com"],
        recipients_are=RecipientMode.TO_FIND, **fields,
    )  # fmt: skip
    sha = world.commit.split("@")[1]
    seen = {"head_sha": sha, "base_sha": "b" * 40, "base_ref": "main"}
    change, _ = HostChange.objects.get_or_create(
        host="github", repository_id=repo.number, number=7,
        defaults={"full_name": "Acme/web", "changelist_id": PULL, "reported_at": timezone.now(), **seen},
    )  # fmt: skip
    HostVersion.objects.create(change=change, job=job, is_automatic=version == 1, **seen)
    factories.OutboxMessageFactory(aggregate_id=job.stages.get(stage="fetch").pk)
    return job.pk


FINDING: dict[str, Any] = {
    "file": "//github/acme/web/a.c", "hunk": None, "quote": "int answer(void) { return 2; }",
    "quote_end": None, "side": "new", "category": "bug", "rule_id": None, "severity": "high",
    "confidence": 90, "title": "The answer is wrong", "problem": "It was one.", "trigger": "Always.",
    "suggestion": None,
}  # fmt: skip
ANSWER = {"findings": [FINDING], "files_read": ["//github/acme/web/a.c"]}
