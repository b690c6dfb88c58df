"""Partial reviews, missing evidence and rules on every channel (G385, G387, G452)."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from uuid import UUID

import pytest

from notifications.providers.base import Message
from notifications.providers.payload import review_payload
from notifications.providers.pull_requests import markdown as pull_requests
from notifications.providers.slack import blocks as slack
from notifications.providers.swarm import markdown as swarm
from notifications.rendering import render
from notifications.rendering.report import MAX_RULE_NOTE, evidence_note, rule_note
from reviews.reviewers.base import Stopped
from reviews.reviewers.coverage_texts import stopped_banner
from tests.notifications.samples import finding, report

TOKEN = UUID(int=7)
INSUFFICIENT = "Insufficient evidence (confidence 40 of 100)"


def _pull_request(message: Message) -> str:
    review = review_payload(message)
    assert review is not None
    return pull_requests.summary(message, review, pull_requests.Marker(str(message.token)))


def _html(message: Message) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", message.html))


CHANNELS: dict[str, Callable[[Message], str]] = {
    "mail as text": lambda message: message.text,
    "mail as html": _html,
    "webhook": lambda message: json.dumps(message.payload),
    "slack": lambda message: json.dumps(slack.body(message)),
    "swarm": swarm.body,
    "pull request": _pull_request,
}


def said(channel: str, message: Message) -> str:
    """Return what a channel shows, without its markup and line ends."""
    return " ".join(re.sub(r"\\(?=[^\w\s])", "", CHANNELS[channel](message)).split())


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("why", [Stopped.TIMED_OUT, Stopped.OVER_LIMIT])
def test_every_channel_says_how_far_a_partial_review_came(channel: str, why: Stopped) -> None:
    banner = stopped_banner(why, 3, 10)
    partial = render(report(banner=banner, is_partial=True), "mail:ann@example.com", TOKEN)
    assert banner in said(channel, partial)
    assert partial.payload["data"]["partial"] is True  # type: ignore[index]
    whole = render(report(banner=""), "mail:ann@example.com", TOKEN)
    assert "after 3 of 10 parts" not in said(channel, whole)
    assert whole.payload["data"]["partial"] is False  # type: ignore[index]


@pytest.mark.parametrize("channel", CHANNELS)
def test_every_channel_says_that_a_finding_has_no_evidence(channel: str) -> None:
    without = finding(line=None, end_line=None, demoted=True, confidence=40)
    shown = said(channel, render(report(findings=(without,)), "mail:ann@example.com", TOKEN))
    assert f"{INSUFFICIENT}: the text that it quotes is not in the change." in shown.replace("( ", "(")
    others = render(report(findings=(finding(confidence=40),)), "mail:ann@example.com", TOKEN)
    assert "Insufficient evidence" not in said(channel, others)


@pytest.mark.parametrize("channel", CHANNELS)
def test_every_channel_names_the_rule_that_a_finding_cites(channel: str) -> None:
    note = rule_note("no-floats", "Money is never a float.")
    cites = finding(rule="no-floats", rule_note=note)
    shown = said(channel, render(report(findings=(cites,)), "mail:ann@example.com", TOKEN))
    assert "Rule no-floats: Money is never a float." in shown
    assert shown.index(cites.message) < shown.index("Rule no-floats")
    assert "Rule " not in said(channel, render(report(), "mail:ann@example.com", TOKEN))


@pytest.mark.parametrize("channel", [name for name in CHANNELS if name != "webhook"])
def test_a_rule_is_only_text_in_every_channel(channel: str) -> None:
    path = "//depot/@ann/<u>x</u>/https://evil.example/AGENTS.md"
    cites = finding(rule=path, rule_note=rule_note(path, ""))
    message = render(report(findings=(cites,)), "mail:ann@example.com", TOKEN)
    markup = message.html if channel == "mail as html" else CHANNELS[channel](message)
    assert "Rule" in markup
    assert "https://evil" not in markup or channel in {"slack", "swarm"}  # which break no link anywhere
    if channel != "mail as text":
        assert "<u>" not in markup.replace("\\<", "(")
    if channel in {"swarm", "pull request"}:
        assert "@ann" not in markup


def test_the_webhook_names_the_rule_and_a_dismissed_finding_says_none_in_a_comment() -> None:
    cites = finding(rule="no-floats", rule_note=rule_note("no-floats", "Never."), verdict="wrong")
    message = render(report(findings=(cites,)), "mail:ann@example.com", TOKEN)
    (found,) = message.payload["data"]["findings"]  # type: ignore[index]
    assert (found["rule"], found["rule_note"]) == ("no-floats", "Rule no-floats: Never.")
    assert "Rule" not in said("pull request", message)


def test_with_a_rule_too_a_finding_fits_into_a_section_of_slack() -> None:
    note = rule_note("r", "&" * 290)
    texts = {"title": "&" * 200, "message": "x" * 3000, "suggestion": "x" * 3000, "file": "x" * 600}
    longest = finding(
        **texts, rule="r", rule_note=note, demoted=True, verdict="useful", verdict_note="&" * 200
    )
    message = render(report(findings=(longest,)), "mail:ann@example.com", TOKEN)
    sections = [block["text"]["text"] for block in slack.body(message)["blocks"] if "text" in block]  # type: ignore[attr-defined]
    assert any("Rule r" in text for text in sections)
    assert max(map(len, sections)) <= slack.MAX_SECTION


def test_a_rule_is_quoted_whole_or_named_alone() -> None:
    assert rule_note("", "Never.") == ""
    assert rule_note("//depot/AGENTS.md", "") == "Rule //depot/AGENTS.md"
    assert rule_note("r", "One\n  line.") == "Rule r: One line."
    fits = "x" * (MAX_RULE_NOTE - len("Rule r: "))
    assert rule_note("r", fits) == f"Rule r: {fits}"
    assert rule_note("r", f"{fits}x") == "Rule r"


def test_a_finding_without_a_confidence_says_none() -> None:
    assert evidence_note(True, None).startswith("Insufficient evidence: ")
