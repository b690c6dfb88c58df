"""Subscriptions and recipients' preferences in the admin: reasons, history, bounds."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from notifications.models import RecipientPreference
from notifications.preferences import policy
from reviews.audit.history import events_of
from reviews.models import Subscription
from tests import factories
from tests.admin.test_letters import answer

pytestmark = pytest.mark.django_db

LIST, ADD = "/admin/reviews/subscription/", "/admin/reviews/subscription/add/"
WISHES = "/admin/notifications/recipientpreference/"
FORM = {"recipient": "ann@example.com", "pattern": "//depot/main/...", "author": "", "reason": "OPS-1"}
ANN = "mail:ann@example.com"


def staff(group: str, name: str = "oli") -> Client:
    return factories.staff_client(name, group, reads=False)


@pytest.fixture
def oli(settings: Any) -> Client:
    settings.DEPOT_ALLOW_LIST = ["//depot/main/..."]
    return staff("operator")


def said(response: Any) -> str:
    return str(response.content.decode())


def test_an_operator_subscribes_somebody_with_a_reason_and_it_is_kept(oli: Client) -> None:
    assert oli.post(ADD, FORM).status_code == 302
    row = Subscription.objects.get()
    assert (row.recipient, row.owner, row.reason) == (ANN, None, "OPS-1")
    change = f"{LIST}{row.pk}/change/"
    unexplained = oli.post(change, {**FORM, "author": "carol"})
    assert "Enter a new reason: this one belongs to the previous change." in said(unexplained)
    oli.post(change, {**FORM, "author": "carol", "reason": "OPS-2"})
    delete = f"{LIST}{row.pk}/delete/"
    oli.post(delete, {"post": "yes"})
    assert Subscription.objects.exists()  # not without a reason
    oli.post(delete, {"post": "yes", "reason": "they left"})
    assert not Subscription.objects.exists()
    kept = events_of(Subscription).objects.order_by("pgh_id")
    assert [(event.pgh_label, event.author) for event in kept] == [
        ("insert", ""),
        ("update", "carol"),
        ("delete", "carol"),
    ]
    assert kept[2].pgh_context.metadata["deletion_reason"] == "they left"
    history = said(staff("auditor", "uma").get("/admin/reviews/subscriptionevent/"))
    assert "oli" in history
    assert "//depot/main/..." in history


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("recipient", "", "required"),
        ("recipient", "pager:5", "unknown"),
        ("recipient", "Ann <ann@example.com>", "bare address"),
        ("pattern", "//depot/other/...", "outside the allow-list"),
        ("pattern", "//depot/ma...", "write"),
        ("pattern", "-//depot/main/...", "without the leading -"),
        ("reason", "", "required"),
        ("reason", "x", "Enter a reason"),
    ],
)
def test_what_is_not_valid_is_refused_with_its_reason(
    oli: Client, field: str, value: str, words: str
) -> None:
    assert words in said(oli.post(ADD, {**FORM, field: value}))
    assert not Subscription.objects.exists()


def test_what_people_keep_on_their_own_page_is_read_here_but_not_changed(oli: Client) -> None:
    bob = factories.UserFactory(username="bob", email="bob@example.com")
    row = Subscription.objects.create(owner=bob, pattern="//depot/main/...")
    assert "bob (own page)" in said(oli.get(LIST))
    change = f"{LIST}{row.pk}/change/"
    assert "//depot/main/..." in said(oli.get(change))
    oli.post(change, {**FORM, "reason": "OPS-9"})
    row.refresh_from_db()
    assert (row.owner, row.recipient) == (bob, "")


def test_an_auditor_reads_and_a_reviewer_does_not(oli: Client) -> None:
    oli.post(ADD, FORM)
    policy.mute(ANN, None, "unsubscribe link")
    uma, bob = staff("auditor", "uma"), staff("reviewer", "bob")
    for address in (LIST, WISHES, "/admin/notifications/recipientpreferenceevent/"):
        assert uma.get(address).status_code == 200
        assert bob.get(address).status_code == 403
    assert uma.post(ADD, FORM).status_code == 403
    assert "unsubscribe link" in said(uma.get("/admin/notifications/recipientpreferenceevent/"))


def test_unmuting_asks_why_and_says_what_happened_to_each(oli: Client) -> None:
    policy.mute(ANN, None, "unsubscribe link")
    policy.set_threshold("mail:bob@example.com", "high", "bob")
    rows = {row.recipient: row.pk for row in policy.RecipientPreference.objects.all()}
    body = {"action": "unmute", "_selected_action": list(rows.values())}
    question = oli.post(WISHES, body)
    assert "Notify these recipients again?" in said(question)
    assert "<td>for ever</td>" in said(question)
    assert "for ever</td>" in said(oli.get(WISHES))
    assert "A reason is required" in said(answer(oli, question, reason=""))
    assert policy.preference_of(ANN).is_muted_for_ever
    done = answer(oli, question, reason="she asked in OPS-7")
    assert "1 unmuted, 1 skipped: not muted." in said(done)
    assert policy.preference_of(ANN).muted_until is None
    newest = events_of(RecipientPreference).objects.latest("pgh_id")
    assert (newest.actor, newest.reason) == ("oli", "she asked in OPS-7")
    history = said(oli.get(f"{WISHES}{rows[ANN]}/history/"))
    assert "she asked in OPS-7" in history


def test_nobody_writes_a_wish_for_somebody_else_here(oli: Client) -> None:
    policy.mute(ANN, None, "unsubscribe link")
    row = policy.RecipientPreference.objects.get()
    root = Client()
    root.force_login(factories.UserFactory(is_staff=True, is_superuser=True))
    for client in (oli, root):
        assert client.post(f"{WISHES}{row.pk}/change/", {"muted_until": ""}).status_code == 403
        assert client.post(f"{WISHES}{row.pk}/delete/", {"post": "yes"}).status_code == 403
        assert client.get(f"{WISHES}add/").status_code == 403
