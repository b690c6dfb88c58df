"""Suppressed addresses in the admin: the list, and lifting with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from notifications.models import Suppression
from tests import factories
from tests.admin.test_circuits import said
from tests.admin.test_letters import answer

pytestmark = pytest.mark.django_db
LIST = "/admin/notifications/suppression/"


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "operator")


@pytest.fixture
def rows(db: None) -> list[Suppression]:
    return [
        Suppression.objects.create(
            address=address,
            reason="bounced",
            provider="resend",
            event_id=f"event of {address}",
            detail="<script>alert(1)</script>",
        )
        for address in ("ann@example.com", "<b>@example.com")
    ]


def act(client: Client, rows: list[Suppression], **fields: object) -> Any:
    """Ask whether to lift them; with `fields`, answer the question."""
    chosen = [row.pk for row in rows]
    question = client.post(LIST, {"action": "lift", "_selected_action": chosen}, follow=True)
    return answer(client, question, **fields) if fields else question


def test_the_list_and_the_page_show_why_and_escape_it(ann: Client, rows: list[Suppression]) -> None:
    text = ann.get(LIST).content.decode()
    assert "ann@example.com" in text
    assert "Mail to it bounced for good" in text
    assert "<b>@" not in text
    page = ann.get(f"{LIST}{rows[0].pk}/change/").content.decode()
    assert "event of ann@example.com" in page
    assert "<script>alert" not in page


def test_lifting_asks_why_first(ann: Client, rows: list[Suppression]) -> None:
    question = act(ann, rows).content.decode()
    assert "Lift: 2 addresses" in question
    assert "<b>@" not in question
    for reason in ("", "  ", "no"):
        assert (
            "Nothing was changed. Correct these fields and submit again."
            in act(ann, rows, reason=reason).content.decode()
        )
    assert not Suppression.objects.filter(lifted_at__isnull=False).exists()


def test_what_is_lifted_keeps_who_when_and_why(ann: Client, rows: list[Suppression]) -> None:
    done = act(ann, rows[:1], reason="the mailbox was mended")
    assert said(done) == ["1 lifted."]
    rows[0].refresh_from_db()
    assert (rows[0].lifted_by, rows[0].lift_reason) == ("ann", "the mailbox was mended")
    assert rows[0].lifted_at is not None
    again = act(ann, rows, reason="once more")
    assert said(again) == ["1 lifted, 1 skipped: lifted before."]
    rows[0].refresh_from_db()
    assert rows[0].lift_reason == "the mailbox was mended"


def test_the_list_tells_what_is_in_force_from_what_was_lifted(ann: Client, rows: list[Suppression]) -> None:
    act(ann, rows[:1], reason="the mailbox was mended")
    assert (
        "ann@example.com" not in ann.get(f"{LIST}?state=force").content.decode().partition("result_list")[2]
    )
    assert "ann@example.com" in ann.get(f"{LIST}?state=lifted").content.decode().partition("result_list")[2]


@pytest.mark.parametrize("group", ["approver", "auditor"])
def test_others_read_and_do_not_lift(ann: Client, rows: list[Suppression], group: str) -> None:
    reader = factories.staff_client("bob", group)
    assert reader.get(LIST).status_code == 200
    answer(reader, act(ann, rows), reason="the mailbox was mended")
    assert not Suppression.objects.filter(lifted_at__isnull=False).exists()
