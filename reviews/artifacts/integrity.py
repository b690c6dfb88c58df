"""Verification of stored artifacts against their rows, and rotation of their keys.

The verification runs in small rounds with the other maintenance. Each fault is a security event and an error
in the log once, not once a round.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from django.conf import settings
from django.core.files.storage import Storage
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

from criticizer.db import prepared
from criticizer.models import SecurityEvent
from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure, RetryableFailure
from criticizer.security import expired_copies, sealed_field
from criticizer.security.encryption import Vault, VaultError
from deadletters import alerts
from reviews.artifacts import store
from reviews.models import Artifact

log = structlog.get_logger(__name__)

ROUND = 25  # artifacts opened by one round of maintenance
SEALED_AT_ONCE = 1000  # excerpts of findings sealed by one round
CHECK_EVERY_HOURS = 24  # how often each artifact is opened
OVERDUE_GRACE_MINUTES = 30  # the deletion job runs twice a minute
WALK_EVERY_SECONDS = 900
MAX_WALKED = 20_000  # files of one walk
# A stage writes the file first and commits the row when it ends.
YOUNG_HOURS = 6
_REPORT_AGAIN_DAYS = 1
_FAULT_OF = {
    ErrorClass.NOT_FOUND: Artifact.Fault.MISSING,
    ErrorClass.CONFIG_INVALID: Artifact.Fault.UNREADABLE,
    ErrorClass.SCHEMA_INVALID: Artifact.Fault.CHANGED,
}
_walked_at: float | None = None


@dataclass(slots=True)
class Verified:
    """The result of a verification: artifacts opened, and new faults by kind."""

    opened: int = 0
    files: int = 0
    overdue: int = 0
    broken: int = 0
    orphaned: int = 0

    @property
    def faults(self) -> int:
        return self.overdue + self.broken + self.orphaned


@dataclass(slots=True)
class Rotated:
    """The result of a rotation. `left`: how many artifacts are still sealed with an older key.

    `reasons` counts the failures by reason; `is_cut`: the storage did not answer, so the rest were left.
    """

    resealed: int = 0
    skipped: int = 0
    left: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    is_cut: bool = False

    @property
    def failed(self) -> int:
        return self.reasons.total()

    @property
    def seen(self) -> int:
        return self.resealed + self.skipped + self.failed


def verify_round() -> None:
    """Verify due artifacts, and the files every 15 minutes (settings.MAINTENANCE)."""
    global _walked_at
    is_all_sealed = seal_excerpts() < SEALED_AT_ONCE
    try:
        verify(ROUND)
        now = time.monotonic()
        if _walked_at is None or now - _walked_at >= WALK_EVERY_SECONDS:
            _walked_at = now
            find_orphans()
            find_overdue_copies()
            if is_all_sealed:
                find_unsealed()
    except Failure as failure:
        log.error("artifacts_not_verified", detail=failure.detail, **failure.facts)


def verify(limit: int, *, all_now: bool = False) -> Verified:
    """Open at most `limit` artifacts, and look for overdue ones.

    Those checked longest ago come first. `all_now` also opens those checked within `CHECK_EVERY_HOURS`.

    Raises RetryableFailure, at the end, when the storage did not answer for some: these stay due.
    """
    seen, unanswered = Verified(), list[RetryableFailure]()
    present = Artifact.objects.filter(deleted_at=None)
    late = timezone.now() - timedelta(minutes=OVERDUE_GRACE_MINUTES)
    for artifact in present.filter(expires_at__lt=late).exclude(fault=Artifact.Fault.OVERDUE)[:limit]:
        seen.overdue += _note(artifact, Artifact.Fault.OVERDUE)
    due = present.filter(expires_at__gte=late)
    if not all_now:
        before = timezone.now() - timedelta(hours=CHECK_EVERY_HOURS)
        due = due.filter(Q(checked_at=None) | Q(checked_at__lt=before))
    for artifact in due.order_by(F("checked_at").asc(nulls_first=True))[:limit]:
        try:
            fault = _fault_of(artifact)
        except RetryableFailure as failure:
            unanswered.append(failure)
            if len(unanswered) == store.AWAY_AFTER:
                break
            continue
        seen.opened += 1
        seen.broken += _note(artifact, fault)
    if unanswered:
        raise unanswered[0]
    return seen


def _fault_of(artifact: Artifact) -> str:
    """Open an artifact; return its fault, or "". Raises RetryableFailure without an answer."""
    try:
        store.content_of(artifact)
    except PermanentFailure as failure:
        return _FAULT_OF.get(failure.error_class, Artifact.Fault.UNREADABLE)
    return ""


def _note(artifact: Artifact, fault: str) -> int:
    """Save the result of a check; report a new fault. Returns how many faults were reported."""
    # An artifact deleted or resealed since it was read has no fault; the next round checks it again.
    current = Artifact.objects.filter(pk=artifact.pk, name=artifact.name, deleted_at=None)
    updated = current.exclude(fault=fault).update(fault=fault, checked_at=Now()) if fault else 0
    if not updated:
        current.update(fault=fault, checked_at=Now())
        return 0
    _report(Artifact.Fault(fault).label, artifact.name, artifact.is_raw, {"artifact": artifact.pk})
    return 1


def find_orphans() -> Verified:
    """Report files without a row, and delete those older than the TTL of their storage.

    Raises what `artifacts.store` raises when the storage cannot be listed.
    """
    seen = Verified()
    for is_raw, days in (
        (True, settings.ARTIFACT_RAW_TTL_DAYS),
        (False, settings.ARTIFACT_REDACTED_TTL_DAYS),
    ):
        namespace = store.storage(is_raw=is_raw)
        for directory, names in _directories(namespace):
            seen.files += len(names)
            known = set(
                Artifact.objects.filter(
                    is_raw=is_raw, deleted_at=None, name__startswith=f"{directory}/"
                ).values_list("name", flat=True)
            )
            for name in names:
                if name not in known:
                    seen.orphaned += _orphan(namespace, name, is_raw=is_raw, days=days)
            if seen.files >= MAX_WALKED:
                log.warning("artifact_walk_cut", files=seen.files)
                return seen
    return seen


def find_overdue_copies() -> int:
    """Report tables whose copies outlive their time, once a day; return how many.

    `security.expired_copies` knows the time of each.
    """
    reason = "Copies are kept beyond their lifetime"
    overdue = expired_copies.overdue(timedelta(minutes=OVERDUE_GRACE_MINUTES))
    return sum(_report_once_a_day(reason, table, rows) for table, rows in overdue)


def find_unsealed() -> int:
    """Report findings whose code is stored in plain text, once a day; return how many there are."""
    rows = int(prepared.value(_COUNT_UNSEALED))
    if rows:
        _report_once_a_day("Code is stored in plain text", "findings", rows)
    return rows


def _report_once_a_day(reason: str, table: str, rows: int) -> bool:
    recent = timezone.now() - timedelta(days=_REPORT_AGAIN_DAYS)
    if SecurityEvent.objects.filter(reason=reason, path=table, created_at__gte=recent).exists():
        return False
    _report(reason, table, False, {"rows": rows})
    return True


def _directories(namespace: Storage) -> Iterator[tuple[str, list[str]]]:
    """Yield each job's directory with the names of its files."""
    try:
        with store.classified():
            directories, stray = namespace.listdir("")
    except FileNotFoundError:
        return  # nothing was stored yet
    if stray:
        yield "", list(stray)
    for directory in directories:
        try:
            with store.classified():
                _, names = namespace.listdir(directory)
        except FileNotFoundError:
            continue
        yield directory, [f"{directory}/{name}" for name in names]


