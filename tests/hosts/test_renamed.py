"""A repository that is renamed or transferred between webhook and fetch, on every host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from criticizer.resilience import gate
from criticizer.resilience.failures import ErrorClass, PermanentFailure, RetryableFailure
from reviews import config
from reviews.models import HostChange, ReviewJob
from reviews.pipeline.base import StageClaim
from reviews.sources import mirror
from reviews.stages import fetch
from reviews.states import Stage
from tests.fakes.git_http import GitHost, PullRequests
from tests.fakes.github import GitHubServer, Pull
from tests.hosts.kinds import KINDS, Kind, as_bytes, webhook_settings

OLD = "acme/website"


class World:
    """One host, API and git under one address, with a pull request whose webhook arrived."""

    def __init__(self, kind: Kind, git: GitHost, api: GitHubServer, directory: Path) -> None:
        self.git, self.api = git, api
        api.url, git.api, git.accepts = git.url, api.answer, api.accepts
        work = PullRequests(git, directory, OLD)
        work.branch("topic")
        head = work.work.commit_files({"src/b.py": "two = 2\n"}, "Add b.")
        work.push(kind.head)
        repo = api.add(OLD, {7: Pull(head)})
        body = as_bytes(kind.event(head=head, repository={"id": repo.number, "full_name": OLD}))
        headers = kind.headers(body)
        answer = Client().post(kind.path, body, content_type=headers.pop("Content-Type"), headers=headers)
        self.job = ReviewJob.objects.get(pk=answer.json()["job"])

    def fetch(self) -> None:
        run = self.job.stages.get(stage=Stage.FETCH)
        ids = (self.job.pk, self.job.changelist_id)
        fetch.run(StageClaim(run.pk, uuid4(), 1, Stage.FETCH, 1, 5, 1, *ids, 1))

    def rename(self, to: str) -> None:
        self.git.rename(OLD, to)
        self.api.rename(OLD, to)


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, db: None, settings: Any, tmp_path: Path) -> Iterator[World]:
    kind = KINDS[request.param]
    with GitHost(tmp_path / "host") as git, kind.server() as api:
        for name, value in {**webhook_settings(), **kind.connected(git.url)}.items():
            setattr(settings, name, value)
        settings.RATE_LIMITS, settings.RETRY_TIME_SCALE = {kind.name: 1000.0}, 0.001
        settings.DATA_DIR, settings.DEPOT_ALLOW_LIST = tmp_path / "data", [f"//{kind.name}/acme/..."]
        gate.forget()
        yield World(kind, git, api, tmp_path)
        assert api.faults == []
    gate.forget()


def quick_on(host: str) -> Any:
    """Return a mark: `make test` tries this on one host, `make test-all` on each."""
    kinds = [pytest.param(name, marks=() if name == host else pytest.mark.long) for name in KINDS]
    return pytest.mark.parametrize("world", kinds, indirect=True)


def test_it_is_fetched_by_its_new_name_though_no_event_told_it(world: World) -> None:
    world.rename("acme/site")
    with pytest.raises(RetryableFailure, match="from acme/site now"):
        world.fetch()
    assert HostChange.objects.get().full_name == "acme/site"
    world.fetch()
    assert "/acme/site.git/git-upload-pack" in world.git.asked


@quick_on("gitea")
def test_it_is_not_read_under_a_name_that_is_not_enabled(world: World) -> None:
    world.rename("mallory/website")
    with pytest.raises(RetryableFailure):
        world.fetch()
    with pytest.raises(PermanentFailure, match="not enabled under its name") as refused:
        world.fetch()
    assert refused.value.error_class is ErrorClass.POLICY_REJECTED
    assert [path for path in world.git.asked if "mallory" in path] == []


@quick_on("gitlab")
def test_a_host_that_sends_us_elsewhere_without_a_new_name_is_not_followed(world: World) -> None:
    world.git.moved[OLD] = "acme/elsewhere"
    with pytest.raises(PermanentFailure, match="another address") as refused:
        world.fetch()
    assert refused.value.error_class is ErrorClass.POLICY_REJECTED


@quick_on("github")
def test_a_name_that_the_host_does_not_give_leaves_the_redirect_as_the_reason(world: World) -> None:
    world.git.moved[OLD] = "acme/elsewhere"
    del world.api.repos[OLD].pulls[7]
    with pytest.raises(PermanentFailure, match="another address") as refused:
        world.fetch()
    assert refused.value.error_class is ErrorClass.POLICY_REJECTED


@quick_on("gitlab")
def test_a_repository_that_is_too_large_is_no_question_to_the_host(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host is not asked for a new name when the repository was found too large.

    While the host's API is not called, the question would wait and give the attempt back: fetched for ever.
    """
    monkeypatch.setattr(mirror, "MAX_PACK_BYTES", 10)
    monkeypatch.setattr(config, "pull_now", pytest.fail)
    with pytest.raises(PermanentFailure, match="larger than this installation") as refused:
        world.fetch()
    assert refused.value.error_class is ErrorClass.POLICY_REJECTED
