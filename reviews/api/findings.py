"""The findings of all reviews, for programs: each once, at its newest version."""

from __future__ import annotations

from django import forms
from django.db.models import Q
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import NotFound, PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from criticizer.codehosts.registry import in_words
from criticizer.db.query_limits import NO_PARALLEL_WORKERS, StatementTimeout, statement_timeout
from reviews import verdicts
from reviews.api import representations, schemas
from reviews.api.auth import client_of, refuse_role
from reviews.api.base import ApiView
from reviews.api.described import ERRORS, NOT_FOUND, PAGE, POST_ERRORS
from reviews.api.pagination import Pages
from reviews.api.serializers import VerdictSerializer, validated
from reviews.api.views import visible_jobs
from reviews.extents import Extent, NotAccepted, NotAllowed
from reviews.filters import FindingFilter, of_changes, of_findings
from reviews.models import FindingRow
from reviews.roles import OPERATOR
from reviews.search import AT_NEWEST_VERSION
from reviews.sources.registry import repository_prefix

MILLISECONDS = 10_000  # a slower query is cancelled


class FindingVerdict(ApiView):
    @extend_schema(
        operation_id="findings_verdict",
        summary="Give a verdict on a finding",
        description="Repeating the last verdict changes nothing. Critical findings are dismissed by two"
        " people on their page, not by keys.",
        request=VerdictSerializer,
        responses={
            200: OpenApiResponse(schemas.FindingSerializer, "The finding"),
            **POST_ERRORS,
            **NOT_FOUND,
        },
    )
    def post(self, request: Request, finding_id: int) -> Response:
        client, given = client_of(request), validated(VerdictSerializer, request.data)
        rows = FindingRow.objects.filter(client.scope.findings(), job__in=visible_jobs(request))
        row = rows.filter(pk=finding_id).first()
        if row is None:
            raise NotFound
        extent = Extent(given["scope"], given["path"], given["until"], client.scope, client.role == OPERATOR)
        try:
            verdicts.give(row, given["verdict"], client.actor, given["reason"], extent)
        except NotAllowed as problem:
            refuse_role(request)
            raise PermissionDenied(str(problem)) from problem
        except NotAccepted as problem:
            raise ValidationError({"verdict": [str(problem)]}) from problem
        return Response(representations.finding(row.pk))


class _Filter(FindingFilter):
    """The parameters of the list. Empty ones do not narrow it."""

    text = file = category = source = until = mine = None  # type: ignore[assignment]
    repository = forms.CharField(max_length=512, required=False)

    def clean_repository(self) -> str:
        given: str = self.cleaned_data["repository"]
        prefix = repository_prefix(given) if given else ""
        if prefix is None:
            raise forms.ValidationError(
                f"A repository is git:<name>, {in_words('{name}:{shape}')}, as in the ids of its changelists."
            )
        return prefix

    def condition(self) -> Q:
        """Return the condition on findings."""
        wanted = self.wanted()
        found = of_changes(wanted, None, "job__") & of_findings(wanted)
        return found & Q(file__startswith=wanted["repository"]) if "repository" in wanted else found


class FindingList(ApiView):
    query = ("severity", "path", "author", "repository", "since", "verdict", "page")

    @extend_schema(
        operation_id="findings_list",
        summary="List the findings of all reviews, newest first",
        description="Each finding once, at its newest version, as far as the key's scope reaches.",
        parameters=[
            OpenApiParameter("severity", OpenApiTypes.STR, description="Exactly this one."),
            OpenApiParameter("path", OpenApiTypes.STR, description="What the depot path begins with."),
            OpenApiParameter("author", OpenApiTypes.STR, description="Of the change."),
            OpenApiParameter(
                "repository", OpenApiTypes.STR, description="Such as git:app or github:acme/website."
            ),
            OpenApiParameter("since", OpenApiTypes.DATE, description="Reviewed on this day or later."),
            OpenApiParameter(
                "verdict", OpenApiTypes.STR, description="A verdict, none, or open: not dismissed."
            ),
            PAGE,
        ],
        responses={200: schemas.FindingListSerializer, **ERRORS, **NOT_FOUND},
    )
    def get(self, request: Request) -> Response:
        form = _Filter(request.query_params)
        if not form.is_valid():
            raise ValidationError(
                {name: [str(text) for text in texts] for name, texts in form.errors.items()}
            )
        client, pages = client_of(request), Pages()
        found = FindingRow.objects.filter(form.condition(), client.scope.findings(), AT_NEWEST_VERSION)
        found = found.filter(job__in=visible_jobs(request))
        try:
            with statement_timeout(MILLISECONDS, NO_PARALLEL_WORKERS):
                ids = pages.ids(found.order_by("-pk"), request, self)
        except StatementTimeout:
            raise ValidationError(
                {"path": ["The search took too long: narrow it, by path or since."]}
            ) from None
        return pages.get_paginated_response(representations.finding_rows(ids))
