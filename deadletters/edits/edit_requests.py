"""Edits of a job's data before a replay: requested by one operator, approved by another.

    request -> requested -- approve --> applied     the letter is replaced by its next generation
                         -- refuse ---> refused     by another operator, or because something changed
                         -- withdraw -> withdrawn   by the requester

Nothing changes before the approval. Then the new data, the end of the old letter and the start of the new
one are one commit; the new letter is triaged and remediated, and takes the other steps as every letter
does. settings.DEADLETTER_EDIT switches edits on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from criticizer.db import prepared
from criticizer.redaction import clean
from deadletters import alerts, transitions, workflow
from deadletters.models import MIN_REASON_CHARS, DeadLetter, DeadLetterEvent, DeadLetterPayload, LetterEdit
from deadletters.ports import recovery
from deadletters.states import (
    BEFORE_REPLAY,
    BatchStatus,
    Category,
    EditStatus,
    ItemStatus,
    LetterAction,
    LetterStatus,
)
from deadletters.types import NO_REASON, SYSTEM, Change, DataField, FieldKind, Result, WrongData

log = structlog.get_logger(__name__)

OFF = "editing is switched off: set DEADLETTER_EDIT=true to allow it"
MAX_REFUSED = 200  # in one run of maintenance
# Batches that will replay their letters; a draft may never be submitted.
_WILL_REPLAY = (BatchStatus.AWAITING, BatchStatus.RUNNING, BatchStatus.PAUSED, BatchStatus.STOPPED)
_WORKED_ON = (
    LetterAction.REPLAYED,
    LetterAction.RESTARTED,
    LetterAction.SUCCEEDED,
    LetterAction.FAILED_AGAIN,
)
_ENDED = {EditStatus.REFUSED: LetterAction.EDIT_REFUSED, EditStatus.WITHDRAWN: LetterAction.EDIT_WITHDRAWN}
# Also letters queued by a batch, which may be cancelled.
_MAY_COME_BACK = (*BEFORE_REPLAY, LetterStatus.REPLAY_PENDING)
# Columns that a generation copies from the one before it: the same failure of the same stage.
_SAME = (
    "job_id", "group_id", "stage", "error_class", "code", "severity", "retryable", "detail",
    "payload_reference", "attempts", "first_failure_at", "last_failure_at", "failed_replay_count",
    "is_escalated",
)  # fmt: skip


def fields(letter: DeadLetter) -> list[DataField]:
    """Return the current data of a letter's job, with the locked fields."""
    return recovery().data(letter.job_id)


def why_not(letter: DeadLetter) -> str:
    """Return why no edit of a letter can be requested now, one sentence, or an empty string."""
    if not settings.DEADLETTER_EDIT:
        return OFF
    if letter.edits.filter(status=EditStatus.REQUESTED).exists():
        return "an edit of this dead letter already waits for approval"
    return _why_not_now(letter)


def change_asked_for(edit: LetterEdit) -> Change:
    """Return the change that an edit requests."""
    return Change(edit.before, edit.after)


def words(data: Sequence[DataField], change: Change) -> str:
    """Summarize a change in one line: `Recipients: mail:a@… added, mail:b@… removed`."""
    labels = {field.name: field.label for field in data}
    parts = []
    for name in change.after:
        lines = [f"{line} added" for line in change.added(name)]
        lines += [f"{line} removed" for line in change.removed(name)]
        if lines:
            parts.append(f"{labels.get(name, name)}: {', '.join(lines)}")
    return "; ".join(parts) or "nothing changes"


def change_of(letter: DeadLetter, values: Mapping[str, Sequence[str]]) -> Change:
    """Return the normalised change that `values`, lines by field, make. Raises WrongData."""
    data = {field.name: field for field in fields(letter)}
    for name in values:
        if name not in data:
            raise WrongData(name, "The job has no such field.")
        if data[name].kind is FieldKind.LOCKED:
            raise WrongData(name, f"{data[name].label} is locked. {data[name].help}")
    has = {name: list(field.value) for name, field in data.items() if field.kind is not FieldKind.LOCKED}
    return Change(has, {**has, **recovery().normalised(letter.job_id, values)})


