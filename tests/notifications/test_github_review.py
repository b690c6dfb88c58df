"""Inline comments on pull requests: one review, at lines of the diff, on the reviewed head."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from criticizer import texts
from criticizer.resilience.failures import ErrorClass, PermanentFailure, QuotaExceeded, UncertainFailure
from notifications.providers.base import Evidence, Message, Question
from notifications.providers.failures import NotWanted
from notifications.providers.pull_requests import markdown, reviews
from notifications.providers.pull_requests.reviews import Reviews
from tests.fakes import hosts
from tests.fakes.github import SLUG, Act, GitHubServer, Pull, Repo, reviewed_tokens_of
from tests.notifications.test_github import NEWER, bodies, finding, github, outside_code, review

POST = "POST /repos/acme/web/pulls/7/reviews"
HUNKS = {"src/app.py": ((9, 17, 9, 18),)}


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with GitHubServer() as running:
        running.add("acme/web", {7: Pull(hunks=HUNKS)})
        yield running
        assert running.faults == []


@pytest.fixture
def repo(server: GitHubServer) -> Repo:
    return server.repos["acme/web"]


def inline(server: GitHubServer, slug: str = SLUG) -> Reviews:
    return Reviews(hosts.host_at("github", server.url, slug=slug, server=server))


def placed(repo: Repo, *places: dict[str, Any] | None, **changes: Any) -> Message:
    """Return a review with a finding at each place; None: outside the diff."""
    sent = review(repo, findings=len(places), **changes)
    data: Any = sent.payload["data"]
    data["findings"] = [
        {**found, "in_diff": place} for found, place in zip(data["findings"], places, strict=True)
    ]
    return sent


def at(line: int = 14, start: int = 12, **changes: Any) -> dict[str, Any]:
    return {
        "path": "src/app.py", "line": line, "start_line": start, "side": "new", "replacement": "", **changes,
    }  # fmt: skip


def test_all_findings_of_the_diff_are_comments_of_one_review(server: GitHubServer, repo: Repo) -> None:
    sent = placed(repo, at(), None, at(9, 9, side="old"))
    number = inline(server).send(sent)
    (made,) = repo.reviews
    assert (str(made["id"]), made["state"]) == (number, "COMMENTED")
    assert made["body"].splitlines()[0] == (
        f"<!-- criticizer:review pr={repo.number}#7 v=1 sha={made['commit_id']} token={sent.token} -->"
    )
    first, second = made["comments"]
    assert {key: first[key] for key in first if key != "body"} == {
        "path": "src/app.py", "line": 14, "side": "RIGHT", "start_line": 12, "start_side": "RIGHT",
    }  # fmt: skip
    assert {key: second[key] for key in second if key != "body"} == {
        "path": "src/app.py", "line": 9, "side": "LEFT",
    }  # fmt: skip
    assert first["body"].startswith("**HIGH: The lock is not released**\n\nWhen read")
    assert "```\nwith lock:\n    read()\n```" in first["body"]
    assert "<!-- criticizer:finding id=" in first["body"].splitlines()[-1]


def test_a_replacement_is_a_suggestion_block_that_nothing_in_it_closes(
    server: GitHubServer, repo: Repo
) -> None:
    inline(server).send(placed(repo, at(replacement='x = """\n```\n"""')))
    (comment,) = repo.reviews[0]["comments"]
    assert '````suggestion\nx = """\n```\n"""\n````' in comment["body"]
    assert "x =" not in outside_code(comment["body"])


def test_a_review_without_a_finding_in_the_diff_is_not_posted(server: GitHubServer, repo: Repo) -> None:
    with pytest.raises(NotWanted, match="no finding lies in the diff"):
        inline(server).send(placed(repo, None))
    assert not repo.reviews


@pytest.mark.parametrize(
    ("change", "why"), [({"head": NEWER}, "newer head"), ({"state": "closed"}, "is closed")]
)
def test_a_moved_head_and_a_closed_pull_request_get_no_inline_review(
    server: GitHubServer, repo: Repo, change: dict[str, str], why: str
) -> None:
    for name, value in change.items():
        setattr(repo.pulls[7], name, value)
    with pytest.raises(NotWanted, match=why):
        inline(server).send(placed(repo, at()))
    assert not repo.reviews


def test_a_head_that_moves_before_the_post_leaves_no_review(server: GitHubServer, repo: Repo) -> None:
    server.script(Act(before=lambda: setattr(repo.pulls[7], "head", NEWER)), on=POST)
    with pytest.raises(NotWanted, match="newer head"):
        inline(server).send(placed(repo, at()))
    assert not repo.reviews


def test_a_refused_place_ends_as_a_review_without_inline_comments(server: GitHubServer, repo: Repo) -> None:
    sent = placed(repo, at(), at(40, 40))
    inline(server).send(sent)
    (made,) = repo.reviews
    assert made["comments"] == []
    assert server.count("POST", "/repos/acme/web/pulls/7/reviews") == 2
    assert inline(server).look_up(Question(sent, "", time.time())).evidence is Evidence.FOUND


def test_a_review_that_is_refused_twice_is_not_tried_a_third_time(server: GitHubServer, repo: Repo) -> None:
    server.script(Act(keep=False, status=422), Act(keep=False, status=422), on=POST)
    with pytest.raises(PermanentFailure) as refused:
        inline(server).send(placed(repo, at()))
    assert refused.value.error_class is ErrorClass.SCHEMA_INVALID
    assert server.count("POST", "/repos/acme/web/pulls/7/reviews") == 2


def test_a_lost_answer_is_uncertain_and_found_among_our_reviews_only(
    server: GitHubServer, repo: Repo
) -> None:
    sent = placed(repo, at())
    server.script(Act(then="reset"), on=POST)
    with pytest.raises(UncertainFailure):
        inline(server).send(sent)
    found = inline(server).look_up(Question(sent, "", time.time()))
    assert (found.evidence, found.notification_id) == (Evidence.FOUND, str(repo.reviews[0]["id"]))
    assert reviewed_tokens_of(repo) == [str(sent.token)]
    repo.reviews[0]["user"] = {"login": "mallory", "type": "User"}
    assert inline(server).look_up(Question(sent, "", time.time())).evidence is Evidence.ABSENT


def test_without_the_name_of_the_app_it_is_asked_once_and_no_review_is_posted_twice(
    server: GitHubServer, repo: Repo
) -> None:
    sent, unnamed = placed(repo, at()), inline(server, slug="")
    server.script(Act(then="reset"), on=POST)
    with pytest.raises(UncertainFailure):
        unnamed.send(sent)
    for _ in range(2):
        assert unnamed.look_up(Question(sent, "", time.time())).evidence is Evidence.FOUND
    assert server.count("GET", "/app") == 1
    repo.reviews[0]["user"] = {"login": "another-app[bot]", "type": "Bot"}
    assert unnamed.look_up(Question(sent, "", time.time())).evidence is Evidence.ABSENT


@pytest.mark.long
def test_a_review_on_the_third_page_is_found(server: GitHubServer, repo: Repo) -> None:
    server.page = 2
    sents = [placed(repo, at(), version=version) for version in range(1, 7)]
    numbers = [inline(server).send(sent) for sent in sents]
    assert inline(server).look_up(Question(sents[-1], "", time.time())).notification_id == numbers[-1]


def test_a_limit_posts_nothing(server: GitHubServer, repo: Repo) -> None:
    server.script(Act(keep=False, status=403, headers={"retry-after": "2400"}), on=POST)
    with pytest.raises(QuotaExceeded) as refused:
        inline(server).send(placed(repo, at()))
    assert refused.value.retry_after_seconds == 2400
    assert not repo.reviews


def test_a_review_has_at_most_thirty_comments(server: GitHubServer, repo: Repo) -> None:
    inline(server).send(placed(repo, *[at()] * 40))
    assert len(repo.reviews[0]["comments"]) == reviews.MAX_COMMENTS


@pytest.mark.parametrize(
    ("remaining", "reset", "places", "says"),
    [
        (4, 2400, [at()], True),
        (4, 200, [at()], False),
        (4, 2400, [None], False),
        (4000, 2400, [at()], False),
    ],
)
def test_a_summary_says_that_inline_comments_come_later(
    server: GitHubServer, repo: Repo, remaining: int, reset: int, places: list[Any], says: bool
) -> None:
    server.remaining, server.reset_seconds = remaining, reset
    github(server).send(placed(repo, *places))
    assert (texts.COMMENTS_PENDING.text in bodies(repo)[0]) is says


@pytest.mark.parametrize("field", ["title", "message", "verdict_note"])
def test_text_of_a_change_is_only_text_in_an_inline_comment(field: str) -> None:
    from notifications.providers.payload import _finding

    hostile = "@ann fixes #12 <!-- criticizer:review --> ![x](https://evil.example/a.png)"
    found = _finding({**finding(**{"suggestion": "", field: hostile}), "in_diff": at()})
    text = markdown.inline_comment(found)
    assert "@ann" not in text
    assert "#12" not in text
    assert "<!-- criticizer:review" not in text
    assert "https://evil" not in text
