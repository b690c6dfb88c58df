"""The allow-list in the console: inside the ceiling, always with a reason, never without a trace."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from reviews.audit import AllowListEntryEvent
from reviews.models import AllowListEntry
from tests import factories

pytestmark = pytest.mark.django_db
LIST = "/admin/reviews/allowlistentry/"
LINE = {"kind": "include", "pattern": "//depot/main/tiles/...", "position": 1, "reason": "TICKET-7"}


@pytest.fixture(autouse=True)
def _ceiling(settings: object) -> None:
    settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "//art/*/textures/...", "//one/level/*.c"]  # type: ignore[attr-defined]


@pytest.fixture
def ann(client: Client) -> Client:
    user = factories.UserFactory(username="ann", is_staff=True)
    user.groups.add(Group.objects.get(name="security admin"))
    client.force_login(user)
    return client


def add(client: Client, **changes: object) -> str:
    return client.post(f"{LIST}add/", {**LINE, **changes}, follow=True).content.decode()


@pytest.mark.parametrize(
    "pattern",
    [
        "//depot/main/...",
        "//depot/main/a/b.c",
        "//depot/main/*/c.h",
        "//art/cars/textures/...",
        "//one/level/*.c",
        "//one/level/a.c",
    ],
)
def test_a_line_inside_the_ceiling_is_accepted(ann: Client, pattern: str) -> None:
    add(ann, pattern=pattern)
    assert AllowListEntry.objects.get().pattern == pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "//depot/...",
        "//depot/other/...",
        "//depot/main2/...",
        "//art/cars/...",
        "//art/cars/models/...",
        "//one/level/...",
        "//one/level/deeper/*.c",
        "//one/level/*",
    ],
)
def test_a_line_outside_the_ceiling_is_refused_and_says_why(ann: Client, pattern: str) -> None:
    assert "outside the ceiling that DEPOT_ALLOW_LIST sets" in add(ann, pattern=pattern)
    assert not AllowListEntry.objects.exists()


@pytest.mark.parametrize(
    "pattern", ["depot/main/...", "//depot/main/../x", "//depot/main/.../b", "//depot/main/a%%1"]
)
def test_a_line_that_is_not_canonical_is_refused(ann: Client, pattern: str) -> None:
    assert "errorlist" in add(ann, pattern=pattern)
    assert not AllowListEntry.objects.exists()


def test_an_exclusion_may_point_anywhere_and_is_written_without_its_sign(ann: Client) -> None:
    assert "choose the kind Exclude" in add(ann, kind="exclude", pattern="-//depot/main/x/...")
    add(ann, kind="exclude", pattern="//depot/main/x/...")
    assert AllowListEntry.objects.get().kind == "exclude"


@pytest.mark.parametrize("reason", ["", " ", "x"])
def test_every_line_needs_a_reason(ann: Client, reason: str) -> None:
    add(ann, reason=reason)
    assert not AllowListEntry.objects.exists()


def test_the_history_says_who_when_what_and_from_where(ann: Client) -> None:
    add(ann)
    entry = AllowListEntry.objects.get()
    ann.post(f"{LIST}{entry.pk}/change/", {**LINE, "pattern": "//depot/main/maps/...", "reason": "TICKET-8"})
    text = ann.get(f"{LIST}{entry.pk}/history/").content.decode()
    assert "pattern: //depot/main/tiles/... \u2192 //depot/main/maps/..." in text
    assert "reason: TICKET-7 \u2192 TICKET-8" in text
    for part in ("Added", "Changed", ">ann<", f"127.0.0.1 {LIST}{entry.pk}/change/"):
        assert part in text


def test_an_edit_outside_the_console_is_in_the_history_too(ann: Client) -> None:
    entry = factories.AllowListEntryFactory()
    AllowListEntry.objects.update(reason="by hand")
    text = ann.get(f"{LIST}{entry.pk}/history/").content.decode()
    assert "a program" in text
    assert "by hand" in text


def test_deleting_needs_a_reason_and_leaves_a_trace(ann: Client) -> None:
    entry = factories.AllowListEntryFactory()
    address = f"{LIST}{entry.pk}/delete/"
    refused = ann.post(address, {"post": "yes"}, follow=True)
    assert "Nothing was deleted: say why first." in refused.content.decode()
    assert AllowListEntry.objects.exists()
    ann.post(address, {"post": "yes", "reason": "the part is gone"})
    assert not AllowListEntry.objects.exists()
    last = AllowListEntryEvent.objects.select_related("pgh_context").order_by("-pgh_id").first()
    assert (last.pgh_label, last.pgh_context.metadata["deletion_reason"]) == ("delete", "the part is gone")


def test_the_list_of_edits_keeps_deleted_lines(ann: Client) -> None:
    entry = factories.AllowListEntryFactory()
    ann.post(f"{LIST}{entry.pk}/delete/", {"post": "yes", "reason": "the part is gone"})
    text = ann.get("/admin/reviews/allowlistentryevent/").content.decode()
    assert entry.pattern in text
    assert "Deleted" in text
    assert ">ann<" in text


def test_lines_are_not_deleted_in_bulk(ann: Client) -> None:
    factories.AllowListEntryFactory()
    assert "delete_selected" not in ann.get(LIST).content.decode()


def test_an_operator_may_not_edit_the_allow_list(client: Client) -> None:
    user = factories.UserFactory(is_staff=True)
    user.groups.add(Group.objects.get(name="operator"))
    client.force_login(user)
    assert client.get(LIST).status_code == 403
    assert client.post(f"{LIST}add/", LINE).status_code == 403
