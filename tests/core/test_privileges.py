"""`psql` as the application's role: no statement changes or deletes an audit row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection
from django.utils import timezone

from criticizer.db import embedded
from criticizer.db.privileges import APPEND_ONLY, KEPT, harden
from criticizer.models import CircuitEvent
from deadletters import batches, groups
from deadletters.models import LetterArchive
from notifications.preferences import policy
from reviews.audit.history import events_of
from reviews.models import (
    AgentSubmission,
    AgentTask,
    AllowListEntry,
    AuditSeal,
    JobEvent,
    Subscription,
    ViewerScope,
)
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _as_after_migrate() -> None:
    """Harden the triggers as `migrate` does.

    Other tests install them anew, and with them pgtrigger's own way around them.
    """
    harden(connection)


@pytest.fixture
def psql() -> Iterator[Any]:
    """Return a session of the role that web and workers are, on this test's database."""
    settings = connection.settings_dict
    with psycopg.connect(
        host=settings["HOST"], user=embedded.ROLE, dbname=settings["NAME"], autocommit=True
    ) as session:
        yield session


@pytest.fixture
def audited() -> None:
    """One row in every audit table, one of them with its context."""
    import pghistory

    factories.SecurityEventFactory()
    with pghistory.context(user=7, address="192.0.2.1"):
        factories.AllowListEntryFactory()
        ViewerScope.objects.create(
            group=Group.objects.get(name="reviewer"), prefix="//depot/main/...", reason="OPS-1"
        )
        factories.TeamRuleFactory()
        factories.SkippedPathFactory()
        factories.ScanTargetFactory()
        Subscription.objects.create(recipient="mail:ann@example.com", pattern="//depot/main/...")
        policy.mute("mail:ann@example.com", None, "ann")
    CircuitEvent.objects.create(name="llm:test", change="opened", generation=1)
    factories.DeadLetterEventFactory()
    groups.acknowledge(factories.DeadLetterGroupFactory().pk, actor="ann", reason="OPS-1")
    batches.draft(filter={}, ids=[factories.DeadLetterFactory().pk], actor="ann", reason="OPS-1")
    factories.FindingFateFactory()
    factories.FindingEventFactory()
    job = factories.ReviewJobFactory()
    JobEvent.objects.create(job=job, kind=JobEvent.Kind.ALERT)
    task = AgentTask.objects.create(
        job=job, stage_run=factories.StageRunFactory(job=job), type="review_chunk", ordinal=0, digest="0",
        directories=["//depot/main/"], payload=[], expires_at=timezone.now(),
    )  # fmt: skip
    AgentSubmission.objects.create(task=task, verdict="accepted", sha256="0", size_bytes=1, key="ci")
    AuditSeal.objects.create(
        table="t", from_id=0, to_id=1, row_count=1, rows_sha256="0", chain="0", mac="0", key_id="0"
    )
    LetterArchive.objects.create(
        name="a", sha256="0", key_id="1", letter_count=1, first_letter=1, last_letter=1
    )


def contents(session: Any) -> dict[str, list[Any]]:
    return {
        table: session.execute(f"SELECT t::text FROM {table} t ORDER BY 1").fetchall()
        for table in (*APPEND_ONLY, "pghistory_context")
    }


COLUMNS = {
    "reviews_allowlistentryevent": "pgh_label",
    "reviews_viewerscopeevent": "pgh_label",
    "reviews_teamruleevent": "pgh_label",
    "reviews_skippedpathevent": "pgh_label",
    "reviews_scantargetevent": "pgh_label",
    "reviews_subscriptionevent": "pgh_label",
    "notifications_recipientpreferenceevent": "pgh_label",
    "agent_submissions": "verdict",
    "audit_seals": "chain",
    "pghistory_context": "metadata",
}

WAYS = [
    "UPDATE {table} SET {column} = {column}",
    "DELETE FROM {table}",
    "TRUNCATE {table}",
    "TRUNCATE {table} CASCADE",
    "DROP TABLE {table}",
    "ALTER TABLE {table} DISABLE TRIGGER ALL",
    "ALTER TABLE {table} OWNER TO CURRENT_USER",
    "CREATE RULE away AS ON INSERT TO {table} DO INSTEAD NOTHING",
    "CREATE OR REPLACE FUNCTION public._pgtrigger_should_ignore(trigger_name NAME) RETURNS BOOLEAN"
    " LANGUAGE sql AS 'SELECT TRUE'",
    "SET session_replication_role = replica",
    "SET ROLE postgres",
]


def refused(session: Any, statement: str) -> bool:
    try:
        session.execute(statement)
    except psycopg.Error:
        return True
    return False


def test_no_statement_of_the_applications_role_changes_an_audit_row(psql: Any, audited: None) -> None:
    before = contents(psql)
    assert all(before.values())
    for table in before:
        for way in WAYS:
            statement = way.format(table=table, column=COLUMNS.get(table, "reason"))
            assert refused(psql, statement), statement
        # A GRANT of what one does not hold is a warning and grants nothing.
        psql.execute(f"GRANT DELETE ON {table} TO CURRENT_USER")
        with pytest.raises(psycopg.Error):
            psql.execute(f"DELETE FROM {table}")
    assert contents(psql) == before


