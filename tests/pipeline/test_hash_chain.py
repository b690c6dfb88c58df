"""Seals of audit rows: they show changes that got past the refusal of the database."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pghistory
import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.db import connection

from criticizer.db.privileges import APPEND_ONLY
from criticizer.models import SecurityEvent
from notifications.preferences import policy
from reviews.audit import hash_chain
from reviews.models import AllowListEntry, AuditSeal, Subscription, ViewerScope
from tests import factories

pytestmark = pytest.mark.django_db
EVENTS, EDITS = "security_events", "reviews_allowlistentryevent"


def past_the_refusal(statement: str) -> None:
    """Do what an owner of the tables, a superuser or a changed backup can do."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            cursor.execute(statement)
        finally:
            cursor.execute("SET session_replication_role = origin")


@pytest.fixture
def sealed() -> None:
    """Three links over six events, and one over two edits of the allow-list."""
    for _ in range(3):
        factories.SecurityEventFactory.create_batch(2)
        assert hash_chain.seal(EVENTS, settle_seconds=-1) == 2
    with pghistory.context(user=7, address="192.0.2.1"):
        entry = factories.AllowListEntryFactory()
        AllowListEntry.objects.filter(pk=entry.pk).update(reason="another")
    assert hash_chain.seal(EDITS, settle_seconds=-1) == 2


def audits() -> dict[str, hash_chain.VerificationResult]:
    return {audit.table: audit for audit in hash_chain.verify_all(report=False)}


def faults() -> list[str]:
    return [fault for audit in hash_chain.verify_all(report=False) for fault in audit.faults]


def test_untouched_rows_are_as_they_were_sealed(sealed: None) -> None:
    events, edits = audits()[EVENTS], audits()[EDITS]
    assert (events.seals, events.rows, events.unsealed, events.faults) == (3, 6, 0, [])
    assert (edits.seals, edits.rows, edits.unsealed, edits.faults) == (1, 2, 0, [])
    out = StringIO()
    call_command("verify_audit", "--head", f"{EVENTS}:{events.head}", stdout=out)
    assert "Every sealed row is unchanged." in out.getvalue()


FIRST = "WHERE id = (SELECT min(id) FROM security_events)"
TAMPERING = {
    "a changed event": (f"UPDATE security_events SET actor = 'bob' {FIRST}", "were changed"),
    "a deleted event": (f"DELETE FROM security_events {FIRST}", "1 missing"),
    "all events gone": ("DELETE FROM security_events", "2 missing"),
    "an edit made another's": ("UPDATE pghistory_context SET metadata = '{\"user\": 8}'", "were changed"),
    "an edit with another reason": (
        "UPDATE reviews_allowlistentryevent SET reason = 'approved'", "were changed"),
    "an edit deleted": ("DELETE FROM reviews_allowlistentryevent WHERE pgh_label = 'update'", "1 missing"),
    "a seal deleted": ("DELETE FROM audit_seals WHERE id = (SELECT min(id) + 1 FROM audit_seals)", "is gone"),
    "a seal made to fit": (
        "UPDATE audit_seals SET row_count = 3 WHERE id = (SELECT min(id) FROM audit_seals)",
        "does not follow"),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(TAMPERING))
def test_tampering_is_evident(sealed: None, case: str) -> None:
    statement, expected = TAMPERING[case]
    past_the_refusal(statement)
    assert any(expected in fault for fault in faults()), faults()
    errors = StringIO()
    with pytest.raises(CommandError, match="have changed since they were sealed"):
        call_command("verify_audit", stdout=StringIO(), stderr=errors)
    assert expected in errors.getvalue()
    assert SecurityEvent.objects.filter(kind="audit_fault").exists()


def test_every_history_of_scopes_rules_subscriptions_and_preferences_is_sealed() -> None:
    with pghistory.context(user=7, address="192.0.2.1"):
        factories.AllowListEntryFactory()
        ViewerScope.objects.create(
            group=Group.objects.create(name="team"), prefix="//depot/a/...", reason="OPS-1"
        )
        factories.TeamRuleFactory()
        factories.SkippedPathFactory()
        factories.ScanTargetFactory()
        Subscription.objects.create(recipient="mail:ann@example.com", pattern="//depot/a/...", reason="OPS-2")
        policy.mute("mail:ann@example.com", None, actor="ann", reason="on leave")
    histories = [table for table in APPEND_ONLY if table.endswith("event")]
    assert len(histories) == 7
    for table in histories:
        assert hash_chain.seal(table, settle_seconds=-1) == 1
    assert faults() == []
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL timezone = 'Asia/Tokyo'")
    assert faults() == []
    for table in histories:
        past_the_refusal(f"UPDATE {table} SET reason = 'approved'")
    assert sorted(fault.partition(":")[0] for fault in faults()) == sorted(histories)


def test_rows_and_seals_rewritten_together_lack_the_key_that_is_not_in_the_database(sealed: None) -> None:
    link = AuditSeal.objects.filter(table=EDITS).get()
    past_the_refusal("UPDATE reviews_allowlistentryevent SET reason = 'approved'")
    _, count, digest = hash_chain._digest(EDITS, link.from_id, link.to_id)
    chain = hash_chain._link(EDITS, "0" * 64, link.from_id, link.to_id, count, digest)
    past_the_refusal(
        f"UPDATE audit_seals SET rows_sha256 = '{digest}', chain = '{chain}', mac = '{'0' * 64}' "
        f"WHERE id = {link.pk}"
    )
    (fault,) = faults()
    assert "not made by this installation" in fault


def test_removed_newest_seals_are_found_with_the_head_from_the_log(sealed: None) -> None:
    head = AuditSeal.objects.filter(table=EVENTS).order_by("-to_id").values_list("chain", flat=True)[0]
    past_the_refusal("DELETE FROM audit_seals WHERE table_name = 'security_events' AND to_id = "
                     "(SELECT max(to_id) FROM audit_seals WHERE table_name = 'security_events')")  # fmt: skip
    assert faults() == []  # the chain alone cannot know
    with pytest.raises(CommandError):
        call_command("verify_audit", "--head", f"{EVENTS}:{head}", stdout=StringIO(), stderr=StringIO())


def test_rows_settle_before_they_are_sealed_and_are_sealed_once() -> None:
    factories.SecurityEventFactory()
    assert hash_chain.seal(EVENTS) == 0  # a transaction could still add a row below it
    assert [hash_chain.seal(EVENTS, settle_seconds=-1) for _ in range(2)] == [1, 0]


def test_a_rotated_secret_key_still_proves_the_older_seals(sealed: None, settings: Any) -> None:
    old, settings.SECRET_KEY = settings.SECRET_KEY, "another-key-" * 5
    settings.SECRET_KEY_FALLBACKS = [old]
    factories.SecurityEventFactory()
    hash_chain.seal(EVENTS, settle_seconds=-1)
    assert faults() == []
    settings.SECRET_KEY_FALLBACKS = []
    events, edits = audits()[EVENTS], audits()[EDITS]
    assert (events.unkeyed, edits.unkeyed, events.faults) == (3, 1, [])


def test_the_text_of_a_row_does_not_depend_on_the_session(sealed: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL timezone = 'Asia/Tokyo'")
        cursor.execute("SET LOCAL extra_float_digits = 0")
    assert faults() == []
