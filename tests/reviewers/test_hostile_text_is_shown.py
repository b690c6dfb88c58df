"""Hostile text of a model, in each place where people read it: shown whole, never acting.

The text passes the real validation and anchoring, the stored row, and the real page and
messages.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.test import Client

from notifications.providers.base import Message
from notifications.providers.slack import blocks
from notifications.providers.swarm import markdown
from reviews.models import ReviewJob
from reviews.reports import messages_for, report_of
from tests import factories
from tests.reviewers.test_anchoring import one

SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(1)>"
CODE = "if (a<b && c>d) crash; foo<i + 1>bar; Missing </td>; <!-- seen -->"
ADDRESS = "[here](https://evil.example/x)"
WORDS = f"{SCRIPT} {IMAGE} {CODE} {ADDRESS}"
SHOWN = f"{SCRIPT} {IMAGE} {CODE} [here] (https[:]//evil[.]example/x)"


@pytest.fixture
def job(db: None) -> ReviewJob:
    """A review whose model wrote WORDS wherever it may write."""
    found = one(title=f"{SCRIPT} {IMAGE} a<b", problem=WORDS, trigger=CODE, suggestion=WORDS)
    assert found.suggestion == SHOWN
    made: Any = factories.job_with_stages(changelist_id="12345", status="succeeded")
    factories.CoverageRowFactory(job=made, file=found.file, status="reviewed")
    factories.FindingRowFactory(
        job=made, file=found.file, title=found.title, message=found.message, suggestion=found.suggestion
    )
    job: ReviewJob = made
    return job


def message_of(job: ReviewJob) -> Message:
    return messages_for(job, {"mail:ann@example.com": report_of(job)})["mail:ann@example.com"]


def unescaped(page: str) -> str:
    """Return what a reader sees of a page without its tags, white space squeezed."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", page)).split())


def test_the_review_page_shows_it(job: ReviewJob, client: Client) -> None:
    bob: Any = factories.UserFactory()
    client.force_login(bob)
    page = client.get(f"/reviews/{job.pk}/").content.decode()
    main = page[page.index("<main") : page.index("</main>")]
    assert "<script>alert" not in page
    assert "<img src" not in main
    assert "evil.example" not in page
    assert unescaped(main).count(SHOWN) == 2  # the problem and the suggestion


def test_mail_shows_it_as_html_and_as_text(job: ReviewJob) -> None:
    message = message_of(job)
    assert "<script" not in message.html
    assert "<img" not in message.html
    assert SHOWN in unescaped(message.html)
    assert SHOWN in " ".join(message.text.split())
    assert "evil.example" not in message.html + message.text


def test_slack_is_given_no_sign_that_it_obeys(job: ReviewJob) -> None:
    body = blocks.body(message_of(job))
    texts = json.dumps(body["blocks"], ensure_ascii=False)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &lt;img src=x onerror=alert(1)&gt;" in texts
    assert "if (a&lt;b &amp;&amp; c&gt;d) crash" in texts
    assert "<script" not in texts
    assert "<img" not in texts


def test_a_comment_in_code_review_is_markdown_without_a_tag_or_link(job: ReviewJob) -> None:
    body = markdown.body(message_of(job))
    prose = "".join(body.split("```")[::2])
    assert r"\<script\>alert(1)\</script\>" in prose
    assert "<script>" not in prose.replace(r"\<script\>", "")
    assert "](" not in prose.replace("\\](", "")
    assert "https://evil" not in body


def test_a_webhook_carries_it_as_text_of_json(job: ReviewJob) -> None:
    (told,) = message_of(job).payload["data"]["findings"]  # type: ignore[index]
    assert told["suggestion"] == SHOWN
    assert told["title"] == f"{SCRIPT} {IMAGE} a<b"
    assert json.loads(json.dumps(told)) == told