def _orphan(namespace: Storage, name: str, *, is_raw: bool, days: int) -> int:
    try:
        with store.classified():
            age = timezone.now() - namespace.get_modified_time(name)
    except FileNotFoundError:
        return 0
    if age < timedelta(hours=YOUNG_HOURS):
        return 0
    recent = timezone.now() - timedelta(days=_REPORT_AGAIN_DAYS)
    kind = SecurityEvent.Kind.ARTIFACT_FAULT
    known = SecurityEvent.objects.filter(kind=kind, path=name[:2048], created_at__gte=recent).exists()
    if age > timedelta(days=days) and _is_deleted(namespace, name):
        _report("A file without a row was older than its time and is deleted", name, is_raw, {})
        return 1
    if known:
        return 0
    _report("A file that no row names", name, is_raw, {})
    return 1


def _is_deleted(namespace: Storage, name: str) -> bool:
    try:
        with store.classified():
            namespace.delete(name)
    except Failure as failure:
        log.error("artifact_not_deleted", name=name, **failure.facts)
        return False
    return True


def _report(reason: str, name: str, is_raw: bool, ids: dict[str, int]) -> None:
    space = "raw" if is_raw else "redacted"
    SecurityEvent.objects.create(
        kind=SecurityEvent.Kind.ARTIFACT_FAULT,
        path=name[:2048],
        reason=reason,
        actor="verification",
        context={"namespace": space, **ids},
    )
    log.error("artifact_fault", reason=reason, name=name, namespace=space, **ids)
    alerts.tell(
        "storage_fault",
        key=f"storage-fault:{space}:{name}:{timezone.now():%Y-%m-%d}",
        path=reverse("admin:criticizer_securityevent_changelist"),
        reason=reason,
        name=name,
        namespace=space,
    )


