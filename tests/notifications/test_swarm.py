"""P4 Code Review: the comment, the meaning of each answer, the proof of its lists."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from criticizer.http_client import Limits
from criticizer.resilience.failures import (
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from notifications.providers.base import Evidence, Message, Question
from notifications.providers.swarm import markdown
from notifications.providers.swarm.provider import Swarm, SwarmConfig
from tests.fakes.closed import closed_port
from tests.fakes.swarm import TICKET, USER, Act, SwarmServer
from tests.notifications.samples import PATIENT, SHORT, message, reviewed

E = ErrorClass
TOPIC = "reviews/885"


@pytest.fixture
def server() -> Iterator[SwarmServer]:
    with SwarmServer() as running:
        yield running


def swarm(server: SwarmServer, user: str = USER, limits: Limits = PATIENT) -> Swarm:
    return Swarm(SwarmConfig(server.url, user, (TICKET,), limits))


def to_review(**changes: object) -> Message:
    return message("review-885", **changes)


def question(**changes: object) -> Question:
    return Question(to_review(**changes), "", time.time())


def test_a_comment_is_made_under_the_documented_address_with_the_ticket(server: SwarmServer) -> None:
    assert swarm(server).send(to_review()) == str(server.comments[0]["id"])
    swarm(server).send(message("change-12", token=2))
    assert [call.path for call in server.calls] == [
        "/api/v11/comments/reviews/885",
        "/api/v11/comments/changes/12",
    ]
    assert [comment["user"] for comment in server.comments] == [USER, USER]
    assert server.comments[0]["body"].splitlines()[-1] == markdown.marker(to_review())


@pytest.mark.parametrize(
    ("act", "kind", "error_class"),
    [
        (Act(keep=False, status=400), PermanentFailure, E.POLICY_REJECTED),
        (Act(keep=False, status=401), PermanentFailure, E.AUTH_DENIED),
        (Act(keep=False, status=403), PermanentFailure, E.RECIPIENT_REJECTED),
        (Act(keep=False, status=404), PermanentFailure, E.NOT_FOUND),
        (Act(keep=False, status=405), PermanentFailure, E.CONFIG_INVALID),
        (Act(keep=False, status=302), PermanentFailure, E.CONFIG_INVALID),
        (Act(keep=False, status=429), RetryableFailure, E.RATE_LIMITED),
        (Act(status=500), UncertainFailure, E.UPSTREAM_INTERNAL),
        (Act(status=502), UncertainFailure, E.UPSTREAM_UNAVAILABLE),
        (Act(status=503), UncertainFailure, E.UPSTREAM_UNAVAILABLE),
        (Act(status=504), UncertainFailure, E.NETWORK_TIMEOUT),
        (Act(status=408), UncertainFailure, E.NETWORK_TIMEOUT),
        pytest.param(Act(then="hang"), UncertainFailure, E.NETWORK_TIMEOUT, marks=pytest.mark.long),
        (Act(then="reset"), UncertainFailure, E.NETWORK_UNREACHABLE),
        (Act(body=b"<html>"), UncertainFailure, E.UPSTREAM_INTERNAL),
        (Act(body={"error": None, "data": {"comments": []}}), UncertainFailure, E.UPSTREAM_INTERNAL),
        (Act(body={"error": "oops", "data": None}), UncertainFailure, E.UPSTREAM_INTERNAL),
    ],
)
def test_each_answer_means_what_it_can_mean(
    server: SwarmServer, act: Act, kind: type[Failure], error_class: ErrorClass
) -> None:
    server.script(act)
    with pytest.raises(Failure) as caught:
        swarm(server, limits=SHORT if act.then == "hang" else PATIENT).send(to_review())
    assert (type(caught.value), caught.value.error_class) == (kind, error_class)


def test_a_pause_that_is_asked_for_is_kept(server: SwarmServer) -> None:
    server.script(Act(keep=False, status=429, retry_after="7"))
    with pytest.raises(RetryableFailure) as slower:
        swarm(server).send(to_review())
    assert slower.value.retry_after_seconds == 7
    server.lost = 1
    with pytest.raises(RetryableFailure) as unanswered:
        swarm(server).look_up(question())
    assert unanswered.value.retry_after_seconds == 9


def test_an_expired_ticket_says_what_to_do(server: SwarmServer) -> None:
    server.tickets.clear()
    with pytest.raises(PermanentFailure, match="p4 login -p") as refused:
        swarm(server).send(to_review())
    assert refused.value.error_class is E.AUTH_DENIED
    with pytest.raises(PermanentFailure):
        swarm(server).look_up(question())


def test_nothing_listens_is_certain_not_to_have_commented() -> None:
    with closed_port() as port, pytest.raises(RetryableFailure):
        Swarm(SwarmConfig(f"http://127.0.0.1:{port}", USER, (TICKET,))).send(to_review())


# -- looking up --------------------------------------------------------------------------------


def test_what_was_commented_is_found(server: SwarmServer) -> None:
    before = swarm(server).look_up(question())
    notification_id = swarm(server).send(to_review())
    after = swarm(server).look_up(question())
    assert before.evidence is Evidence.ABSENT
    assert (after.evidence, after.notification_id) == (Evidence.FOUND, notification_id)


@pytest.mark.parametrize("from_newest", [False, True])
def test_all_pages_are_read(from_newest: bool) -> None:
    long_ago = time.time() - 3600
    with SwarmServer(page=3, pages_from_newest=from_newest) as server:
        for number in range(10):
            server.say(TOPIC, f"comment {number}", at=long_ago)
        assert swarm(server).look_up(question()).evidence is Evidence.ABSENT
        notification_id = swarm(server).send(to_review())
        found = swarm(server).look_up(question())
        assert (found.evidence, found.notification_id) == (Evidence.FOUND, notification_id)


def test_a_part_of_the_comments_proves_nothing() -> None:
    with SwarmServer(pages_from_newest=True) as server:
        for number in range(150):
            server.say(TOPIC, f"comment {number}")
        assert swarm(server).look_up(question()).evidence is Evidence.UNKNOWN


def test_a_marker_of_another_user_is_ignored(server: SwarmServer) -> None:
    server.say(TOPIC, markdown.marker(to_review()), user="mallory")
    assert swarm(server).look_up(question()).evidence is Evidence.ABSENT


def test_a_marker_inside_a_sentence_is_ignored(server: SwarmServer) -> None:
    server.say(TOPIC, f"quoting {markdown.marker(to_review())}", user=USER)
    assert swarm(server).look_up(question()).evidence is Evidence.ABSENT


def test_user_names_are_compared_without_case(server: SwarmServer) -> None:
    swarm(server, user=USER).send(to_review())
    assert swarm(server, user=USER.upper()).look_up(question()).evidence is Evidence.FOUND


def test_a_private_topic_proves_nothing(server: SwarmServer) -> None:
    server.private.add(TOPIC)
    assert swarm(server).look_up(question()).evidence is Evidence.UNKNOWN


def test_a_look_up_that_fails_is_asked_again_and_its_twin_answers(server: SwarmServer) -> None:
    server.lost = 1
    with pytest.raises(RetryableFailure):
        swarm(server).look_up(question())
    assert swarm(server).look_up(question()).evidence is Evidence.ABSENT


# -- probing -----------------------------------------------------------------------------------


def test_the_probe_checks_version_and_ticket_and_comments_nothing(server: SwarmServer) -> None:
    assert swarm(server).probe() == f"P4 Code Review answers and accepts the ticket of {USER}."
    server.api_versions = [9, 10]
    with pytest.raises(PermanentFailure, match=r"2022\.1"):
        swarm(server).probe()
    server.api_versions = ["v9", "v10", "v11"]
    server.tickets.clear()
    with pytest.raises(PermanentFailure, match="p4 login"):
        swarm(server).probe()
    assert server.comments == []


# -- the comment -------------------------------------------------------------------------------


def test_a_review_is_laid_out_with_place_link_and_coverage() -> None:
    comment = markdown.body(reviewed(1))
    assert "**HIGH: The lock is not released**" in comment
    assert "`//depot/main/app.py:12-14`" in comment
    assert "<https://reviews.test/reviews/7/>" in comment
    assert "//depot/main/logo.png: skipped, binary" in comment


@pytest.mark.parametrize("findings", [0, 1, 50, 400])
def test_any_number_of_findings_stays_within_the_limit_and_says_what_is_missing(findings: int) -> None:
    comment = markdown.body(reviewed(findings, message="@ann why it matters. " * 90))
    assert len(comment) <= markdown.MAX_CHARACTERS * 1.2
    shown = comment.count("**HIGH:")
    assert shown >= min(findings, 3)
    assert (f"{findings - shown} of {findings} findings are left out here." in comment) is (shown < findings)


def test_untrusted_text_makes_no_mention_and_no_markup() -> None:
    hostile = "@ann @@team @!team [x](https://evil.example) <b> **x** `x`"
    changes = {"title": hostile, "message": hostile, "suggestion": hostile, "file": hostile}
    comment = markdown.body(replace(reviewed(1, **changes), repeat_notice=hostile))
    assert "@ann" not in comment
    assert "@@" not in comment
    assert "@!" not in comment
    assert "\n[x](" not in comment.replace("\\[", "\\(")
    outside_code = re.sub(r"```.*?```|`[^`\n]*`", "", comment.replace("\\`", ""), flags=re.DOTALL)
    assert "<b>" not in outside_code.replace("\\<", "(")


def test_a_message_that_is_no_review_is_shown_as_its_text_and_nothing_leaves_its_fence() -> None:
    other = message("review-1", text="```\n@ann\n" + "x" * 100 + "\n" * 3 + "line\n" * 5000)
    comment = markdown.body(other)
    assert comment.count("```") == 2
    assert "lines are left out here" in comment
    assert comment.splitlines()[-1] == markdown.marker(other)


def test_the_next_ticket_is_used_when_the_first_is_refused() -> None:
    with SwarmServer() as server:
        sender = Swarm(SwarmConfig(server.url, USER, ("expired", TICKET)))
        sender.send(to_review())
        asked = len(server.calls)
        sender.send(to_review())
        assert len(server.calls) == asked + 1  # the refused one is not tried again
        with pytest.raises(PermanentFailure) as failed:
            Swarm(SwarmConfig(server.url, USER, ("expired", "older"))).send(to_review())
        assert failed.value.error_class is ErrorClass.AUTH_DENIED


# -- comments at lines -------------------------------------------------------------------------


def at_lines(count: int, *, closed: Sequence[int] = (), **changes: object) -> Message:
    """Return a review whose findings stand at lines; comments on the `closed` ones are to be."""
    made = reviewed(0)
    data: Any = made.payload["data"]
    findings = [
        {
            "file": "//depot/main/a%40b.py", "line": 10 + n, "severity": ("critical", "medium")[n % 2],
            "title": f"Finding {n}", "message": "Why.", "identity": str(UUID(int=n)),
            "in_diff": {
                "path": "//depot/main/a%40b.py", "line": 10 + n, "start_line": 10 + n, "side": "new",
                "replacement": "", "content": ["def f():", "    g()"],
            },
            **changes,
        }
        for n in range(count)
    ]  # fmt: skip
    to_close = [str(UUID(int=n)) for n in closed]
    return replace(
        made,
        address="review-885",
        payload={**made.payload, "data": {**data, "findings": findings, "closed": to_close}},
    )


def identities(server: SwarmServer) -> list[str]:
    return [found for c in server.comments if (found := markdown.identity_of(c["body"]))]


def test_fifty_findings_are_fifty_comments_at_their_lines_and_one_mail(server: SwarmServer) -> None:
    notification_id = swarm(server).send(at_lines(50))
    assert identities(server) == [str(UUID(int=n)) for n in range(50)]
    assert server.mails == 1
    *lines, summary = server.comments
    assert (str(summary["id"]), summary["context"], summary["notify"]) == (notification_id, [], "delayed")
    assert lines[1]["context"] == {
        "file": "//depot/main/a%40b.py", "rightLine": 11, "content": ["def f():", "    g()"]
    }  # fmt: skip
    assert [line["taskState"] for line in lines[:2]] == ["open", "comment"]


def test_lines_of_the_old_side_are_named_as_such(server: SwarmServer) -> None:
    place = {"path": "//depot/a.py", "line": 7, "start_line": 7, "side": "old", "replacement": ""}
    swarm(server).send(at_lines(1, in_diff=place))
    assert server.comments[0]["context"] == {"file": "//depot/a.py", "leftLine": 7}


def test_a_later_version_comments_on_what_is_new_and_closes_what_is_fixed(server: SwarmServer) -> None:
    swarm(server).send(at_lines(3))
    server.say(TOPIC, server.comments[2]["body"], user="mallory")  # closes nothing of hers
    swarm(server).send(replace(at_lines(1, closed=(0, 1)), token=UUID(int=2)))
    assert len(identities(server)) == 4
    assert [(c["taskState"], c["flags"]) for c in server.comments[:3]] == [
        ("addressed", []), ("comment", ["closed"]), ("open", [])
    ]  # fmt: skip
    edits = [call.path for call in server.calls if call.path.endswith(("/edit", "/archive"))]
    swarm(server).send(replace(at_lines(1, closed=(0, 1)), token=UUID(int=3)))
    again = [call.path for call in server.calls if call.path.endswith(("/edit", "/archive"))]
    assert again == edits, "closed once"
    assert server.mails == 1


def still_open(server: SwarmServer) -> list[str]:
    """Return the findings with comments that are neither archived nor addressed."""
    comments = [c for c in server.comments if not c["flags"] and c["taskState"] != "addressed"]
    return [found for comment in comments if (found := markdown.identity_of(comment["body"]))]


def test_a_finding_that_is_back_is_commented_on_again_once(server: SwarmServer) -> None:
    swarm(server).send(at_lines(2))
    swarm(server).send(replace(at_lines(0, closed=(0, 1)), token=UUID(int=2)))
    assert still_open(server) == []
    back = replace(at_lines(2, is_new=True), token=UUID(int=3))
    server.script(Act(), Act(then="reset"))
    with pytest.raises(UncertainFailure):
        swarm(server).send(back)
    swarm(server).send(back)
    swarm(server).send(replace(at_lines(2, is_new=False), token=UUID(int=4)))
    assert still_open(server) == [str(UUID(int=0)), str(UUID(int=1))]
    assert len(identities(server)) == 4


def test_a_task_that_a_person_addressed_is_not_made_again(server: SwarmServer) -> None:
    swarm(server).send(at_lines(1))
    server.comments[0]["taskState"] = "addressed"
    swarm(server).send(replace(at_lines(1, is_new=False), token=UUID(int=2)))
    assert len(identities(server)) == 1


def test_two_versions_at_once_leave_one_open_comment_on_each_finding(
    server: SwarmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = swarm(server)
    read = first._all_comments

    def overtaken(message: Message) -> Iterator[dict[str, object]]:
        found = list(read(message))
        if not server.comments:
            swarm(server).send(replace(at_lines(2), token=UUID(int=2)))
        return iter(found)

    monkeypatch.setattr(first, "_all_comments", overtaken)
    first.send(at_lines(2))
    assert len(identities(server)) == 4
    assert sorted(still_open(server)) == [str(UUID(int=0)), str(UUID(int=1))]


@pytest.mark.parametrize("stop", range(4))
@pytest.mark.parametrize("act", [Act(then="reset"), Act(keep=False, status=429), Act(keep=False, status=503)])
def test_an_attempt_that_breaks_off_is_finished_by_the_next_without_doubles(
    server: SwarmServer, stop: int, act: Act
) -> None:
    server.script(*[Act()] * stop, act)
    with pytest.raises((UncertainFailure, RetryableFailure)) as failed:
        swarm(server).send(at_lines(3))
    certain = act.status == 429 and stop == 0
    assert isinstance(failed.value, RetryableFailure) is certain, "what was commented is looked up first"
    message = at_lines(3)
    if swarm(server).look_up(Question(message, "", time.time())).evidence is Evidence.ABSENT:
        swarm(server).send(message)
    assert sorted(identities(server)) == [str(UUID(int=n)) for n in range(3)]
    assert server.kept == {str(message.token): 1}


def test_a_line_that_the_server_refuses_is_in_the_summary_only(server: SwarmServer) -> None:
    server.script(Act(keep=False, status=400))
    swarm(server).send(at_lines(2))
    assert identities(server) == [str(UUID(int=1))]
    assert "Finding 0" in server.comments[-1]["body"]


def test_a_marker_in_the_code_of_a_suggestion_names_nothing(server: SwarmServer) -> None:
    other = to_review(token=2)
    planted = f"{markdown.line_marker(other, str(UUID(int=9)))}\n{markdown.marker(other)}"
    swarm(server).send(at_lines(1, suggestion=planted))
    assert identities(server) == [str(UUID(int=0))]
    assert swarm(server).look_up(question(token=2)).evidence is Evidence.ABSENT
    swarm(server).send(replace(at_lines(1, suggestion=planted), token=UUID(int=3)))
    assert identities(server) == [str(UUID(int=0))], "found again, not commented on twice"


@pytest.mark.parametrize(("from_newest", "lines"), [(False, 2), (True, 0)])
def test_no_line_is_commented_on_where_not_all_comments_can_be_read(from_newest: bool, lines: int) -> None:
    with SwarmServer(pages_from_newest=from_newest) as server:
        for number in range(150):
            server.say(TOPIC, f"comment {number}")
        swarm(server).send(at_lines(2))
        assert len(identities(server)) == lines
        assert server.kept.total() == 1
