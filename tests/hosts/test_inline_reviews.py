"""Inline comments on pull requests of every host: each once, at lines of the diff.

That holds after crashes too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from criticizer.codehosts.registry import HOSTS
from criticizer.resilience.failures import PermanentFailure, QuotaExceeded, UncertainFailure
from notifications.providers.base import Evidence, LookUp, Message, Question
from notifications.providers.failures import NotWanted
from notifications.providers.pull_requests import markdown, reviews
from notifications.providers.pull_requests.provider import PullRequests
from notifications.providers.pull_requests.reviews import Reviews
from tests.fakes import hosts
from tests.fakes.accounts import GiteaServer
from tests.fakes.github import HEAD, Act, GitHubServer, Pull, reviewed_tokens_of
from tests.notifications.samples import message
from tests.notifications.test_github import outside_code

HUNKS = {"src/app.py": ((9, 17, 9, 18),)}
LINES = {"src/app.py": ((9, 9), (10, 0), (0, 10), (0, 11), (11, 12), (12, 13), (13, 14))}
PLACE: dict[str, Any] = {
    "path": "src/app.py", "line": 11, "start_line": 10, "side": "new", "replacement": "x = 1\ny = 2",
}  # fmt: skip
REMOVED = {**PLACE, "line": 10, "side": "old", "replacement": ""}
UNCHANGED = {**PLACE, "line": 13, "start_line": 13, "old_line": 12, "replacement": ""}
OUTSIDE = {**PLACE, "line": 40, "start_line": 40}


class World:
    """One host whose pull request 7 has a diff, and the providers that write to it."""

    def __init__(self, name: str, server: GitHubServer) -> None:
        self.name, self.server = name, server
        self.repo = server.add("acme/web", {7: Pull(hunks=HUNKS, lines=LINES)})
        host = hosts.host_at(name, server.url, server=server)
        self.reviews, self.summaries = Reviews(host), PullRequests(host)
        self.post = hosts.CALLS[name].review

    def sent(self, *places: dict[str, Any], version: int = 1, sha: str = HEAD) -> Message:
        found = [
            {
                "file": f"//{self.name}/acme/web/src/app.py", "line": 11, "severity": "high",
                "title": f"A lock {number}", "message": "It stays.", "suggestion": "", "in_diff": place,
            }
            for number, place in enumerate(places)
        ]  # fmt: skip
        data: dict[str, object] = {
            "changelist_id": f"{self.name}:acme/web#7", "review_version": version, "headline": "found",
            "findings": found, "findings_total": len(found),
            "pull_request": {"repository_id": self.repo.number, "head_sha": sha},
        }  # fmt: skip
        return message("acme/web#7", token=version, payload={"type": "review.completed", "data": data})

    def inline(self) -> list[dict[str, Any]]:
        """Return the inline comments that people see, each with its own host's fields."""
        if self.name == "gitlab":
            threads = [note for note in self.repo.comments.values() if note.get("type") == "DiffNote"]
            return [{**note["position"], "body": note["body"]} for note in threads]
        return [one for made in self.repo.reviews if made["state"] != "PENDING" for one in made["comments"]]

    def look(self, sent: Message) -> LookUp:
        return self.reviews.look_up(Question(sent, "", time.time()))


