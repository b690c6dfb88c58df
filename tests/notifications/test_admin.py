"""Deliveries in the admin: everything to read, nothing to change."""

from __future__ import annotations

import pytest
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
    page = ann.get(f"/admin/notifications/delivery/?q={wanted.recipient}").content.decode()
    assert wanted.recipient in page
    assert other.recipient not in page
