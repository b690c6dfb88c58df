"""What every channel says of a partial review, and of a finding without evidence (G385, G387)."""

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
from notifications.rendering.report import evidence_note
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


def test_a_finding_without_a_confidence_says_none() -> None:
    assert evidence_note(True, None).startswith("Insufficient evidence: ")
