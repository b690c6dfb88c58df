"""Slack: the message, the meaning of each answer, the proof of its history."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from notifications.providers.base import Evidence, Message, Question
from notifications.providers.slack import blocks as slack_blocks
from notifications.providers.slack.provider import Slack, SlackConfig
from tests.fakes.closed import closed_port
from tests.fakes.slack import CHANNEL, NEXT_TOKEN, TOKEN, Act, SlackServer
from tests.notifications.samples import SHORT, message, reviewed

E = ErrorClass


@pytest.fixture
def workspace() -> Iterator[SlackServer]:
    with SlackServer() as server:
        yield server


def slack(server: SlackServer, **changes: object) -> Slack:
    return Slack(replace(SlackConfig((TOKEN,), api_url=server.url), **changes))  # type: ignore[arg-type]


def to_channel(**changes: object) -> Message:
    return message(CHANNEL, **changes)


def question(notification_id: str = "", **changes: object) -> Question:
    return Question(to_channel(**changes), notification_id, time.time() - 1)


def failure_of(server: SlackServer, act: Act) -> Failure:
    server.script(act)
    short = {"limits": SHORT} if act.then == "hang" else {}
    with pytest.raises(Failure) as caught:
        slack(server, **short).send(to_channel())
    return caught.value


# -- sending -----------------------------------------------------------------------------------


def test_the_message_carries_its_token_and_no_mention_is_made_of_it(workspace: SlackServer) -> None:
    notification_id = slack(workspace).send(to_channel())
    (call,) = workspace.calls
    assert call.headers["authorization"] == f"Bearer {TOKEN}"
    sent = call.body
    token = str(to_channel().token)
    assert sent["metadata"] == {"event_type": "criticizer_review", "event_payload": {"token": token}}
    assert sent["blocks"][0]["block_id"].endswith(token)
    assert (sent["parse"], sent["unfurl_links"], sent["unfurl_media"]) == ("none", False, False)
    assert notification_id == workspace.messages[0]["ts"]


def test_the_same_message_is_the_same_bytes(workspace: SlackServer) -> None:
    for _ in range(2):
        slack(workspace).send(to_channel())
    assert workspace.calls[0].raw == workspace.calls[1].raw


@pytest.mark.parametrize(
    ("act", "kind", "error_class"),
    [
        (Act(error="channel_not_found"), PermanentFailure, E.RECIPIENT_REJECTED),
        (Act(error="not_in_channel"), PermanentFailure, E.RECIPIENT_REJECTED),
        (Act(error="is_archived"), PermanentFailure, E.RECIPIENT_REJECTED),
        (Act(error="restricted_action"), PermanentFailure, E.RECIPIENT_REJECTED),
        (Act(error="invalid_auth"), PermanentFailure, E.AUTH_DENIED),
        (Act(error="token_revoked"), PermanentFailure, E.AUTH_DENIED),
        (Act(error="missing_scope"), PermanentFailure, E.PERMISSION_DENIED),
        (Act(error="msg_too_long"), PermanentFailure, E.POLICY_REJECTED),
        (Act(error="msg_blocks_too_long"), PermanentFailure, E.POLICY_REJECTED),
        (Act(status=404), PermanentFailure, E.CONFIG_INVALID),
        (Act(status=302), PermanentFailure, E.CONFIG_INVALID),
        (Act(error="ratelimited"), RetryableFailure, E.RATE_LIMITED),
        (Act(status=429), RetryableFailure, E.RATE_LIMITED),
        (Act(error="fatal_error"), UncertainFailure, E.UPSTREAM_INTERNAL),
        (Act(error="internal_error"), UncertainFailure, E.UPSTREAM_INTERNAL),
        (Act(error="request_timeout"), UncertainFailure, E.NETWORK_TIMEOUT),
        (Act(error="an_error_of_next_year"), UncertainFailure, E.UPSTREAM_INTERNAL),
        (Act(status=500), UncertainFailure, E.UPSTREAM_INTERNAL),
        (Act(status=503), UncertainFailure, E.UPSTREAM_UNAVAILABLE),
        (Act(status=504), UncertainFailure, E.NETWORK_TIMEOUT),
        (Act(status=408), UncertainFailure, E.NETWORK_TIMEOUT),
        pytest.param(Act(then="hang"), UncertainFailure, E.NETWORK_TIMEOUT, marks=pytest.mark.long),
        (Act(then="reset"), UncertainFailure, E.NETWORK_UNREACHABLE),
        (Act(body=b"<html>"), UncertainFailure, E.UPSTREAM_INTERNAL),
        (Act(body=b'{"ok": true}'), UncertainFailure, E.UPSTREAM_INTERNAL),
    ],
)
def test_each_answer_means_what_slack_says_of_it(
    workspace: SlackServer, act: Act, kind: type[Failure], error_class: ErrorClass
) -> None:
    failure = failure_of(workspace, act)
    assert (type(failure), failure.error_class) == (kind, error_class)
    assert failure.component in {Component.PROVIDER, Component.CONFIGURATION}


def test_a_pause_that_slack_asks_for_is_kept(workspace: SlackServer) -> None:
    failure = failure_of(workspace, Act(post=False, status=429, retry_after="30"))
    assert failure.retry_after_seconds == 30


def test_nothing_listens_is_certain_not_to_have_posted(workspace: SlackServer) -> None:
    with closed_port() as port, pytest.raises(RetryableFailure):
        slack(workspace, api_url=f"http://127.0.0.1:{port}/api").send(to_channel())


def test_failures_repeat_nothing_of_an_answer_but_its_code(workspace: SlackServer) -> None:
    failure = failure_of(workspace, Act(body=b'{"ok": false, "error": "<@U1> mallory says hello"}'))
    assert "mallory" not in f"{failure.detail}{failure.context}"


def test_the_next_token_takes_over_when_the_first_is_refused(workspace: SlackServer) -> None:
    workspace.tokens = {NEXT_TOKEN}
    provider = slack(workspace, tokens=(TOKEN, NEXT_TOKEN))
    provider.send(to_channel())
    provider.send(to_channel(token=2))
    used = [call.headers["authorization"] for call in workspace.calls]
    assert used == [f"Bearer {token}" for token in (TOKEN, NEXT_TOKEN, NEXT_TOKEN)]


def test_tokens_are_not_shown() -> None:
    assert TOKEN not in repr(SlackConfig((TOKEN, NEXT_TOKEN)))
    assert NEXT_TOKEN not in repr(SlackConfig((TOKEN, NEXT_TOKEN)))


# -- looking up --------------------------------------------------------------------------------


def test_what_was_posted_is_found_by_its_token_and_by_its_id(workspace: SlackServer) -> None:
    provider = slack(workspace)
    before = provider.look_up(question())
    notification_id = provider.send(to_channel())
    assert before.evidence is Evidence.ABSENT
    for known in ("", notification_id, "1.000001"):
        found = provider.look_up(question(known))
        assert (found.evidence, found.notification_id) == (Evidence.FOUND, notification_id)


def test_it_is_found_where_slack_shows_no_metadata(workspace: SlackServer) -> None:
    workspace.shows_metadata = False
    provider = slack(workspace)
    notification_id = provider.send(to_channel())
    assert provider.look_up(question()).notification_id == notification_id


def test_all_pages_are_read(workspace: SlackServer) -> None:
    workspace.page = 3
    provider = slack(workspace)
    notification_id = provider.send(to_channel())
    for _ in range(10):
        workspace.say()
    assert provider.look_up(question()).notification_id == notification_id
    assert provider.look_up(question(token=2)).evidence is Evidence.ABSENT


def test_a_history_that_does_not_end_proves_nothing(
    workspace: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notifications.providers.slack.provider._MAX_PAGES", 2)
    workspace.page = 1
    for _ in range(5):
        workspace.say()
    assert slack(workspace).look_up(question()).evidence is Evidence.UNKNOWN


def test_the_history_of_a_channel_the_bot_is_not_in_proves_nothing(workspace: SlackServer) -> None:
    workspace.members.clear()
    answer = slack(workspace).look_up(question())
    assert answer.evidence is Evidence.UNKNOWN
    assert "invite" in answer.detail


def test_a_look_up_that_fails_is_asked_again_and_its_twin_answers(workspace: SlackServer) -> None:
    workspace.lost = 1
    with pytest.raises(RetryableFailure):
        slack(workspace).look_up(question())
    assert slack(workspace).look_up(question()).evidence is Evidence.ABSENT


def test_a_look_up_with_a_refused_token_says_so(workspace: SlackServer) -> None:
    workspace.tokens.clear()
    with pytest.raises(PermanentFailure) as refused:
        slack(workspace).look_up(question())
    assert refused.value.error_class is E.AUTH_DENIED


def test_looking_up_posts_nothing(workspace: SlackServer) -> None:
    slack(workspace).look_up(question("123.456"))
    assert workspace.messages == []


# -- probing -----------------------------------------------------------------------------------


def test_the_probe_names_the_bot_and_what_it_lacks(workspace: SlackServer) -> None:
    assert slack(workspace).probe() == "Slack knows the bot as criticizer of Example."
    workspace.scopes = "chat:write"
    assert "channels:history" in slack(workspace).probe()
    workspace.scopes = "channels:history"
    with pytest.raises(PermanentFailure, match="chat:write"):
        slack(workspace).probe()
    workspace.tokens.clear()
    with pytest.raises(PermanentFailure, match="invalid_auth"):
        slack(workspace).probe()
    assert workspace.messages == []


# -- blocks ------------------------------------------------------------------------------------


def texts(sent: dict[str, object]) -> str:
    return json.dumps(sent["blocks"], ensure_ascii=False)


def test_a_review_is_laid_out_worst_first_with_its_place_and_link() -> None:
    shown = texts(slack_blocks.body(reviewed(1)))
    assert "*HIGH: The lock is not released*" in shown
    assert "`//depot/main/app.py:12-14`" in shown
    assert "<https://reviews.test/reviews/7/|Open the review>" in shown
    assert "//depot/main/logo.png: skipped, binary" in shown
    assert "left out" not in shown


@pytest.mark.parametrize("findings", [0, 1, 7, 50, 400])
def test_any_number_of_findings_stays_within_the_limits_and_says_what_is_missing(
    workspace: SlackServer, findings: int
) -> None:
    long = reviewed(findings, message="<!channel> & why it matters. " * 60, suggestion="x = `1`\n" * 200)
    slack(workspace).send(replace(long, address=CHANNEL))  # the double refuses what breaks a limit
    blocks = workspace.messages[0]["blocks"]
    shown = sum("HIGH" in json.dumps(block) for block in blocks)
    assert shown >= min(findings, 3)
    if shown < findings:
        assert f"{findings - shown} of {findings} findings are left out here" in json.dumps(blocks)
    else:
        assert "left out" not in json.dumps(blocks)


HOSTILE = "<!channel> <@U0123> <https://evil.example|click> & @here #general ```` `"


def test_untrusted_text_makes_no_mention_and_no_link() -> None:
    hostile = reviewed(1, title=HOSTILE, message=HOSTILE, suggestion=HOSTILE, file=HOSTILE)
    sent = slack_blocks.body(replace(hostile, subject=HOSTILE, repeat_notice=HOSTILE))
    shown = [
        element["text"]
        for block in sent["blocks"]  # type: ignore[attr-defined]
        for element in [block.get("text"), *block.get("elements", [])]
        if element and element["type"] == "mrkdwn"
    ]
    for text in [*shown, sent["text"]]:
        assert text.replace("<https://reviews.test/reviews/7/|Open the review>", "").count("<") == 0
    assert "&lt;!channel&gt;" in texts(sent)
    assert sent["blocks"][0]["text"]["type"] == "plain_text"  # type: ignore[index]


@pytest.mark.parametrize("url", ["javascript:alert(1)", "https://x.example/a b", "", "https://x/\n<!here>"])
def test_only_a_web_address_becomes_a_link(url: str) -> None:
    assert "Open the review" not in texts(slack_blocks.body(reviewed(1, url=url)))


def test_a_message_that_is_no_review_is_shown_as_its_text() -> None:
    other = message(CHANNEL, text="".join(f"line {n} & more\n" for n in range(2000)))
    blocks = slack_blocks.body(other)["blocks"]
    assert isinstance(blocks, list)
    assert "line 0 &amp; more" in json.dumps(blocks)
    assert "lines are left out here" in json.dumps(blocks[-1])


def test_a_cut_never_divides_an_entity() -> None:
    for limit in range(2, 30):
        cut = slack_blocks.escaped("&<>" * 20, limit)
        assert len(cut) <= limit
        assert cut.removesuffix("…").replace("&amp;", "").replace("&lt;", "").replace("&gt;", "") == ""


def test_a_repeated_message_says_so_first() -> None:
    notice = "This may repeat an earlier message."
    blocks = slack_blocks.body(replace(reviewed(1), repeat_notice=notice))["blocks"]
    assert notice in json.dumps(blocks[1])  # type: ignore[index]
