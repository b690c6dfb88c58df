"""Jobs and what they produced. Rows say what is true; `pipeline` and `intake` write states."""

from __future__ import annotations

import pghistory
import pgtrigger
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from criticizer.full_text import text_index
from criticizer.retry import MAX_ATTEMPTS_PER_STAGE
from criticizer.triggers import append_only
from reviews.reviewers.base import CoverageStatus, FindingSeverity, Side
from reviews.rollup_models import Rollup as Rollup
from reviews.states import (
    ACTIVE_JOB,
    JOB_TRANSITIONS,
    STAGE_TRANSITIONS,
    AttemptOutcome,
    JobStatus,
    Stage,
    StageStatus,
)
from reviews.subscription_models import Subscription as Subscription


class RecipientsAre(models.TextChoices):
    """Where the recipients of a job come from."""

    GIVEN = "given", "Given with the request"
    TO_FIND = "to_find", "Found when its files are known"  # until then: DEFAULT_RECIPIENTS
    FOUND = "found", "Found"  # frozen: a replay tells the same people


class RecipientOrigin(models.TextChoices):
    """Why a recipient that nobody gave with the request is told."""

    SUBSCRIPTION = "subscription", "Subscription made by an administrator"
    OWN = "own", "Subscription of their own"
    PERFORCE = "perforce", "Reviews field of their Perforce user"
    DEFAULT = "default", "DEFAULT_RECIPIENTS"


class ReviewJob(models.Model):
    """One requested review of one version of a changelist."""

    idempotency_key = models.CharField(max_length=255, unique=True)
    request_sha256 = models.CharField(max_length=64)  # tells a repeated key with another body
    changelist_id = models.CharField(max_length=128)
    review_version = models.IntegerField(db_default=1)
    recipients = models.JSONField(db_default=[])  # channel-qualified, normalised
    recipients_are = models.CharField(
        max_length=8, choices=RecipientsAre.choices, db_default=RecipientsAre.GIVEN
    )
    recipient_origins = models.JSONField(db_default={})  # of found ones: recipient -> `RecipientOrigin`
    requested_by = models.CharField(max_length=255, blank=True)
    status = models.CharField(max_length=20, choices=JobStatus.choices, db_default=JobStatus.QUEUED)
    status_reason = models.CharField(max_length=512, blank=True, db_default="")
    created_at = models.DateTimeField(db_default=Now())
    deadline_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    is_late = models.BooleanField(db_default=False)

    # What the stages learned, for lists and pages. Text is redacted.
    author = models.CharField(max_length=255, blank=True, db_default="")
    title = models.CharField(max_length=255, blank=True, db_default="")
    banner = models.CharField(max_length=512, blank=True, db_default="")
    model_name = models.CharField(max_length=128, blank=True, db_default="")
    usage = models.JSONField(db_default={})
    version_key = models.CharField(max_length=255, blank=True, db_default="")  # of the content as fetched

    class Meta:
        db_table = "jobs"
        verbose_name = "review"
        permissions = [("accept_late", "Can accept a late result")]
        constraints = [
            models.UniqueConstraint(fields=["changelist_id", "review_version"], name="jobs_one_per_version"),
            # At most one version of a changelist is worked on: closes the race between two reruns.
            models.UniqueConstraint(
                fields=["changelist_id"],
                condition=Q(status__in=[status.value for status in ACTIVE_JOB]),
                name="jobs_one_active_version",
            ),
            models.CheckConstraint(condition=Q(review_version__gt=0), name="jobs_version_positive"),
            models.CheckConstraint(
                condition=Q(status__in=[status.value for status in ACTIVE_JOB], finished_at__isnull=True)
                | (~Q(status__in=[status.value for status in ACTIVE_JOB]) & Q(finished_at__isnull=False)),
                name="jobs_final_is_finished",
            ),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="jobs_newest"),  # the reviews list
            # The sweep and the deadline check: jobs still at work, oldest deadline first.
            models.Index(
                fields=["deadline_at"],
                condition=Q(status__in=[status.value for status in ACTIVE_JOB]),
                name="jobs_active",
            ),
            # The console's lists, in the order of ending; and the figures of the dashboard.
            models.Index(
                fields=["-finished_at", "-id"],
                condition=Q(finished_at__isnull=False),
                name="jobs_finished",
            ),
            # A list of one of the rarer states. A job that goes well never stands in it.
            models.Index(
                fields=["status", "-created_at", "-id"],
                condition=~Q(status__in=["succeeded", *(status.value for status in ACTIVE_JOB)]),
                name="jobs_not_succeeded",
            ),
            models.Index(fields=["-created_at", "-id"], condition=Q(is_late=True), name="jobs_late"),
            # Words. Only when a job has ended: each change before that would cost an entry.
            text_index("title", "author", name="jobs_words", condition=Q(finished_at__isnull=False)),
        ]
        triggers = [
            pgtrigger.FSM(
                name="status_fsm",
                field="status",
                transitions=[(a.value, b.value) for a, b in JOB_TRANSITIONS],
            )
        ]

    def __str__(self) -> str:
        return f"{self.changelist_id} v{self.review_version}"

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE_JOB


