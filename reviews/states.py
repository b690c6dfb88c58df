"""States of jobs, stages and attempts, with what moves a row into each.

The database enforces the transitions (pgtrigger's FSM); `manage.py state_diagrams` draws them in
docs/states.md.
"""

from __future__ import annotations

from django.db import models


class Stage(models.TextChoices):
    FETCH = "fetch", "Fetch"
    LLM = "llm", "Review"
    NOTIFY = "notify", "Notify"


STAGE_ORDER = (Stage.FETCH, Stage.LLM, Stage.NOTIFY)


class JobStatus(models.TextChoices):
    QUEUED = "queued", "Queued"  # intake; replay of a dead letter; a late result was accepted
    IN_PROGRESS = "in_progress", "In progress"  # a worker claimed a stage
    RETRYABLE_FAILED = "retryable_failed", "Waiting to retry"  # a stage failed, budget is left
    SUCCEEDED = "succeeded", "Succeeded"  # every required delivery is sent
    DEAD_LETTERED = "dead_lettered", "Dead-lettered"  # not retryable, or the budget is gone
    TIMED_OUT = "timed_out", "Timed out"  # the deadline passed first
    CANCELLED = "cancelled", "Cancelled"  # on request
    SUPERSEDED = "superseded", "Superseded"  # a higher review_version was requested


ACTIVE_JOB = (JobStatus.QUEUED, JobStatus.IN_PROGRESS, JobStatus.RETRYABLE_FAILED)
# Ended from outside the workers, one of which may still be running (`pipeline.terminate`).
ENDED_JOB = (JobStatus.TIMED_OUT, JobStatus.CANCELLED, JobStatus.SUPERSEDED)
RARE_JOB = (JobStatus.DEAD_LETTERED, *ENDED_JOB)  # an index finds jobs of these (`ReviewJob.ended_as`)

JOB_TRANSITIONS: tuple[tuple[JobStatus, JobStatus], ...] = (
    (JobStatus.QUEUED, JobStatus.IN_PROGRESS),
    (JobStatus.IN_PROGRESS, JobStatus.RETRYABLE_FAILED),
    (JobStatus.RETRYABLE_FAILED, JobStatus.IN_PROGRESS),
    (JobStatus.IN_PROGRESS, JobStatus.SUCCEEDED),
    (JobStatus.DEAD_LETTERED, JobStatus.QUEUED),
    (JobStatus.TIMED_OUT, JobStatus.QUEUED),  # an operator accepts its late result
    *((before, after) for before in ACTIVE_JOB for after in (JobStatus.DEAD_LETTERED, *ENDED_JOB)),
)


class StageStatus(models.TextChoices):
    PENDING = "pending", "Pending"  # intake; replay; an attempt given back, also to wait
    RUNNING = "running", "Running"  # claimed under a lease
    RETRY_WAIT = "retry_wait", "Waiting to retry"  # failed, due again at next_attempt_at
    SUCCEEDED = "succeeded", "Succeeded"  # its result is recorded
    FAILED = "failed", "Failed"  # not retryable, the budget is gone, or a replay missed its deadline
    CANCELLED = "cancelled", "Cancelled"  # its job ended first


WAITING_STAGE = (StageStatus.PENDING, StageStatus.RETRY_WAIT)  # for a worker
UNFINISHED_STAGE = (StageStatus.PENDING, StageStatus.RUNNING, StageStatus.RETRY_WAIT)

STAGE_TRANSITIONS: tuple[tuple[StageStatus, StageStatus], ...] = (
    (StageStatus.PENDING, StageStatus.RUNNING),
    (StageStatus.RETRY_WAIT, StageStatus.RUNNING),
    (StageStatus.RUNNING, StageStatus.SUCCEEDED),
    (StageStatus.RUNNING, StageStatus.RETRY_WAIT),
    (StageStatus.RUNNING, StageStatus.FAILED),
    (StageStatus.PENDING, StageStatus.FAILED),  # its replay missed the deadline
    (StageStatus.RETRY_WAIT, StageStatus.FAILED),
    (StageStatus.RUNNING, StageStatus.PENDING),
    (StageStatus.FAILED, StageStatus.PENDING),
    (StageStatus.SUCCEEDED, StageStatus.PENDING),
    (StageStatus.CANCELLED, StageStatus.PENDING),
    (StageStatus.CANCELLED, StageStatus.SUCCEEDED),  # its late result was accepted
    *((before, StageStatus.CANCELLED) for before in UNFINISHED_STAGE),
)


class AttemptOutcome(models.TextChoices):
    STARTED = "started", "Started"  # written before the effect
    SUCCEEDED = "succeeded", "Succeeded"
    FAILED = "failed", "Failed"
    GIVEN_BACK = "given_back", "Given back"  # shutdown, waiting, or its job ended: not counted
    LOST = "lost", "Lost"  # its worker died or lost the lease