def rotate_keys(limit: int | None = None, batch: int = 100) -> Rotated:
    """Seal artifacts and sealed fields of rows with the newest key, at most `limit` of them.

    It may be stopped and started at any moment: each artifact is whole under one key or the other, and
    finished ones are not repeated. It stops by itself when the storage does not answer.
    """
    vault = Vault(settings.ARTIFACT_KEYS)
    done, unanswered = Rotated(), 0
    old = Artifact.objects.filter(deleted_at=None).exclude(key_id=vault.newest)
    after = 0
    while not done.is_cut and (limit is None or done.seen < limit):
        size = batch if limit is None else min(batch, limit - done.seen)
        found = list(old.filter(pk__gt=after).order_by("pk")[:size])
        if not found:
            break
        for artifact in found:
            after = artifact.pk
            try:
                if store.reseal(artifact, vault):
                    done.resealed += 1
                else:
                    done.skipped += 1
            except (VaultError, Failure, FileNotFoundError) as error:
                reason = _why_not_resealed(error)
                done.reasons[reason] += 1
                log.error("artifact_not_resealed", artifact=artifact.pk, reason=reason)
                unanswered += isinstance(error, RetryableFailure)
                if unanswered == store.AWAY_AFTER:
                    done.is_cut = True
                    break
    if not done.is_cut:
        for names in _SEALED:
            _rotate_field(done, vault.newest, limit, batch, names)
    done.left = old.count() + len(prepared.rows(_COUNT_OLD, {"newest": vault.newest}))
    return done


# Sealed fields besides artifacts: table, its key, the field.
_SEALED = (
    {"table": "findings", "key": "id", "field": "excerpt"},
    {"table": "findings", "key": "id", "field": "edit"},
    {"table": "review_units", "key": "key", "field": "answer"},
    {"table": "agent_tasks", "key": "id::text", "field": "payload"},
    {"table": "agent_tasks", "key": "id::text", "field": "result"},
)
_COUNT_OLD = " UNION ALL ".join(
    "SELECT 1 FROM {table} WHERE {field} <> '' AND NOT starts_with({field}, %(newest)s)".format(**names)  # noqa: S608
    for names in _SEALED
)
_OLD = """
SELECT {key} AS key, {field} AS sealed FROM {table}
 WHERE {key} > %(after)s AND {field} <> '' AND NOT starts_with({field}, %(newest)s)
 ORDER BY {key} LIMIT %(size)s"""
_RESEAL = "UPDATE {table} SET {field} = %(new)s WHERE {key} = %(key)s AND {field} = %(old)s RETURNING 1"


# The condition is that of the index `findings_unsealed`.
_COUNT_UNSEALED = "SELECT count(*) FROM findings WHERE excerpt LIKE '[%%'"
_UNSEALED = """
SELECT id, excerpt FROM findings WHERE excerpt LIKE '[%%'
 ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED"""


def seal_excerpts() -> int:
    """Seal excerpts that an older version stored in plain text; return how many.

    At most SEALED_AT_ONCE.
    """
    with transaction.atomic():
        found = prepared.rows(_UNSEALED, {"limit": SEALED_AT_ONCE})
        for row in found:
            new = sealed_field.resealed(row["excerpt"])
            prepared.rows(_RESEAL.format(**_SEALED[0]), {"key": row["id"], "old": row["excerpt"], "new": new})
    if found:
        log.info("excerpts_sealed", findings=len(found))
    return len(found)


def _rotate_field(done: Rotated, newest: str, limit: int | None, batch: int, names: dict[str, str]) -> None:
    after: int | str = 0 if names["key"] == "id" else ""
    while limit is None or done.seen < limit:
        size = batch if limit is None else min(batch, limit - done.seen)
        found = prepared.rows(_OLD.format(**names), {"newest": newest, "after": after, "size": size})
        if not found:
            return
        for row in found:
            after = row["key"]
            try:
                new = sealed_field.resealed(row["sealed"])
            except VaultError as error:
                done.reasons[str(error)] += 1
                log.error("artifact_not_resealed", table=names["table"], row=str(after), reason=str(error))
                continue
            changed = {"key": row["key"], "old": row["sealed"], "new": new}
            if prepared.rows(_RESEAL.format(**names), changed):
                done.resealed += 1
            else:
                done.skipped += 1


def _why_not_resealed(error: VaultError | Failure | FileNotFoundError) -> str:
    if isinstance(error, Failure):
        return error.detail or str(error.error_class)
    if isinstance(error, FileNotFoundError):
        return "the artifact's file is gone"
    return str(error)
