"""The only writer of failure groups: occurrences count by themselves, the rest is an operator's word.

    open ── acknowledge ──► acknowledged          resolved ── the failure comes back ──► open
    open, acknowledged ── resolve_group ──► resolved
    any ── ignore ──► ignored                     ignored ── only `reopen` ──► open

Every function that an operator calls takes `actor`, returns a `Result` and writes a line of the
group's timeline. `row_version`, where given, is the version that the operator looked at.
"""

from __future__ import annotations

from datetime import datetime

import structlog
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

from criticizer.db import prepared
from criticizer.redaction import clean
from deadletters import alerts
from deadletters.fingerprint import Fingerprint
from deadletters.models import MIN_WORDS, DeadLetterGroup, DeadLetterGroupEvent
from deadletters.states import GroupAction, GroupStatus
from deadletters.types import SYSTEM, Result, source_of

log = structlog.get_logger(__name__)

# Groups that operators want to hear of: who is snoozed asks for nothing until then.
ATTENTION = Q(status__in=[GroupStatus.OPEN.value, GroupStatus.ACKNOWLEDGED.value]) & (
    Q(snooze_until=None) | Q(snooze_until__lte=Now())
)
NOT_SNOOZED = "it is not snoozed"

_SEEN = """
INSERT INTO dead_letter_groups AS g
       (fingerprint, stage, error_class, source, normalized_message, first_seen, last_seen, total_count)
VALUES (%(fingerprint)s, %(stage)s, %(error_class)s, %(source)s, %(message)s, %(at)s, %(at)s, 1)
ON CONFLICT (fingerprint) DO UPDATE
   SET last_seen = greatest(g.last_seen, excluded.last_seen), total_count = g.total_count + 1
RETURNING id, status"""

_DAY = """
INSERT INTO dead_letter_group_days AS d (group_id, day, count)
VALUES (%(group)s, (%(at)s::timestamptz AT TIME ZONE 'UTC')::date, 1)
ON CONFLICT (group_id, day) DO UPDATE SET count = d.count + 1"""


def occurred(fingerprint: Fingerprint, *, stage: str, error_class: str, source: str, at: datetime) -> int:
    """Count one failure, in the transaction of its letter; return the group's id.

    A resolved group whose failure comes back is open again, and the operators are told once a day;
    an ignored one stays ignored.
    """
    seen = prepared.row(
        _SEEN,
        {
            "fingerprint": fingerprint.id,
            "stage": stage,
            "error_class": error_class,
            "source": source[:128],
            "message": fingerprint.message,
            "at": at,
        },
    )
    assert seen is not None
    group_id = int(seen["id"])
    prepared.rows(_DAY, {"group": group_id, "at": at})
    if seen["status"] == GroupStatus.RESOLVED:
        DeadLetterGroup.objects.filter(pk=group_id).update(status=GroupStatus.OPEN, snooze_until=None)
        _event(group_id, GroupAction.REOPENED, SYSTEM, "the failure came back")
        log.warning("failure_group_reopened", group=group_id, error_class=error_class)
        alerts.tell(
            "reopened",
            key=f"reopened:{group_id}:{at:%Y-%m-%d}",
            title=f"{error_class} in {stage} came back after its group was resolved",
            text=f"Group {group_id}: {fingerprint.message}",
            path=reverse("admin:deadletters_deadlettergroup_change", args=[group_id]),
        )
    return group_id


def asks_for_attention(group_id: int) -> bool:
    """Say whether operators want to hear of a group: it is open, and neither ignored nor snoozed."""
    return DeadLetterGroup.objects.filter(ATTENTION, pk=group_id).exists()


def acknowledge(group_id: int, *, actor: str, reason: str = "", row_version: int | None = None) -> Result:
    """Say that somebody looks after an open group; without an owner, `actor` becomes it."""
    with transaction.atomic():
        group = _locked(group_id)
        if refusal := _refusal(group, row_version, {GroupStatus.OPEN}, "acknowledged"):
            return refusal
        _update(group, status=GroupStatus.ACKNOWLEDGED, owner=group.owner or actor[:255])
        _event(group.pk, GroupAction.ACKNOWLEDGED, actor, reason)
    return Result(True, "acknowledged")


def resolve_group(group_id: int, *, actor: str, reason: str, row_version: int | None = None) -> Result:
    """Say that a group's failure is over. Refused while letters of it are open."""
    if refusal := _unreasoned(reason):
        return refusal
    with transaction.atomic():
        group = _locked(group_id)
        allowed = {GroupStatus.OPEN, GroupStatus.ACKNOWLEDGED, GroupStatus.IGNORED}
        if refusal := _refusal(group, row_version, allowed, "resolved"):
            return refusal
        if group.open_count:
            return Result(False, open_words(group.open_count))
        _update(group, status=GroupStatus.RESOLVED, snooze_until=None)
        _event(group.pk, GroupAction.RESOLVED, actor, reason)
    return Result(True, "resolved; it opens again when the failure comes back")