class StageRun(models.Model):
    """One stage of one job with its own attempt budget (specification 000, 8.3)."""

    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="stages", db_index=False)
    stage = models.CharField(max_length=10, choices=Stage.choices)
    status = models.CharField(max_length=12, choices=StageStatus.choices, db_default=StageStatus.PENDING)
    attempts = models.IntegerField(db_default=0)
    max_attempts = models.IntegerField(db_default=MAX_ATTEMPTS_PER_STAGE)
    lease_token = models.UUIDField(null=True, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    first_failure_at = models.DateTimeField(null=True, blank=True)
    last_failure_at = models.DateTimeField(null=True, blank=True)
    error_class = models.CharField(max_length=32, blank=True, db_default="")
    progress = models.JSONField(db_default={})  # finished chunks, so that a retry does not pay again
    # The lease of the worker that was at it when its job ended: its result is stored, and changes nothing.
    ended_token = models.UUIDField(null=True, blank=True)

    class Meta:
        db_table = "stage_runs"
        constraints = [
            models.UniqueConstraint(fields=["job", "stage"], name="stage_runs_one_per_stage"),
            models.CheckConstraint(condition=Q(attempts__lte=F("max_attempts")), name="stage_runs_budget"),
            models.CheckConstraint(
                condition=Q(
                    status=StageStatus.RUNNING, lease_token__isnull=False, lease_expires_at__isnull=False
                )
                | (~Q(status=StageStatus.RUNNING) & Q(lease_token__isnull=True)),
                name="stage_runs_running_is_leased",
            ),
        ]
        indexes = [
            # Jobs by what went wrong (console). Success never touches it.
            models.Index(
                fields=["error_class", "job"], condition=~Q(error_class=""), name="stage_runs_failed"
            )
        ]
        triggers = [
            pgtrigger.FSM(
                name="status_fsm",
                field="status",
                transitions=[(a.value, b.value) for a, b in STAGE_TRANSITIONS],
            )
        ]

    def __str__(self) -> str:
        return f"{self.stage} of job {self.job_id}"


class Attempt(models.Model):
    """One try at a stage, written as started before the effect, closed after it."""

    stage_run = models.ForeignKey(StageRun, on_delete=models.CASCADE, related_name="attempt_rows")
    number = models.IntegerField()
    worker = models.CharField(max_length=255, blank=True)
    started_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(
        max_length=12, choices=AttemptOutcome.choices, db_default=AttemptOutcome.STARTED
    )
    error_class = models.CharField(max_length=32, blank=True, db_default="")
    code = models.CharField(max_length=20, blank=True, db_default="")
    detail = models.TextField(blank=True, db_default="")  # redacted, one sentence
    context = models.JSONField(db_default={})  # redacted
    retry_delay_seconds = models.FloatField(null=True, blank=True)

    class Meta:
        db_table = "attempts"
        ordering = ["id"]
        indexes = [
            # The console's list and the figures of the dashboard. A closing attempt changes neither.
            models.Index(fields=["-started_at", "-id"], name="attempts_newest"),
            models.Index(
                fields=["error_class", "-started_at", "-id"],
                condition=~Q(error_class=""),
                name="attempts_failed",
            ),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} ({self.outcome})"


class FindingRow(models.Model):
    """A finding of a job. Written once, with the llm stage's commit."""

    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="findings")
    file = models.CharField(max_length=1024)
    line = models.IntegerField(null=True, blank=True)
    end_line = models.IntegerField(null=True, blank=True)
    side = models.CharField(max_length=3, choices=[(s.value, s.value) for s in Side], db_default="new")
    severity = models.CharField(max_length=8, choices=[(s.value, s.value) for s in FindingSeverity])
    category = models.CharField(max_length=32)
    title = models.CharField(max_length=160)
    message = models.TextField()
    suggestion = models.TextField(blank=True, db_default="")
    source = models.CharField(max_length=64)
    quote = models.TextField(blank=True, db_default="")
    excerpt = models.JSONField(db_default=[])  # [[line or null, kind, text], …], redacted
    confidence = models.IntegerField(null=True, blank=True)
    demoted = models.BooleanField(db_default=False)

    class Meta:
        db_table = "findings"
        verbose_name = "finding"
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.severity}: {self.title}"


