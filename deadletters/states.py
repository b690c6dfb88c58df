"""States of dead letters, groups and replay batches, each with what moves a row there.

The workflow of the specification (000, 8.5) is the spine of the letters' table:

    new ─► triaged ─► remediated ─► validated ─► replaying ─► verifying ─► resolved

The database refuses every other move (pgtrigger's FSM), and CHECKs on the table want the
evidence of each step to be there. Same state to same state is no move: a letter that is
triaged may be triaged again.
"""

from __future__ import annotations

from django.db import models


class LetterStatus(models.TextChoices):
    # the commit that ended the job; a replay that failed again; its effect is missing and the job
    # failed later; reopened
    NEW = "new", "New"
    TRIAGED = "triaged", "Triaged"  # an operator said what kind of failure it is
    REMEDIATED = "remediated", "Remediated"  # something was done, with evidence; a validation went stale
    VALIDATED = "validated", "Validated"  # the checks passed or were overridden; a batch let it go
    REPLAY_PENDING = "replay_pending", "Waiting for its replay"  # a batch will replay it in its turn
    REPLAYING = "replaying", "Replaying"  # the job is at work again
    VERIFYING = "verifying", "To be verified"  # the replayed job succeeded, or got past the stage
    RESOLVED = "resolved", "Resolved"  # the effect was checked and the resolution written down
    DISCARDED = "discarded", "Discarded"  # an operator gave it up; its replayed job was ended


# What the partial indexes and "one open letter per job and stage" mean by open.
OPEN_LETTER = tuple(
    status for status in LetterStatus if status not in {LetterStatus.RESOLVED, LetterStatus.DISCARDED}
)
CLOSED_LETTER = (LetterStatus.RESOLVED, LetterStatus.DISCARDED)
# Somebody is at it: retention leaves these alone, whatever their age.
IN_WORK = tuple(status for status in OPEN_LETTER if status is not LetterStatus.NEW)
# What an operator or a batch can still take up, in the order of the steps.
BEFORE_REPLAY = (LetterStatus.NEW, LetterStatus.TRIAGED, LetterStatus.REMEDIATED, LetterStatus.VALIDATED)
# What an operator can give up: no batch and no job is at it.
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
    (
        LetterStatus.VERIFYING,
        LetterStatus.NEW,
    ),  # the effect is missing, and the job is dead-lettered: a replay can work
    # given up
    *((status, LetterStatus.DISCARDED) for status in (*DISCARDABLE, LetterStatus.REPLAYING)),
    (LetterStatus.DISCARDED, LetterStatus.NEW),  # taken back: reopened
)


class Category(models.TextChoices):
    """What kind of failure it is (000, 8.5 item 1)."""

    TRANSIENT = "transient", "Transient"
    DATA = "data", "Data"
    AUTH_CONFIG = "auth_config", "Credentials or configuration"
    CODE_DEFECT = "code_defect", "Code defect"


class LetterAction(models.TextChoices):
    """What the timeline says."""

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
    """What wrote a line of a timeline. Code decides by this, never by a line's text or actor's name."""

    OPERATOR = "operator", "Operator"  # a person, or a batch that a person started
    SYSTEM = "system", "Criticizer"
    DELIVERY_RESOLUTION = "delivery_resolution", "Delivery resolution"  # follows a decided delivery


# What changes nothing of the letter: it was somebody else who brought it where it is.
NO_STEP = (LetterAction.REFUSED, LetterAction.EDIT_REFUSED, LetterAction.EDIT_WITHDRAWN)


class GroupStatus(models.TextChoices):
    OPEN = "open", "Open"  # its first letter; a resolved group's failure came back; reopened
    ACKNOWLEDGED = "acknowledged", "Acknowledged"  # an operator looks after it
    RESOLVED = "resolved", "Resolved"  # an operator says it is over; it reopens when it is not
    IGNORED = "ignored", "Ignored"  # an operator does not want to hear of it; it never reopens by itself


