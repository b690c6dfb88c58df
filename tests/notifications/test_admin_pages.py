"""The admin's pages about messages and providers."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from criticizer.models import Circuit
from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from notifications import config
from notifications.admin import preview
from notifications.delivery import snapshot
from notifications.models import Delivery
from notifications.providers.base import Message
from notifications.rendering import render
from reviews.models import ReviewJob
from tests.factories import (
    CoverageRowFactory,
    DeliveryAttemptFactory,
    DeliveryFactory,
    FindingRowFactory,
    ReviewJobFactory,
    StageRunFactory,
    UserFactory,
)
from tests.notifications.samples import message, report

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def ann(client: Client) -> Client:
    client.force_login(UserFactory(username="ann", is_staff=True, is_superuser=True))
    return client


def frozen_delivery(made: Message, channel: str = "mail") -> Delivery:
    payload, digest = snapshot.freeze(made)
    row: Delivery = DeliveryFactory(
        recipient=f"{channel}:{made.address}",
        token=made.token,
        subject=made.subject,
        payload=payload,
        payload_sha256=digest,
    )
    return row


def text_of(answer: Any) -> str:
    return unescape(answer.content.decode())


def parts_of(answer: Any) -> dict[str, str]:
    page = answer.content.decode()
    found = re.findall(r'<pre class="stack"[^>]*aria-label="([^"]+)">(.*?)</pre>', page, re.DOTALL)
    return {name: unescape(text) for name, text in found}


# -- the message of a delivery ------------------------------------------------------------------


def test_a_delivery_shows_its_message_in_every_form(ann: Client) -> None:
    row = frozen_delivery(message(unsubscribe_url="https://reviews.test/u/"))
    answer = ann.get(f"/admin/deliveries/{row.pk}/message/")
    parts = parts_of(answer)
    assert list(parts) == [
        "Plain text",
        "Mail headers",
        "Webhook body",
        "Slack blocks",
        "P4 Code Review comment",
    ]
    assert "ümlaut" in parts["Plain text"]
    assert f"X-Criticizer-Token: {row.token}" in parts["Mail headers"]
    assert "List-Unsubscribe: <https://reviews.test/u/>" in parts["Mail headers"]
    assert json.loads(parts["Webhook body"]) == message().payload
    assert json.loads(parts["Slack blocks"])["blocks"]
    assert str(row.token) in parts["P4 Code Review comment"]
    assert text_of(answer).count("not used for this recipient") == 3


def test_what_the_channel_sends_comes_first(ann: Client) -> None:
    row = frozen_delivery(message("https://ci.example.com/x"), "webhook")
    assert next(iter(parts_of(ann.get(f"/admin/deliveries/{row.pk}/message/")))) == "Webhook body"


def test_the_html_is_an_answer_of_its_own_in_which_nothing_can_run(ann: Client) -> None:
    row = frozen_delivery(message(html=f"<html><body style='color:red'>{HOSTILE}</body></html>"))
    answer = ann.get(f"/admin/deliveries/{row.pk}/message/html/")
    assert answer.content.decode() == row.payload["html"]
    policy = answer["Content-Security-Policy"]
    assert policy == preview.POLICY
    for directive in ("default-src 'none'", "sandbox;", "form-action 'none'", "frame-ancestors 'self'"):
        assert directive in policy
    assert "script" not in policy
    assert "allow-" not in policy
    assert answer["X-Frame-Options"] == "SAMEORIGIN"
    page = ann.get(f"/admin/deliveries/{row.pk}/message/")
    assert "unsafe" not in page["Content-Security-Policy"]
    frames = re.findall(r"<iframe[^>]*>", page.content.decode())
    assert len(frames) == 3
    assert all(" sandbox title=" in frame for frame in frames)


def test_its_colours_are_those_that_are_asked_for(ann: Client) -> None:
    row = frozen_delivery(render(report(), "mail:ann@example.com", UUID(int=7)))
    address = f"/admin/deliveries/{row.pk}/message/html/"
    dark = "@media (prefers-color-scheme: dark)"
    for scheme, question in (("light", "@media not all"), ("dark", "@media all"), ("", dark), ("<x>", dark)):
        html = ann.get(address, {"scheme": scheme}).content.decode()
        assert html == row.payload["html"].replace(dark, question)


def test_the_pages_escape_what_a_message_says(ann: Client) -> None:
    row = frozen_delivery(message(subject=HOSTILE, text=HOSTILE, payload={"x": HOSTILE}))
    assert HOSTILE not in ann.get(f"/admin/deliveries/{row.pk}/message/").content.decode()


@pytest.mark.parametrize("payload", [{}, {"text": "another"}])
def test_a_delivery_without_its_message_says_so(ann: Client, payload: dict[str, str]) -> None:
    row = DeliveryFactory(payload=payload)
    assert "No message is stored" in text_of(ann.get(f"/admin/deliveries/{row.pk}/message/"))
    assert ann.get(f"/admin/deliveries/{row.pk}/message/html/").status_code == 404


# -- the message of a review --------------------------------------------------------------------


@pytest.fixture
def reviewed() -> ReviewJob:
    """The second version of a changelist: one finding is there still, one is new, one is fixed."""
    for version in (1, 2):
        recipients = ["mail:bob@example.com", "webhook:https://ci.example.com/x"]
        job = ReviewJobFactory(
            changelist_id="12345", review_version=version, status="succeeded", recipients=recipients
        )
        StageRunFactory(job=job, stage="llm", status="succeeded")
        CoverageRowFactory(job=job, file="//depot/main/app.py", status="reviewed")
    job.compared_with = 1
    job.save()
    place = {"file": "//depot/main/app.py", "source": "llm"}
    first = job.versions().get(review_version=1)
    FindingRowFactory(job=first, title="Fixed soon", ending="fixed", ended_in=job, **place)
    FindingRowFactory(job=job, title="The lock is not released", is_new=False, **place)
    FindingRowFactory(job=job, title="Fresh", is_new=True, **place)
    found: ReviewJob = job
    return found


def test_a_review_shows_the_message_it_would_send_without_sending_it(
    ann: Client, reviewed: ReviewJob
) -> None:
    parts = parts_of(ann.get(f"/admin/reviews/{reviewed.pk}/message/"))
    assert "1 new, 1 still there, 1 fixed." in parts["Plain text"]
    assert f"/reviews/{reviewed.pk}/#finding-" in parts["Plain text"]
    assert "To: bob@example.com" in parts["Mail headers"]
    assert Delivery.objects.count() == 0


def test_its_recipient_can_be_chosen(ann: Client, reviewed: ReviewJob) -> None:
    chosen = {"recipient": "webhook:https://ci.example.com/x"}
    parts = parts_of(ann.get(f"/admin/reviews/{reviewed.pk}/message/", chosen))
    assert next(iter(parts)) == "Webhook body"
    html = ann.get(f"/admin/reviews/{reviewed.pk}/message/html/", chosen)
    assert html["Content-Security-Policy"] == preview.POLICY
    assert "The lock is not released" in html.content.decode()


def test_a_stranger_cannot_be_chosen(ann: Client, reviewed: ReviewJob) -> None:
    chosen = {"recipient": "mail:mallory@example.com"}
    assert parts_of(ann.get(f"/admin/reviews/{reviewed.pk}/message/", chosen)) == {}
    assert ann.get(f"/admin/reviews/{reviewed.pk}/message/html/", chosen).status_code == 404


def test_a_review_without_a_result_says_so(ann: Client) -> None:
    job = ReviewJobFactory(recipients=["mail:bob@example.com"])
    assert "There is no message yet" in text_of(ann.get(f"/admin/reviews/{job.pk}/message/"))


# -- providers ----------------------------------------------------------------------------------


class Scripted:
    """A provider that says what a test tells it to."""

    name = "smtp"

    def __init__(self, probe: Any = "the server answers", send: Any = "<id@x>") -> None:
        from notifications.providers.base import Capabilities

        self.capabilities = Capabilities()
        self._probe, self._send = probe, send
        self.sent: list[Message] = []

    def probe(self) -> str:
        if isinstance(self._probe, Exception):
            raise self._probe
        return str(self._probe)

    def send(self, message: Message) -> str:
        self.sent.append(message)
        if isinstance(self._send, Exception):
            raise self._send
        return str(self._send)


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    provider = Scripted()
    monkeypatch.setattr(config, "providers", lambda: {"mail": provider})
    return provider


def tried(ann: Client, address: str = "bob@example.com", channel: str = "mail") -> str:
    return text_of(ann.post(f"/admin/providers/{channel}/test/", {"address": address}))


def test_providers_are_shown_with_promises_circuits_and_last_error(ann: Client) -> None:
    Circuit.objects.create(
        name="provider:webhook:ci.example.com", state="open", reason="6 of 10 calls failed"
    )
    Circuit.objects.create(name="llm:openai")
    row = DeliveryFactory(recipient="webhook:https://ci.example.com/x")
    DeliveryAttemptFactory(delivery=row, error_class="NETWORK_TIMEOUT", detail=f"no answer {HOSTILE}")
    DeliveryAttemptFactory(delivery=row)
    page = ann.get("/admin/providers/").content.decode()
    assert HOSTILE not in page
    for text in (
        "provider:webhook:ci.example.com",
        "6 of 10 calls failed",
        "NETWORK_TIMEOUT",
        "no answer",
        "Repeats are one message",
        "SLACK_BOT_TOKEN",  # what to set for a channel without a provider
    ):
        assert text in page, text
    assert "llm:openai" not in page


def test_a_configuration_that_cannot_work_is_said_on_the_page(ann: Client, settings: Any) -> None:
    settings.MAIL_FROM = "Criticizer"
    assert "mail: the sender is not a mail address" in text_of(ann.get("/admin/providers/"))
    assert "The sender is not a mail address." in tried(ann)


def test_a_test_checks_the_provider_and_sends_a_plain_message(ann: Client, mail: Scripted) -> None:
    page = tried(ann)
    assert "Check: works" in page
    assert "The server answers." in page
    assert "Accepted: <id@x>" in page
    (sent,) = mail.sent
    assert sent.address == "bob@example.com"
    assert "ann asked Criticizer at" in sent.text
    assert Delivery.objects.count() == 0


def test_what_fails_the_check_is_explained_and_nothing_is_sent(ann: Client, mail: Scripted) -> None:
    mail._probe = PermanentFailure(ErrorClass.AUTH_DENIED, Component.PROVIDER, "the password was refused")
    page = tried(ann)
    assert "Check: failed" in page
    assert "The password was refused." in page
    assert "Renew or rotate the credential" in page
    assert "CRITICIZER_E7" in page
    assert mail.sent == []


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (
            RetryableFailure(ErrorClass.RATE_LIMITED, Component.PROVIDER, "asked to slow down"),
            "Asked to slow down.",
        ),
        (
            UncertainFailure(ErrorClass.DELIVERY_UNCERTAIN, Component.PROVIDER, "no reply"),
            "The message may have arrived",
        ),
        (RuntimeError("secret detail"), "Unhandled RuntimeError."),
    ],
)
def test_what_fails_the_message_is_explained(
    ann: Client, mail: Scripted, failure: Exception, says: str
) -> None:
    mail._send = failure
    page = tried(ann)
    assert "Check: works" in page
    assert "Message: failed" in page
    assert says in page
    assert "secret detail" not in page


@pytest.mark.parametrize("address", ["", "not an address", "bob@example.com\r\nBcc: x@example.com"])
def test_an_address_that_is_none_is_refused_with_a_reason(ann: Client, mail: Scripted, address: str) -> None:
    assert 'role="alert"' in tried(ann, address)
    assert mail.sent == []


def test_a_channel_without_a_provider_says_what_is_missing(ann: Client, mail: Scripted) -> None:
    assert "Nothing is configured for this channel." in tried(ann, "C0123ABCD", "slack")


def test_an_unknown_channel_is_not_there_and_a_test_is_never_a_get(ann: Client, mail: Scripted) -> None:
    assert ann.post("/admin/providers/pigeon/test/", {"address": "x"}).status_code == 404
    assert ann.get("/admin/providers/mail/test/").status_code == 405


def test_a_real_test_message_arrives_in_the_maildir(ann: Client, settings: Any, tmp_path: Path) -> None:
    settings.SMTP_HOST = ""
    settings.MAILDIR = tmp_path / "mail"
    page = tried(ann)
    assert "Message: works" in page, page
    (file,) = (tmp_path / "mail" / "new").iterdir()
    assert b"Subject: Test message from Criticizer\n" in file.read_bytes()


def test_a_test_message_does_not_reach_a_private_address(ann: Client) -> None:
    page = tried(ann, "http://127.0.0.1:9/hook", "webhook")
    assert "OUTBOUND_ALLOW" in page