@pytest.fixture(params=HOSTS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with hosts.SERVERS[request.param]() as server:
        yield World(request.param, server)
        assert server.faults == []


@pytest.fixture
def gitlab() -> Iterator[World]:
    with hosts.SERVERS["gitlab"]() as server:
        yield World("gitlab", server)
        assert server.faults == []


def test_findings_stand_at_their_lines_on_both_sides(world: World) -> None:
    sent = world.sent(PLACE, REMOVED, UNCHANGED)
    number = world.reviews.send(sent)
    assert reviewed_tokens_of(world.repo) == [str(sent.token)]
    assert world.look(sent) == LookUp(Evidence.FOUND, number, "found on the pull request")
    changed, removed, unchanged = (
        {key: value for key, value in one.items() if "line" in key or "position" in key or key == "side"}
        for one in world.inline()
    )
    text = {"position_type": "text"}
    assert (changed, removed, unchanged) == {
        "github": (
            {"line": 11, "side": "RIGHT", "start_line": 10}, {"line": 10, "side": "LEFT"},
            {"line": 13, "side": "RIGHT"},
        ),
        "gitea": ({"new_position": 11}, {"old_position": 10}, {"new_position": 13}),
        "gitlab": (
            {**text, "new_line": 11}, {**text, "old_line": 10}, {**text, "new_line": 13, "old_line": 12},
        ),
    }[world.name]  # fmt: skip


def test_a_replacement_is_a_suggestion_where_the_host_has_them(world: World) -> None:
    world.reviews.send(world.sent(PLACE))
    (comment,) = world.inline()
    language = {"github": "suggestion", "gitlab": "suggestion:-1+0", "gitea": None}[world.name]
    assert ("suggestion" in comment["body"]) is (language is not None)
    assert language is None or f"```{language}\nx = 1\ny = 2\n```" in comment["body"]


def test_code_that_is_no_proven_replacement_is_no_suggestion_block(world: World) -> None:
    sent = world.sent({**PLACE, "replacement": ""})
    data: Any = sent.payload["data"]
    data["findings"][0]["suggestion"] = "Return:\n```suggestion\nx = 1\n```"
    world.reviews.send(sent)
    (comment,) = world.inline()
    assert "````\nReturn:\n```suggestion\nx = 1\n```\n````" in comment["body"]
    assert "suggestion" not in outside_code(comment["body"])


def test_a_moved_head_and_a_closed_pull_request_get_nothing(world: World) -> None:
    with pytest.raises(NotWanted, match="newer head"):
        world.reviews.send(world.sent(PLACE, sha="e" * 40))
    world.repo.pulls[7].state = "closed"
    with pytest.raises(NotWanted, match="is closed"):
        world.reviews.send(world.sent(PLACE))
    assert world.inline() == []


def test_refused_places_cost_the_comments_and_nothing_else(world: World) -> None:
    sent = world.sent(PLACE, OUTSIDE, UNCHANGED)
    if world.name == "gitea":  # which does not compare places with its diff
        world.server.script(Act(keep=False, status=422), on=world.post)
    number = world.reviews.send(sent)
    if world.name == "gitlab":
        assert [one["new_line"] for one in world.inline()] == [11, 13]
        assert world.look(sent).evidence is Evidence.ABSENT
        assert world.reviews.send(sent) == number  # as after a crash: nothing stands there twice
        assert len(world.inline()) == 2
    else:
        assert (len(world.repo.reviews), world.inline()) == (1, [])
        assert world.look(sent).evidence is Evidence.FOUND


def test_threads_that_the_host_all_refuses_leave_the_summary_alone(gitlab: World) -> None:
    with pytest.raises(NotWanted, match="takes none"):
        gitlab.reviews.send(gitlab.sent(OUTSIDE, OUTSIDE))
    assert not gitlab.repo.comments


@pytest.mark.parametrize(
    "act",
    [Act(then="reset"), Act(then="cut"), Act(then="page"), Act(status=502), Act(keep=False, status=502)],
)
def test_a_lost_answer_is_uncertain_and_nothing_is_posted_twice(world: World, act: Act) -> None:
    sent = world.sent(PLACE, UNCHANGED, REMOVED)
    acts = [Act(), act] if world.name == "gitlab" else [act]  # there at the second thread
    world.server.script(*acts, on=world.post)
    with pytest.raises(UncertainFailure):
        world.reviews.send(sent)
    if world.look(sent).evidence is not Evidence.FOUND:
        world.reviews.send(sent)
    assert world.look(sent).evidence is Evidence.FOUND
    assert reviewed_tokens_of(world.repo) == [str(sent.token)]
    assert len(world.inline()) == 3


def test_what_stands_there_is_not_posted_again(world: World) -> None:
    """A promoted standby may lack a delivery that was sent, so its message is sent again."""
    sent = world.sent(PLACE, UNCHANGED)
    number = world.reviews.send(sent)
    assert world.reviews.send(sent) == number
    assert reviewed_tokens_of(world.repo) == [str(sent.token)]
    assert len(world.inline()) == 2


def test_a_limit_within_the_threads_is_waited_for_and_the_rest_follows(gitlab: World) -> None:
    sent = gitlab.sent(PLACE, UNCHANGED)
    limit = Act(keep=False, status=429, headers={"Retry-After": "37"})
    gitlab.server.script(Act(), limit, on=gitlab.post)
    with pytest.raises(QuotaExceeded) as limited:
        gitlab.reviews.send(sent)
    assert limited.value.retry_after_seconds == 37
    gitlab.reviews.send(sent)
    assert [one["new_line"] for one in gitlab.inline()] == [11, 13]
    assert gitlab.server.count("GET", r".*/versions") == 1


def test_what_gitea_keeps_of_a_broken_off_review_is_not_part_of_the_next() -> None:
    with GiteaServer() as server:
        gitea = World("gitea", server)
        sent = gitea.sent(PLACE, UNCHANGED)
        server.breaks_off_after = 1
        with pytest.raises(UncertainFailure):
            gitea.reviews.send(sent)
        assert gitea.look(sent).evidence is Evidence.ABSENT
        gitea.reviews.send(sent)
        (review,) = gitea.repo.reviews
        assert [one["new_position"] for one in review["comments"]] == [11, 13]


def test_threads_are_no_summaries(world: World) -> None:
    number = world.summaries.send(world.sent(PLACE))
    world.reviews.send(world.sent(PLACE, UNCHANGED, version=3))
    assert world.summaries.send(world.sent(PLACE, version=2)) == number


def test_a_renamed_file_has_both_of_its_names(gitlab: World) -> None:
    gitlab.repo.pulls[7].renamed = {"src/app.py": "src/old.py"}
    gitlab.reviews.send(gitlab.sent({**PLACE, "old_path": "src/old.py"}))
    (comment,) = gitlab.inline()
    assert (comment["old_path"], comment["new_path"]) == ("src/old.py", "src/app.py")


def test_a_locked_conversation_is_refused_for_good(world: World) -> None:
    world.repo.pulls[7].is_locked = True
    with pytest.raises(PermanentFailure):
        world.reviews.send(world.sent(PLACE))
    assert world.inline() == []


def test_400_findings_with_emoji_and_fences_are_taken_by_every_host(world: World) -> None:
    text = "🙂" * 250 + "\n```\n" + "x" * 250
    sent = world.sent(*[{**PLACE, "replacement": ""}] * 400)
    data: Any = sent.payload["data"]
    for found in data["findings"]:
        found |= {"message": text, "suggestion": f"````\n{text}"}
    number = int(world.summaries.send(sent))
    body = world.repo.comments[number]["body"]
    assert len(body) <= markdown.MAX_CHARACTERS
    assert len(body.encode()) <= markdown.MAX_BYTES
    marker = markdown.marker_of(body)
    assert marker is not None
    assert marker.tokens == (str(sent.token),)
    assert f"Showing {body.count('**HIGH: ')} of 400 findings." in outside_code(body)
    world.reviews.send(sent)
    comments = world.inline()
    assert len(comments) == reviews.MAX_COMMENTS
    for comment in comments:
        assert "HIGH: A lock" in outside_code(comment["body"])
    assert reviewed_tokens_of(world.repo) == [str(sent.token)]
