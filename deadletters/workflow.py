"""The only writer of dead-letter states (specification 000, 8.4, 8.5).

What a dead letter's job is, and how it goes back to work, this room does not know: it asks
the port `settings.DEADLETTER_RECOVERY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone
from django.utils.module_loading import import_string

from criticizer.redaction import clean
from deadletters.models import DeadLetter, DeadLetterEvent
from deadletters.states import LetterAction, LetterStatus

log = structlog.get_logger(__name__)

SYSTEM = "criticizer"


@dataclass(frozen=True, slots=True)
class LetterDraft:
    """The 8.4 payload, already redacted, plus what replay needs."""

    job_id: int
    stage: str
    error_class: str
    code: str
    severity: str
    retryable: bool
    detail: str
    last_stack: str
    sanitized_context: Mapping[str, Any]
    payload_reference: str
    attempts: int
    first_failure_at: datetime
    last_failure_at: datetime


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """`message` is one sentence for the operator, whatever `ok` says."""

    ok: bool
    message: str


class Recovery(Protocol):
    """The port to the room whose jobs fail."""

    def describe(self, job_id: int) -> str:
        """Return one line that names the job to an operator."""
        ...

    def validate(self, job_id: int, stage: str, *, restart: bool) -> list[str]:
        """Return why a replay cannot work now, one sentence each; empty when it can."""
        ...

    def replay(self, job_id: int, stage: str, *, restart: bool) -> bool:
        """Put the job back to work inside the caller's transaction; False when it cannot be."""
        ...


def recovery() -> Recovery:
    """Return the configured port (settings.DEADLETTER_RECOVERY)."""
    port: Recovery = import_string(settings.DEADLETTER_RECOVERY)()
    return port


def open_letter(draft: LetterDraft) -> int:
    """Create the letter of a job that just ended, inside the job's own commit.

    A letter being replayed that fails at the same stage comes back open; with the same
    non-retryable class it is escalated (8.5). One that got past its stage is resolved, and
    the new failure gets a letter of its own. Returns the letter's id.
    """
    letter = (
        DeadLetter.objects.select_for_update()
        .filter(job_id=draft.job_id, status=LetterStatus.REPLAYING)
        .first()
    )
    payload = {
        "error_class": draft.error_class,
        "code": draft.code,
        "severity": draft.severity,
        "detail": draft.detail,
        "last_stack": draft.last_stack,
        "sanitized_context": dict(draft.sanitized_context),
        "payload_reference": draft.payload_reference,
        "attempts": draft.attempts,
        "last_failure_at": draft.last_failure_at,
    }
    if letter is not None and letter.stage == draft.stage:
        return _reopen(letter, draft, payload)
    if letter is not None:
        _close(letter, LetterStatus.RESOLVED, LetterAction.RESOLVED, SYSTEM, f"replay passed {letter.stage}")
    letter = DeadLetter.objects.create(
        job_id=draft.job_id, stage=draft.stage, first_failure_at=draft.first_failure_at, **payload
    )
    _event(letter, LetterAction.CREATED, SYSTEM, draft.error_class)
    log.error(
        "dead_letter_created",
        letter=letter.pk,
        job=draft.job_id,
        stage=draft.stage,
        error_class=draft.error_class,
        code=draft.code,
    )
    return int(letter.pk)


def _reopen(letter: DeadLetter, draft: LetterDraft, payload: Mapping[str, Any]) -> int:
    escalate = letter.error_class == draft.error_class and not draft.retryable
    updated = DeadLetter.objects.filter(pk=letter.pk, status=LetterStatus.REPLAYING).update(
        status=LetterStatus.OPEN,
        failed_replay_count=F("failed_replay_count") + 1,
        is_escalated=letter.is_escalated or escalate,
        **payload,
    )
    _expect_one(updated)
    _event(letter, LetterAction.FAILED_AGAIN, SYSTEM, draft.error_class)
    if escalate:
        _event(letter, LetterAction.ESCALATED, SYSTEM, f"{draft.error_class} again after a replay")
        log.error("dead_letter_escalated", letter=letter.pk, job=draft.job_id, error_class=draft.error_class)
    return int(letter.pk)


