"""Webhooks of mail services: authentication, and the effect of each event.

Origin of the events: documented (Resend's and Postmark's pages on webhooks), shortened.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from django.test import Client

from criticizer.security.standard_webhooks import signed_at
from notifications.models import Delivery, Suppression
from notifications.states import DeliveryStatus
from notifications.suppressions import webhooks
from reviews.models import ReviewJob
from tests.notifications.samples import SECRET_NEW, SECRET_OLD
from tests.notifications.scripted import ANN, ScriptedProvider, deliver, prepare

pytestmark = pytest.mark.django_db
PASSWORD = "postmark:password-for-tests"
KEYS = [base64.b64decode(secret.removeprefix("whsec_")) for secret in (SECRET_NEW, SECRET_OLD)]


@pytest.fixture(autouse=True)
def _configured(settings: Any) -> None:
    settings.RESEND_WEBHOOK_SECRETS = [SECRET_NEW, SECRET_OLD]
    settings.POSTMARK_WEBHOOK_AUTH = [PASSWORD, "postmark:older-for-tests"]


def sent_by(job: ReviewJob, name: str) -> Delivery:
    (row,) = prepare(job, ANN)
    deliver(job, {"mail": ScriptedProvider(name, deduplicates=True)})
    row.refresh_from_db()
    assert row.status == DeliveryStatus.SENT
    return row


def post_resend(content: object, *, key: bytes = KEYS[0], event: str = "msg_1", **headers: Any) -> Any:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    stamp = str(headers.pop("stamp", int(time.time())))
    signed = f"{event}.{stamp}.".encode() + body
    signature = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    given = {"svix-id": event, "svix-timestamp": stamp, "svix-signature": f"v1,{signature}", **headers}
    given = {name: value for name, value in given.items() if value is not None}
    return Client().post("/webhooks/resend/", body, content_type="application/json", headers=given)


def post_postmark(content: object, password: str | None = PASSWORD) -> Any:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers = {}
    if password is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(password.encode()).decode()
    return Client().post("/webhooks/postmark/", body, content_type="application/json", headers=headers)


def resend_event(row: Delivery, kind: str, **data: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "created_at": "2026-11-21T07:00:00.000Z",
        "data": {
            "email_id": row.notification_id,
            "to": ["ann@example.com"],
            "headers": [{"name": "X-Criticizer-Token", "value": str(row.token)}],
            **data,
        },
    }


def bounce(kind: str = "Permanent") -> dict[str, Any]:
    return {"bounce": {"message": "The server sent a hard bounce message.", "type": kind}}


def postmark_event(row: Delivery, **changes: Any) -> dict[str, Any]:
    return {
        "RecordType": "Bounce",
        "Type": "HardBounce",
        "ID": 4323372036854775807,
        "MessageID": row.notification_id,
        "Email": "ann@example.com",
        "Metadata": {"criticizer": str(row.token)},
        "Description": "The server was unable to deliver your message",
        "BouncedAt": "2026-11-21T07:00:00Z",
        **changes,
    }


def state_of(row: Delivery) -> tuple[str, list[str]]:
    row.refresh_from_db()
    assert row.status == DeliveryStatus.SENT  # whatever is reported
    return row.delivery_state, list(Suppression.objects.values_list("reason", flat=True))


# -- events ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "data", "state", "reasons"),
    [
        ("email.bounced", bounce(), "bounced", ["bounced"]),
        ("email.bounced", {"bounce": {"message": "no kind"}}, "bounced", ["bounced"]),
        ("email.bounced", bounce("Transient"), "bounced", []),
        ("email.complained", {}, "complained", ["complained"]),
        ("email.delivered", {}, "delivered", []),
        ("email.delivery_delayed", {}, "deferred", []),
        ("email.opened", {}, "", []),
        ("email.of_tomorrow", {}, "", []),
    ],
)
def test_what_resend_reports(
    job: ReviewJob, kind: str, data: dict[str, Any], state: str, reasons: list[str]
) -> None:
    row = sent_by(job, "resend")
    for _ in range(2):  # a service repeats what it is not sure of
        assert post_resend(resend_event(row, kind, **data)).status_code == 204
    assert state_of(row) == (state, reasons)


@pytest.mark.parametrize(
    ("changes", "state", "reasons"),
    [
        ({}, "bounced", ["bounced"]),
        ({"Type": "SoftBounce"}, "bounced", []),
        ({"Type": "Transient"}, "deferred", []),
        ({"Type": "BadEmailAddress"}, "bounced", ["bounced"]),
        ({"RecordType": "SpamComplaint", "Type": "SpamComplaint"}, "complained", ["complained"]),
        ({"RecordType": "Delivery", "Recipient": "ann@example.com"}, "delivered", []),
        ({"RecordType": "Open"}, "", []),
        ({"RecordType": "OfTomorrow"}, "", []),
        ({"RecordType": "Inbound"}, "", []),
    ],
)
def test_what_postmark_reports(
    job: ReviewJob, changes: dict[str, Any], state: str, reasons: list[str]
) -> None:
    row = sent_by(job, "postmark")
    for _ in range(2):
        assert post_postmark(postmark_event(row, **changes)).status_code == 204
    assert state_of(row) == (state, reasons)


def test_an_event_of_a_mail_that_is_not_ours_is_taken_and_changes_nothing(job: ReviewJob) -> None:
    row = sent_by(job, "resend")
    event = resend_event(row, "email.bounced", email_id="other", headers=[], **bounce())
    assert post_resend(event).status_code == 204
    assert state_of(row) == ("", [])


@pytest.mark.parametrize(
    "content",
    [{}, {"type": 7}, {"type": "email.bounced"}, {"type": "email.bounced", "data": []},
     {"type": "email.bounced", "data": {"to": None, "headers": [None], "bounce": {"message": 1}}}],
)  # fmt: skip
def test_a_signed_event_of_no_known_form_is_taken_and_changes_nothing(content: object) -> None:
    assert post_resend(content).status_code == 204
    assert post_postmark(content).status_code == 204
    assert not Suppression.objects.exists()


HOSTILE = ["\x00", "a\x00b", "\ud800", "x" * 5000, "\x00" * 600]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_of_a_signed_event_is_taken_and_changes_nothing(job: ReviewJob, hostile: str) -> None:
    row = sent_by(job, "resend")
    event = resend_event(row, "email.bounced", **bounce(), email_id=hostile, headers=[])
    assert post_resend(event).status_code == 204
    assert post_postmark(postmark_event(row, MessageID=hostile, Metadata={})).status_code == 204
    assert state_of(row) == ("", [])


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_of_a_bouncing_server_hides_no_bounce(job: ReviewJob, hostile: str) -> None:
    row = sent_by(job, "postmark")
    assert post_postmark(postmark_event(row, Description=f"550 {hostile}")).status_code == 204
    assert state_of(row) == ("bounced", ["bounced"])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"\xff\xfe", b'{"a":' * 20_000, b"[" * 200_000])
def test_what_is_no_event_at_all_is_refused(content: bytes) -> None:
    assert post_resend(content).status_code == 400
    assert post_postmark(content).status_code == 400


# -- who may report ----------------------------------------------------------------------------


def test_either_secret_signs_so_that_it_rotates(job: ReviewJob) -> None:
    row = sent_by(job, "resend")
    assert post_resend(resend_event(row, "email.delivered"), key=KEYS[1]).status_code == 204
    assert state_of(row)[0] == "delivered"


@pytest.mark.parametrize(
    "headers",
    [
        {"key": b"another key"},
        {"svix-signature": None},
        {"svix-id": "msg_2"},
        {"svix-timestamp": "1700000000"},
        {"stamp": 1_700_000_000},
        {"stamp": 9_999_999_999},
        {"stamp": "soon"},
        {"svix-signature": "v1,"},
        {"svix-signature": "v2,AAAA"},
        {"svix-signature": "\u00e4"},
    ],
)
def test_resend_without_a_good_and_fresh_signature_is_refused(
    job: ReviewJob, headers: dict[str, Any]
) -> None:
    row = sent_by(job, "resend")
    assert post_resend(resend_event(row, "email.bounced", **bounce()), **headers).status_code == 401
    assert state_of(row) == ("", [])


def test_a_signature_of_another_body_is_refused(job: ReviewJob) -> None:
    row = sent_by(job, "resend")
    body = json.dumps(resend_event(row, "email.bounced", **bounce())).encode()
    stamp = str(int(time.time()))
    other = base64.b64encode(hmac.digest(KEYS[0], f"m.{stamp}.{{}}".encode(), hashlib.sha256)).decode()
    headers = {"svix-id": "m", "svix-timestamp": stamp, "svix-signature": f"v1,{other}"}
    answer = Client().post("/webhooks/resend/", body, content_type="application/json", headers=headers)
    assert answer.status_code == 401
    assert state_of(row) == ("", [])


@pytest.mark.parametrize("password", [None, "", "postmark:wrong", "postmark", f"{PASSWORD} ", "x" * 9000])
def test_postmark_without_its_password_is_refused(job: ReviewJob, password: str | None) -> None:
    row = sent_by(job, "postmark")
    assert post_postmark(postmark_event(row), password).status_code == 401
    assert state_of(row) == ("", [])


def test_a_login_that_is_not_ascii_is_refused() -> None:
    answer = Client().post(
        "/webhooks/postmark/", b"{}", content_type="application/json", headers={"Authorization": "Basic \xe9"}
    )
    assert answer.status_code == 401


def test_the_older_password_is_taken_while_it_is_configured(job: ReviewJob) -> None:
    row = sent_by(job, "postmark")
    assert post_postmark(postmark_event(row), "postmark:older-for-tests").status_code == 204
    assert state_of(row)[1] == ["bounced"]


def test_a_webhook_without_a_secret_is_not_found(settings: Any) -> None:
    settings.RESEND_WEBHOOK_SECRETS = []
    settings.POSTMARK_WEBHOOK_AUTH = []
    assert post_resend({}).status_code == 404
    assert post_postmark({}).status_code == 404


def test_a_body_that_is_too_long_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MAX_BODY_BYTES", 64)
    long = {"type": "x" * 100}
    assert post_resend(long).status_code == 413
    assert post_postmark(long).status_code == 413


def test_only_posts_are_taken() -> None:
    for name in ("resend", "postmark"):
        assert Client().get(f"/webhooks/{name}/").status_code == 405


def test_no_secret_is_needed_of_the_browser_and_no_cookie_given() -> None:
    client = Client(enforce_csrf_checks=True)
    answer = client.post("/webhooks/resend/", b"{}", content_type="application/json")
    assert answer.status_code == 401
    assert not answer.cookies


def test_the_standards_own_example_is_verified() -> None:
    """The example of Standard Webhooks' specification: secret, id, time, body, signature."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = {
        "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "Webhook-Timestamp": "1614265330",
        "Webhook-Signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    assert signed_at([key], headers, b'{"test": 2432232314}') == 1614265330
    assert signed_at([key], headers, b'{"test": 2432232315}') is None