class JobEvent(models.Model):
    """What happened to a job besides its attempts: append-only."""

    class Kind(models.TextChoices):
        TIMED_OUT = "timed_out", "Timed out"  # the deadline passed
        CANCELLED = "cancelled", "Cancelled"
        SUPERSEDED = "superseded", "Superseded"
        LATE_STORED = "late_stored", "Late result stored"  # a worker finished after the job had ended
        LATE_ACCEPTED = "late_accepted", "Late result accepted"  # an operator had it delivered
        NOT_TOLD = "not_told", "Not told"  # recipients who wanted no message: muted, or below their threshold
        DELIVERY_DECIDED = "decided", "Delivery decided"  # an operator's word on a delivery in doubt
        ALERT = "alert", "Alert"

    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    actor = models.CharField(max_length=255, blank=True, db_default="")
    reason = models.CharField(max_length=1024, blank=True, db_default="")  # redacted
    context = models.JSONField(db_default={})
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "job_events"
        ordering = ["id"]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.kind} job {self.job_id}"


class CoverageRow(models.Model):
    """What became of one file of a job's change."""

    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="coverage")
    file = models.CharField(max_length=1024)
    status = models.CharField(max_length=10, choices=[(s.value, s.value) for s in CoverageStatus])
    reason = models.CharField(max_length=255, blank=True, db_default="")

    class Meta:
        db_table = "coverage"
        verbose_name = "covered file"
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.file}: {self.status}"


