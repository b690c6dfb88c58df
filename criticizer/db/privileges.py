"""Owner of the tables, grants and audit triggers.

Web and workers connect as a role that does not own the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

# Rows are added and read, never changed: triggers refuse it, and only the owner could switch these off.
APPEND_ONLY = (
    "security_events",
    "audit_seals",
    "reviews_allowlistentryevent",
    "dead_letter_events",
    "dead_letter_group_events",
    "replay_batch_events",
    "job_events",
    "finding_fates",
    "finding_events",
    "agent_submissions",
    "circuit_events",
    "reviews_viewerscopeevent",
    "reviews_teamruleevent",
    "reviews_skippedpathevent",
    "reviews_scantargetevent",
    "reviews_subscriptionevent",
    "notifications_recipientpreferenceevent",
)
# pghistory's own statement says ON CONFLICT DO UPDATE: the trigger on the table keeps it from changing rows.
_NOT_DELETED = ("pghistory_context",)
# Rows change in the columns that their own triggers allow, and are never deleted.
KEPT = ("letter_archives",)
_HARDENED = (*APPEND_ONLY, *_NOT_DELETED, *KEPT)
# pgtrigger lets a session name triggers to ignore; this switches that off.
_NO_IGNORING = """
CREATE OR REPLACE FUNCTION public._pgtrigger_should_ignore(trigger_name NAME) RETURNS BOOLEAN
    LANGUAGE sql IMMUTABLE AS 'SELECT FALSE'"""
# Unlike pgtrigger's own triggers these cannot be ignored. An update from inside a trigger does
# nothing: in pghistory's upsert of a context the first record stays.
_AUDIT_STAYS = """
CREATE OR REPLACE FUNCTION public.audit_stays() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND pg_trigger_depth() > 1 THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'append-only: % of % is refused', TG_OP, TG_TABLE_NAME;
END $$"""
_ROWS_STAY = """
CREATE OR REPLACE TRIGGER zz_audit_stays BEFORE {1} ON {0}
    FOR EACH ROW EXECUTE FUNCTION public.audit_stays();
CREATE OR REPLACE TRIGGER zz_audit_no_truncate BEFORE TRUNCATE ON {0}
    FOR EACH STATEMENT EXECUTE FUNCTION public.audit_stays()"""
_OWNS = "SELECT datdba = current_user::regrole FROM pg_database WHERE datname = current_database()"
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename = ANY(%s)"


@contextmanager
def as_owner(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Connect in the block as settings.DATABASE_OWNER, if the tables' owner is another role."""
    owner = settings.DATABASE_OWNER
    before = {name: connection.settings_dict[name] for name in owner}
    if not owner or before == owner or (settings.EMBEDDED_DATABASE and _owns_database(connection)):
        yield
        return
    connection.close()
    connection.settings_dict.update(owner)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)


def harden(connection: BaseDatabaseWrapper) -> None:
    """Keep sessions from bypassing the triggers of audit tables. Repeating it changes nothing."""
    with connection.cursor() as cursor:
        cursor.execute(_TABLES, [list(_HARDENED)])
        tables = [table for (table,) in cursor.fetchall()]
        if len(tables) < len(_HARDENED):
            return  # only some migrations ran: the next full `migrate` does it
        cursor.execute(_NO_IGNORING)
        cursor.execute(_AUDIT_STAYS)
        for table in tables:
            changes = sql.SQL("DELETE" if table in KEPT else "UPDATE OR DELETE")
            cursor.execute(sql.SQL(_ROWS_STAY).format(sql.Identifier(table), changes))


def grant(connection: BaseDatabaseWrapper, role: str) -> None:
    """Grant `role` what web and workers need. Does nothing when it owns the tables itself."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s AND rolname <> current_user", [role])
        if cursor.fetchone() is None:
            return
        name = sql.Identifier(role)
        for statement in (
            "GRANT USAGE ON SCHEMA public TO {}",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}",
            "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {}",
        ):
            cursor.execute(sql.SQL(statement).format(name))
        cursor.execute(_TABLES, [list(_HARDENED)])
        for (table,) in cursor.fetchall():
            rights = "UPDATE, DELETE" if table in APPEND_ONLY else "DELETE"
            cursor.execute(
                sql.SQL("REVOKE {}, TRUNCATE, TRIGGER ON {} FROM {}").format(
                    sql.SQL(rights), sql.Identifier(table), name
                )
            )


def _owns_database(connection: BaseDatabaseWrapper) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_OWNS)
        return bool(cursor.fetchone()[0])
