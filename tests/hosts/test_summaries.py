"""The summary on a pull request of every host: one comment, edited, of our account alone."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from criticizer.codehosts.client import TokenConfig
from criticizer.codehosts.gitlab.host import GitLabHost
from criticizer.codehosts.registry import HOSTS
from criticizer.resilience.failures import (
    ErrorClass,
    PermanentFailure,
    QuotaExceeded,
    RetryableFailure,
    UncertainFailure,
)
from notifications.providers.base import Evidence, LookUp, Message, Provider, Question
from notifications.providers.failures import NotWanted
from notifications.providers.pull_requests.provider import PullRequests
from tests.fakes import hosts
from tests.fakes.accounts import TOKEN, AccountServer, GitLabServer
from tests.fakes.github import HEAD, Act, GitHubServer, Repo, tokens_of
from tests.notifications.samples import message


@dataclass
class World:
    """One host and the provider that comments there. `post`, `edit`: the calls that do."""

    name: str
    server: GitHubServer
    repo: Repo
    provider: Provider
    post: str
    edit: str


def world_of(name: str, server: GitHubServer) -> World:
    host = hosts.host_at(name, server.url, server=server, tokens=("refused-by-now", TOKEN))
    provider = PullRequests(host)
    calls = hosts.CALLS[name]
    return World(name, server, server.add("acme/web"), provider, calls.post, calls.edit)


@pytest.fixture(params=HOSTS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with hosts.SERVERS[request.param](page=2) as server:
        yield world_of(request.param, server)
        assert server.faults == []


def review(world: World, version: int = 1, sha: str = HEAD) -> Message:
    finding = {
        "file": f"//{world.name}/acme/web/src/app.py", "line": 12, "severity": "high", "title": "A lock",
        "message": "/merge\n@ann", "suggestion": "/close",
    }  # fmt: skip
    data: dict[str, object] = {
        "changelist_id": f"{world.name}:acme/web#7", "review_version": version, "headline": "1 finding",
        "findings": [finding], "findings_total": 1,
        "pull_request": {"repository_id": world.repo.number, "head_sha": sha},
    }  # fmt: skip
    return message("acme/web#7", token=version, payload={"type": "review.completed", "data": data})


def test_a_review_of_a_part_of_the_files_takes_the_place_of_none(world: World) -> None:
    number = int(world.provider.send(review(world)))
    body = world.repo.comments[number]["body"]
    partial = review(world, 1_000_000)
    data: Any = partial.payload["data"]
    data["pull_request"]["is_partial"] = True
    with pytest.raises(NotWanted, match="part of its files"):
        world.provider.send(partial)
    assert world.repo.comments[number]["body"] == body
    assert int(world.provider.send(review(world, 2))) == number


def test_another_repository_under_the_name_gets_nothing(world: World) -> None:
    sent = review(world)
    world.server.repos["acme/renamed"] = world.repo
    other = world.server.add("acme/web")
    if world.name == "gitlab":  # which is asked by the project's number
        world.provider.send(sent)
        assert len(world.repo.comments) == 1
    else:
        with pytest.raises(PermanentFailure) as refused:
            world.provider.send(sent)
        assert refused.value.error_class is ErrorClass.NOT_FOUND
    assert not other.comments


def found(world: World, sent: Message) -> LookUp:
    return world.provider.look_up(Question(sent, "", time.time()))


def test_a_later_version_edits_the_comment_and_no_older_one_does(world: World) -> None:
    first, second = review(world, 1), review(world, 2)
    number = world.provider.send(first)
    assert world.provider.send(second) == number
    assert tokens_of(world.repo) == [str(second.token), str(first.token)]
    body = world.repo.comments[int(number)]["body"]
    assert "`src/app.py:12`" in body
    assert not re.search(r"(?m)^\s*/|@\w", body)
    with pytest.raises(NotWanted):
        world.provider.send(first)
    assert found(world, first) == LookUp(Evidence.FOUND, number, "found on the pull request")


def test_a_marker_of_another_account_is_not_believed(world: World) -> None:
    sent = review(world)
    world.provider.send(sent)
    (ours,) = world.repo.comments.values()
    world.repo.comments.clear()
    world.server.say("acme/web", 7, ours["body"])
    assert found(world, sent).evidence is Evidence.ABSENT
    assert world.provider.send(sent) != str(ours["id"])
    assert len(tokens_of(world.repo)) == 1


def test_our_comment_is_found_behind_many_pages_and_a_deleted_one_is_posted_once(world: World) -> None:
    for _ in range(5):
        world.server.say("acme/web", 7, "Looks good to me.")
    number = world.provider.send(review(world))
    assert world.provider.send(review(world, 2)) == number
    del world.repo.comments[int(number)]
    again = world.provider.send(review(world, 3))
    assert again != number
    assert world.provider.send(review(world, 4)) == again


def test_a_comment_that_is_deleted_while_it_is_edited_is_posted(world: World) -> None:
    number = int(world.provider.send(review(world)))
    world.server.script(Act(before=lambda: world.repo.comments.pop(number)), on=world.edit)
    assert int(world.provider.send(review(world, 2))) != number
    assert len(world.repo.comments) == 1


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "act", [Act(then="reset"), Act(then="cut"), Act(then="page"), Act(status=502)],
    ids=["reset", "cut in its middle", "a page of a proxy", "502"],
)  # fmt: skip
def test_a_lost_answer_is_uncertain_and_then_found(world: World, act: Act, version: int) -> None:
    for earlier in range(1, version):
        world.provider.send(review(world, earlier))
    world.server.script(act, on=world.post if version == 1 else world.edit)
    sent = review(world, version)
    with pytest.raises(UncertainFailure):
        world.provider.send(sent)
    assert found(world, sent).evidence is Evidence.FOUND
    assert len(world.repo.comments) == 1


def test_a_closed_pull_request_gets_nothing_and_a_moved_head_is_told(world: World) -> None:
    number = world.provider.send(review(world, sha="e" * 40))
    assert "The PR has been updated since" in world.repo.comments[int(number)]["body"]
    world.repo.pulls[7].state = "closed"
    with pytest.raises(NotWanted):
        world.provider.send(review(world, 2))


@pytest.mark.parametrize("body", [None, {"message": "Maintenance"}], ids=["page", "object"])
def test_what_answers_in_the_place_of_the_host_is_asked_again_and_loses_nothing(
    world: World, body: object
) -> None:
    """A proxy with status 200, at each of the questions before the comment."""
    world.provider.send(review(world))
    for before in range(2 if world.name == "github" else 3):
        world.server.script(*[Act()] * before, Act(then="page", body=body), on="GET ")
        with pytest.raises(RetryableFailure):
            world.provider.send(review(world, 2))
    world.provider.send(review(world, 2))
    assert len(world.repo.comments) == 1


def test_a_limit_is_a_wait_of_as_long_as_it_says(world: World) -> None:
    world.server.script(Act(keep=False, status=429, headers={"Retry-After": "37"}), on=world.post)
    with pytest.raises(QuotaExceeded) as limited:
        world.provider.send(review(world))
    assert limited.value.retry_after_seconds == 37
    assert not world.repo.comments
    world.provider.send(review(world))


@pytest.mark.parametrize(
    ("status", "expected"),
    [(403, ErrorClass.PERMISSION_DENIED), (404, ErrorClass.NOT_FOUND), (410, ErrorClass.RECIPIENT_REJECTED),
     (422, ErrorClass.SCHEMA_INVALID)],
)  # fmt: skip
def test_refusals_are_permanent_and_say_what_to_do(world: World, status: int, expected: ErrorClass) -> None:
    world.server.script(*[Act(keep=False, status=status) for _ in range(9)], on=world.post)
    with pytest.raises(PermanentFailure) as refused:
        world.provider.send(review(world))
    assert refused.value.error_class is expected
    assert not world.repo.comments
    with pytest.raises(PermanentFailure, match="its own pull request"):
        world.provider.send(message("acme/other#7", payload=review(world).payload))


def test_nothing_listening_is_retryable_and_the_probe_says_who_we_are(world: World) -> None:
    assert "accepts" in world.provider.probe()
    world.server.script(Act(keep=False, status=503), on="GET ")
    with pytest.raises(RetryableFailure):
        world.provider.send(review(world))


@pytest.mark.parametrize("name", ["gitea", "gitlab"])
def test_a_refused_token_gives_way_to_the_next_one_and_both_refused_are_auth_denied(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with hosts.SERVERS[name]() as server:
        world = world_of(name, server)
        world.provider.send(review(world))
        assert [call.headers["authorization"].split()[1] for call in server.calls][:3] == [
            "refused-by-now", TOKEN, TOKEN,
        ]  # fmt: skip
        assert isinstance(server, AccountServer)
        server.accepted.clear()
        with pytest.raises(PermanentFailure) as refused:
            world.provider.send(review(world, 2))
    assert refused.value.error_class is ErrorClass.AUTH_DENIED
    assert (
        TOKEN not in f"{caplog.text}{refused.value!r}{json.dumps(dict(refused.value.context), default=str)}"
    )


@pytest.mark.parametrize("name", ["gitea", "gitlab"])
def test_after_a_change_of_account_what_is_not_found_is_not_known_to_be_absent(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with hosts.SERVERS[name]() as server:
        assert isinstance(server, AccountServer)
        world = world_of(name, server)
        server.accepted |= {"refused-by-now"}
        sent = review(world)
        server.script(Act(then="reset"), on=world.post)
        with pytest.raises(UncertainFailure):
            world.provider.send(sent)
        server.accepted.remove("refused-by-now")  # each token of a project is an account of its own
        server.account += 1
        assert found(world, sent).evidence is Evidence.UNKNOWN
    assert "host_account_changed" in caplog.text


def test_an_account_without_a_number_is_asked_for_again() -> None:
    with GitLabServer() as server:
        repo = server.add("acme/web")
        server.account = 0
        host = GitLabHost(TokenConfig(server.url, (TOKEN,)))
        with pytest.raises(RetryableFailure):  # nothing was sent: no outcome is uncertain
            host.git_password(host.repository("acme/web", repo.number))


def test_a_project_of_gitlab_is_named_by_its_number_or_its_whole_path() -> None:
    with GitLabServer() as server:
        repo = server.add("acme/lib/web.site")
        host = GitLabHost(TokenConfig(server.url, (TOKEN,)))
        for number in (repo.number, 0):
            pull = host.pull(host.repository("acme/lib/web.site", number), 7)
            assert (pull.is_open, pull.head_sha, pull.is_mergeable) == (True, HEAD, True)
        assert [call.path.split("/")[4] for call in server.calls] == [
            str(repo.number),
            "acme%2Flib%2Fweb.site",
        ]