def test_the_applications_role_reseals_a_file_of_the_archive_and_deletes_no_row_of_one(
    psql: Any, audited: None
) -> None:
    for table in KEPT:
        for way in WAYS:
            statement = way.format(table=table, column="sha256")
            assert way.startswith("UPDATE") or refused(psql, statement), statement
    psql.execute("UPDATE letter_archives SET name = 'b', key_id = '2'")
    assert psql.execute("SELECT name FROM letter_archives").fetchall() == [("b",)]


def test_naming_triggers_to_ignore_has_no_effect_even_for_the_owner(audited: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(DISTINCT tgname, ',') FROM pg_trigger WHERE NOT tgisinternal")
        cursor.execute("SELECT set_config('pgtrigger.ignore', %s, false)", [f"{{{cursor.fetchone()[0]}}}"])
        try:
            for table in (*APPEND_ONLY, "pghistory_context", *KEPT):
                for statement in (f"DELETE FROM {table}", f"TRUNCATE {table} CASCADE"):
                    with pytest.raises(DatabaseError, match=r"append-only|Cannot"):
                        cursor.execute(statement)
        finally:
            cursor.execute("RESET pgtrigger.ignore")


def test_an_upsert_from_a_trigger_of_ones_own_changes_no_context(psql: Any, audited: None) -> None:
    before = contents(psql)
    for statement in (
        "CREATE TEMP TABLE bait (n int)",
        "CREATE FUNCTION pg_temp.strike() RETURNS TRIGGER LANGUAGE plpgsql AS "
        "$$ BEGIN UPDATE pghistory_context SET metadata = '{}'; RETURN NEW; END $$",
        "CREATE TRIGGER strike AFTER INSERT ON bait FOR EACH ROW EXECUTE FUNCTION pg_temp.strike()",
        "INSERT INTO bait VALUES (1)",
    ):
        psql.execute(statement)
    assert contents(psql) == before


def test_an_edit_of_the_allow_list_past_the_admin_leaves_its_trace(psql: Any, audited: None) -> None:
    psql.execute("SET pgtrigger.ignore = '{pgtrigger_update_update_dcd4a,pgtrigger_delete_delete_c6f46}'")
    psql.execute("UPDATE allow_list_entries SET pattern = '//depot/main/other/...'")
    psql.execute("DELETE FROM allow_list_entries")
    labels = events_of(AllowListEntry).objects.order_by("pgh_id").values_list("pgh_label", flat=True)
    assert list(labels) == ["insert", "update", "delete"]
    assert not AllowListEntry.objects.exists()


APPROVED = "UPDATE replay_batches SET status = 'running', approved_by = '{}', approved_at = now()"
AROUND_APPROVAL = [
    "UPDATE replay_batches SET status = 'running'",
    "UPDATE replay_batches SET status = 'running', needs_approval = false, is_restart = false",
    "UPDATE replay_batches SET is_restart = false",
    "UPDATE replay_batches SET requested_by = 'mallory'",
    "INSERT INTO replay_batches (reason, requested_by, status) VALUES ('OPS-1', 'mallory', 'running')",
    "DELETE FROM replay_batches",
    "DELETE FROM replay_items",
    "UPDATE replay_items SET letter_id = 0",
    "INSERT INTO replay_items (batch_id, letter_id, job_id, group_id, lane)"
    " SELECT batch_id, 0, job_id, group_id, lane FROM replay_items",
    "UPDATE dead_letters SET created_at = now() - interval '1 year'",
    APPROVED.format("ann"),
    APPROVED.format("mallory"),
]


def test_no_statement_of_the_applications_role_walks_around_an_approval(psql: Any) -> None:
    batch = batches.draft(
        filter={}, ids=[factories.DeadLetterFactory().pk], actor="ann", reason="OPS-1", is_restart=True
    )
    batches.configure(batch.pk, actor="mallory", evidence_note="OPS-1")
    batches.submit(batch.pk, actor="ann")
    names = psql.execute("SELECT string_agg(tgname, ',') FROM pg_trigger WHERE NOT tgisinternal").fetchone()
    psql.execute("SELECT set_config('pgtrigger.ignore', %s, false)", [f"{{{names[0]}}}"])
    for table in ("replay_batch_events", "replay_batches"):  # to be looked at instead
        psql.execute(f"CREATE TEMP TABLE {table}_of_mine (LIKE {table} INCLUDING DEFAULTS)")
        psql.execute(f"ALTER TABLE {table}_of_mine RENAME TO {table}")
    aimed = {statement: statement.replace(" replay_", " public.replay_") for statement in AROUND_APPROVAL}
    for statement in aimed.values():
        with pytest.raises(psycopg.Error, match=r"pgtrigger|replay batch|violates"):
            psql.execute(statement)
    psql.execute(APPROVED.format("carol").replace(" replay_", " public.replay_"))


def test_the_role_still_does_the_applications_work(psql: Any) -> None:
    psql.execute(
        "INSERT INTO security_events (kind, changelist_id, path, reason, actor) VALUES ('x','','','','')"
    )
    psql.execute("UPDATE jobs SET title = '' WHERE id = 0")
    psql.execute("DELETE FROM outbox_messages WHERE id = 0")
    assert psql.execute("SELECT count(*) FROM security_events").fetchone() == (1,)


def test_rows_stay_although_the_owner_installed_pgtriggers_exceptions_again(audited: None) -> None:
    import pgtrigger

    pgtrigger.install()
    test_naming_triggers_to_ignore_has_no_effect_even_for_the_owner(None)
