"""Pages of the API's lists: numbered, and counted up to a limit."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.utils.functional import cached_property
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request
from rest_framework.views import APIView

COUNT_LIMIT = 10_000


class BoundedPaginator(Paginator[Any]):
    """Counts up to COUNT_LIMIT, so that the cost of a page does not grow with the table."""

    @cached_property
    def count(self) -> int:
        found: Any = self.object_list
        return int(found[:COUNT_LIMIT].count())


class Pages(PageNumberPagination):
    """Numbered pages of ids; `representations` reads their rows."""

    django_paginator_class = BoundedPaginator
    last_page_strings = ()

    def ids(self, queryset: QuerySet[Any], request: Request, view: APIView) -> list[int]:
        """Return the ids on the requested page. Raises ValidationError and NotFound."""
        number = request.query_params.get("page", "1")
        if not number.isdecimal() or len(number) > 9:
            raise ValidationError({"page": ["Not a page number: send a whole number from 1."]})
        page = self.paginate_queryset(queryset.values_list("pk", flat=True), request, view=view)
        return list(page or [])
