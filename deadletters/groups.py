"""Failure groups: occurrence counts are automatic; everything else is set by operators.

    open -- acknowledge --> acknowledged          resolved -- the failure comes back --> open
    open, acknowledged -- resolve_group --> resolved
    any -- ignore --> ignored                     ignored -- only `reopen` --> open

Only this module writes groups, but for `open_count`, which triggers keep. Every function that an operator
calls takes `actor`, returns a `Result` and adds a line to the group's timeline. (guarantee G66)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import structlog
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from criticizer.db import prepared
from criticizer.redaction import clean
from deadletters import alerts
from deadletters.fingerprint import Fingerprint
from deadletters.models import MIN_REASON_CHARS, DeadLetterGroup, DeadLetterGroupEvent
from deadletters.states import GroupAction, GroupStatus
from deadletters.types import NO_REASON, SYSTEM, LetterDraft, Result, link_problem, source_of

log = structlog.get_logger(__name__)

# Groups that need attention: open or acknowledged, and not snoozed.
ATTENTION = Q(status__in=[GroupStatus.OPEN.value, GroupStatus.ACKNOWLEDGED.value]) & (
    Q(snooze_until=None) | Q(snooze_until__lte=Now())
)
NOT_SNOOZED = "it is not snoozed"
_STATUS_AFTER = {
    GroupAction.ACKNOWLEDGED: GroupStatus.ACKNOWLEDGED,
    GroupAction.RESOLVED: GroupStatus.RESOLVED,
    GroupAction.IGNORED: GroupStatus.IGNORED,
    GroupAction.REOPENED: GroupStatus.OPEN,
}

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

# The newest letter of each group: one index lookup in `dead_letters_in_group` for each.
_NEWEST = """
SELECT g.id, l.detail
  FROM unnest(%(groups)s::bigint[]) g(id)
 CROSS JOIN LATERAL (
       SELECT left(detail, 500) AS detail FROM dead_letters
        WHERE group_id = g.id ORDER BY last_failure_at DESC, id DESC LIMIT 1) l"""


def occurred(fingerprint: Fingerprint, draft: LetterDraft) -> int:
    """Count one failure, in the transaction of its letter; return the group's id.

    A resolved group whose failure comes back opens, and the operators are alerted once a day; an ignored
    one stays ignored.
    """
    at = draft.last_failure_at
    counted = {
        "fingerprint": fingerprint.id,
        "stage": draft.stage,
        "error_class": draft.error_class,
        "source": draft.source[:128],
        "message": fingerprint.message,
        "at": at,
    }
    seen = prepared.row(_SEEN, counted)
    assert seen is not None
    group_id = int(seen["id"])
    prepared.rows(_DAY, {"group": group_id, "at": at})
    if seen["status"] == GroupStatus.RESOLVED:
        DeadLetterGroup.objects.filter(pk=group_id).update(status=GroupStatus.OPEN, snooze_until=None)
        _event(group_id, GroupAction.REOPENED, SYSTEM, "the failure came back")
        log.warning("failure_group_reopened", group=group_id, error_class=draft.error_class)
        alerts.tell(
            "reopened",
            key=f"reopened:{group_id}:{at:%Y-%m-%d}",
            error_class=draft.error_class,
            stage=draft.stage,
            group=group_id,
            message=fingerprint.message,
            path=alerts.page("deadlettergroup", group_id),
        )
    return group_id


def asks_for_attention(group_id: int) -> bool:
    """Return whether a group is open or acknowledged, and not snoozed."""
    return DeadLetterGroup.objects.filter(ATTENTION, pk=group_id).exists()


def acknowledge(group_id: int, *, actor: str, reason: str = "") -> Result:
    """Mark an open group as looked after; without an owner, `actor` becomes it."""
    with transaction.atomic():
        group = _locked(group_id)
        owner = group.owner or actor[:255]
        return _set(group, GroupAction.ACKNOWLEDGED, actor, reason, (GroupStatus.OPEN,), owner=owner)


def resolve_group(group_id: int, *, actor: str, reason: str) -> Result:
    """Mark a group's failure as over. Refused while letters of it are open."""
    if len(reason.strip()) < MIN_REASON_CHARS:
        return NO_REASON
    with transaction.atomic():
        group = _locked(group_id)
        if group.open_count:
            return Result(False, open_words(group.open_count))
        allowed = (GroupStatus.OPEN, GroupStatus.ACKNOWLEDGED, GroupStatus.IGNORED)
        result = _set(group, GroupAction.RESOLVED, actor, reason, allowed, snooze_until=None)
    return Result(True, "resolved; it opens again when the failure comes back") if result.ok else result


