"""Rows for tests: one factory a model, each valid as it stands.

`ReviewJobFactory()` alone is a job row. `job_with_stages()` adds its three stage runs, as
intake does. States are set directly here and only here: the product writes them through
`intake`, `pipeline`, `delivery.store` and `workflow`.
"""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import factory
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.test import Client
from factory.django import DjangoModelFactory

from criticizer.models import OutboxMessage, SecurityEvent, WorkerCluster
from criticizer.resilience.failures import ErrorClass
from deadletters.models import DeadLetter, DeadLetterEvent, DeadLetterGroup, DeadLetterPayload
from deadletters.states import OPEN_LETTER, Category, LetterAction, LetterStatus
from notifications.models import Delivery, DeliveryAttempt, Suppression
from notifications.states import DeliveryStatus
from reviews.artifacts import store
from reviews.models import (
    AllowListEntry,
    ApiKey,
    Artifact,
    Attempt,
    CoverageRow,
    FindingEvent,
    FindingFate,
    FindingRow,
    ReviewJob,
    ScanTarget,
    SkippedPath,
    StageRun,
    TeamRule,
)
from reviews.pipeline import StageClaim
from reviews.sources import change_codec
from reviews.sources.base import Action, Change, ChangeStatus, FileChange
from reviews.states import ACTIVE_JOB, STAGE_ORDER, AttemptOutcome, JobStatus, Stage, StageStatus

PASSWORD = "correct horse battery staple"


def _now() -> datetime:
    return datetime.now(UTC)


class _Row(DjangoModelFactory[Any]):
    """Factory whose rows have all that the database filled in, such as `row.created_at`.

    INSERT returns all columns.
    """

    class Meta:
        abstract = True

    @classmethod
    def _create(cls, model_class: Any, *args: Any, **kwargs: Any) -> Any:
        meta = model_class._meta
        returned, meta.db_returning_fields = meta.db_returning_fields, meta.local_concrete_fields
        try:
            row = super()._create(model_class, *args, **kwargs)
        finally:
            meta.db_returning_fields = returned
        for field in meta.concrete_fields:
            if field.is_relation and field.is_cached(row):
                field.delete_cached_value(row)  # as it was given, not as it is stored
        return row


class UserFactory(DjangoModelFactory[Any]):
    """bob the reviewer, who sees every file. `is_staff=True` and groups make an operator.

    `reads=False` makes somebody without any role.
    """

    class Meta:
        model = get_user_model()
        skip_postgeneration_save = True

    username = factory.Sequence(lambda n: f"bob{n}")
    password = factory.django.Password(PASSWORD)

    @factory.post_generation
    def reads(self, create: bool, extracted: object, **_: Any) -> None:
        if create and extracted is not False:
            names = ("view_reviewjob", "view_all_files")
            found = Permission.objects.filter(content_type__app_label="reviews", codename__in=names)
            self.user_permissions.add(*found)  # type: ignore[attr-defined]


def staff_client(name: str, role: str, **fields: Any) -> Client:
    """Return a client at which one of the staff, who has the role, is logged in."""
    user = UserFactory(username=name, **{"is_staff": True, **fields})
    user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    return client


class OutboxMessageFactory(_Row):
    class Meta:
        model = OutboxMessage

    aggregate_type = "stage_run"
    aggregate_id = factory.Sequence(lambda n: n + 1)
    message_type = "run_stage"
    queue = "stages"


class WorkerClusterFactory(_Row):
    """A live cluster; `beat_at` in the past makes a dead one."""

    class Meta:
        model = WorkerCluster

    queue = "stages"
    host = "worker.example.com"
    pid = factory.Sequence(lambda n: 1000 + n)
    workers = 2


class SecurityEventFactory(_Row):
    class Meta:
        model = SecurityEvent

    kind = SecurityEvent.Kind.PATH_DENIED
    changelist_id = "12345"
    path = "//depot/secret/plan.txt"
    reason = "outside the allow-list"


