"""Jobs and dead letters as the API answers them.

Their rows are read by the fields that `schemas` describes. The number of queries is the same however many
jobs or dead letters there are, and the rows of an answer are bounded however large a change is (guarantee
G152). What a key may not see is left out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import (
    Case,
    Count,
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
    Window,
)
from django.db.models.functions import RowNumber
from django.urls import reverse
from rest_framework.serializers import BaseSerializer, Serializer

from criticizer.resilience.retry import MAX_ATTEMPTS_PER_STAGE
from deadletters.models import DeadLetter, DeadLetterEvent
from deadletters.states import CLOSED_LETTER
from notifications.models import Delivery
from notifications.states import DeliveryStatus
from reviews import job_configuration, linter_results
from reviews.api import dead_letter_schemas, schemas
from reviews.api.auth import ApiClient
from reviews.api.pagination import COUNT_LIMIT
from reviews.drift.wording import as_counted
from reviews.intake.review_requests import IntakeResult, ReviewRequest
from reviews.models import CoverageRow, FindingFate, FindingRow, RecipientMode, ReviewJob, StageRun
from reviews.recipients.recipient_reports import masked
from reviews.recipients.resolve import no_recipients_reason
from reviews.recipients.viewing_scopes import Scope
from reviews.reports import banner_within
from reviews.reviewers.base import Fate
from reviews.roles import READS_ADDRESSES
from reviews.states import STAGE_ORDER, JobStatus, Stage, StageStatus
from reviews.verdicts import of_findings

Json = dict[str, Any]

MAX_ROWS = 1000  # of deliveries, findings or files in one answer
MAX_LISTED = 100  # deliveries of each job in a list
MAX_FATES = 50
_NO_RESULTS: dict[str, list[Json]] = {"findings": [], "fates": [], "coverage": []}


def _read(
    shape: type[Serializer[Any]], rows: QuerySet[Any], *more: str, omit: Sequence[str] = ()
) -> QuerySet[Any]:
    """Return the rows, oldest first, as dictionaries of `more` and the serializer's own values.

    These are its fields but nested ones, those of some answers only, and those to `omit`.
    """
    fields = shape().fields.items()
    own = (name for name, field in fields if field.required and not isinstance(field, BaseSerializer))
    return rows.order_by("pk").values(*more, *(name for name in own if name not in omit))


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
    ReviewJob.objects.annotate(dead_letter=Subquery(_OPEN_LETTER[:1]), partial=Q(stopped__gt="")),
    "recipients", "recipients_are", "requested_by", "series", "scope_prefixes", "stopped", "configuration",
    "documents",
    omit=("stage", "findings_left_out", "coverage_left_out"),
)  # fmt: skip
_STAGES = _read(schemas.StageSerializer, StageRun.objects.all(), "job_id")
_DELIVERIES = _read(schemas.DeliverySerializer, Delivery.objects.annotate(**_OF_DIGEST), "job_id")
_FINDINGS = _read(schemas.FindingSerializer, FindingRow.objects.annotate(**of_findings()), "job_id")
_FATES = (
    FindingFate.objects.order_by()
    .annotate(why=Case(When(fate=Fate.DROPPED.value, then=F("reason")), default=Value("")))
    .values("fate", "why")
    .annotate(count=Count("pk"))
    .order_by("fate", "why")
)
_COVERAGE = _read(schemas.CoverageSerializer, CoverageRow.objects.all(), "job_id")
_LETTERS = _read(dead_letter_schemas.DeadLetterSerializer, DeadLetter.objects.annotate(**_OF_JOB_AND_PAYLOAD))
_EVENTS = _read(dead_letter_schemas.LetterEventSerializer, DeadLetterEvent.objects.all(), "letter_id")


class _CountUpTo(Subquery):
    """The number of rows of a sliced query."""

    template = "(SELECT count(*) FROM (%(subquery)s) counted)"
    output_field = IntegerField()


def job(job_id: int, client: ApiClient) -> Json | None:
    """Return a job with its findings and files in the client's scope; None if unknown.

    It has at most MAX_ROWS of each. The caller checks that the job may be seen.
    """
    # The job first: one that is read as succeeded then has all its findings.
    row = _rows([job_id], client).first()
    if row is None:
        return None
    children = {
        "stages": _of_job(_STAGES.filter(job=job_id)),
        "deliveries": _of_job(_DELIVERIES.filter(job=job_id)[:MAX_ROWS]),
        "fates": _fates(job_id, client.scope),
        **{
            name: _of_job(rows.filter(job=job_id)[:MAX_ROWS]) for name, rows in _results(client.scope).items()
        },
    }
    return _job(row, children, client)


def _fates(job_id: int, scope: Scope) -> list[Json]:
    """Return how the raw findings of the attempt with a result ended, by fate and reason."""
    newest = FindingFate.objects.filter(job=job_id).order_by("-attempt_id").values("attempt_id")[:1]
    rows = _FATES.filter(scope.files(), job=job_id, attempt=Subquery(newest))[:MAX_FATES]
    return [{"fate": row["fate"], "reason": row["why"], "count": row["count"]} for row in rows]


def job_rows(ids: Sequence[int], client: ApiClient) -> list[Json]:
    """Return the jobs with these ids, in this order, with counts instead of findings and files.

    Unknown ids are left out.
    """
    place = Window(RowNumber(), partition_by="job_id", order_by="pk")
    stages = _by_parent("job_id", _STAGES.filter(job__in=ids))
    deliveries = _by_parent(
        "job_id", _DELIVERIES.alias(place=place).filter(job__in=ids, place__lte=MAX_LISTED)
    )
    found = {}
    for row in _rows(ids, client):
        children = {"stages": stages.get(row["id"], []), "deliveries": deliveries.get(row["id"], [])}
        found[row["id"]] = _job(row, {**children, **_NO_RESULTS}, client)
    return [found[job_id] for job_id in ids if job_id in found]


def results_page(name: str, job_id: int, after: int, scope: Scope) -> Json:
    """Return a page of a job's `findings` or `coverage` in the scope.

    The page has the rows with an id above `after`.
    """
    return _page(_results(scope)[name].filter(job=job_id), name, job_id, after)


def linter_page(job_id: int, after: int, scope: Scope) -> Json:
    """Return a page of what linters reported on a job's changed lines, in the scope."""
    return _page(
        _read(schemas.LinterResultSerializer, linter_results.visible(job_id, scope)),
        "evidence",
        job_id,
        after,
    )


