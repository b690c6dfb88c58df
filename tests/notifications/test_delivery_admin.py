"""Admin of deliveries: read-only pages, and the decision about uncertain ones."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from notifications.models import Delivery
from tests.factories import DeliveryAttemptFactory, DeliveryFactory, UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann(client: Client) -> Client:
    client.force_login(UserFactory(is_staff=True, is_superuser=True))
    return client


def test_the_list_shows_state_and_recipient(ann: Client) -> None:
    DeliveryFactory(recipient="mail:bob@example.com", status="sent")
    page = ann.get("/admin/notifications/delivery/").content.decode()
    assert "mail:bob@example.com" in page
    assert "Sent" in page


def test_the_detail_shows_the_attempts_and_escapes_what_a_provider_said(ann: Client) -> None:
    attempt = DeliveryAttemptFactory(outcome="rejected", detail="<script>alert(1)</script>")
    page = ann.get(f"/admin/notifications/delivery/{attempt.delivery_id}/change/").content.decode()
    assert "Rejected" in page
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("action", ["add/", "{}/delete/"])
def test_nothing_can_be_added_or_deleted(ann: Client, action: str) -> None:
    row = DeliveryFactory()
    assert ann.get(f"/admin/notifications/delivery/{action.format(row.pk)}").status_code == 403


def test_nothing_can_be_changed(ann: Client) -> None:
    row = DeliveryFactory()
    assert ann.post(f"/admin/notifications/delivery/{row.pk}/change/", {"status": "sent"}).status_code == 403
    assert Delivery.objects.get().status == "pending"


def test_the_list_can_be_searched(ann: Client) -> None:
    wanted, other = DeliveryFactory(), DeliveryFactory()
    page = ann.get("/admin/notifications/delivery/", {"q": wanted.recipient}).content.decode()
    assert wanted.recipient in page
    assert other.recipient not in page


# -- decisions ---------------------------------------------------------------------------------

LIST = "/admin/notifications/delivery/"


def uncertain(**changes: object) -> Delivery:
    row: Delivery = DeliveryFactory(status="uncertain", error_class="DELIVERY_UNCERTAIN", **changes)
    DeliveryAttemptFactory(delivery=row, outcome="ambiguous")
    return row


CHOSEN = {"action": "decide"}


def post(client: Client, row: Delivery, **answer: str) -> str:
    """Choose a delivery; with an answer, answer the page that asks."""
    form = {**CHOSEN, "_selected_action": [row.pk]}
    asked = client.post(LIST, form, follow=True)
    if not answer or "selection" not in (asked.context or {}):
        return asked.content.decode()
    answer["selection"] = asked.context["selection"]
    return client.post(LIST, {**form, **answer}, follow=True).content.decode()


def test_only_an_uncertain_delivery_offers_the_decision(ann: Client) -> None:
    assert "Decide…" in ann.get(f"{LIST}{uncertain().pk}/change/").content.decode()
    assert "Decide…" not in ann.get(f"{LIST}{DeliveryFactory(status='sent').pk}/change/").content.decode()


def test_the_confirmation_page_shows_the_chosen_deliveries(ann: Client) -> None:
    row = uncertain(recipient="mail:bob@example.com", detail="<b>no answer</b>")
    page = post(ann, row)
    assert "mail:bob@example.com" in page
    assert "&lt;b&gt;no answer&lt;/b&gt;" in page
    for words in ("It arrived", "it may arrive twice", "Abandon it"):
        assert words in page
    row.refresh_from_db()
    assert row.status == "uncertain"


@pytest.mark.parametrize(
    "answer",
    [
        {"reason": ""},
        {"decision": "confirm"},
        {"reason": "OPS-1"},
        {"decision": "nonsense", "reason": "OPS-1"},
    ],
)
def test_a_decision_needs_a_choice_and_a_reason(ann: Client, answer: dict[str, str]) -> None:
    row = uncertain()
    assert "Nothing was changed. Correct these fields" in post(ann, row, **answer)
    row.refresh_from_db()
    assert row.status == "uncertain"


@pytest.mark.parametrize(
    ("decision", "status"), [("confirm", "sent"), ("resend", "pending"), ("abandon", "abandoned")]
)
def test_a_decision_is_applied_and_recorded(ann: Client, decision: str, status: str) -> None:
    row = uncertain()
    page = post(ann, row, decision=decision, reason="OPS-1: looked into it")
    assert "1 decided." in page
    row.refresh_from_db()
    assert row.status == status
    note = row.attempt_rows.order_by("-id").first()
    assert note is not None
    assert "OPS-1: looked into it" in note.detail
    assert row.job.events.get(kind="decided").actor
    again = post(ann, row, decision=decision, reason="once more")
    assert "no decision is needed" in again


def test_a_delivery_that_is_not_uncertain_is_left_alone(ann: Client) -> None:
    row = DeliveryFactory(status="sent")
    assert "not possible now: no decision is needed." in post(ann, row)


def test_a_delivery_that_was_decided_meanwhile_says_so(ann: Client) -> None:
    row = uncertain()
    form = {**CHOSEN, "_selected_action": [row.pk]}
    asked = ann.post(LIST, form).context["selection"]
    post(ann, row, decision="confirm", reason="OPS-1: bob has it")
    answer = {**form, "selection": asked, "decision": "abandon", "reason": "OPS-1: bob has it"}
    page = ann.post(LIST, answer, follow=True).content.decode()
    assert "0 decided" in page
    assert "Nothing was changed: the delivery is sent now." in page
    row.refresh_from_db()
    assert row.status == "sent"


def test_a_reader_without_permission_cannot_decide(client: Client) -> None:
    reader = UserFactory(is_staff=True)
    reader.user_permissions.add(Permission.objects.get(codename="view_delivery"))
    client.force_login(reader)
    row = uncertain()
    assert "Decide…" not in client.get(f"{LIST}{row.pk}/change/").content.decode()
    post(client, row, decision="confirm", reason="OPS-1: it is mine")
    row.refresh_from_db()
    assert row.status == "uncertain"


def test_the_password_is_asked_again_when_it_was_given_long_ago(ann: Client) -> None:
    row = uncertain()
    session = ann.session
    session["password_at"] -= 3600
    session.save()
    form = {**CHOSEN, "_selected_action": [row.pk], "selection": "signed", "decision": "confirm",
            "reason": "OPS-1: seen"}  # fmt: skip
    assert ann.post(LIST, form)["Location"].startswith("/reauth/")
    row.refresh_from_db()
    assert row.status == "uncertain"