class ReviewJobFactory(_Row):
    """A queued job; a final `status` brings its `finished_at` along."""

    class Meta:
        model = ReviewJob

    idempotency_key = factory.Sequence(lambda n: f"key-{n}")
    request_sha256 = factory.LazyAttribute(lambda o: hashlib.sha256(o.idempotency_key.encode()).hexdigest())
    changelist_id = factory.Sequence(lambda n: str(10_000 + n))
    review_version = 1
    recipients = factory.LazyFunction(lambda: ["mail:ann@example.com"])
    status = JobStatus.QUEUED
    deadline_at = factory.LazyFunction(lambda: _now() + timedelta(minutes=20))
    finished_at = factory.LazyAttribute(lambda o: None if o.status in ACTIVE_JOB else _now())


class StageRunFactory(_Row):
    """A pending stage; `status=RUNNING` brings its lease along."""

    class Meta:
        model = StageRun

    job = factory.SubFactory(ReviewJobFactory)
    stage = Stage.FETCH
    status = StageStatus.PENDING
    attempts = factory.LazyAttribute(lambda o: 0 if o.status == StageStatus.PENDING else 1)
    lease_token = factory.LazyAttribute(lambda o: uuid.uuid4() if o.status == StageStatus.RUNNING else None)
    lease_expires_at = factory.LazyAttribute(
        lambda o: _now() + timedelta(seconds=30) if o.status == StageStatus.RUNNING else None
    )


class AttemptFactory(_Row):
    class Meta:
        model = Attempt

    stage_run = factory.SubFactory(StageRunFactory)
    number = factory.Sequence(lambda n: n + 1)
    worker = "worker.example.com:1000"
    outcome = AttemptOutcome.STARTED
    finished_at = factory.LazyAttribute(lambda o: None if o.outcome == AttemptOutcome.STARTED else _now())


class FindingFateFactory(_Row):
    class Meta:
        model = FindingFate

    attempt = factory.SubFactory(AttemptFactory)
    job = factory.LazyAttribute(lambda o: o.attempt.stage_run.job)
    part = 1
    turn = 1
    place = factory.Sequence(lambda n: n)
    fate = "refuted"
    reason = "Line 3: The list is never empty here."
    file = "//depot/main/app.py"
    line = 12
    severity = "medium"
    title = "Division by zero when the list is empty"


class FindingRowFactory(_Row):
    class Meta:
        model = FindingRow

    job = factory.SubFactory(ReviewJobFactory)
    file = "//depot/main/app.py"
    line = 12
    end_line = 12
    severity = "high"
    category = "bug"
    title = "Division by zero when the list is empty"
    message = "`len(rows)` is 0 for a new account."
    source = "llm"


class FindingEventFactory(_Row):
    """A verdict; of a stored finding with `identity` and `job` of its row."""

    class Meta:
        model = FindingEvent

    identity = factory.LazyFunction(uuid.uuid4)
    job = factory.SubFactory(ReviewJobFactory)
    file = "//depot/main/app.py"
    kind = "wrong"
    actor = "carol"


class CoverageRowFactory(_Row):
    class Meta:
        model = CoverageRow

    job = factory.SubFactory(ReviewJobFactory)
    file = factory.Sequence(lambda n: f"//depot/main/file{n}.py")
    status = "reviewed"


class ArtifactFactory(_Row):
    """The row only; no file lies behind it."""

    class Meta:
        model = Artifact

    job = factory.SubFactory(ReviewJobFactory)
    kind = Artifact.Kind.CHANGE
    is_raw = True
    name = factory.Sequence(lambda n: f"artifact-{n}")
    sha256 = "0" * 64
    size_bytes = 1
    expires_at = factory.LazyFunction(lambda: _now() + timedelta(days=7))


