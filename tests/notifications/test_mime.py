"""A message as an Internet mail: its headers, its threads, and the notice of a repetition."""

from __future__ import annotations

import email.policy
from dataclasses import replace
from email import message_from_bytes
from email.message import EmailMessage
from typing import cast
from uuid import UUID

import pytest

from notifications.providers.base import Message
from notifications.providers.email import mime
from notifications.rendering import render
from tests.notifications.samples import SENDER, message, report

# Longer than a line of a mail: it must stay whole all the same.
LINK = "https://reviews.test/unsubscribe/" + "A" * 22 + "." + "b" * 43 + "/"
NOTICE = "This may repeat <an> earlier message."


def parsed(made: Message) -> EmailMessage:
    mail = message_from_bytes(mime.as_bytes(made, SENDER), policy=email.policy.default)
    return cast("EmailMessage", mail)


def body(made: Message, kind: str) -> str:
    part = parsed(made).get_body((kind,))
    assert part is not None
    return str(part.get_content())


def test_the_same_message_gives_the_same_bytes() -> None:
    made = message(unsubscribe_url=LINK, answers=UUID(int=9), repeat_notice=NOTICE)
    assert mime.as_bytes(made, SENDER) == mime.as_bytes(replace(made), SENDER)


def test_one_click_stops_the_mail() -> None:
    raw = mime.as_bytes(message(unsubscribe_url=LINK), SENDER)
    assert f"\r\nList-Unsubscribe: <{LINK}>\r\n".encode() in raw  # not folded, not encoded (RFC 8058)
    assert b"\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n" in raw


def test_without_https_the_link_asks_first() -> None:
    mail = parsed(message(unsubscribe_url="http://reviews.test/unsubscribe/x/"))
    assert mail["List-Unsubscribe"] == "<http://reviews.test/unsubscribe/x/>"
    assert mail["List-Unsubscribe-Post"] is None  # one click needs https (RFC 8058, 3.1)


def test_without_a_link_there_is_no_header_for_one() -> None:
    mail = parsed(message())
    assert mail["List-Unsubscribe"] is None
    assert mail["List-Id"] == "Criticizer reviews <reviews.reviews.test>"


def test_versions_hang_together() -> None:
    first = message(token=1)
    second = message(token=2, answers=first.token)
    third = message(token=3, answers=second.token)
    other = message(token=4, thread="changelist:99")
    one, two, three, stranger = (parsed(made) for made in (first, second, third, other))
    root = str(one["References"])
    assert one["In-Reply-To"] == root
    assert str(two["References"]).split() == [root, str(one["Message-ID"])]
    assert two["In-Reply-To"] == one["Message-ID"]
    assert str(three["References"]).split() == [root, str(two["Message-ID"])]
    assert stranger["References"] != root


@pytest.mark.parametrize("field", ["title", "changelist_id", "author"])
def test_no_text_of_a_review_can_add_a_header(field: str) -> None:
    hostile = "x\r\nBcc: mallory@example.com\r\n\r\n<b>\u2028X-Evil: 1\x85X-Evil: 2\x0bX-Evil: 3"
    made = render(report(**{field: hostile}), "mail:ann@example.com", UUID(int=7), unsubscribe_url=LINK)
    plain = render(report(), "mail:ann@example.com", UUID(int=7), unsubscribe_url=LINK)
    assert parsed(made).keys() == parsed(plain).keys()
    assert str(parsed(made)["To"]) == "ann@example.com"


def test_a_title_of_any_script_arrives_as_it_is() -> None:
    title = "Löst den Lock: ロックを解放する " * 4
    made = render(report(title=title.strip()), "mail:ann@example.com", UUID(int=7))
    assert str(parsed(made)["Subject"]) == made.subject
    assert all(len(line) <= 998 for line in mime.as_bytes(made, SENDER).split(b"\r\n"))


def test_a_repetition_says_so_in_both_bodies_and_is_otherwise_the_same() -> None:
    made = render(report(), "mail:ann@example.com", UUID(int=7))
    again = replace(made, repeat_notice=NOTICE)
    assert body(again, "plain").replace("\r\n", "\n").startswith(f"{NOTICE}\n\n1 finding")
    assert body(again, "html").count("This may repeat &lt;an&gt; earlier message.") == 1
    assert "may repeat" not in body(made, "html") + body(made, "plain")
    assert parsed(again)["X-Criticizer-Attempt"] == "2"
    assert parsed(made)["X-Criticizer-Attempt"] is None
    assert parsed(again)["Message-ID"] == parsed(made)["Message-ID"]


def test_a_repetition_says_so_also_in_html_without_a_place_for_it() -> None:
    again = message(html="<html><head></head><body class=a><p>Hello</p></body></html>", repeat_notice=NOTICE)
    assert body(again, "html").startswith("<html><head></head><body class=a><table")
