"""Jobs, their stages, attempts and events. `pipeline` and `intake` write the states."""

from __future__ import annotations

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from criticizer.db.full_text import text_index
from criticizer.db.triggers import append_only, fsm
from criticizer.resilience.retry import MAX_ATTEMPTS_PER_STAGE
from deadletters.states import LetterStatus
from reviews.reviewers.base import Stopped
from reviews.sources.base import ChangeStatus
from reviews.states import (
    ACTIVE_JOB,
    JOB_TRANSITIONS,
    RARE_JOB,
    STAGE_TRANSITIONS,
    UNFINISHED_STAGE,
    AttemptOutcome,
    JobStatus,
    Stage,
    StageStatus,
)


def _replay_needs_letter() -> pgtrigger.Trigger:
    """Return the trigger that queues a dead-lettered job only with a replaying dead letter.

    The dead letter moves first, in the same transaction; its own table enforces the steps before.
    """
    return pgtrigger.Trigger(
        name="replayed_with_its_letter",
        when=pgtrigger.Before,
        operation=pgtrigger.Update,
        condition=pgtrigger.Q(old__status=JobStatus.DEAD_LETTERED.value, new__status=JobStatus.QUEUED.value),
        func=f"""
            IF NOT EXISTS (SELECT FROM public.dead_letters l
                            WHERE l.job_id = NEW.id AND l.status = '{LetterStatus.REPLAYING.value}') THEN
              RAISE EXCEPTION 'job %: no letter of it is being replayed', NEW.id;
            END IF;
            RETURN NEW;""",
    )


def _keeps_how_it_ended() -> pgtrigger.Trigger:
    """Return the trigger that writes `ended_as`.

    So it is right whichever version of the product writes the state.
    """
    rare = ", ".join(f"'{status.value}'" for status in RARE_JOB)
    ended = f"CASE WHEN NEW.status IN ({rare}) THEN NEW.status ELSE '' END"
    return pgtrigger.Trigger(
        name="keeps_how_it_ended",
        when=pgtrigger.Before,
        operation=pgtrigger.Insert | pgtrigger.Update,
        condition=pgtrigger.Condition(f"NEW.ended_as <> {ended}"),
        func=f"NEW.ended_as := {ended}; RETURN NEW;",
    )


SCAN = "scan"  # the kind of a job that verifies the documents of a whole tree


class RecipientMode(models.TextChoices):
    """The origin of a job's recipients."""

    GIVEN = "given", "Given with the request"
    TO_FIND = "to_find", "Found when its files are known"  # until then: DEFAULT_RECIPIENTS
    FOUND = "found", "Found"  # frozen: a replay notifies the same people


class RecipientOrigin(models.TextChoices):
    """Reason why a recipient that was not in the request is notified."""

    SUBSCRIPTION = "subscription", "Subscription made by an administrator"
    OWN = "own", "Subscription of their own"
    PERFORCE = "perforce", "Reviews field of their Perforce user"
    PULL_REQUEST = "pull_request", "The pull request that is reviewed"
    DEFAULT = "default", "DEFAULT_RECIPIENTS"


# What `jobs_final_is_finished` makes the same as a state of `ACTIVE_JOB`.
_UNFINISHED = Q(finished_at__isnull=True)


