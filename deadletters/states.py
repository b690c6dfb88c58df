"""States of dead letters, groups, batches, items and edits, with what moves rows there.

    new -> triaged -> remediated -> validated -> replaying -> verifying -> resolved

The database refuses every move that is not listed (pgtrigger's FSM), and CHECKs require the evidence of each
step. A step may be repeated in its own state: a triaged letter may be triaged again.
"""

from __future__ import annotations

from django.db import models


class LetterStatus(models.TextChoices):
    # the commit that ended the job; a replay that failed again; its effect is missing and the job
    # failed later; reopened
    NEW = "new", "New"
    TRIAGED = "triaged", "Triaged"  # an operator chose its category
    REMEDIATED = "remediated", "Remediated"  # the cause was removed, with evidence; a validation went stale
    VALIDATED = "validated", "Validated"  # the checks passed or were overruled; a batch unqueued it
    REPLAY_PENDING = "replay_pending", "Waiting for its replay"  # a batch will replay it
    REPLAYING = "replaying", "Replaying"  # its job runs again
    VERIFYING = "verifying", "To be verified"  # its job succeeded, or got past the stage
    RESOLVED = "resolved", "Resolved"  # its effect was verified and its resolution recorded
    DISCARDED = "discarded", "Discarded"  # by an operator; or its replayed job was ended


CLOSED_LETTER = (LetterStatus.RESOLVED, LetterStatus.DISCARDED)
# Open for the partial indexes, and for "one open letter a job and stage".
OPEN_LETTER = tuple(status for status in LetterStatus if status not in CLOSED_LETTER)
# In work: retention spares these, whatever their age.
IN_WORK = tuple(status for status in OPEN_LETTER if status is not LetterStatus.NEW)
# States before a replay, in the order of the steps.
BEFORE_REPLAY = (LetterStatus.NEW, LetterStatus.TRIAGED, LetterStatus.REMEDIATED, LetterStatus.VALIDATED)
# States from which an operator can discard: neither queued by a batch nor running.
DISCARDABLE = (*BEFORE_REPLAY, LetterStatus.VERIFYING)

LETTER_TRANSITIONS: tuple[tuple[LetterStatus, LetterStatus], ...] = (
    (LetterStatus.NEW, LetterStatus.TRIAGED),
    (LetterStatus.TRIAGED, LetterStatus.REMEDIATED),
    (LetterStatus.REMEDIATED, LetterStatus.VALIDATED),
    (LetterStatus.VALIDATED, LetterStatus.REPLAYING),
    (LetterStatus.VALIDATED, LetterStatus.REPLAY_PENDING),
    (LetterStatus.REPLAY_PENDING, LetterStatus.REPLAYING),
    (LetterStatus.REPLAYING, LetterStatus.VERIFYING),
    (LetterStatus.VERIFYING, LetterStatus.RESOLVED),
    # back
    (LetterStatus.REMEDIATED, LetterStatus.TRIAGED),  # triaged again
    (LetterStatus.VALIDATED, LetterStatus.TRIAGED),  # triaged again
    (LetterStatus.VALIDATED, LetterStatus.REMEDIATED),  # remediated again, or the validation is stale
    (LetterStatus.REPLAY_PENDING, LetterStatus.VALIDATED),  # its batch stopped or was cancelled
    (LetterStatus.REPLAYING, LetterStatus.NEW),  # failed again
    (LetterStatus.VERIFYING, LetterStatus.NEW),  # no effect, and a dead-lettered job: a replay can work
    # discarded
    *((status, LetterStatus.DISCARDED) for status in (*DISCARDABLE, LetterStatus.REPLAYING)),
    (LetterStatus.DISCARDED, LetterStatus.NEW),  # reopened
)


class Category(models.TextChoices):
    """Category of a failure, chosen at triage."""

    TRANSIENT = "transient", "Transient"
    DATA = "data", "Data"
    AUTH_CONFIG = "auth_config", "Credentials or configuration"
    CODE_DEFECT = "code_defect", "Code defect"


class LetterAction(models.TextChoices):
    """Actions in a letter's timeline."""

    CREATED = "created", "Created"
    TRIAGED = "triaged", "Triaged"
    REMEDIATED = "remediated", "Remediated"
    VALIDATED = "validated", "Validated"
    NOT_VALIDATED = "not_validated", "Validation failed"
    OVERRIDDEN = "overridden", "Validation overridden"
    STALE = "stale", "Validation went stale"
    QUEUED = "queued", "Queued by a batch"
    UNQUEUED = "unqueued", "Let go by a batch"
    REPLAYED = "replayed", "Replayed from the failed stage"
    RESTARTED = "restarted", "Restarted from the first stage"
    SUCCEEDED = "succeeded", "Replay succeeded"
    FAILED_AGAIN = "failed_again", "Failed again"
    ESCALATED = "escalated", "Escalated"
    VERIFIED = "verified", "Verified"
    NOT_VERIFIED = "not_verified", "Verification failed"
    RESOLVED = "resolved", "Resolved"
    DISCARDED = "discarded", "Discarded"
    REOPENED = "reopened", "Reopened"
    REFUSED = "refused", "Refused"
    EDIT_REQUESTED = "edit_requested", "Edit requested"
    EDIT_REFUSED = "edit_refused", "Edit refused"
    EDIT_WITHDRAWN = "edit_withdrawn", "Edit withdrawn"
    EDITED = "edited", "Edited"
    ARCHIVED = "archived", "Archived and removed"
    RESTORED = "restored", "Restored from the archive"