def ignore(group_id: int, *, actor: str, reason: str, row_version: int | None = None) -> Result:
    """Ask never to hear of a group again. Its letters stay and count; it never reopens by itself."""
    if refusal := _unreasoned(reason):
        return refusal
    with transaction.atomic():
        group = _locked(group_id)
        allowed = {GroupStatus.OPEN, GroupStatus.ACKNOWLEDGED, GroupStatus.RESOLVED}
        if refusal := _refusal(group, row_version, allowed, "ignored"):
            return refusal
        _update(group, status=GroupStatus.IGNORED)
        _event(group.pk, GroupAction.IGNORED, actor, reason)
    return Result(True, "ignored")


def reopen(group_id: int, *, actor: str, reason: str = "", row_version: int | None = None) -> Result:
    """Take back an acknowledgement, a resolution or an ignore."""
    with transaction.atomic():
        group = _locked(group_id)
        allowed = {GroupStatus.ACKNOWLEDGED, GroupStatus.RESOLVED, GroupStatus.IGNORED}
        if refusal := _refusal(group, row_version, allowed, "open"):
            return refusal
        _update(group, status=GroupStatus.OPEN, snooze_until=None)
        _event(group.pk, GroupAction.REOPENED, actor, reason)
    return Result(True, "open again")


def snooze(
    group_id: int, *, actor: str, until: datetime | None, reason: str = "", row_version: int | None = None
) -> Result:
    """Let a group ask for no attention until then; None ends a snooze, where there is one."""
    if until is not None and until <= timezone.now():
        return Result(False, "that moment is past")
    with transaction.atomic():
        group = _locked(group_id)
        if refusal := _refusal(group, row_version):
            return refusal
        if until is None and not is_snoozed(group):
            return Result(False, NOT_SNOOZED)
        _update(group, snooze_until=until)
        when = f"until {until:%Y-%m-%d %H:%M} UTC" if until else "no longer"
        _event(group.pk, GroupAction.SNOOZED, actor, f"{when}: {reason}" if reason else when)
    return Result(True, f"snoozed {when}")


def is_snoozed(group: DeadLetterGroup) -> bool:
    """Say whether a group asks for no attention now."""
    return group.snooze_until is not None and group.snooze_until > timezone.now()


def open_words(count: int) -> str:
    """Return why a group with so many open letters is not resolved."""
    return f"{count} of its letters {'are' if count != 1 else 'is'} still open"


def assign(group_id: int, *, actor: str, owner: str, row_version: int | None = None) -> Result:
    """Make `owner` look after a group; an empty name takes the owner away."""
    with transaction.atomic():
        group = _locked(group_id)
        if refusal := _refusal(group, row_version):
            return refusal
        _update(group, owner=clean(owner.strip(), 255))
        _event(group.pk, GroupAction.ASSIGNED, actor, owner.strip() or "nobody")
    return Result(True, f"assigned to {owner.strip()}" if owner.strip() else "assigned to nobody")


def annotate(
    group_id: int,
    *,
    actor: str,
    note: str | None = None,
    runbook_url: str | None = None,
    row_version: int | None = None,
) -> Result:
    """Replace a group's note and the link to its runbook (http or https); None leaves what is there."""
    url = runbook_url.strip()[:500] if runbook_url is not None else None
    if url and not url.startswith(("https://", "http://")):
        return Result(False, "a runbook is linked by an address that begins with https:// or http://")
    with transaction.atomic():
        group = _locked(group_id)
        if refusal := _refusal(group, row_version):
            return refusal
        said = clean(note.strip(), 4000) if note is not None else group.note
        url = url if url is not None else group.runbook_url
        # The runbook first: a long note is cut.
        runbook = f"runbook: {group.runbook_url or 'none'} \u2192 {url or 'none'}"
        words = [
            *([runbook] if url != group.runbook_url else []),
            *([f"note: {said or 'none'}"] if said != group.note else []),
        ]
        if not words:
            return Result(False, "it says that already")
        _update(group, note=said, runbook_url=url)
        _event(group.pk, GroupAction.ANNOTATED, actor, "; ".join(words))
    return Result(True, "noted")


# -- inside -----------------------------------------------------------------------------------


def _locked(group_id: int) -> DeadLetterGroup:
    return DeadLetterGroup.objects.select_for_update(no_key=True).get(pk=group_id)


def _refusal(
    group: DeadLetterGroup,
    row_version: int | None,
    allowed: set[GroupStatus] | None = None,
    wanted: str = "",
) -> Result | None:
    if row_version is not None and row_version != group.row_version:
        last = group.events.order_by("-id").first()
        who = f" by {last.actor} ({last.get_action_display().lower()})" if last else ""
        return Result(False, f"changed meanwhile{who}: look again")
    if allowed is not None and group.status not in allowed:
        now = group.get_status_display().lower()
        return Result(False, f"already {now}" if now == wanted else f"it is {now}")
    return None


def _unreasoned(reason: str) -> Result | None:
    return None if len(reason.strip()) >= MIN_WORDS else Result(False, "say why: a ticket or a sentence")


def _update(group: DeadLetterGroup, **changes: object) -> None:
    updated = DeadLetterGroup.objects.filter(pk=group.pk, status=group.status).update(**changes)
    if updated != 1:
        raise RuntimeError(f"a guarded update of a failure group touched {updated} rows")


def _event(group_id: int, action: GroupAction, actor: str, reason: str) -> None:
    DeadLetterGroupEvent.objects.create(
        group_id=group_id,
        action=action,
        actor=actor[:255],
        source=source_of(actor),
        reason=clean(reason, 2000),
    )
