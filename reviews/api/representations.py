"""Jobs and dead letters as the API answers them: their rows, read by the fields that `schemas` describes.

The number of queries is the same however many jobs or dead letters there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Case, F, OuterRef, Q, QuerySet, Subquery, When
from django.urls import reverse
from rest_framework.serializers import BaseSerializer, Serializer

from criticizer.resilience.retry import MAX_ATTEMPTS_PER_STAGE
from deadletters.models import DeadLetter, DeadLetterEvent
from deadletters.states import CLOSED_LETTER
from notifications.models import Delivery
from notifications.states import DeliveryStatus
from reviews.api import schemas
from reviews.intake.review_requests import IntakeResult, ReviewRequest
from reviews.models import CoverageRow, FindingRow, RecipientMode, ReviewJob, StageRun
from reviews.recipients.resolve import no_recipients_reason
from reviews.recipients.scopes import EVERYTHING, Scope
from reviews.states import STAGE_ORDER, JobStatus, Stage, StageStatus

Json = dict[str, Any]


def _read(shape: type[Serializer[Any]], rows: QuerySet[Any], *more: str, omit: str = "") -> QuerySet[Any]:
    """Return the rows, oldest first, as dictionaries of `more` and the serializer's own values.

    These are its fields but nested ones, those of some answers only, and the one to `omit`.
    """
    fields = shape().fields.items()
    own = (name for name, field in fields if field.required and not isinstance(field, BaseSerializer))
    return rows.order_by("pk").values(*more, *(name for name in own if name != omit))


_OPEN_LETTER = (
    DeadLetter.objects.filter(job=OuterRef("pk"))
    .exclude(status__in=CLOSED_LETTER)
    .order_by("-pk")
    .values("pk")
)
_OF_DIGEST = {
    "waits_until": Case(When(status=DeliveryStatus.PENDING, digest__closed_at=None, then=F("digest__due_at")))
}
_OF_JOB_AND_PAYLOAD = {
    "changelist_id": F("job__changelist_id"),
    "review_version": F("job__review_version"),
    "last_stack": F("payload__last_stack"),
    "sanitized_context": F("payload__sanitized_context"),
}
_JOBS = _read(
    schemas.JobSerializer,
    ReviewJob.objects.annotate(dead_letter=Subquery(_OPEN_LETTER[:1])),
    "recipients", "recipients_are", omit="stage",
)  # fmt: skip
_STAGES = _read(schemas.StageSerializer, StageRun.objects.all(), "job_id")
_DELIVERIES = _read(schemas.DeliverySerializer, Delivery.objects.annotate(**_OF_DIGEST), "job_id")
_FINDINGS = _read(schemas.FindingSerializer, FindingRow.objects.all(), "job_id")
_COVERAGE = _read(schemas.CoverageSerializer, CoverageRow.objects.all(), "job_id")
_LETTERS = _read(schemas.DeadLetterSerializer, DeadLetter.objects.annotate(**_OF_JOB_AND_PAYLOAD))
_EVENTS = _read(schemas.LetterEventSerializer, DeadLetterEvent.objects.all(), "letter_id")


def jobs(ids: Sequence[int], scope: Scope = EVERYTHING) -> list[Json]:
    """Return the jobs with these ids, in this order; unknown ids are left out.

    Findings and coverage are those of files in `scope`. The caller checks that the jobs may be seen.
    """
    # The jobs first: one that is read as succeeded then has all its findings.
    rows = list(_JOBS.filter(pk__in=ids))
    in_scope = scope.files()
    in_depot = Q() if scope.everything else Q(file__startswith="//")
    children = {
        "stages": _by_parent("job_id", _STAGES.filter(job__in=ids)),
        "deliveries": _by_parent("job_id", _DELIVERIES.filter(job__in=ids)),
        "findings": _by_parent("job_id", _FINDINGS.filter(in_scope, job__in=ids)),
        "coverage": _by_parent("job_id", _COVERAGE.filter(in_scope, in_depot, job__in=ids)),
    }
    found = {
        row["id"]: _job(row, {name: rows_of.get(row["id"], []) for name, rows_of in children.items()})
        for row in rows
    }
    return [found[job_id] for job_id in ids if job_id in found]


def created_job(request: ReviewRequest, result: IntakeResult) -> Json:
    """Return a job that this request has just created, without a query: nothing has happened to it yet."""
    row = {
        "id": result.job_id,
        "idempotency_key": request.idempotency_key,
        "changelist_id": request.changelist_id,
        "review_version": request.review_version,
        "status": JobStatus.QUEUED.value,
        "deadline_at": result.deadline_at,
        "created_at": result.created_at,
        "finished_at": None,
        "is_late": False,
        "dead_letter": None,
        "recipients": request.recipients,
        "recipients_are": RecipientMode.GIVEN.value,
    }
    stages = [
        {
            "stage": stage.value,
            "status": StageStatus.PENDING.value,
            "attempts": 0,
            "max_attempts": MAX_ATTEMPTS_PER_STAGE,
            "next_attempt_at": None,
            "error_class": "",
        }
        for stage in STAGE_ORDER
    ]
    return _job(row, {"stages": stages, "deliveries": [], "findings": [], "coverage": []})


def letters(ids: Sequence[int]) -> list[Json]:
    """Return the dead letters with these ids, in this order; unknown ids are left out."""
    rows = list(_LETTERS.filter(pk__in=ids))
    events = _by_parent("letter_id", _EVENTS.filter(letter__in=ids))
    found = {
        row["id"]: {
            **_shown(row),
            "last_stack": row["last_stack"] or "",
            "sanitized_context": row["sanitized_context"] or {},
            "events": events.get(row["id"], []),
            "links": {
                "self": _absolute("api-dead-letter", row["id"]),
                "job": _absolute("api-review", row["job"]),
            },
        }
        for row in rows
    }
    return [found[letter_id] for letter_id in ids if letter_id in found]


def _job(row: Json, children: dict[str, list[Json]]) -> Json:
    recipients, mode = row.pop("recipients"), row.pop("recipients_are")
    children["stages"].sort(key=lambda run: STAGE_ORDER.index(run["stage"]))
    answer = {
        **_shown(row),
        # The first stage that has not succeeded, or the last one when all have.
        "stage": next(
            (run["stage"] for run in children["stages"] if run["status"] != StageStatus.SUCCEEDED),
            Stage.NOTIFY.value,
        ),
        **children,
        "links": {"self": _absolute("api-review", row["id"]), "html": _absolute("reviews:detail", row["id"])},
    }
    reason = no_recipients_reason(row["status"], recipients, mode, len(children["deliveries"]))
    return {**answer, "message": reason} if reason else answer


def _by_parent(parent: str, rows: Iterable[Json]) -> dict[int, list[Json]]:
    grouped: dict[int, list[Json]] = {}
    for row in rows:
        grouped.setdefault(row.pop(parent), []).append(_shown(row))
    return grouped


def _shown(row: Json) -> Json:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


def _absolute(view: str, row_id: int) -> str:
    return settings.BASE_URL.rstrip("/") + reverse(view, args=[row_id])