class Artifact(models.Model):
    """An encrypted file of a job (specification 001, 9.4). `vault` reads and writes it."""

    class Kind(models.TextChoices):
        CHANGE = "change", "Change as fetched"
        PROMPT = "prompt", "Prompt"
        ANSWER = "answer", "Model answer"
        MAIL = "mail", "Mail metadata"

    class Fault(models.TextChoices):
        OVERDUE = "overdue", "Kept longer than its time"
        MISSING = "missing", "The file is gone"
        UNREADABLE = "unreadable", "No key opens it"
        CHANGED = "changed", "Not the bytes that were stored"

    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="artifacts")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    is_raw = models.BooleanField()
    name = models.CharField(max_length=255)  # within the storage
    sha256 = models.CharField(max_length=64)  # of the plain bytes
    size_bytes = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)
    key_id = models.CharField(max_length=12, blank=True, db_default="")  # `vault.key_id` of what seals it
    checked_at = models.DateTimeField(null=True, blank=True)  # by the verification job
    fault = models.CharField(max_length=12, choices=Fault.choices, blank=True, db_default="")

    class Meta:
        db_table = "artifacts"
        permissions = [
            ("read_artifact", "Can read redacted artifacts"),
            ("read_raw_artifact", "Can read raw artifacts"),
        ]
        indexes = [
            # The deletion job: what is due and still there.
            models.Index(fields=["expires_at"], condition=Q(deleted_at__isnull=True), name="artifacts_due"),
            # The verification job: what was looked at longest ago.
            models.Index(
                F("checked_at").asc(nulls_first=True),
                condition=Q(deleted_at__isnull=True),
                name="artifacts_to_check",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of job {self.job_id}"


class AuditSeal(models.Model):
    """What a stretch of audit rows looked like once: the links of a chain per table (`reviews.seals`).

    `rows_sha256` covers the rows `from_id < id <= to_id`; `chain` covers it and the link
    before; `mac` is keyed by a secret that is not in the database.
    """

    table = models.CharField(max_length=64, db_column="table_name")
    from_id = models.BigIntegerField()
    to_id = models.BigIntegerField()
    row_count = models.IntegerField()
    rows_sha256 = models.CharField(max_length=64)
    chain = models.CharField(max_length=64)
    mac = models.CharField(max_length=64)
    key_id = models.CharField(max_length=12)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "audit_seals"
        constraints = [
            # Two processes that seal at once: one of them is refused.
            models.UniqueConstraint(fields=["table", "from_id"], name="audit_seals_one_chain"),
            models.CheckConstraint(condition=Q(to_id__gt=F("from_id")), name="audit_seals_forward"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.table} {self.from_id} to {self.to_id}"


class SourceEvent(models.Model):
    """One event of a source, told by a trigger or found by the poll. `ledger` is the only writer."""

    class Kind(models.TextChoices):
        CHANGE = "change-commit", "Submitted"
        SHELVE = "shelve-commit", "Shelved"
        COMMIT = "git-commit", "Committed"

    class Origin(models.TextChoices):
        TRIGGER = "trigger", "Trigger"
        POLL = "poll", "Poll"

    class Outcome(models.TextChoices):
        CREATED = "created", "Made a job"
        JOINED = "joined", "Joined a job that had not read the shelf yet"
        SEEN_BEFORE = "seen_before", "Had its job already"
        FOUND_BY_POLL = "found_by_poll", "No trigger told: found by the poll"
        REFUSED = "refused", "Refused: the trigger tells it again"

    server = models.CharField(max_length=64)  # as the trigger names it; a git repository's name
    event = models.CharField(max_length=16, choices=Kind.choices)
    changelist_id = models.CharField(max_length=128)
    version_key = models.CharField(max_length=255, blank=True, db_default="")  # content the poll saw
    origin = models.CharField(max_length=8, choices=Origin.choices)
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    job = models.ForeignKey(
        ReviewJob, on_delete=models.SET_NULL, null=True, blank=True, related_name="source_events"
    )
    received_at = models.DateTimeField(db_default=Now())
    repeats = models.IntegerField(db_default=0)  # how often the trigger told it again
    repeated_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "source_events"
        indexes = [
            models.Index(fields=["-received_at", "-id"], name="source_events_newest"),
            # Every event looks up what is known of its changelist.
            models.Index(fields=["changelist_id", "event", "-id"], name="source_events_of"),
        ]
        constraints = [
            # A submit happens once: its second telling finds the row of the first.
            models.UniqueConstraint(
                fields=["server", "event", "changelist_id"],
                condition=~Q(event="shelve-commit") & ~Q(outcome="refused") & Q(origin="trigger"),
                name="source_events_submit_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.changelist_id}"


class SourcePosition(models.Model):
    """How far the poll has looked in one stream of changes. Written with the jobs it covers."""

    stream = models.CharField(max_length=192, unique=True)  # such as "perforce submitted"
    place = models.CharField(max_length=128, blank=True, db_default="")  # the newest change looked at
    state = models.JSONField(db_default={})  # what else the stream must remember
    missing = models.BigIntegerField(db_default=0)  # events no trigger told, ever
    last_missing_at = models.DateTimeField(null=True, blank=True)
    polled_at = models.DateTimeField(db_default=Now())
    problem = models.CharField(max_length=512, blank=True, db_default="")  # why the last run stopped

    class Meta:
        db_table = "source_positions"
        verbose_name = "polled source"

    def __str__(self) -> str:
        return self.stream


class ApiKey(models.Model):
    """A key of a program that calls the API. The key itself is shown once, never stored."""

    class Role(models.TextChoices):
        TRIGGER = "trigger", "Trigger: posts changelists and reads reviews"
        REVIEWER = "reviewer", "Reviewer: reads reviews"
        OPERATOR = "operator", "Operator: reads reviews, dead letters and metrics, cancels"
        APPROVER = "approver", "Approver: reads reviews and dead letters"
        AUDITOR = "auditor", "Auditor: reads reviews and dead letters"

    name = models.CharField(max_length=64, unique=True)
    role = models.CharField(max_length=10, choices=Role.choices)
    key_sha256 = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=12)
    created_at = models.DateTimeField(db_default=Now())
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    # Depot trees such as //depot/main/...; empty: every file (`reviews.scopes`).
    prefixes = models.JSONField(blank=True, db_default=[], default=list)

    class Meta:
        db_table = "api_keys"
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.role})"


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(),
    pghistory.DeleteEvent(),
    append_only=True,
    meta={"verbose_name": "allow-list edit"},
    obj_field=pghistory.ObjForeignKey(on_delete=models.DO_NOTHING, null=True, db_constraint=False),
)
class AllowListEntry(models.Model):
    """A line operators edit inside the ceiling that DEPOT_ALLOW_LIST sets (001, 9.1).

    Audited by pghistory: who, when, what, from where. Without any include line the ceiling
    itself applies; exclude lines always narrow it.
    """

    class Kind(models.TextChoices):
        INCLUDE = "include", "Include"
        EXCLUDE = "exclude", "Exclude"

    kind = models.CharField(max_length=7, choices=Kind.choices, default=Kind.INCLUDE)
    pattern = models.CharField(max_length=1024, help_text="Such as //depot/project/...")
    position = models.IntegerField(default=0, help_text="The last matching line decides.")
    reason = models.CharField(max_length=255, help_text="Why this line exists: a ticket or a sentence.")

    class Meta:
        db_table = "allow_list_entries"
        verbose_name = "allow-list entry"
        verbose_name_plural = "allow-list entries"
        ordering = ["position", "id"]
        constraints = [models.UniqueConstraint(fields=["kind", "pattern"], name="allow_list_once")]

    def __str__(self) -> str:
        return f"{self.kind} {self.pattern}"


@pghistory.track(
    pghistory.InsertEvent(),
    pghistory.UpdateEvent(),
    pghistory.DeleteEvent(),
    append_only=True,
    meta={"verbose_name": "viewing-scope edit"},
    obj_field=pghistory.ObjForeignKey(on_delete=models.DO_NOTHING, null=True, db_constraint=False),
)
class ViewerScope(models.Model):
    """A depot tree that the members of a group may read. Audited like the allow-list."""

    group = models.ForeignKey("auth.Group", on_delete=models.CASCADE, related_name="viewer_scopes")
    prefix = models.CharField(max_length=1024, help_text="Such as //depot/project/...")
    reason = models.CharField(max_length=255, help_text="Why: a ticket or a sentence.")

    class Meta:
        db_table = "viewer_scopes"
        verbose_name = "viewing scope"
        ordering = ["group", "prefix"]
        permissions = [("view_all_files", "Can see the files of every review")]
        constraints = [
            models.UniqueConstraint(fields=["group", "prefix"], name="viewer_scopes_once"),
            # A line that does not end its last directory would open its neighbours as well.
            models.CheckConstraint(
                condition=Q(prefix__startswith="//") & Q(prefix__endswith="/..."), name="viewer_scopes_trees"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group_id}: {self.prefix}"