def request(
    letter_id: int,
    *,
    actor: str,
    values: Mapping[str, Sequence[str]],
    reason: str,
    row_version: int | None = None,
) -> Result:
    """Request a change of a letter's data.

    `values` holds the new lines of each field that changes. The job keeps its data until another operator
    approves. Raises WrongData for an invalid value or a locked field.
    """
    if len(reason.strip()) < MIN_REASON_CHARS:
        return NO_REASON
    with transaction.atomic():
        letter = transitions.locked(letter_id)
        refused = transitions.refusal(letter, BEFORE_REPLAY, row_version)
        if refused or (problem := why_not(letter)):
            return transitions.refuse(letter, actor, refused or Result(False, problem))
        change = change_of(letter, values)
        if change.before == change.after:
            return Result(False, "nothing has changed")
        if problem := recovery().why_not(letter.job_id, change):
            return transitions.refuse(letter, actor, Result(False, problem))
        edit = LetterEdit.objects.create(
            letter=letter,
            before=change.before,
            after=change.after,
            reason=clean(reason.strip(), transitions.MAX_TEXT),
            requested_by=actor[:255],
        )
        transitions.touch(letter)
        line = f"{words(fields(letter), change)}: {reason.strip()}"
        transitions.note(letter.pk, LetterAction.EDIT_REQUESTED, actor, line, {"edit": edit.pk})
        alerts.tell(
            "edit_requested",
            key=f"edit-requested:{edit.pk}",
            letter=letter.pk,
            actor=actor,
            path=alerts.page("letteredit", edit.pk),
        )
    log.info("letter_edit_requested", edit=edit.pk, letter=letter_id, actor=actor)
    return Result(True, "requested: another person must approve it")


def approve(edit_id: int, *, actor: str, reason: str) -> Result:
    """Change the job's data and replace the letter by its next generation, or do neither.

    Its requester cannot approve it. If the letter or the data changed since the request, the edit is
    refused for good.
    """
    if not settings.DEADLETTER_EDIT:
        return Result(False, OFF)
    if len(reason.strip()) < MIN_REASON_CHARS:
        return NO_REASON
    with transaction.atomic():
        edit, letter = _held(edit_id)
        if refused := _decided(edit):
            return refused
        if actor[:255] == edit.requested_by:
            return Result(False, "you cannot approve your own edit")
        problem = _why_over(edit, letter) or (_why_not_now(letter) if letter else "")
        if not problem and letter is not None:
            problem = recovery().apply(
                letter.job_id,
                change_asked_for(edit),
                asked_by=edit.requested_by,
                approved_by=actor,
                reason=edit.reason,
            )
        if problem or letter is None:
            _give_back(edit, letter, EditStatus.REFUSED, SYSTEM, problem)
            return Result(False, f"the edit was refused: {problem}")
        _close(edit, EditStatus.APPLIED, actor, reason)
        successor = _replace(letter, edit, actor)
    log.info("letter_edited", edit=edit_id, letter=letter.pk, successor=successor, actor=actor)
    return Result(True, f"Approved. Replaced by dead letter {successor}")


def refuse(edit_id: int, *, actor: str, reason: str) -> Result:
    """Refuse another operator's edit; nothing changes."""
    return _end(edit_id, actor, reason, EditStatus.REFUSED)


def refuse_stale() -> int:
    """Refuse the edits that can no longer be approved, and return how many. Run by maintenance.

    Their letters were replayed since, or have ended. A letter queued by a batch may come back.
    """
    alive = DeadLetter.objects.filter(pk=OuterRef("letter_id"), status__in=_MAY_COME_BACK)
    worked_on = DeadLetterEvent.objects.filter(
        letter=OuterRef("letter_id"), action__in=_WORKED_ON, created_at__gt=OuterRef("requested_at")
    )
    waiting = LetterEdit.objects.filter(status=EditStatus.REQUESTED).order_by("pk")
    over = waiting.filter(~Exists(alive) | Exists(worked_on)).values_list("pk", flat=True)
    refused = 0
    for edit_id in over[:MAX_REFUSED]:
        with transaction.atomic():
            edit, letter = _held(edit_id)
            if edit.status == EditStatus.REQUESTED and (problem := _why_over(edit, letter)):
                _give_back(edit, letter, EditStatus.REFUSED, SYSTEM, problem)
                refused += 1
    return refused


def withdraw(edit_id: int, *, actor: str, reason: str) -> Result:
    """Withdraw one's own edit; nothing changes."""
    return _end(edit_id, actor, reason, EditStatus.WITHDRAWN)


def _end(edit_id: int, actor: str, reason: str, to: EditStatus) -> Result:
    if len(reason.strip()) < MIN_REASON_CHARS:
        return NO_REASON
    with transaction.atomic():
        edit, letter = _held(edit_id)
        if refused := _decided(edit):
            return refused
        is_own = actor[:255] == edit.requested_by
        if is_own and to == EditStatus.REFUSED:
            return Result(False, "you cannot refuse your own edit: withdraw it")
        if not is_own and to == EditStatus.WITHDRAWN:
            return Result(False, f"only {edit.requested_by} can withdraw it")
        _give_back(edit, letter, to, actor, reason)
    return Result(True, to.label.lower())


