"""Viewing scopes in the admin, for every permission but the one to see all files (G180)."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from criticizer.admin_site.viewing_scope import RowScope
from criticizer.models import SecurityEvent
from deadletters import batches
from notifications.models import Delivery, Digest
from reviews.models import ViewerScope
from tests import factories, skips
from tests.security.addresses import admin_addresses
from tests.security.unrendered import unread
from tests.security.world import review_rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("_remembered_people")]

HIDDEN, MIXED, OPEN = "zebra77", "quagga88", "okapi99"
SECRET_FILE = "//corp/zebra77.py"
# Of a list: everything in `make test`; in `make test-all` also searches, and what each shows less of.
QUERIES: tuple[str, ...] = ("?by=all",)
if skips.is_all():
    QUERIES += (f"?by=all&q=cl:{HIDDEN}-cl", "", f"?q={HIDDEN}")
# Texts of a review of which some files may be seen: only its own page and its messages tell of it.
WHOLE_ONLY = {
    "reviews_attempt", "deadletters_deadletter", "deadletters_replaybatch", "deadletters_letteredit",
    "criticizer_securityevent",
}  # fmt: skip


@pytest.fixture(scope="module")
def rows(module_db: None) -> dict[str, dict[str, Any]]:
    return {
        HIDDEN: review_rows(HIDDEN, SECRET_FILE),
        MIXED: review_rows(MIXED, "//alt/quagga88.py", SECRET_FILE),
        OPEN: review_rows(OPEN, "//alt/okapi99.py"),
    }


@pytest.fixture(scope="module")
def mallory(module_db: None) -> Client:
    """Somebody of a custom group: every permission but one, and one viewing scope."""
    user: User = factories.UserFactory(username="mallory", is_staff=True, reads=False)
    group = Group.objects.create(name="alt operators")
    group.permissions.set(Permission.objects.exclude(codename="view_all_files"))
    ViewerScope.objects.create(group=group, prefix="//alt/...", reason="their project")
    user.groups.add(group)
    return logged_in(user)


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def page(client: Client, table: str, view: str, pk: Any = None, **query: str) -> str:
    address = reverse(f"admin:{table}_{view}", args=[] if pk is None else [pk])
    return client.get(address, query, follow=True).content.decode()


def our_admins() -> dict[str, Any]:
    return {
        f"{model._meta.app_label}_{model._meta.model_name}": desk
        for model, desk in admin.site._registry.items()
    }


def test_every_table_of_the_admin_says_how_its_rows_lead_to_a_review() -> None:
    for table, desk in our_admins().items():
        assert isinstance(getattr(desk, "scope", None), RowScope), table
        reaches = any(
            field.is_relation
            and field.related_model
            and field.related_model._meta.label == "reviews.ReviewJob"
            for field in desk.model._meta.get_fields()
        )
        assert desk.scope.condition is not None or not reaches, f"{table} names a review"


def test_every_narrowed_table_has_a_row_here(rows: dict[str, dict[str, Any]]) -> None:
    narrowed = {table for table, desk in our_admins().items() if desk.scope.condition is not None}
    assert narrowed == set(rows[HIDDEN])


def test_no_address_of_the_admin_shows_a_review_outside_the_scope(
    mallory: Client, rows: dict[str, dict[str, Any]]
) -> None:
    shown = []
    for address in admin_addresses(rows[HIDDEN]):
        is_list = address.strip("/").count("/") == 2
        for query in QUERIES if is_list else ("",):
            text = mallory.get(address + query, follow=True).content.decode()
            # The page repeats the search; no text of a row ends there.
            if any(f"{HIDDEN}{more}" in text for more in (" ", "@", ".", *(() if "q=" in query else ("-",)))):
                shown.append(address + query)
    assert shown == []


@pytest.mark.long
def test_a_table_that_quotes_machines_needs_every_file_of_the_review(
    mallory: Client, rows: dict[str, dict[str, Any]]
) -> None:
    for table in rows[MIXED]:
        text = page(mallory, table, "changelist", by="all") + page(
            mallory, table, "change", rows[MIXED][table]
        )
        assert SECRET_FILE not in text, table
        if table in WHOLE_ONLY:
            assert MIXED not in text, table
    assert f"{MIXED} title" in page(mallory, "reviews_reviewjob", "changelist")


def test_what_is_in_the_scope_is_shown(mallory: Client, rows: dict[str, dict[str, Any]]) -> None:
    for table, pk in rows[OPEN].items():
        everything_only = our_admins()[table].scope.why != ""
        there = OPEN in page(mallory, table, "changelist", **({"by": "all"} if "letter" in table else {}))
        assert there != everything_only, table
        if not everything_only:
            assert OPEN in page(mallory, table, "change", pk), table


def test_counts_and_waiting_approvals_leave_out_what_is_hidden(
    mallory: Client, rows: dict[str, dict[str, Any]]
) -> None:
    text = page(mallory, "deadletters_deadletter", "changelist")
    assert "1 dead letter" in text
    assert "1 to approve" in text
    assert "Only what your viewing scopes allow is listed" in text
    root = logged_in(factories.UserFactory(is_staff=True, is_superuser=True))
    text = page(root, "deadletters_deadletter", "changelist")
    assert "3 to approve" in text
    assert "Only what your viewing scopes allow" not in text


def everything(table: str) -> list[dict[str, Any]]:
    model: type[Model] = our_admins()[table].model
    if model is SecurityEvent:
        return []  # the database lets nobody change one, and refused requests add some
    return list(model._default_manager.order_by("pk").values())


def test_actions_change_nothing_outside_the_scope(mallory: Client, rows: dict[str, dict[str, Any]]) -> None:
    """Not when chosen, and not with the signed selection of somebody who may see the rows."""
    root = logged_in(factories.UserFactory(username="root", is_staff=True, is_superuser=True))
    answers = {
        "category": "data", "evidence_note": "OPS-1: mended", "override_reason": "tried by hand",
        "reason": "OPS-1: mine", "resolution": "OPS-1: mended", "decision": "abandon", "owner": "mallory",
        "note": "mallory was here", "hours": "3",
    }  # fmt: skip
    tried = 0
    before = {table: everything(table) for table in rows[HIDDEN]}
    for table, desk in our_admins().items():
        for action in getattr(desk, "bulk_actions", ()) if table in rows[HIDDEN] else ():
            tried += 1
            address = reverse(f"admin:{table}_changelist") + "?by=all"
            form = {"action": action.name, "_selected_action": [rows[HIDDEN][table], rows[MIXED][table]]}
            if table not in WHOLE_ONLY and our_admins()[table].scope.why == "":
                form["_selected_action"] = [rows[HIDDEN][table]]
            with unread():
                asked = mallory.post(address, form)
                assert not (asked.context or {}).get("selection"), (table, action.name)
                signed = (root.post(address, form).context or {}).get("selection")
                if signed:
                    mallory.post(address, {**form, **answers, "selection": signed})
    assert tried > 15
    assert {table: everything(table) for table in rows[HIDDEN]} == before


def test_posts_to_pages_of_hidden_rows_change_nothing(
    mallory: Client, rows: dict[str, dict[str, Any]]
) -> None:
    before = {table: everything(table) for table in rows[HIDDEN]}
    form = {
        "reason": "OPS-1: mine", "row_version": "0", "seen": "0", "category": "data", "do": "ask",
        "rate_per_minute": "1", "max_in_flight": "1", "canary_size": "0",
    }  # fmt: skip
    for mark in (HIDDEN, MIXED):
        known = {table: pk for table, pk in rows[mark].items() if mark == HIDDEN or table in WHOLE_ONLY}
        for address in admin_addresses(known, only_rows=True):
            with unread():
                mallory.post(address, form)
    assert {table: everything(table) for table in rows[HIDDEN]} == before


def test_a_batch_with_one_hidden_letter_is_hidden(mallory: Client, rows: dict[str, dict[str, Any]]) -> None:
    ids = [rows[mark]["deadletters_deadletter"] for mark in (OPEN, HIDDEN)]
    batch = batches.draft(filter={}, ids=ids, actor="ann", reason="both of them")
    assert "both of them" not in page(mallory, "deadletters_replaybatch", "changelist")
    for view in ("change", "live", "csv"):
        assert "both of them" not in page(mallory, "deadletters_replaybatch", view, batch.pk)


def test_a_message_about_a_hidden_review_too_is_hidden(
    mallory: Client, rows: dict[str, dict[str, Any]]
) -> None:
    digest = Digest.objects.create(recipient="mail:ann@example.com", due_at="2030-01-01T00:00:00Z")
    ids = [rows[mark]["notifications_delivery"] for mark in (OPEN, HIDDEN)]
    Delivery.objects.filter(pk__in=ids).update(digest=digest)
    assert OPEN not in page(mallory, "notifications_delivery", "changelist")
    assert f"{HIDDEN}-cl" not in page(mallory, "notifications_delivery", "change", ids[0])


def test_security_events_name_no_path_outside_the_scope(
    mallory: Client, rows: dict[str, dict[str, Any]]
) -> None:
    """The stored reviews of the changelist may lack the file; events of no review are shown."""

    def seen(**facts: str) -> bool:
        event = SecurityEvent.objects.create(kind="path_denied", reason="walrus11", **facts)
        return "walrus11" in page(mallory, "criticizer_securityevent", "change", event.pk)

    assert seen(changelist_id=f"{OPEN}-cl", path="//alt/okapi99.py")
    assert not seen(changelist_id=f"{OPEN}-cl", path=SECRET_FILE)
    assert not seen(changelist_id=f"{MIXED}-cl", path="//alt/quagga88.py")
    assert not seen(changelist_id="of no stored review", path="//alt/okapi99.py")
    assert seen(path="audit table", actor="verification")