class LedgerState(models.TextChoices):
    """A call in the token ledger; `reviews.token_ledger` writes it."""

    RESERVED = "reserved", "Reserved"  # it may be running: its estimate counts
    SETTLED = "settled", "Settled"  # the provider reported its tokens, or did not serve it: none
    UNKNOWN = "unknown", "Unknown"  # it ended without a report: its estimate counts


class AgentTaskStatus(models.TextChoices):
    """A task for an agent of the customer; `reviews.agents` writes it."""

    PENDING = "pending", "Pending"  # offered; given back, or its claim's lease ran out
    IN_PROGRESS = "in_progress", "In progress"  # claimed by an agent, under a lease
    COMPLETED = "completed", "Completed"  # its result is valid
    FAILED = "failed", "Failed"  # the agent said so, or two results could not be used
    EXPIRED = "expired", "Expired"  # its time is over, or three claims of it were lost
    CANCELLED = "cancelled", "Cancelled"  # its job ended first


OPEN_TASK = (AgentTaskStatus.PENDING, AgentTaskStatus.IN_PROGRESS)
_FINAL_TASK = tuple(status for status in AgentTaskStatus if status not in OPEN_TASK)

AGENT_TASK_TRANSITIONS: tuple[tuple[AgentTaskStatus, AgentTaskStatus], ...] = (
    (AgentTaskStatus.PENDING, AgentTaskStatus.IN_PROGRESS),
    (AgentTaskStatus.IN_PROGRESS, AgentTaskStatus.PENDING),
    (AgentTaskStatus.IN_PROGRESS, AgentTaskStatus.COMPLETED),
    (AgentTaskStatus.IN_PROGRESS, AgentTaskStatus.FAILED),
    *(
        (before, after)
        for before in OPEN_TASK
        for after in (AgentTaskStatus.EXPIRED, AgentTaskStatus.CANCELLED)
    ),
    # Offered again: by an operator, or by another run of its stage.
    *((before, AgentTaskStatus.PENDING) for before in _FINAL_TASK),
)


class AgentTaskType(models.TextChoices):
    """Type of a task for an agent."""

    REVIEW_CHUNK = "review_chunk", "Review of a part of a change"
    CLAIM_EXTRACTION = "claim_extraction", "Claims of a document"
    VERIFICATION = "verification", "Verification of a claim"
    FIX_GENERATION = "fix_generation", "Fix of a document"


class SubmissionVerdict(models.TextChoices):
    """Verdict on one submission of a result."""

    ACCEPTED = "accepted", "Accepted"
    ACCEPTED_AS_FAILED = "accepted_as_failed", "Accepted as a failure: the second that could not be used"
    DUPLICATE = "duplicate", "Repeats an accepted one"
    NOT_JSON = "not_json", "Refused: no JSON"
    INVALID = "invalid", "Refused: does not follow the schema"
    CLAIM_LOST = "claim_lost", "Refused: the claim is another one's"
    DONE = "done", "Refused: the task was completed"
    EXPIRED = "expired", "Refused: the task has expired"


ACCEPTED_SUBMISSION = (SubmissionVerdict.ACCEPTED, SubmissionVerdict.ACCEPTED_AS_FAILED)


class FindingStatus(models.TextChoices):
    """A finding compared with the versions before and after its own."""

    NEW = "new", "New"
    STILL_THERE = "still_there", "Still there"  # the version before has it too
    NOT_REPORTED_AGAIN = "not_reported_again", "Not reported again"  # by the version after
    FIXED = "fixed", "Fixed"  # its lines are no longer in the version after


class FindingEventKind(models.TextChoices):
    """An entry in the history of a finding. The last one that is no comment is its verdict."""

    USEFUL = "useful", "Useful"
    WRONG = "wrong", "Wrong"
    INTENDED = "intended", "Intended"  # the code is meant to be so
    WONT_FIX = "wont_fix", "Won't fix"  # right, and not worth it
    UNDONE = "undone", "Verdict taken back"
    COMMENT = "comment", "Comment"


class DismissalScope(models.TextChoices):
    """Scope of a dismissal: the findings it is about besides its own (`reviews.dismissals`)."""

    FINDING = "finding", "This finding"
    FILE = "file", "The same, anywhere in this file"
    PATH = "path", "The same, in files of a path"
    RULE = "rule", "Everything of this rule or check"
    CATEGORY = "category", "Everything of this category"


WIDE_SCOPES = (DismissalScope.PATH, DismissalScope.RULE, DismissalScope.CATEGORY)

DISMISSALS = (FindingEventKind.WRONG, FindingEventKind.INTENDED, FindingEventKind.WONT_FIX)
VERDICTS = (FindingEventKind.USEFUL, *DISMISSALS)