class EventSource(models.TextChoices):
    """Source of a line in a timeline.

    Code decides by this, never by a line's text or the actor's name.
    """

    OPERATOR = "operator", "Operator"  # a person, or a batch that a person started
    SYSTEM = "system", "Criticizer"
    DELIVERY_RESOLUTION = "delivery_resolution", "Delivery resolution"  # follows a decided delivery


# Actions that do not change the letter.
NO_STEP = (LetterAction.REFUSED, LetterAction.EDIT_REFUSED, LetterAction.EDIT_WITHDRAWN)


class GroupStatus(models.TextChoices):
    OPEN = "open", "Open"  # its first letter; a resolved group's failure came back; reopened
    ACKNOWLEDGED = "acknowledged", "Acknowledged"  # an operator has taken it on
    RESOLVED = "resolved", "Resolved"  # by an operator; a new failure opens it again
    IGNORED = "ignored", "Ignored"  # by an operator; it never reopens by itself


GROUP_TRANSITIONS: tuple[tuple[GroupStatus, GroupStatus], ...] = (
    (GroupStatus.OPEN, GroupStatus.ACKNOWLEDGED),
    *(
        (before, after)
        for after in (GroupStatus.RESOLVED, GroupStatus.IGNORED, GroupStatus.OPEN)
        for before in GroupStatus
        if before is not after
    ),
)


class GroupAction(models.TextChoices):
    """Actions in a group's timeline."""

    ACKNOWLEDGED = "acknowledged", "Acknowledged"
    RESOLVED = "resolved", "Resolved"
    IGNORED = "ignored", "Ignored"
    REOPENED = "reopened", "Reopened"
    SNOOZED = "snoozed", "Snoozed"
    ASSIGNED = "assigned", "Assigned"
    ANNOTATED = "annotated", "Annotated"


class BatchStatus(models.TextChoices):
    DRAFT = "draft", "Draft"  # the selection is frozen, nothing runs
    AWAITING = "awaiting", "Waits for approval"  # submitted; another person must approve it
    RUNNING = "running", "Running"  # submitted, approved where necessary, or resumed
    PAUSED = "paused", "Paused"  # an operator paused it
    STOPPED = "stopped", "Stopped"  # by the worker: a circuit opened, or a failure came back
    CANCELLED = "cancelled", "Cancelled"  # an operator ended it; what was replayed stays replayed
    FINISHED = "finished", "Finished"  # every item has its outcome


UNENDED_BATCH = tuple(
    status for status in BatchStatus if status not in {BatchStatus.CANCELLED, BatchStatus.FINISHED}
)
BATCH_TRANSITIONS: tuple[tuple[BatchStatus, BatchStatus], ...] = (
    (BatchStatus.DRAFT, BatchStatus.AWAITING),
    (BatchStatus.DRAFT, BatchStatus.RUNNING),
    (BatchStatus.AWAITING, BatchStatus.RUNNING),
    (BatchStatus.RUNNING, BatchStatus.PAUSED),
    (BatchStatus.PAUSED, BatchStatus.RUNNING),
    (BatchStatus.RUNNING, BatchStatus.STOPPED),
    (BatchStatus.PAUSED, BatchStatus.STOPPED),  # a job that ran when it was paused failed again
    (BatchStatus.STOPPED, BatchStatus.RUNNING),
    (BatchStatus.RUNNING, BatchStatus.FINISHED),
    *((status, BatchStatus.CANCELLED) for status in UNENDED_BATCH),
)


class ItemStatus(models.TextChoices):
    PENDING = "pending", "Pending"  # not prepared yet; unqueued by a stop
    READY = "ready", "Ready"  # prepared: its letter waits for the replay
    REPLAYING = "replaying", "Replaying"  # its job runs
    SUCCEEDED = "succeeded", "Succeeded"  # the job succeeded; `detail` says what the verification found
    FAILED = "failed", "Failed again"  # the job was dead-lettered again
    ENDED = "ended", "Ended otherwise"  # the job was cancelled, superseded or timed out
    SKIPPED = "skipped", "Skipped"  # a step refused it; `detail` says why
    CANCELLED = "cancelled", "Not replayed"  # the batch was cancelled before its turn


ITEM_TRANSITIONS: tuple[tuple[ItemStatus, ItemStatus], ...] = (
    (ItemStatus.PENDING, ItemStatus.READY),
    (ItemStatus.READY, ItemStatus.PENDING),
    (ItemStatus.READY, ItemStatus.REPLAYING),
    (ItemStatus.REPLAYING, ItemStatus.SUCCEEDED),
    (ItemStatus.REPLAYING, ItemStatus.FAILED),
    (ItemStatus.REPLAYING, ItemStatus.ENDED),
    *((status, ItemStatus.SKIPPED) for status in (ItemStatus.PENDING, ItemStatus.READY)),
    *((status, ItemStatus.CANCELLED) for status in (ItemStatus.PENDING, ItemStatus.READY)),
)


class EditStatus(models.TextChoices):
    REQUESTED = "requested", "Requested"  # an operator requested a change of the data
    APPLIED = "applied", "Applied"  # another operator approved it: a new generation replaces the letter
    REFUSED = "refused", "Refused"  # by another operator, or because the letter or its data changed
    WITHDRAWN = "withdrawn", "Withdrawn"  # by its requester


EDIT_TRANSITIONS: tuple[tuple[EditStatus, EditStatus], ...] = (
    (EditStatus.REQUESTED, EditStatus.APPLIED),
    (EditStatus.REQUESTED, EditStatus.REFUSED),
    (EditStatus.REQUESTED, EditStatus.WITHDRAWN),
)