def _page(rows: QuerySet[Any], name: str, job_id: int, after: int) -> Json:
    rows = rows.filter(pk__gt=after).annotate(row_id=F("pk"))
    shown = _of_job(rows[: MAX_ROWS + 1])
    places = [row.pop("row_id") for row in shown]
    address = absolute(f"api-review-{name}", job_id)
    more = f"{address}?after={places[MAX_ROWS - 1]}" if len(shown) > MAX_ROWS else None
    return {"next": more, "results": shown[:MAX_ROWS]}


def finding(finding_id: int) -> Json:
    """Return a finding. The caller checks that it may be seen."""
    return _of_job(_FINDINGS.filter(pk=finding_id))[0]


def finding_rows(ids: Sequence[int]) -> list[Json]:
    """Return findings with their reviews, in this order.

    The caller checks that they may be seen.
    """
    rows = _FINDINGS.filter(pk__in=ids).annotate(
        review=F("job_id"), changelist_id=F("job__changelist_id"), review_version=F("job__review_version")
    )
    found = {row["id"]: row for row in _of_job(rows)}
    return [found[finding_id] for finding_id in ids if finding_id in found]


def _results(scope: Scope) -> dict[str, QuerySet[Any]]:
    """Return the findings and the coverage in a scope."""
    in_depot = Q() if scope.everything else Q(file__startswith="//")
    return {
        "findings": _FINDINGS.filter(scope.findings()),
        "coverage": _COVERAGE.filter(scope.files(), in_depot),
    }


def _rows(ids: Sequence[int], client: ApiClient) -> QuerySet[Any]:
    counts = {
        f"{name}_left_out": _CountUpTo(rows.filter(job=OuterRef("pk")).values("pk")[:COUNT_LIMIT])
        for name, rows in _results(client.scope).items()
    }
    rows: QuerySet[Any] = _JOBS.filter(pk__in=ids).annotate(**counts)
    return rows