def _held(edit_id: int) -> tuple[LetterEdit, DeadLetter | None]:
    """Return an edit and its letter, locked: letters are always locked first."""
    letter_id = LetterEdit.objects.values_list("letter_id", flat=True).get(pk=edit_id)
    letter = DeadLetter.objects.select_for_update().filter(pk=letter_id).first()
    return LetterEdit.objects.select_for_update().get(pk=edit_id), letter


def _close(edit: LetterEdit, to: EditStatus, actor: str, reason: str) -> None:
    updated = LetterEdit.objects.filter(pk=edit.pk, status=EditStatus.REQUESTED).update(
        status=to,
        decided_by=actor[:255],
        decided_at=timezone.now(),
        decision_reason=clean(reason.strip(), transitions.MAX_TEXT),
    )
    if updated != 1:
        raise RuntimeError(f"a guarded update of an edit touched {updated} rows")


def _give_back(edit: LetterEdit, letter: DeadLetter | None, to: EditStatus, actor: str, reason: str) -> None:
    """End an edit without a change: its letter waits for operators as before."""
    _close(edit, to, actor, reason)
    if letter is not None:
        transitions.note(letter.pk, _ENDED[to], actor, reason, {"edit": edit.pk})
        transitions.postpone_retention([letter.pk])


def _decided(edit: LetterEdit) -> Result | None:
    if edit.status == EditStatus.REQUESTED:
        return None
    by = f"{edit.decided_by} at {edit.decided_at:%Y-%m-%d %H:%M} UTC" if edit.decided_at else edit.decided_by
    return Result(False, f"already {edit.get_status_display().lower()} by {by}")


def _why_over(edit: LetterEdit, letter: DeadLetter | None) -> str:
    """Return why an edit can never be approved, or an empty string."""
    if letter is None:
        return "the dead letter no longer exists"
    if letter.status not in _MAY_COME_BACK:
        return _past(letter)
    since = letter.events.filter(action__in=_WORKED_ON, created_at__gt=edit.requested_at)
    return "the dead letter was replayed since the request" if since.exists() else ""


def _why_not_now(letter: DeadLetter) -> str:
    if past := _past(letter):
        return past
    item = letter.replay_items.filter(status=ItemStatus.PENDING, batch__status__in=_WILL_REPLAY).first()
    return f"batch {item.batch_id} will replay the dead letter" if item else ""


def _past(letter: DeadLetter) -> str:
    refused = transitions.refusal(letter, BEFORE_REPLAY, None)
    return f"the dead letter cannot be edited: {refused.message}" if refused else ""


def _replace(letter: DeadLetter, edit: LetterEdit, approver: str) -> int:
    """Close a letter whose data was changed, open its next generation and return its id."""
    successor = int(prepared.value("SELECT nextval(pg_get_serial_sequence('dead_letters', 'id'))"))
    line = words(fields(letter), change_asked_for(edit))
    by = f"requested by {edit.requested_by}, approved by {approver}"
    facts = {"edit": edit.pk, "successor": successor}
    transitions.note(letter.pk, LetterAction.EDITED, approver, f"{line}; {by}", facts)
    ends = f"its data was edited: it was replaced by dead letter {successor}"
    transitions.move(letter, LetterStatus.DISCARDED, LetterAction.DISCARDED, approver, ends, context=facts)
    # Not a new occurrence of the failure: only the group's count of open letters changes.
    same: dict[str, Any] = {name: getattr(letter, name) for name in _SAME}
    new = DeadLetter.objects.create(pk=successor, parent=letter, generation=letter.generation + 1, **same)
    DeadLetterPayload.objects.create(
        letter=new, last_stack=letter.last_stack, sanitized_context=letter.sanitized_context
    )
    begins = f"generation {new.generation} of dead letter {letter.pk}; {line}; {by}"
    transitions.note(new.pk, LetterAction.CREATED, SYSTEM, begins, {"edit": edit.pk, "parent": letter.pk})
    triaged = workflow.triage(new.pk, actor=edit.requested_by, category=Category.DATA, note=edit.reason)
    remediated = workflow.remediate(
        new.pk, actor=edit.requested_by, evidence_note=f"Edit {edit.pk}. {line}; {by}: {edit.reason}"
    )
    if not (triaged.ok and remediated.ok):
        raise RuntimeError(f"a new generation refused its steps: {triaged.message}, {remediated.message}")
    return successor
