"""Callbacks from the job pipeline, run inside the job's transaction.

One letter is open for a job and a stage. A replayed job that fails again brings its letter back to the
start of the workflow. (guarantee G62)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from django.conf import settings
from django.db.models import F

from criticizer.resilience.failures import Severity
from deadletters import alerts, groups, transitions
from deadletters.fingerprint import Fingerprint, fingerprint
from deadletters.models import DeadLetter, DeadLetterPayload
from deadletters.states import OPEN_LETTER, LetterAction, LetterStatus
from deadletters.types import SYSTEM, LetterDraft

log = structlog.get_logger(__name__)


def open_letter(draft: LetterDraft) -> int:
    """Create the letter of a job that just ended, or bring back the replayed one; return its id.

    A letter whose replay got past its stage waits for verification, and the new failure gets a letter of
    its own. One whose restart failed earlier moves to the stage that failed. Operators are alerted once a
    day of a failure that repeats its non-retryable class, which escalates, and of critical ones; once an
    hour of those of severity high and of used-up budgets.
    """
    ours = fingerprint(draft)
    letters = _locked_of(draft.job_id, *OPEN_LETTER)  # locked before groups, here as everywhere
    group_id = groups.occurred(ours, draft)
    existing = _existing(letters, draft, group_id)
    letter = _create(draft, group_id) if existing is None else _bring_back(existing, draft, group_id, ours)
    if (kind := _alert_kind(draft)) and groups.asks_for_attention(group_id):
        _alert(kind, letter, draft, ours)
    return int(letter.pk)


def await_verification(job_id: int) -> None:
    """Move the letters of a job that succeeded after its replay to their verification."""
    for letter in _locked_of(job_id, LetterStatus.REPLAYING):
        _pass(letter, "the replayed job succeeded")


def abandon_replayed(job_id: int, reason: str) -> None:
    """Close the letters of a replayed job that was cancelled or superseded."""
    for letter in _locked_of(job_id, LetterStatus.REPLAYING):
        _discard(letter, reason)


def _pass(letter: DeadLetter, reason: str, context: Mapping[str, Any] | None = None) -> None:
    to, action = LetterStatus.VERIFYING, LetterAction.SUCCEEDED
    transitions.move(letter, to, action, SYSTEM, reason, context=context)


def _discard(letter: DeadLetter, reason: str) -> None:
    transitions.move(letter, LetterStatus.DISCARDED, LetterAction.DISCARDED, SYSTEM, reason)


def _locked_of(job_id: int, *statuses: LetterStatus) -> list[DeadLetter]:
    found = DeadLetter.objects.select_for_update().filter(job_id=job_id, status__in=statuses)
    return list(found.order_by("pk"))


def _existing(letters: Sequence[DeadLetter], draft: LetterDraft, group_id: int) -> DeadLetter | None:
    """Return the open letter of the job that the failure belongs to; move the others on."""
    same = next((letter for letter in letters if letter.stage == draft.stage), None)
    for letter in letters:
        if letter.status != LetterStatus.REPLAYING or letter.stage == draft.stage:
            continue
        if _is_before(letter.stage, draft.stage):
            reason = f"the replay got past {letter.stage}; the job failed later, in {draft.stage}"
            _pass(letter, reason, {"later_stage": draft.stage, "group": group_id})
        elif same is None:
            same = letter  # restarted, and failed in an earlier stage than last time
        else:
            _discard(letter, f"its replay failed earlier, in {draft.stage}: see dead letter {same.pk}")
    return same


def _is_before(stage: str, other: str) -> bool:
    order = list(settings.STAGES)
    return order.index(stage) < order.index(other)


def _facts(draft: LetterDraft, group_id: int) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "stage": draft.stage,
        "error_class": draft.error_class,
        "code": draft.code,
        "severity": draft.severity,
        "retryable": draft.retryable,
        "detail": draft.detail,
        "payload_reference": draft.payload_reference,
        "attempts": draft.attempts,
        "last_failure_at": draft.last_failure_at,
    }


def _payload(draft: LetterDraft) -> Mapping[str, Any]:
    return {"last_stack": draft.last_stack, "sanitized_context": dict(draft.sanitized_context)}


def _create(draft: LetterDraft, group_id: int) -> DeadLetter:
    letter = DeadLetter.objects.create(
        job_id=draft.job_id, first_failure_at=draft.first_failure_at, **_facts(draft, group_id)
    )
    DeadLetterPayload.objects.create(letter=letter, **_payload(draft))
    transitions.note(letter.pk, LetterAction.CREATED, SYSTEM, draft.error_class)
    log.error(
        "dead_letter_created",
        letter=letter.pk,
        job=draft.job_id,
        stage=draft.stage,
        error_class=draft.error_class,
        code=draft.code,
        group=group_id,
    )
    return letter


def _bring_back(letter: DeadLetter, draft: LetterDraft, group_id: int, ours: Fingerprint) -> DeadLetter:
    was_replayed = letter.status in {LetterStatus.REPLAYING, LetterStatus.VERIFYING}
    escalate = was_replayed and letter.error_class == draft.error_class and not draft.retryable
    changes = {
        **_facts(draft, group_id),
        "is_escalated": letter.is_escalated or escalate,
        "failed_replay_count": F("failed_replay_count") + int(was_replayed),
    }
    context = {"replay": letter.failed_replay_count + int(was_replayed), "group": group_id}
    # Not replayed: something else queued the job again, and the operator's steps still stand.
    to = LetterStatus.NEW if was_replayed else LetterStatus(letter.status)
    transitions.move(
        letter, to, LetterAction.FAILED_AGAIN, SYSTEM, draft.error_class, context=context, **changes
    )
    DeadLetterPayload.objects.update_or_create(letter_id=letter.pk, defaults=_payload(draft))
    if escalate:
        reason = f"{draft.error_class} again after a replay: for engineering review"
        transitions.note(letter.pk, LetterAction.ESCALATED, SYSTEM, reason)
        log.error("dead_letter_escalated", letter=letter.pk, job=draft.job_id, error_class=draft.error_class)
        _alert("escalated", letter, draft, ours)
    return letter


def _alert_kind(draft: LetterDraft) -> str:
    """Return the kind of alert for a failure, or "" when operators are not alerted."""
    if draft.severity in {Severity.CRITICAL, Severity.HIGH}:
        return draft.severity
    return "exhausted" if draft.retryable else ""


def _alert(kind: str, letter: DeadLetter, draft: LetterDraft, ours: Fingerprint) -> None:
    """Alert once a day of each failure, and once an hour of those that are sent together."""
    period = "%Y-%m-%dT%H" if alerts.KINDS[kind].is_together else "%Y-%m-%d"
    alerts.tell(
        kind,
        key=f"{kind}:{ours.id}:{draft.last_failure_at:{period}}",
        path=alerts.page("deadletter", letter.pk),
        error_class=draft.error_class,
        stage=draft.stage,
        letter=letter.pk,
        detail=draft.detail,
    )
