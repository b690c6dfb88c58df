"""Views of the HTTP API: parse, one domain call, render."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NoReturn

import django_filters
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponsePermanentRedirect
from django.urls import resolve
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_view
from rest_framework.exceptions import NotFound, PermissionDenied, Throttled, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from reviews import config, finding_exports, pipeline
from reviews.api import duplicate_hints, perforce_triggers, representations, schemas
from reviews.api import serializers as forms
from reviews.api.auth import client_of, refuse_role
from reviews.api.base import ApiView
from reviews.api.commit_retry import retry_lost_commit
from reviews.api.described import AFTER, ERRORS, IDEMPOTENCY_KEY, NOT_FOUND, PAGE, POST_ERRORS
from reviews.api.error_catalog import BUSY, STATE_CONFLICT, VERSION_CONFLICT
from reviews.api.errors import ApiError
from reviews.api.pagination import Pages
from reviews.intake import kept_requests, review_requests, unknown_changes
from reviews.intake.review_requests import IntakeOutcome, NoNextVersion, Overtaken, ReviewRequest
from reviews.models import FindingRow, ReviewJob
from reviews.recipients.recipient_reports import pull_request_prefix
from reviews.recipients.viewing_scopes import Scope
from reviews.roles import TRIGGER
from reviews.sources.registry import depot_prefix
from reviews.states import JobStatus


class ReviewFilter(django_filters.FilterSet):  # type: ignore[misc]
    changelist_id = django_filters.CharFilter(max_length=128)
    status = django_filters.ChoiceFilter(choices=JobStatus.choices)

    class Meta:
        model = ReviewJob
        fields = ["changelist_id", "status"]


class ReviewList(ApiView):
    query = ("changelist_id", "status", "page")

    @extend_schema(
        operation_id="reviews_list",
        summary="List reviews, newest first",
        parameters=[
            OpenApiParameter(
                "changelist_id", OpenApiTypes.STR, description="All versions of this changelist."
            ),
            OpenApiParameter(
                "status", OpenApiTypes.STR, enum=JobStatus.values, description="Reviews in this state."
            ),
            PAGE,
        ],
        responses={200: schemas.JobPageSerializer, **ERRORS, **NOT_FOUND},
    )
    def get(self, request: Request) -> Response:
        found = ReviewFilter(
            request.query_params, queryset=visible_jobs(request).order_by("-created_at", "-id")
        )
        if not found.is_valid():
            raise ValidationError(dict(found.errors))
        pages = Pages()
        return pages.get_paginated_response(
            representations.job_rows(pages.ids(found.qs, request, self), client_of(request))
        )

    @extend_schema(
        operation_id="reviews_create",
        summary="Request a review",
        description="Repeating a request is safe: the answer is the original job, with `duplicate` true, and"
        " with a `message` where the request asked for something else. To review a changelist again, post the"
        " next `review_version` with `rerun` true.",
        request=forms.ReviewRequestSerializer,
        parameters=[IDEMPOTENCY_KEY],
        responses={
            201: OpenApiResponse(schemas.JobSerializer, "Created"),
            200: OpenApiResponse(schemas.JobSerializer, "A repeated request: the original job"),
            409: OpenApiResponse(schemas.ErrorSerializer, "VERSION_CONFLICT"),
            **POST_ERRORS,
        },
    )
    def post(self, request: Request) -> Response:
        wanted = _review_request(request)
        _refuse_unknown(wanted, client_of(request).scope)
        result = retry_lost_commit(lambda: review_requests.request_review(wanted))
        kept_requests.keep_review(wanted, result)
        if result.outcome is IntakeOutcome.VERSION_CONFLICT:
            raise ApiError(
                VERSION_CONFLICT,
                {
                    "changelist_id": wanted.changelist_id,
                    "review_version": wanted.review_version,
                    "newest_version": result.newest_version,
                    "rerun": wanted.rerun,
                },
            )
        if result.outcome is IntakeOutcome.CREATED:
            job = representations.created_job(wanted, result, client_of(request))
            return Response(job, status=201, headers={"Location": job["links"]["self"]})
        job = retry_lost_commit(lambda: _job_or_404(result.job_id or 0, request))
        body: Any = request.data
        return Response(
            duplicate_hints.with_hints(job, wanted, result, names_recipients=bool(body.get("recipients")))
        )


def validated_with_key(shape: type[forms.StrictSerializer], request: Request) -> dict[str, Any]:
    """Return the values of a body whose idempotency key may be in the header.

    Raises ValidationError.
    """
    body = request.data
    header = request.headers.get("Idempotency-Key")
    if isinstance(body, Mapping) and header is not None:
        if body.get("idempotency_key", header) != header:
            raise ValidationError(
                {"idempotency_key": ["The field and the Idempotency-Key header differ. Send one of them."]}
            )
        body = {**body, "idempotency_key": header}
    return forms.validated(shape, body, "idempotency_key")  # the body holds the header by now


def _review_request(request: Request) -> ReviewRequest:
    values = validated_with_key(forms.ReviewRequestSerializer, request)
    client = client_of(request)
    repository = depot_prefix(values["changelist_id"])
    if repository is not None and not client.scope.may_touch(repository):
        _refuse_scope(request, f"no file below {repository} is in its scope")
    for recipient in values["recipients"]:
        # A comment there stands in the name of this installation, whatever it says.
        place = pull_request_prefix(recipient)
        if place is not None and not client.scope.may_touch(place):
            _refuse_scope(request, f"{recipient} is on a pull request below {place}")
        # Whose files another review has is not known here. Whether its own has any, its fetch decides.
        if recipient.startswith("swarm:") and not client.scope.everything:
            _, _, number = recipient.partition("-")
            if number != values["changelist_id"]:
                _refuse_scope(
                    request,
                    f"{recipient} is not the changelist under review: whose files it has is not known here;"
                    " leave it out, or use a key without prefixes",
                )
    return ReviewRequest(
        idempotency_key=values["idempotency_key"],
        changelist_id=values["changelist_id"],
        review_version=values["review_version"],
        recipients=tuple(dict.fromkeys(values["recipients"])) or config.default_recipients(),
        rerun=values["rerun"],
        from_scratch=values["from_scratch"],
        requested_by=client.actor,
        series=client.series,
        scope_prefixes=client.scope.prefixes,
    )


def _refuse_unknown(wanted: ReviewRequest, scope: Scope) -> None:
    """Raise for a change that cannot be reviewed here.

    Not if the request repeats one that was accepted.
    """
    why = unknown_changes.why_unknown(wanted.changelist_id, scope)
    is_over = unknown_changes.has_used_up_letters(wanted.requested_by)
    if not (why or is_over) or review_requests.find(wanted) is not None:
        return
    if why:
        raise ValidationError({"changelist_id": [f"{why}."]})
    raise Throttled(unknown_changes.WAIT_SECONDS)


def _refuse_scope(request: Request, why: str) -> NoReturn:
    refuse_role(request, "outside its prefixes")
    raise PermissionDenied(f"this API key is limited to its prefixes: {why}")


def _job_or_404(job_id: int, request: Request) -> representations.Json:
    """Return a job with the files the key may see. Raises NotFound, also where it may see none."""
    client = client_of(request)
    if not client.scope.everything:
        require_visible(job_id, request)
    job = representations.job(job_id, client)
    if job is None:
        raise NotFound
    return job


def visible_jobs(request: Request) -> QuerySet[ReviewJob]:
    """Return the jobs in the key's scope, and those it requested itself."""
    client = client_of(request)
    if client.scope.everything:
        return ReviewJob.objects.all()
    return ReviewJob.objects.filter(client.scope.of_jobs() | Q(series=client.series))