def created_job(request: ReviewRequest, result: IntakeResult, client: ApiClient) -> Json:
    """Return a job that this request has just created, without a query.

    Nothing has happened to it yet.
    """
    row: Json = {
        "id": result.job_id,
        "idempotency_key": request.idempotency_key,
        "changelist_id": request.changelist_id,
        "review_version": request.review_version,
        "status": JobStatus.QUEUED.value,
        "deadline_at": result.deadline_at,
        "created_at": result.created_at,
        "finished_at": None,
        "is_late": False,
        "partial": False,
        "stopped": "",
        "banner": "",
        "footer": "",
        "dead_letter": None,
        "findings_left_out": 0,
        "coverage_left_out": 0,
        "recipients": request.recipients,
        "recipients_are": RecipientMode.GIVEN.value,
        "requested_by": request.requested_by,
        "series": request.series,
        "scope_prefixes": request.scope_prefixes,
        "configuration": [],
        "documents": {},
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
    return _job(row, {"stages": stages, "deliveries": [], **_NO_RESULTS}, client)


def letters(ids: Sequence[int], scope: Scope) -> list[Json]:
    """Return the dead letters with these ids, in this order; unknown ids are left out.

    Free text of a failure may name any file of the change, so only those who see every file get it.
    """
    rows = list(_LETTERS.filter(pk__in=ids))
    events = _by_parent("letter_id", _EVENTS.filter(letter__in=ids))
    if not scope.everything:
        for row in rows:
            row |= {"detail": "", "last_stack": "", "sanitized_context": {}, "payload_reference": ""}
        for event in (event for of_letter in events.values() for event in of_letter):
            event["reason"] = ""
    found = {
        row["id"]: {
            **_shown(row),
            "last_stack": row["last_stack"] or "",
            "sanitized_context": row["sanitized_context"] or {},
            "events": events.get(row["id"], []),
            "links": {
                "self": absolute("api-dead-letter", row["id"]),
                "job": absolute("api-review", row["job"]),
            },
        }
        for row in rows
    }
    return [found[letter_id] for letter_id in ids if letter_id in found]


def _job(row: Json, children: dict[str, list[Json]], client: ApiClient) -> Json:
    recipients, mode = row.pop("recipients"), row.pop("recipients_are")
    requester = row.pop("requested_by"), row.pop("series")
    limits = [f"{prefix}..." for prefix in row.pop("scope_prefixes")]
    configuration = job_configuration.as_read_by(row.pop("configuration"), client.scope)
    documents = as_counted(row.pop("documents")) if client.scope.everything else None
    children["stages"].sort(key=lambda run: STAGE_ORDER.index(run["stage"]))
    reason = no_recipients_reason(row["status"], recipients, mode, len(children["deliveries"]))
    for name in ("findings", "coverage"):
        row[f"{name}_left_out"] = max(0, row[f"{name}_left_out"] - len(children[name]))
    row["footer"] = row["footer"] if client.scope.everything else ""
    row["banner"] = banner_within(row["banner"], row.pop("stopped"), client.scope)
    if not client.requested(*requester):
        if not client.scope.everything:
            row["idempotency_key"], children["deliveries"] = "", []
        elif client.role not in READS_ADDRESSES:
            for delivery in children["deliveries"]:
                delivery["recipient"] = _without_secret(delivery["recipient"])
    answer = {
        **_shown(row),
        # The first stage that has not succeeded, or the last one when all have.
        "stage": next(
            (run["stage"] for run in children["stages"] if run["status"] != StageStatus.SUCCEEDED),
            Stage.NOTIFY.value,
        ),
        **children,
        "configuration": configuration,
        "documents": documents,
        "links": {"self": absolute("api-review", row["id"]), "html": absolute("reviews:detail", row["id"])},
    }
    if requester[1]:
        answer["limited_to"] = limits
    return {**answer, "message": reason} if reason else answer


def _without_secret(recipient: str) -> str:
    return masked(recipient) if recipient.startswith("webhook:") else recipient


def _by_parent(parent: str, rows: Iterable[Json]) -> dict[int, list[Json]]:
    grouped: dict[int, list[Json]] = {}
    for row in rows:
        grouped.setdefault(row.pop(parent), []).append(_shown(row))
    return grouped


def _of_job(rows: Iterable[Json]) -> list[Json]:
    return [_shown({name: value for name, value in row.items() if name != "job_id"}) for row in rows]


def _shown(row: Json) -> Json:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


def absolute(view: str, row_id: int) -> str:
    """Return the URL of a view of one row, with the host."""
    return settings.BASE_URL.rstrip("/") + reverse(view, args=[row_id])