GROUP_TRANSITIONS: tuple[tuple[GroupStatus, GroupStatus], ...] = (
    (GroupStatus.OPEN, GroupStatus.ACKNOWLEDGED),
    *(
        (status, GroupStatus.RESOLVED)
        for status in (GroupStatus.OPEN, GroupStatus.ACKNOWLEDGED, GroupStatus.IGNORED)
    ),
    *(
        (status, GroupStatus.IGNORED)
        for status in (GroupStatus.OPEN, GroupStatus.ACKNOWLEDGED, GroupStatus.RESOLVED)
    ),
    *(
        (status, GroupStatus.OPEN)
        for status in (GroupStatus.ACKNOWLEDGED, GroupStatus.RESOLVED, GroupStatus.IGNORED)
    ),
)


class GroupAction(models.TextChoices):
    """What a group's timeline says."""

    ACKNOWLEDGED = "acknowledged", "Acknowledged"
    RESOLVED = "resolved", "Resolved"
    IGNORED = "ignored", "Ignored"
    REOPENED = "reopened", "Reopened"
    SNOOZED = "snoozed", "Snoozed"
    ASSIGNED = "assigned", "Assigned"
    ANNOTATED = "annotated", "Annotated"


class BatchStatus(models.TextChoices):
    DRAFT = "draft", "Draft"  # the selection is frozen, nothing runs
    AWAITING = "awaiting", "Waits for approval"  # submitted; somebody else must approve it
    RUNNING = "running", "Running"  # submitted, approved where necessary, or resumed
    PAUSED = "paused", "Paused"  # an operator paused it
    STOPPED = "stopped", "Stopped"  # by a rule: the circuit opened, or a failure came back
    CANCELLED = "cancelled", "Cancelled"  # an operator ended it; what was replayed stays replayed
    FINISHED = "finished", "Finished"  # every item has its outcome


BATCH_TRANSITIONS: tuple[tuple[BatchStatus, BatchStatus], ...] = (
    (BatchStatus.DRAFT, BatchStatus.AWAITING),
    (BatchStatus.DRAFT, BatchStatus.RUNNING),
    (BatchStatus.AWAITING, BatchStatus.RUNNING),
    (BatchStatus.RUNNING, BatchStatus.PAUSED),
    (BatchStatus.PAUSED, BatchStatus.RUNNING),
    (BatchStatus.RUNNING, BatchStatus.STOPPED),
    (BatchStatus.PAUSED, BatchStatus.STOPPED),  # a job at work when it was paused failed again
    (BatchStatus.STOPPED, BatchStatus.RUNNING),
    (BatchStatus.RUNNING, BatchStatus.FINISHED),
    *(
        (status, BatchStatus.CANCELLED)
        for status in (
            BatchStatus.DRAFT,
            BatchStatus.AWAITING,
            BatchStatus.RUNNING,
            BatchStatus.PAUSED,
            BatchStatus.STOPPED,
        )
    ),
)


class ItemStatus(models.TextChoices):
    PENDING = "pending", "Pending"  # not looked at yet; let go again by a stop
    READY = "ready", "Ready"  # walked through the steps: its letter waits for the replay
    REPLAYING = "replaying", "Replaying"  # its job is at work
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
    REQUESTED = "requested", "Requested"  # an operator wants the data changed
    APPLIED = "applied", "Applied"  # somebody else approved it: the letter lives on as a new generation
    REFUSED = "refused", "Refused"  # somebody else refused it, or the letter or its data changed meanwhile
    WITHDRAWN = "withdrawn", "Withdrawn"  # who asked for it does not want it any more


EDIT_TRANSITIONS: tuple[tuple[EditStatus, EditStatus], ...] = (
    (EditStatus.REQUESTED, EditStatus.APPLIED),
    (EditStatus.REQUESTED, EditStatus.REFUSED),
    (EditStatus.REQUESTED, EditStatus.WITHDRAWN),
)