def stored_change(job: ReviewJob, *paths: str) -> Artifact:
    """Keep a fetched change that adds these files, as the stage fetch does; one file by default."""
    files = tuple(FileChange(path, Action.ADD, new_text="text\n") for path in paths or ("//depot/main/a.py",))
    made = Change(job.changelist_id, "perforce", "ann", "", ChangeStatus.SUBMITTED, 0, "", files)
    claim = StageClaim(1, uuid.uuid4(), 1, Stage.FETCH, 1, 5, 1, job.pk, job.changelist_id, 1)
    store.store(claim, Artifact.Kind.CHANGE, change_codec.to_json(made)).save()
    return Artifact.objects.filter(job=job).latest("id")


class ApiKeyFactory(_Row):
    """A key nobody holds: its hash belongs to no text."""

    class Meta:
        model = ApiKey

    name = factory.Sequence(lambda n: f"key-{n}")
    role = ApiKey.Role.TRIGGER
    key_sha256 = factory.Sequence(lambda n: hashlib.sha256(f"nobody-{n}".encode()).hexdigest())
    prefix = factory.Sequence(lambda n: f"test{n}"[:12])


class AllowListEntryFactory(_Row):
    class Meta:
        model = AllowListEntry

    kind = AllowListEntry.Kind.INCLUDE
    pattern = factory.Sequence(lambda n: f"//depot/main/part{n}/...")
    reason = "in scope since TICKET-1"


class TeamRuleFactory(_Row):
    class Meta:
        model = TeamRule

    name = factory.Sequence(lambda n: f"rule-{n}")
    pattern = "//depot/main/..."
    text = "Money is never a float."
    owner = "payments"
    reason = "TICKET-2"


class SkippedPathFactory(_Row):
    class Meta:
        model = SkippedPath

    pattern = factory.Sequence(lambda n: f"//depot/main/docs{n}/...")
    reason = "TICKET-3"


class ScanTargetFactory(_Row):
    class Meta:
        model = ScanTarget

    path = factory.Sequence(lambda n: f"//demo/docs{n}/...")
    reason = "TICKET-4"


class DeliveryFactory(_Row):
    """A pending delivery of its job; `status="sent"` brings the markers along."""

    class Meta:
        model = Delivery

    job = factory.SubFactory(ReviewJobFactory)
    changelist_id = factory.SelfAttribute("job.changelist_id")
    review_version = factory.SelfAttribute("job.review_version")
    recipient = factory.Sequence(lambda n: f"mail:ann{n}@example.com")
    status = DeliveryStatus.PENDING
    token = factory.LazyFunction(uuid.uuid4)
    provider = factory.LazyAttribute(lambda o: o.recipient.partition(":")[0])
    notification_id = factory.LazyAttribute(
        lambda o: f"<{o.token}@example.com>" if o.status == DeliveryStatus.SENT else ""
    )
    notified_at = factory.LazyAttribute(lambda o: _now() if o.status == DeliveryStatus.SENT else None)


class SuppressionFactory(_Row):
    class Meta:
        model = Suppression

    address = factory.Sequence(lambda n: f"gone{n}@example.com")
    reason = Suppression.Reason.BOUNCED
    provider = "resend"
    event_id = factory.Sequence(lambda n: f"event-{n}")


class DeliveryAttemptFactory(_Row):
    class Meta:
        model = DeliveryAttempt

    delivery = factory.SubFactory(DeliveryFactory)
    number = factory.Sequence(lambda n: n + 1)


class DeadLetterGroupFactory(_Row):
    """An open group of failures; the same fingerprint is the same group."""

    class Meta:
        model = DeadLetterGroup
        django_get_or_create = ("fingerprint",)

    fingerprint = factory.LazyAttribute(
        lambda o: "v1:" + hashlib.sha256(f"{o.stage} {o.error_class}".encode()).hexdigest()[:32]
    )
    stage = Stage.FETCH
    error_class = ErrorClass.NOT_FOUND
    source = "p4:unset"
    normalized_message = "the server does not know the changelist"
    total_count = 1