def ignore(group_id: int, *, actor: str, reason: str) -> Result:
    """Silence a group for good. Its letters stay and count; it never reopens by itself."""
    if len(reason.strip()) < MIN_REASON_CHARS:
        return NO_REASON
    with transaction.atomic():
        allowed = (GroupStatus.OPEN, GroupStatus.ACKNOWLEDGED, GroupStatus.RESOLVED)
        return _set(_locked(group_id), GroupAction.IGNORED, actor, reason, allowed)


def reopen(group_id: int, *, actor: str, reason: str = "") -> Result:
    """Take back an acknowledgement, a resolution or an ignore."""
    with transaction.atomic():
        allowed = (GroupStatus.ACKNOWLEDGED, GroupStatus.RESOLVED, GroupStatus.IGNORED)
        return _set(_locked(group_id), GroupAction.REOPENED, actor, reason, allowed, snooze_until=None)


def snooze(group_id: int, *, actor: str, until: datetime | None, reason: str = "") -> Result:
    """Silence a group until a time; None ends a snooze."""
    if until is not None and until <= timezone.now():
        return Result(False, "the time is in the past")
    with transaction.atomic():
        group = _locked(group_id)
        if until is None and not is_snoozed(group):
            return Result(False, NOT_SNOOZED)
        end = f"until {until:%Y-%m-%d %H:%M} UTC" if until else "no longer"
        line = f"{end}: {reason}" if reason else end
        _set(group, GroupAction.SNOOZED, actor, line, snooze_until=until)
    return Result(True, f"snoozed {end}")


def is_snoozed(group: DeadLetterGroup) -> bool:
    """Return whether a group is snoozed now."""
    return group.snooze_until is not None and group.snooze_until > timezone.now()


def open_words(count: int) -> str:
    """Return why a group with so many open letters is not resolved."""
    return f"{count} of its letters {'are' if count != 1 else 'is'} still open"


def assign(group_id: int, *, actor: str, owner: str) -> Result:
    """Set the owner of a group; an empty name removes it."""
    name = owner.strip()
    with transaction.atomic():
        _set(_locked(group_id), GroupAction.ASSIGNED, actor, name or "no one", owner=clean(name, 255))
    return Result(True, f"assigned to {name or 'no one'}")


def annotate(group_id: int, *, actor: str, note: str | None = None, runbook_url: str | None = None) -> Result:
    """Replace a group's note and the link to its runbook; None leaves what is there.

    The link is http or https.
    """
    url = runbook_url.strip()[:500] if runbook_url is not None else None
    if problem := link_problem(url or "", "the runbook's link"):
        return Result(False, problem)
    with transaction.atomic():
        group = _locked(group_id)
        text = clean(note.strip(), 4000) if note is not None else group.note
        url = url if url is not None else group.runbook_url
        # The runbook first: a long note is cut.
        runbook = f"runbook: {group.runbook_url or 'none'} \u2192 {url or 'none'}"
        changed = [
            *([runbook] if url != group.runbook_url else []),
            *([f"note: {text or 'none'}"] if text != group.note else []),
        ]
        if not changed:
            return Result(False, "nothing has changed")
        _set(group, GroupAction.ANNOTATED, actor, "; ".join(changed), note=text, runbook_url=url)
    return Result(True, "noted")


def newest_words(group_ids: Sequence[int]) -> dict[int, str]:
    """Return the redacted text of the newest letter of each group.

    Groups without letters are left out. The text of a group itself has placeholders for what varies, which
    operators want to read.
    """
    rows = prepared.rows(_NEWEST, {"groups": list(group_ids)}) if group_ids else []
    return {int(row["id"]): row["detail"].strip() for row in rows}


def _locked(group_id: int) -> DeadLetterGroup:
    return DeadLetterGroup.objects.select_for_update(no_key=True).get(pk=group_id)


def _set(
    group: DeadLetterGroup,
    action: GroupAction,
    actor: str,
    reason: str,
    allowed: Collection[GroupStatus] = tuple(GroupStatus),
    **changes: object,
) -> Result:
    """Change a locked group unless its status is not allowed, and add a line to its timeline."""
    status = _STATUS_AFTER.get(action, GroupStatus(group.status))
    if group.status not in allowed:
        now = group.get_status_display().lower()
        return Result(False, f"already {now}" if group.status == status else f"it is {now}")
    updated = DeadLetterGroup.objects.filter(pk=group.pk, status=group.status).update(
        status=status, **changes
    )
    if updated != 1:
        raise RuntimeError(f"a guarded update of a failure group touched {updated} rows")
    _event(group.pk, action, actor, reason)
    return Result(True, "open again" if action is GroupAction.REOPENED else action.label.lower())


def _event(group_id: int, action: GroupAction, actor: str, reason: str) -> None:
    DeadLetterGroupEvent.objects.create(
        group_id=group_id,
        action=action,
        actor=actor[:255],
        source=source_of(actor),
        reason=clean(reason, 2000),
    )
