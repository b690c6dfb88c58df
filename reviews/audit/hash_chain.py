"""Hash-chained seals that reveal changes to audit rows.

The database refuses UPDATE, DELETE and TRUNCATE of audit rows. Changes that get past it (by the owner of
the tables, a superuser, a changed backup) break the seals: every minute the new rows are digested, and
the digest is linked to the one before and to a key that is not in the database. The head of the chain is
also in the log.

Not revealed: changes to rows that are not sealed yet, and the loss of the newest seals together with
their rows, unless the head from the log is compared (`verify_audit --head`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog
from django.conf import settings
from django.db import IntegrityError, connection, transaction

from criticizer.models import SecurityEvent
from criticizer.security.encryption import key_id
from reviews.models import AuditSeal

log = structlog.get_logger(__name__)

BATCH = 5_000  # maximum rows per seal
SETTLE_SECONDS = 60  # rows are sealed once every transaction that could add a lower id has ended
_START = "0" * 64


def _utc(column: str) -> str:
    return f"to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"


# The columns of each history, after those of every one.
_EDITED = {
    "reviews_allowlistentryevent": ("kind", "pattern", "position", "reason"),
    "reviews_viewerscopeevent": ("group_id", "prefix", "reason"),
    "reviews_teamruleevent": (
        "name", "pattern", "severity", "text", "good", "bad", "owner", "since", "reason",
    ),
    "reviews_skippedpathevent": ("pattern", "reason"),
    "reviews_scantargetevent": ("path", "every_hours", "recipients", "reason"),
    "reviews_subscriptionevent": (
        "owner_id", "recipient", "pattern", "author", "reason", _utc("e.created_at"),
    ),
    "notifications_recipientpreferenceevent": (
        "recipient", "threshold", _utc("muted_until"), "digest_minutes", "actor", "reason",
        _utc("e.updated_at"),
    ),
}  # fmt: skip


def _edits(table: str, *columns: str) -> tuple[str, str, str]:
    """Return the key, the text and the time of a history table's rows."""
    values = ", ".join(["pgh_id", "pgh_label", "pgh_obj_id", "e.id", *columns, _utc("pgh_created_at")])
    text = (
        f"SELECT pgh_id, jsonb_build_array({values}, c.id, c.metadata)::text "  # noqa: S608
        f"FROM {table} e LEFT JOIN pghistory_context c ON c.id = pgh_context_id"
    )
    return "pgh_id", text, "pgh_created_at"


# A table's key, its rows as lines of text that no session setting changes, and the time of a row. A
# new column cannot be added to a text: it would change sealed rows.
_TEXTS = {
    "security_events": (
        "id",
        """SELECT id, jsonb_build_array(id, kind, changelist_id, path, reason, actor, context,
                  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'))::text
             FROM security_events""",
        "created_at",
    ),
    **{table: _edits(table, *columns) for table, columns in _EDITED.items()},
}
_IS_QUIET = """
SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database()
                      AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL
                      AND xact_start < now() - make_interval(secs => %s))"""


@dataclass(slots=True)
class VerificationResult:
    """The result of verifying one table. `faults` are sentences; `head` is the newest link."""

    table: str
    seals: int = 0
    rows: int = 0
    unsealed: int = 0
    unkeyed: int = 0
    head: str = ""
    faults: list[str] = field(default_factory=list)


def seal_all() -> int:
    """Seal the settled rows of all tables (settings.MAINTENANCE); return how many."""
    return sum(seal(table) for table in _TEXTS)


def seal(table: str, settle_seconds: float = SETTLE_SECONDS) -> int:
    """Seal the settled rows of one table after its last seal, at most `BATCH`; return how many."""
    before = AuditSeal.objects.filter(table=table).order_by("-to_id").first()
    start = before.to_id if before else 0
    with connection.cursor() as cursor:
        cursor.execute(_IS_QUIET, [settle_seconds])
        if not cursor.fetchone()[0]:
            return 0  # a transaction may still add a row with a lower id
    last, count, digest = _digest(table, start, None, settle_seconds)
    if not count:
        return 0
    chain = _link(table, before.chain if before else _START, start, last, count, digest)
    try:
        with transaction.atomic():
            AuditSeal.objects.create(
                table=table,
                from_id=start,
                to_id=last,
                row_count=count,
                rows_sha256=digest,
                chain=chain,
                mac=_mac(settings.SECRET_KEY, chain),
                key_id=key_id(settings.SECRET_KEY),
            )
    except IntegrityError:
        return 0  # another process sealed the same rows
    log.info("audit_sealed", table=table, rows=count, to=last, head=chain)
    return count