_STEPS = [
    LetterStatus.TRIAGED,
    LetterStatus.REMEDIATED,
    LetterStatus.VALIDATED,
    LetterStatus.REPLAYING,
    LetterStatus.VERIFYING,
    LetterStatus.RESOLVED,
]
# What each step leaves behind; the database wants it of every later state.
_LEFT = {
    LetterStatus.TRIAGED: {"category": Category.DATA, "triaged_by": "ann", "triaged_at": _now},
    LetterStatus.REMEDIATED: {
        "evidence_note": "OPS-1: mended",
        "remediated_by": "ann",
        "remediated_at": _now,
    },
    LetterStatus.VALIDATED: {"validation_ok": True, "validated_by": "ann", "validated_at": _now},
    LetterStatus.REPLAYING: {"replay_reason": "OPS-1", "replayed_by": "ann", "replayed_at": _now},
    LetterStatus.VERIFYING: {},
    LetterStatus.RESOLVED: {
        "verified_by": "ann",
        "verified_at": _now,
        "resolution": "OPS-1: the key was renewed",
        "resolved_by": "ann",
    },
}


def _way(status: LetterStatus) -> list[LetterStatus]:
    """Return the states between a new letter and `status`, that included."""
    if status in _STEPS:
        return _STEPS[: _STEPS.index(status) + 1]
    before = _way(LetterStatus.VALIDATED) if status == LetterStatus.REPLAY_PENDING else []
    return [*before, *([status] if status != LetterStatus.NEW else [])]


class DeadLetterFactory(_Row):
    """A new letter of a dead-lettered job; another `status` brings what its steps leave behind."""

    class Meta:
        model = DeadLetter

    job = factory.SubFactory(ReviewJobFactory, status=JobStatus.DEAD_LETTERED)
    group = factory.SubFactory(
        DeadLetterGroupFactory,
        stage=factory.SelfAttribute("..stage"),
        error_class=factory.SelfAttribute("..error_class"),
    )
    stage = Stage.FETCH
    status = LetterStatus.NEW
    error_class = ErrorClass.NOT_FOUND
    code = "CRITICIZER_E107"
    severity = "high"
    detail = "the server does not know the changelist"
    attempts = 1
    first_failure_at = factory.LazyFunction(_now)
    last_failure_at = factory.LazyFunction(_now)
    closed_at = factory.LazyAttribute(lambda o: None if o.status in OPEN_LETTER else _now())

    @classmethod
    def _create(cls, model_class: Any, *args: Any, **kwargs: Any) -> Any:
        payload = {
            "last_stack": kwargs.pop("last_stack", ""),
            "sanitized_context": kwargs.pop("sanitized_context", {}),
        }
        status, closed_at = LetterStatus(kwargs.pop("status")), kwargs.pop("closed_at")
        way = _way(status)
        for step in way:
            for field, value in _LEFT.get(step, {}).items():
                kwargs.setdefault(field, value() if callable(value) else value)
        letter = super()._create(model_class, *args, **kwargs)
        # Born new, as the database wants it.
        for step in way:
            closed = {"closed_at": closed_at} if step == status else {}
            model_class.objects.filter(pk=letter.pk).update(status=step, **closed)
        if way:
            letter.refresh_from_db()
        DeadLetterPayload.objects.create(letter=letter, **payload)
        return letter


class DeadLetterEventFactory(_Row):
    class Meta:
        model = DeadLetterEvent

    letter = factory.SubFactory(DeadLetterFactory)
    action = LetterAction.CREATED
    actor = "pipeline"


def job_with_stages(**fields: Any) -> ReviewJob:
    """Make a job with its three stage runs, all pending."""
    job: ReviewJob = ReviewJobFactory(**fields)
    for stage in STAGE_ORDER:
        StageRunFactory(job=job, stage=stage)
    return job
