"""The message of a digest: worst review first, bounded, escaped, the same each time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from notifications.digests.message import MAX_LISTED, compose
from notifications.providers.base import Message
from notifications.providers.email import mime
from notifications.rendering import MAX_SUBJECT, ReportFile, render
from notifications.rendering.wrapping import width
from tests.notifications.samples import SENDER, finding
from tests.notifications.samples import message as bare
from tests.notifications.test_rendering import GMAIL_CUTS_AT
from tests.notifications.together import review

TOKEN = UUID(int=9, version=5)


def about(changelist: str, *severities: str, **changes: Any) -> Message:
    token = UUID(int=sum(map(ord, changelist)), version=5)
    return render(
        review(changelist, *severities, **changes),
        "mail:ann@example.com",
        token,
        unsubscribe_url=f"https://reviews.test/unsubscribe/{changelist}/",
    )


def test_the_worst_review_comes_first_and_each_is_named_with_its_counts() -> None:
    made = compose([about("1", "low"), about("2"), about("3", "high", "medium")], TOKEN)
    assert made.subject == "3 reviews: 1 high, 1 medium, 1 low (3, 1, 2)"
    for text in (made.text, made.html):
        places = [text.index(f"https://reviews.test/reviews/{name}/") for name in "312"]
        assert places == sorted(places)
        assert "3 findings in 3 reviews, 3 of 6 files read" in text
        assert "1 finding (1 high)" not in text
        assert "o findings, 1 of 2 files read" in text
        assert "2 findings (1 high), 1 of 2 files read" in text
        assert "https://reviews.test/reviews/3/#finding-1" in text
        assert "//depot/main/app.py:12-14" in text
    assert made.token == TOKEN
    assert made.created_at_epoch == about("1").created_at_epoch
    assert made.answers is None


def test_the_same_messages_make_the_same_bytes_whatever_storage_did_to_their_json() -> None:
    messages = [about("1", "low", "high"), about("2", "medium")]
    turned = [
        replace(
            message,
            payload={**message.payload, "data": dict(reversed(list(message.payload["data"].items())))},
        )  # type: ignore[attr-defined]
        for message in messages
    ]
    for message in turned:
        counts: Any = message.payload["data"]
        counts["severities"] = dict(reversed(list(counts["severities"].items())))
    assert mime.as_bytes(compose(messages, TOKEN), SENDER) == mime.as_bytes(compose(turned, TOKEN), SENDER)


def test_banner_author_commit_and_new_findings_are_shown() -> None:
    name = "git:app@" + "0123456789abcdef" * 2 + "01234567"
    noted = about(name, "low", banner="The model was not available.", author="bob")
    news = about("2", findings=(finding(is_new=True), finding(is_new=False, line=90)))
    made = compose([noted, news], TOKEN)
    assert "(2, git:app@0123456789ab)" in made.subject
    for text in (made.text, made.html):
        assert "The model was not available." in text
        assert "bob" in text
        assert name in text
        assert "(high, new)" in text
        assert "(high, still there)" in text


def test_one_link_stops_the_mail_and_the_headers_name_it() -> None:
    made = compose([about("1"), about("2")], TOKEN)
    link = "https://reviews.test/unsubscribe/1/"
    assert made.text.count("/unsubscribe/") == made.html.count("/unsubscribe/") == 1
    headers = mime.headers(made, SENDER)
    assert headers["List-Unsubscribe"] == f"<{link}>"
    assert headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert headers["Message-ID"] == f"<{TOKEN}@reviews.test>"
    assert headers["X-Criticizer-Token"] == str(TOKEN)


def test_left_out_findings_are_counted() -> None:
    made = compose([about("1", *["high"] * 7, "low"), about("2")], TOKEN)
    for text in (made.text, made.html):
        assert text.count("Finding ") == MAX_LISTED
        assert "3 more findings (2 high, 1 low), not listed" in " ".join(text.split())


@pytest.mark.long
def test_fifty_long_reviews_stay_below_what_gmail_shows_and_each_is_named() -> None:
    long = "<&>" * 60
    messages = [
        about(
            f"{number:03d}{'x' * 80}",
            *["high"] * 30,
            title=long,
            author=long[:80],
            banner=long,
            coverage=tuple(ReportFile(f"//depot/{long}/{n}", "skipped", long) for n in range(30)),
        )
        for number in range(50)
    ]
    made = compose(messages, TOKEN)
    assert len(made.html.encode()) < GMAIL_CUTS_AT
    assert len(made.subject) <= MAX_SUBJECT
    assert " more)" in made.subject
    for number in range(50):
        for text in (made.text, made.html):
            assert f"{number:03d}xxx" in text
            assert f"https://reviews.test/reviews/{number:03d}xxx" in text


def test_untrusted_text_is_escaped() -> None:
    evil = "<script>alert(1)</script>\r\nBcc: eve@example.com"
    made = compose([about("1", title=evil, author=evil, banner=evil), about("2", "high")], TOKEN)
    assert "<script" not in made.html
    assert "&lt;script&gt;" in made.html
    assert "\n" not in made.subject
    assert "\nBcc:" not in made.text


@pytest.mark.parametrize("url", ["javascript:alert(1)", "", "ftp://x/"])
def test_only_web_addresses_become_links(url: str) -> None:
    made = compose([about("1", "high", url=url), about("2")], TOKEN)
    assert url == "" or f'href="{url}' not in made.html


def test_plain_text_fits_a_terminal() -> None:
    made = compose(
        [about("1", *["high"] * 8, title="A title " * 20, banner="A note " * 30), about("2")], TOKEN
    )
    assert [line for line in made.text.splitlines() if width(line) > 80] == []


def test_a_message_without_a_review_payload_is_included() -> None:
    made = compose([bare(), replace(bare(token=2), thread="changelist:77")], TOKEN)
    assert "12345" in made.text
    assert "77" in made.text


def test_one_message_or_two_addresses_are_refused() -> None:
    with pytest.raises(ValueError, match="one address"):
        compose([about("1")], TOKEN)
    with pytest.raises(ValueError, match="one address"):
        compose([about("1"), replace(about("2"), address="bob@example.com")], TOKEN)


def test_a_repeat_notice_comes_first() -> None:
    made = replace(compose([about("1"), about("2")], TOKEN), repeat_notice="This may repeat.")
    assert mime.text_of(made).startswith("This may repeat.")
    assert mime.html_of(made).index("This may repeat.") < mime.html_of(made).index("<h1")
