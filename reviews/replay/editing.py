"""Edit of a dead-lettered job's recipients before its replay; the rest is locked.

Recipients who were notified, or may have been, cannot be removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.conf import settings

from criticizer.redaction import clean
from deadletters.types import Change, DataField, FieldKind, WrongData
from notifications.delivery import operator_actions
from notifications.recipients import MAX_RECIPIENTS, normalise, require_few_hosts
from reviews.models import JobEvent, RecipientMode, ReviewJob
from reviews.states import JobStatus

RECIPIENTS = "recipients"

_NAMES_IT = "It identifies what is reviewed. Request a review of the other change instead."
_KEY = "It deduplicates requests."
_DEADLINE = "A replay sets a new deadline."
_TO_FIND = "They are resolved once the files of the change are known. Edit the subscriptions instead."
_WHO_READS = (
    "They can read the findings and excerpts of the code. One a line, for example mail:ann@example.com or "
    "webhook:https://ci.example.com/hook. Recipients who were notified, or may have been, cannot be removed."
)


def data(job_id: int) -> list[DataField]:
    """Return the job's input, or an empty list if there is no such job."""
    job = ReviewJob.objects.filter(pk=job_id).first()
    if job is None:
        return []
    to_find = job.recipients_are == RecipientMode.TO_FIND
    return [
        _locked("changelist_id", "Changelist", job.changelist_id, _NAMES_IT),
        _locked("review_version", "Review version", str(job.review_version), _NAMES_IT),
        _locked("idempotency_key", "Idempotency key", job.idempotency_key, _KEY),
        _locked("deadline_at", "Deadline", f"{job.deadline_at:%Y-%m-%d %H:%M:%S} UTC", _DEADLINE),
        DataField(
            RECIPIENTS,
            "Recipients",
            tuple(job.recipients),
            FieldKind.LOCKED if to_find else FieldKind.SENSITIVE,
            _TO_FIND if to_find else _WHO_READS,
        ),
    ]


def normalised(values: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the recipients as intake would store them, once each. Raises WrongData."""
    found = {}
    for name, lines in values.items():
        if name != RECIPIENTS:
            raise WrongData(name, "This field is locked.")
        recipients: dict[str, None] = {}
        for line in filter(None, (line.strip() for line in lines)):
            try:
                recipients[normalise(line)] = None
            except ValueError as error:
                raise WrongData(name, f"{clean(line, 80)}: {error}") from error
        if not recipients:
            raise WrongData(name, "At least one recipient is required.")
        if len(recipients) > MAX_RECIPIENTS:
            raise WrongData(name, f"A review has at most {MAX_RECIPIENTS} recipients, not {len(recipients)}.")
        try:
            require_few_hosts(recipients, settings.WEBHOOK_HOSTS_PER_REQUEST)
        except ValueError as error:
            raise WrongData(name, str(error)) from error
        found[name] = list(recipients)
    return found


def why_not(job_id: int, change: Change) -> str:
    """Return why the change cannot be made now, one sentence, or an empty string."""
    return _why_not(ReviewJob.objects.filter(pk=job_id).first(), change)


def apply(job_id: int, change: Change, *, asked_by: str, approved_by: str, reason: str) -> str:
    """Make the change inside the caller's transaction, with an event of the job.

    Return why it cannot be made, having changed nothing, or an empty string.
    """
    job = ReviewJob.objects.select_for_update(no_key=True).filter(pk=job_id).first()
    if problem := _why_not(job, change):
        return problem
    assert job is not None
    removed, added = change.removed(RECIPIENTS), change.added(RECIPIENTS)
    if problem := operator_actions.cancel_for_recipients(job_id, removed=removed, added=added):
        return problem
    updated = ReviewJob.objects.filter(pk=job_id, status=JobStatus.DEAD_LETTERED).update(
        # The origins stay, also of removed recipients, in case they are added again. Recipients that two
        # operators add count as named, like those of a request.
        recipients=list(change.after[RECIPIENTS])
    )
    if updated != 1:
        raise RuntimeError(f"a guarded update of a job touched {updated} rows")
    words = (
        f"recipients edited, {len(added)} added, {len(removed)} removed; requested by {asked_by}, "
        f"approved by {approved_by}: {reason}"
    )
    JobEvent.objects.create(
        job_id=job_id,
        kind=JobEvent.Kind.DATA_EDITED,
        actor=approved_by[:255],
        reason=clean(words, 1000),
        context={"added": added, "removed": removed, "asked_by": asked_by, "approved_by": approved_by},
    )
    return ""


def why_not_give_up(job_id: int) -> str:
    """Return the sentence that says why a job cannot end without its refused recipients.

    "" where it can.
    """
    job = ReviewJob.objects.filter(pk=job_id).first()
    if job is None:
        return "the job no longer exists"
    if job.status != JobStatus.DEAD_LETTERED:
        return f"the job is {job.get_status_display().lower()}, not dead-lettered"
    return operator_actions.why_not_give_up(job_id)


def _locked(name: str, label: str, value: str, why: str) -> DataField:
    return DataField(name, label, (value,), FieldKind.LOCKED, why)


def _why_not(job: ReviewJob | None, change: Change) -> str:
    if job is None:
        return "the job no longer exists"
    if job.status != JobStatus.DEAD_LETTERED:
        return f"the job is {job.get_status_display().lower()}, not dead-lettered"
    if job.recipients_are == RecipientMode.TO_FIND:
        return "its recipients are not resolved yet"
    if list(change.before.get(RECIPIENTS, ())) != job.recipients:
        return "its recipients changed since the edit was requested"
    removed, added = change.removed(RECIPIENTS), change.added(RECIPIENTS)
    return operator_actions.recipient_change_problem(job.pk, removed=removed, added=added)
