"""Inline comments on a pull request in whole jobs: posted once, and no job waits for them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from criticizer import texts
from criticizer.db import prepared
from notifications.models import Delivery
from notifications.states import DeliveryStatus as D
from reviews.models import FindingRow
from reviews.replay import delivery_audit
from tests.acceptance import stages
from tests.acceptance.pulls import ANSWER, FINDING, INLINE, PULL, reviewed
from tests.acceptance.world import World
from tests.fakes.github import Act, GitHubServer, reviewed_tokens_of
from tests.fakes.llm import Reply

POST = "POST /repos/acme/web/pulls/7/reviews"
LONG = {"retry-after": "2400"}
LINE = "int answer(void) { return 3; }"


def answered(world: World, **changes: Any) -> None:
    answer = {**ANSWER, "findings": [{**FINDING, **changes}]}
    world.llm.script(Reply(answer=answer, repeat=9))


def reviews(github: GitHubServer) -> list[dict[str, Any]]:
    return github.repos["acme/web"].reviews


def go_on(world: World) -> None:
    """Work again after the wait of one call a second, or of a limit, is over."""
    prepared.rows("DELETE FROM paces WHERE paused_until IS NULL")
    prepared.rows("UPDATE outbox_messages SET available_at = now()")
    world.work()


def audited() -> None:
    """Let every wait be over, and run the audit."""
    prepared.rows("DELETE FROM paces")
    delivery_audit.run()


def test_a_finding_stands_at_its_line_once(world: World, github: GitHubServer) -> None:
    answered(world)
    job = reviewed(world, github)
    world.settle()
    (review,) = reviews(github)
    row = world.delivery(job, INLINE)
    assert (row.status, row.notification_id) == (D.SENT, str(review["id"]))
    assert review["commit_id"] == world.commit.split("@")[1]
    (comment,) = review["comments"]
    assert (comment["path"], comment["line"], comment["side"]) == ("a.c", 1, "RIGHT")
    assert "**HIGH: The answer is wrong**" in comment["body"]
    assert "```suggestion" not in comment["body"]


@pytest.mark.parametrize(
    ("suggestion", "is_proven"),
    [
        (f"```c\n{LINE}\n```", True),
        pytest.param(f"Return 3:\n```c\n{LINE}\n```", True, marks=pytest.mark.long),
        pytest.param(LINE, False, marks=pytest.mark.long),
        # The file would not parse.
        pytest.param(f"```suggestion\n{LINE} }}\n```", False, marks=pytest.mark.long),
        pytest.param(f"```c\n{LINE}\n```\nor\n```c\nint answer(void);\n```", False, marks=pytest.mark.long),
    ],
)
def test_a_suggestion_block_is_made_only_of_a_proven_edit(
    world: World, github: GitHubServer, suggestion: str, is_proven: bool
) -> None:
    answered(world, suggestion=suggestion)
    job = reviewed(world, github)
    world.settle()
    (comment,) = reviews(github)[0]["comments"]
    assert (FindingRow.objects.get(job=job).proven_edit is not None) is is_proven
    assert (f"\n```suggestion\n{LINE}\n```\n" in comment["body"]) is is_proven
    assert ("suggestion" in re.sub(r"````.*?````", "", comment["body"], flags=re.DOTALL)) is is_proven


@pytest.mark.long
def test_a_finding_that_still_stands_is_not_said_again(world: World, github: GitHubServer) -> None:
    answered(world)
    reviewed(world, github)
    world.settle()
    second = reviewed(world, github, 2)
    world.settle()
    assert world.status(second) == "succeeded"
    assert len(reviews(github)) == 1
    assert not Delivery.objects.filter(job=second, recipient=INLINE).exists()


def test_without_a_finding_in_the_diff_there_is_no_review(world: World, github: GitHubServer) -> None:
    answered(world, quote="not a line of the change")
    job = reviewed(world, github)
    world.settle()
    assert world.status(job) == "succeeded"
    assert world.delivery(job, PULL).status == D.SENT
    assert reviews(github) == []


@pytest.mark.long
def test_a_long_limit_holds_up_the_inline_review_only(world: World, github: GitHubServer) -> None:
    answered(world)
    github.script(Act(keep=False, status=403, headers=LONG), on=POST)
    job = reviewed(world, github)
    world.work()
    go_on(world)
    assert world.status(job) == "succeeded"
    assert world.delivery(job, PULL).status == D.SENT
    assert world.delivery(job, INLINE).status == D.PENDING
    called = len(github.calls)
    delivery_audit.run()  # the limit is still in force
    assert len(github.calls) == called
    audited()
    assert world.delivery(job, INLINE).status == D.SENT
    assert len(reviews(github)) == 1


@pytest.mark.long
def test_the_summary_says_that_inline_comments_come_later(world: World, github: GitHubServer) -> None:
    answered(world)
    github.remaining, github.reset_seconds = 3, 2400
    github.script(Act(keep=False, status=403, headers={"x-ratelimit-remaining": "0"}), on=POST)
    job = reviewed(world, github)
    world.work()
    go_on(world)
    (summary,) = github.repos["acme/web"].comments.values()
    assert texts.COMMENTS_PENDING.text in summary["body"]
    assert world.status(job) == "succeeded"
    assert reviews(github) == []
    audited()
    assert len(reviews(github)) == 1


@pytest.mark.long
def test_a_short_limit_is_waited_for(world: World, github: GitHubServer) -> None:
    answered(world)
    github.script(Act(keep=False, status=429, headers={"retry-after": "20"}), on=POST)
    job = reviewed(world, github)
    world.work()
    go_on(world)
    assert (world.status(job), reviews(github)) == ("in_progress", [])
    world.settle()
    assert (world.status(job), len(reviews(github))) == ("succeeded", 1)
    assert world.stage(job, "notify").attempts == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "act",
    [
        Act(then="reset"),
        pytest.param(Act(status=502), marks=pytest.mark.long),
        pytest.param(Act(keep=False, status=502), marks=pytest.mark.long),
    ],
    ids=["reset", "502", "lost"],
)
def test_a_lost_answer_makes_no_second_review(world: World, github: GitHubServer, act: Act) -> None:
    world.settings.RETRY_TIME_SCALE = 0.001
    answered(world)
    github.script(act, on=POST)
    job = reviewed(world, github)
    world.settle()
    assert world.status(job) == "succeeded"
    row = world.delivery(job, INLINE)
    assert row.status == D.SENT
    assert reviewed_tokens_of(github.repos["acme/web"]) == [str(row.token)]


@pytest.mark.long
def test_a_token_that_expires_between_summary_and_inline_review_is_renewed_once(
    world: World, github: GitHubServer
) -> None:
    answered(world)
    world.settings.RATE_LIMITS = {"github": 1000.0}
    github.script(Act(before=github.tokens.clear), on=POST)
    job = reviewed(world, github)
    world.settle()
    assert world.status(job) == "succeeded"
    assert (len(github.repos["acme/web"].comments), len(reviews(github))) == (1, 1)
    assert github.count("POST", "/app/installations/.*") == 2  # one for both channels, and one more


@pytest.mark.parametrize(
    ("act", "status"),
    [
        pytest.param(Act(keep=False, status=403), D.FAILED, marks=pytest.mark.long),
        (Act(keep=False, status=502), D.RECONCILING),
    ],
)
def test_no_failure_of_the_inline_review_fails_the_job(
    world: World, github: GitHubServer, act: Act, status: str
) -> None:
    answered(world)
    github.script(*[act] * 20, on=POST)
    job = reviewed(world, github)
    stages.BEFORE["notify"] = lambda: Delivery.objects.filter(recipient=INLINE).update(
        created_at=timezone.now() - timedelta(minutes=6)
    )
    world.settle()
    assert world.status(job) == "succeeded"
    assert world.delivery(job, PULL).status == D.SENT
    assert world.delivery(job, INLINE).status == status


@pytest.mark.long
def test_a_head_that_moved_gets_the_summary_without_inline_comments(
    world: World, github: GitHubServer
) -> None:
    answered(world)
    stages.BEFORE["notify"] = lambda: setattr(github.repos["acme/web"].pulls[7], "head", "2" * 40)
    job = reviewed(world, github)
    world.settle()
    assert world.status(job) == "succeeded"
    assert (world.delivery(job, PULL).status, world.delivery(job, INLINE).status) == (D.SENT, D.SUPERSEDED)
    assert reviews(github) == []
