"""Dead letters, for programs: reading only."""

from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from deadletters.models import DeadLetter
from reviews.api import dead_letter_schemas, representations
from reviews.api.auth import client_of
from reviews.api.base import ApiView
from reviews.api.described import ERRORS, NOT_FOUND, PAGE
from reviews.api.pagination import Pages


def _visible_letters(request: Request) -> QuerySet[DeadLetter]:
    scope = client_of(request).scope
    return DeadLetter.objects.all() if scope.everything else DeadLetter.objects.filter(job__in=scope.jobs())


class DeadLetterList(ApiView):
    query = ("page",)

    @extend_schema(
        operation_id="dead_letters_list",
        summary="List dead letters, latest failure first",
        parameters=[PAGE],
        responses={200: dead_letter_schemas.DeadLetterPageSerializer, **ERRORS, **NOT_FOUND},
    )
    def get(self, request: Request) -> Response:
        pages = Pages()
        ids = pages.ids(_visible_letters(request).order_by("-last_failure_at", "-id"), request, self)
        return pages.get_paginated_response(representations.letters(ids, client_of(request).scope))


class DeadLetterDetail(ApiView):
    @extend_schema(
        operation_id="dead_letters_retrieve",
        summary="Read a dead letter",
        responses={200: dead_letter_schemas.DeadLetterSerializer, **ERRORS, **NOT_FOUND},
    )
    def get(self, request: Request, letter_id: int) -> Response:
        found = representations.letters([letter_id], client_of(request).scope)
        if not found or not _visible_letters(request).filter(pk=letter_id).exists():
            raise NotFound
        return Response(found[0])