class ReviewJob(models.Model):
    """One requested review of one version of a changelist."""

    idempotency_key = models.CharField(max_length=255)
    request_sha256 = models.CharField(max_length=64)  # detects a repeated key with another body
    request_id = models.CharField(max_length=64, blank=True, db_default="")  # of the HTTP request
    changelist_id = models.CharField(max_length=128)
    review_version = models.IntegerField(db_default=1)
    recipients = models.JSONField(db_default=[])  # channel-qualified, normalised
    recipients_are = models.CharField(
        max_length=8, choices=RecipientMode.choices, db_default=RecipientMode.GIVEN
    )
    recipient_origins = models.JSONField(db_default={})  # of found ones: recipient -> `RecipientOrigin`
    requested_by = models.CharField(max_length=255, blank=True)
    # A person wants new answers, whatever earlier reviews found in equal content.
    from_scratch = models.BooleanField(db_default=False)
    # Reviews requested with a key that has prefixes: a series of its own for each such key, so that its
    # keys and versions meet no others, and the key's prefixes at that time. "": every file (guarantee G150).
    # Each scanned path has a series too; its prefix is the path.
    series = models.CharField(max_length=32, blank=True, db_default="")
    scope_prefixes = models.JSONField(db_default=[])  # as in `Scope`: they end in a slash
    # Of the change, "" until known; `SCAN`: not a change. It decides the deadline (`REVIEW_SLA_SECONDS`).
    kind = models.CharField(
        max_length=9,
        choices=[*((kind.value, kind.value) for kind in ChangeStatus), (SCAN, SCAN)],
        blank=True,
        db_default="",
    )
    status = models.CharField(max_length=20, choices=JobStatus.choices, db_default=JobStatus.QUEUED)
    status_reason = models.CharField(max_length=512, blank=True, db_default="")
    created_at = models.DateTimeField(db_default=Now())
    deadline_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    # The state while it is one of `RARE_JOB`, else "". A trigger writes it. No index has `status`: a claim,
    # which changes it, writes to no index then, and leaves the row on its page (a HOT update).
    ended_as = models.CharField(
        max_length=20, choices=JobStatus.choices, blank=True, db_default="", editable=False
    )
    is_late = models.BooleanField(db_default=False)

    # Written by the stages, for lists and pages. Text is redacted.
    author = models.CharField(max_length=255, blank=True, db_default="")
    title = models.CharField(max_length=255, blank=True, db_default="")
    banner = models.CharField(max_length=512, blank=True, db_default="")
    footer = models.CharField(max_length=255, blank=True, db_default="")  # what is missing, and is little
    # Why its review ended before its last part, "" for a whole one (guarantee G385).
    stopped = models.CharField(
        max_length=10, choices=[(why.value, why.value) for why in Stopped], blank=True, db_default=""
    )
    model_name = models.CharField(max_length=128, blank=True, db_default="")
    usage = models.JSONField(db_default={})
    # The newest earlier version that was reviewed: its findings are compared with this one's.
    compared_with = models.IntegerField(null=True, blank=True)
    version_key = models.CharField(max_length=255, blank=True, db_default="")  # of the content as fetched
    # By root: what the repository says about its reviews (`reviews.repository_configuration`).
    configuration = models.JSONField(default=list, db_default=[])
    # What verifying documents counted (`reviews.drift.wording`); {}: they were not verified.
    documents = models.JSONField(default=dict, db_default={})
    # Files outside the change that were read for it: its artifacts hold their text.
    context_files = ArrayField(models.TextField(), blank=True, default=list, db_default=[])

    class Meta:
        db_table = "jobs"
        verbose_name = "review"
        permissions = [("accept_late", "Can accept a late result")]
        constraints = [
            models.UniqueConstraint(fields=["idempotency_key", "series"], name="jobs_one_per_key"),
            models.UniqueConstraint(
                fields=["changelist_id", "review_version", "series"], name="jobs_one_per_version"
            ),
            # At most one version of a changelist is active: closes the race between two reruns.
            models.UniqueConstraint(
                fields=["changelist_id", "series"],
                condition=_UNFINISHED,
                name="jobs_one_unfinished_version",
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
            # The sweep and the deadline check: active jobs, oldest deadline first.
            models.Index(
                fields=["deadline_at", "id"], condition=_UNFINISHED, name="jobs_unfinished_by_deadline"
            ),
            # The admin's lists, in the order of ending; and the figures of the dashboard.
            models.Index(
                fields=["-finished_at", "-id"],
                condition=Q(finished_at__isnull=False),
                name="jobs_finished",
            ),
            # A list of one of the rarer states. A job that succeeds at once never enters it.
            models.Index(
                fields=["ended_as", "-created_at", "-id"],
                condition=~Q(ended_as=""),
                name="jobs_ended_otherwise",
            ),
            models.Index(fields=["-created_at", "-id"], condition=Q(is_late=True), name="jobs_late"),
            # A list of ended jobs, as of those that succeeded: it begins behind the backlog.
            models.Index(
                fields=["-created_at", "-id"],
                condition=Q(finished_at__isnull=False),
                name="jobs_ended_newest",
            ),
            # Lists of one author's changes and findings.
            models.Index(fields=["author", "-created_at"], condition=~Q(author=""), name="jobs_of_author"),
            # Full-text search. Ended jobs, whose entries stay; and those that are fetched and at work, in an
            # index that stays small: each change of them costs an entry there.
            text_index("title", "author", name="jobs_words", condition=Q(finished_at__isnull=False)),
            text_index(
                "title",
                "author",
                name="jobs_words_unfinished",
                condition=_UNFINISHED & ~Q(author="", title=""),
            ),
        ]
        triggers = [
            fsm(JOB_TRANSITIONS),
            _replay_needs_letter(),
            _keeps_how_it_ended(),
        ]

    def __str__(self) -> str:
        return f"{self.changelist_id} v{self.review_version}"

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE_JOB

    def versions(self) -> models.QuerySet[ReviewJob]:
        """Return the reviews of the same changelist in the same series, this one included."""
        return ReviewJob.objects.filter(changelist_id=self.changelist_id, series=self.series)


class StageRun(models.Model):
    """One stage of one job with its own attempt budget (guarantee G14)."""

    PARTS = "$PARTS"  # in `progress`, beside the answers: how many of how many parts are finished

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
    progress = models.JSONField(db_default={})  # finished parts, so that a retry does not pay for them again
    # The lease of the worker that was running it when the job ended: its result is stored, changing no state.
    ended_token = models.UUIDField(null=True, blank=True)

    class Meta:
        db_table = "stage_runs"
        constraints = [
            models.UniqueConstraint(fields=["job", "stage"], name="stage_runs_one_per_stage"),
            models.CheckConstraint(condition=Q(attempts__lte=F("max_attempts")), name="stage_runs_budget"),
            # Answers of a model: needed while the stage runs, kept as an artifact when it succeeded.
            models.CheckConstraint(
                condition=Q(status__in=[status.value for status in UNFINISHED_STAGE]) | Q(progress={}),
                name="stage_runs_ended_without_progress",
            ),
            models.CheckConstraint(
                condition=Q(
                    status=StageStatus.RUNNING, lease_token__isnull=False, lease_expires_at__isnull=False
                )
                | (~Q(status=StageStatus.RUNNING) & Q(lease_token__isnull=True)),
                name="stage_runs_running_is_leased",
            ),
        ]
        indexes = [
            # The admin's filter by error class. Success never touches it.
            models.Index(
                fields=["error_class", "job"], condition=~Q(error_class=""), name="stage_runs_failed"
            ),
        ]
        triggers = [fsm(STAGE_TRANSITIONS)]

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
            # The admin's list and the figures of the dashboard. A closing attempt changes neither.
            models.Index(fields=["-started_at", "-id"], name="attempts_newest"),
            models.Index(
                fields=["error_class", "-started_at", "-id"],
                condition=~Q(error_class=""),
                name="attempts_failed",
            ),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} ({self.outcome})"


class JobEvent(models.Model):
    """An event of a job besides its attempts: append-only."""

    class Kind(models.TextChoices):
        TIMED_OUT = "timed_out", "Timed out"  # the deadline passed
        CANCELLED = "cancelled", "Cancelled"
        SUPERSEDED = "superseded", "Superseded"
        LATE_STORED = "late_stored", "Late result stored"  # a worker finished after the job had ended
        LATE_ACCEPTED = "late_accepted", "Late result accepted"  # an operator had it delivered
        NOT_TOLD = "not_told", "Not notified"  # recipients who are muted, or whose threshold is higher
        DELIVERY_DECIDED = "decided", "Delivery decided"  # an operator's decision about an uncertain delivery
        DATA_EDITED = "data_edited", "Data edited"  # before a replay; a second person approved it
        TASK_DECIDED = "task_decided", "Agent task decided"  # an operator expired it or offered it again
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
