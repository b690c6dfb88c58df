"""The summary on a pull request through whole jobs on real stages: once, edited, truthful."""

from __future__ import annotations

import os
from typing import Any

import pytest
from django.apps import apps
from django.core import serializers

from criticizer.db import prepared
from criticizer.resilience import gate
from notifications import config
from notifications.models import Delivery
from notifications.states import DeliveryStatus as D
from reviews import check_runs
from reviews.models import ReviewJob
from tests.acceptance import stages
from tests.acceptance.pulls import ANSWER, INLINE, PULL, reviewed
from tests.acceptance.world import World
from tests.fakes.github import Act, GitHubServer, private_key, tokens_of
from tests.fakes.llm import Reply

POST = "POST /repos/acme/web/issues/7/comments"


def test_a_review_stands_on_its_pull_request_and_the_next_version_edits_it(
    world: World, github: GitHubServer
) -> None:
    world.llm.script(Reply(answer=ANSWER, repeat=9))
    repo = github.repos["acme/web"]
    stages.BEFORE["llm"] = check_runs.run
    first = reviewed(world, github)
    world.settle()
    (check,) = repo.checks.values()
    assert check["status"] == "in_progress"
    prepared.rows("DELETE FROM paces")
    check_runs.run()
    assert (check["status"], check["conclusion"]) == ("completed", "neutral")
    assert world.status(first) == "succeeded"
    job = ReviewJob.objects.get(pk=first)
    assert job.recipients == [PULL, INLINE]
    assert job.recipient_origins == {PULL: "pull_request", INLINE: "pull_request"}
    row = world.delivery(first, PULL)
    (number,) = repo.comments
    assert (row.status, row.notification_id, row.provider) == (D.SENT, str(number), "github")
    assert "**HIGH: The answer is wrong**\n\n`a.c:1`" in repo.comments[number]["body"]
    assert (
        f"pr={repo.number}#7 v=1 sha={github.repos['acme/web'].pulls[7].head}"
        in repo.comments[number]["body"]
    )

    second = reviewed(world, github, 2)
    world.settle()
    assert world.delivery(second, PULL).notification_id == str(number)
    assert list(repo.comments) == [number]
    assert tokens_of(repo) == [str(world.delivery(job, PULL).token) for job in (second, first)]


@pytest.mark.long
def test_a_key_with_prefixes_does_not_replace_the_summary_of_all_files(
    world: World, github: GitHubServer
) -> None:
    world.llm.script(Reply(answer=ANSWER, repeat=9))
    first = reviewed(world, github)
    world.settle()
    partial = reviewed(
        world, github, 1_000_000, series="key-7", scope_prefixes=["//github/acme/web/"]
    )  # of its own choice: its versions are counted on their own
    world.settle()
    assert (world.status(partial), world.delivery(partial, PULL).status) == ("succeeded", D.SUPERSEDED)
    second = reviewed(world, github, 2)
    world.settle()
    repo = github.repos["acme/web"]
    assert tokens_of(repo) == [str(world.delivery(job, PULL).token) for job in (second, first)]


@pytest.mark.long
def test_a_pull_request_that_was_closed_meanwhile_gets_nothing_and_is_no_failure(
    world: World, github: GitHubServer
) -> None:
    stages.BEFORE["notify"] = lambda: setattr(github.repos["acme/web"].pulls[7], "state", "closed")
    job = reviewed(world, github)
    world.settle()
    assert world.status(job) == "succeeded"
    row = world.delivery(job, PULL)
    assert (row.status, row.detail) == (D.SUPERSEDED, "the pull request is closed")
    assert not github.repos["acme/web"].comments


LIMITS = {
    "retry-after": {"headers": {"retry-after": "2"}},
    "secondary": {"body": {"message": "You have exceeded a secondary rate limit."}},
    "429": {"status": 429},
    "used up": {"headers": {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2400"}},
}


@pytest.mark.parametrize(
    "limit",
    [pytest.param(name, marks=pytest.mark.long if name != "used up" else ()) for name in LIMITS],
)
def test_a_limit_costs_no_attempt_and_nothing_is_called_before_its_end(
    world: World, github: GitHubServer, limit: str
) -> None:
    told: dict[str, Any] = {"status": 403, **LIMITS[limit]}
    if reset := told.get("headers", {}).get("x-ratelimit-reset"):
        told["headers"] = {**told["headers"], "x-ratelimit-reset": str(int(github.now()) + int(reset))}
    github.script(Act(keep=False, **told), on=POST)
    job = reviewed(world, github)
    world.work()
    called = len(github.calls)
    stage = world.stage(job, "notify")
    assert (world.status(job), stage.attempts, stage.error_class) == ("in_progress", 0, "")
    # Nobody calls before the end, however often it is tried.
    world.monkeypatch.setattr(gate, "_free", {})
    prepared.rows("UPDATE outbox_messages SET available_at = now()")
    world.work()
    assert len(github.calls) == called
    world.settle()
    assert world.status(job) == "succeeded"
    assert world.stage(job, "notify").attempts == 1
    assert [outcome for (outcome,) in Delivery.objects.get().attempt_rows.values_list("outcome")] == [
        "not_sent", "accepted",
    ]  # fmt: skip
    assert len(github.repos["acme/web"].comments) == 1


def test_no_row_has_a_token_or_the_key(world: World, github: GitHubServer) -> None:
    github.script(*[Act(keep=False, status=401) for _ in range(40)], on=POST)
    world.settings.RETRY_TIME_SCALE = 0.001
    job = reviewed(world, github)
    for _ in range(8):
        world.work()
        world.make_due()
    assert world.status(job) != "succeeded"
    stored = "".join(
        serializers.serialize("json", model._default_manager.all()) for model in apps.get_models()
    )
    secrets = [*github.tokens, private_key().splitlines()[3], private_key()]
    assert github.tokens
    assert not [secret for secret in secrets if secret in stored]
    assert config.host("github").is_connected
    assert private_key().splitlines()[3] not in repr(os.environ)