def resolve_replayed(job_id: int) -> None:
    """Close the letters of a job that succeeded after its replay, in the job's own commit."""
    for letter in DeadLetter.objects.select_for_update().filter(job_id=job_id, status=LetterStatus.REPLAYING):
        _close(letter, LetterStatus.RESOLVED, LetterAction.RESOLVED, SYSTEM, "the replayed job succeeded")


def abandon_replayed(job_id: int, reason: str) -> None:
    """Close the letters of a replayed job that was cancelled or superseded, in the job's own commit."""
    for letter in DeadLetter.objects.select_for_update().filter(job_id=job_id, status=LetterStatus.REPLAYING):
        _close(letter, LetterStatus.DISCARDED, LetterAction.DISCARDED, SYSTEM, reason)


def replay(letter_id: int, *, actor: str, reason: str, restart: bool = False) -> ReplayResult:
    """Send a letter's job back to work from the failed stage, or from the first with `restart`.

    Refusals change nothing but leave an event. Raises ValueError without a reason.
    """
    _require(reason)
    try:
        with transaction.atomic():
            letter = DeadLetter.objects.select_for_update().get(pk=letter_id)
            problems = _replay_problems(letter, restart=restart)
            if problems:
                _event(letter, LetterAction.REFUSED, actor, "; ".join(problems))
                return ReplayResult(False, problems[0])
            updated = DeadLetter.objects.filter(pk=letter.pk, status=LetterStatus.OPEN).update(
                status=LetterStatus.REPLAYING
            )
            _expect_one(updated)
            # The letter is being replayed and the job is at work, or neither.
            if not recovery().replay(letter.job_id, letter.stage, restart=restart):
                raise _CannotReplay
            _event(letter, LetterAction.RESTARTED if restart else LetterAction.REPLAYED, actor, reason)
    except (_CannotReplay, IntegrityError):
        return ReplayResult(False, "the job is no longer dead-lettered, or a newer version exists")
    log.info("dead_letter_replayed", letter=letter_id, actor=actor, restart=restart)
    start = "the first stage" if restart else f"stage {letter.stage}"
    return ReplayResult(True, f"replayed from {start}")


class _CannotReplay(Exception):
    pass


def _replay_problems(letter: DeadLetter, *, restart: bool) -> list[str]:
    if letter.status != LetterStatus.OPEN:
        last = letter.events.order_by("-id").first()
        who = f" by {last.actor} at {last.created_at:%Y-%m-%d %H:%M} UTC" if last else ""
        return [f"already {letter.get_status_display().lower()}{who}"]
    return recovery().validate(letter.job_id, letter.stage, restart=restart)


def discard(letter_id: int, *, actor: str, reason: str) -> ReplayResult:
    """Give an open letter up, with a reason; the job stays dead-lettered and readable."""
    _require(reason)
    with transaction.atomic():
        letter = DeadLetter.objects.select_for_update().get(pk=letter_id)
        if letter.status != LetterStatus.OPEN:
            return ReplayResult(False, f"already {letter.get_status_display().lower()}")
        _close(letter, LetterStatus.DISCARDED, LetterAction.DISCARDED, actor, reason)
    return ReplayResult(True, "discarded")


def _require(reason: str) -> None:
    if not reason.strip():
        raise ValueError("Say why: a ticket, an incident or a sentence.")


def _close(letter: DeadLetter, status: LetterStatus, action: LetterAction, actor: str, reason: str) -> None:
    updated = DeadLetter.objects.filter(pk=letter.pk, status=letter.status).update(
        status=status, closed_at=timezone.now()
    )
    _expect_one(updated)
    _event(letter, action, actor, reason)


def _event(letter: DeadLetter, action: LetterAction, actor: str, reason: str) -> None:
    DeadLetterEvent.objects.create(
        letter=letter, action=action, actor=actor[:255], reason=clean(reason, 2000)
    )


def _expect_one(updated: int) -> None:
    if updated != 1:
        raise RuntimeError(f"a guarded update of a dead letter touched {updated} rows")