def verify_all(report: bool = True) -> list[VerificationResult]:
    """Compare every seal with the present rows; with `report`, faults become a security event."""
    found = [verify(table) for table in _TEXTS]
    for audit in found if report else []:
        if audit.faults:
            SecurityEvent.objects.create(
                kind=SecurityEvent.Kind.AUDIT_FAULT,
                path=audit.table,
                reason=audit.faults[0][:512],
                actor="verification",
                context={"faults": audit.faults[:20]},
            )
            log.critical("audit_fault", table=audit.table, faults=len(audit.faults))
    return found


def verify(table: str) -> VerificationResult:
    """Compare the seals of one table with its rows, link by link."""
    audit = VerificationResult(table, head=_START)
    expected_from = 0
    keys = {key_id(key): key for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)}
    for link in AuditSeal.objects.filter(table=table).order_by("to_id").iterator():
        audit.seals += 1
        span = f"rows {link.from_id + 1} to {link.to_id}"
        if link.from_id != expected_from:
            audit.faults.append(f"{table}: the seal before {span} is gone")
        _, count, digest = _digest(table, link.from_id, link.to_id)
        audit.rows += count
        if (count, digest) != (link.row_count, link.rows_sha256):
            lost = link.row_count - count
            what = "were changed" if not lost else f"{abs(lost)} {'missing' if lost > 0 else 'added'}"
            audit.faults.append(f"{table}: {span}: {what} since they were sealed")
        computed = _link(table, audit.head, link.from_id, link.to_id, link.row_count, link.rows_sha256)
        if link.chain != computed:
            audit.faults.append(f"{table}: the seal of {span} does not follow the one before it")
        if link.key_id not in keys:
            audit.unkeyed += 1
        elif not hmac.compare_digest(link.mac, _mac(keys[link.key_id], link.chain)):
            audit.faults.append(f"{table}: the seal of {span} was not made by this installation")
        audit.head, expected_from = link.chain, link.to_id
    _, audit.unsealed, _ = _digest(table, expected_from, None)
    return audit


def has_head(table: str, head: str) -> bool:
    """Return whether a former head, taken from the log, is still in the chain."""
    return AuditSeal.objects.filter(table=table, chain=head).exists()


def _digest(
    table: str, after: int, until: int | None, settle_seconds: float | None = None
) -> tuple[int, int, str]:
    """Return (last id, count, SHA-256) of the rows after one id.

    They end at the id `until`, or with the settled rows where it is None.
    """
    digest, last, count = hashlib.sha256(), after, 0
    for row_id, text in _rows(table, after, until, settle_seconds):
        digest.update(text.encode() + b"\n")
        last, count = row_id, count + 1
    return last, count, digest.hexdigest()


def _rows(
    table: str, after: int, until: int | None, settle_seconds: float | None
) -> Iterator[tuple[int, str]]:
    key, text, stamp = _TEXTS[table]
    where, values = [f"{key} > %s"], [after]  # names from the table above, values as parameters
    if until is not None:
        where.append(f"{key} <= %s")
        values.append(until)
    if settle_seconds is not None:
        # Up to the last settled row, with every row below it: ids and times need not agree.
        where.append(
            f"{key} <= (SELECT max({key}) FROM {table} "  # noqa: S608
            f"WHERE {stamp} < now() - make_interval(secs => %s))"
        )
        values.append(settle_seconds)  # type: ignore[arg-type]
    limit = f"LIMIT {BATCH}" if until is None else ""
    with connection.cursor() as cursor:
        cursor.execute(f"{text} WHERE {' AND '.join(where)} ORDER BY {key} {limit}", values)
        while rows := cursor.fetchmany(500):
            yield from rows


def _link(table: str, before: str, from_id: int, to_id: int, count: int, digest: str) -> str:
    content = f"{table}:{before}:{from_id}:{to_id}:{count}:{digest}"
    return hashlib.sha256(content.encode()).hexdigest()


def _mac(key: str, chain: str) -> str:
    made = hashlib.sha256(b"criticizer audit seal:" + key.encode()).digest()
    return hmac.new(made, chain.encode(), hashlib.sha256).hexdigest()