def require_visible(job_id: int, request: Request) -> None:
    """Raise NotFound unless the key may see the job."""
    if not visible_jobs(request).filter(pk=job_id).exists():
        raise NotFound


class ReviewDetail(ApiView):
    @extend_schema(
        operation_id="reviews_retrieve",
        summary="Read a review",
        responses={200: schemas.JobSerializer, **ERRORS, **NOT_FOUND},
    )
    def get(self, request: Request, job_id: int) -> Response:
        return Response(_job_or_404(job_id, request))


class _ReviewResults(ApiView):
    """All rows of one list of a review, in pages of a fixed size."""

    name: ClassVar[str]
    query = ("after",)

    def get(self, request: Request, job_id: int) -> Response:
        after = page_after(request)
        require_visible(job_id, request)
        return Response(representations.results_page(self.name, job_id, after, client_of(request).scope))


def page_after(request: Request) -> int:
    """Return the place at which the wanted page of a review's results begins."""
    after = request.query_params.get("after", "0")
    if not after.isdecimal() or len(after) > 18:
        raise ValidationError({"after": ["Not a place in this list: follow the URL of next."]})
    return int(after)


@extend_schema_view(
    get=extend_schema(
        operation_id="reviews_findings",
        summary="Read all findings of a review, in pages",
        parameters=[AFTER],
        responses={200: schemas.FindingPageSerializer, **ERRORS, **NOT_FOUND},
    )
)
class ReviewFindings(_ReviewResults):
    name = "findings"


@extend_schema_view(
    get=extend_schema(
        operation_id="reviews_coverage",
        summary="Read the coverage of all files of a review, in pages",
        parameters=[AFTER],
        responses={200: schemas.CoveragePageSerializer, **ERRORS, **NOT_FOUND},
    )
)
class ReviewCoverage(_ReviewResults):
    name = "coverage"


class ReviewFindingsFile(ApiView):
    @extend_schema(
        operation_id="reviews_findings_file",
        summary="Download the findings of a review for other tools",
        parameters=[OpenApiParameter("form", str, OpenApiParameter.PATH, enum=list(finding_exports.FORMS))],
        responses={
            (200, "application/sarif+json"): OpenApiTypes.OBJECT,
            (200, "application/json"): OpenApiTypes.ANY,  # rdjson is an object, GitLab's form a list
            (200, "text/csv"): OpenApiTypes.STR,
            **ERRORS,
            **NOT_FOUND,
        },
    )
    def get(self, request: Request, job_id: int, form: str) -> HttpResponse:
        require_visible(job_id, request)
        rows = FindingRow.objects.filter(client_of(request).scope.findings(), job=job_id).order_by("pk")
        return finding_exports.download(job_id, form, rows)


class ReviewCancel(ApiView):
    @extend_schema(
        operation_id="reviews_cancel",
        summary="Cancel a review that is not final",
        description="A trigger key, and a key with prefixes, cancels its own reviews only. Cancelling again"
        " gives the same answer.",
        request=forms.CancelSerializer,
        responses={
            200: OpenApiResponse(schemas.JobSerializer, "The cancelled review"),
            409: OpenApiResponse(
                schemas.ErrorSerializer, "STATE_CONFLICT: the review is final in another state"
            ),
            **POST_ERRORS,
            **NOT_FOUND,
        },
    )
    def post(self, request: Request, job_id: int) -> Response:
        asked, client = forms.validated(forms.CancelSerializer, request.data), client_of(request)
        requester = visible_jobs(request).filter(pk=job_id).values_list("requested_by", "series").first()
        if requester is None:
            raise NotFound
        if not client.requested(*requester):
            # A review may have more files than a key with prefixes sees.
            if not client.scope.everything:
                _refuse_scope(request, "it cancels its own reviews only")
            if client.role == TRIGGER:
                refuse_role(request)
                raise PermissionDenied("a trigger key cancels its own reviews only")
        cancelled = pipeline.cancel(job_id, client.actor, asked["reason"])
        job = _job_or_404(job_id, request)
        if not cancelled and job["status"] != JobStatus.CANCELLED:
            raise ApiError(STATE_CONFLICT, {"status": job["status"]})
        kept_requests.forget(job_id)
        return Response(job)


class PerforceTrigger(ApiView):
    @extend_schema(
        operation_id="triggers_perforce",
        summary="Report a Perforce event",
        request=forms.PerforceEventSerializer,
        responses={202: schemas.TriggerAnswerSerializer, **POST_ERRORS},
    )
    def post(self, request: Request) -> Response:
        if not client_of(request).scope.everything:
            # Which files the changelist has is not known yet, and its event may end another review.
            _refuse_scope(request, "events of a server need a key without prefixes")
        if why := unknown_changes.why_no_perforce():
            # Not the event's fault: the trigger keeps it and posts it again.
            raise ValidationError({"request": [f"{why}."]})
        event = {
            **forms.validated(forms.PerforceEventSerializer, request.data),
            "recipients": config.default_recipients(),
            "requested_by": client_of(request).actor,
        }
        try:
            record = partial(perforce_triggers.request_from_event, **event)
            job_id, is_duplicate = retry_lost_commit(record)
        except Overtaken as error:
            raise ApiError(BUSY) from error
        except NoNextVersion as error:
            raise ValidationError({"change": [f"Nothing was requested: {error}."]}) from error
        name = "{event} {change} of {server}".format(**event)
        kept_requests.keep(job_id, str(event["change"]), name, lambda: record()[0] or kept_requests.NO_REVIEW)
        return Response({"job": job_id, "duplicate": is_duplicate}, status=202)


class Unknown(ApiView):
    """Any other address: the error body of the API, without a key.

    A missing slash is a redirect.
    """

    authentication_classes = []
    permission_classes = []
    throttle_classes = []
    schema = None

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        path = request.path_info
        if not path.endswith("/") and resolve(f"{path}/").url_name != "api-unknown":
            # 308: the method and the body stay, where Django's own redirect would lose them.
            target = request.get_full_path(force_append_slash=True)
            return HttpResponsePermanentRedirect(target, preserve_request=True)
        return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise NotFound
