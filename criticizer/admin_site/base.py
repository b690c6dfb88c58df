"""Base classes and columns of the admin.

Lists never count a whole table or select distinct values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import django_q.admin  # noqa: F401  registers its tables, see below
from django.contrib import admin
from django.core.exceptions import FieldDoesNotExist
from django.core.paginator import Paginator
from django.db.models import DateTimeField, Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.functional import cached_property
from django.utils.safestring import SafeString
from django_q.models import Failure, Schedule, Success

from criticizer.admin_site.list_rendering import badge, format_html_fast
from criticizer.admin_site.timestamps import NEVER, time_ago, timestamp
from criticizer.admin_site.viewing_scope import ScopedAdmin

# Results and schedules of django-q2 are off: their empty tables would only mislead. The import
# above registers them, and autodiscovery does not repeat it.
admin.site.unregister([Failure, Schedule, Success])

MAX_COUNTED = 10_000


class BoundedPaginator(Paginator[Any]):
    """Counts at most `MAX_COUNTED` rows, so that a list opens fast however long its table is."""

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        if isinstance(rows, QuerySet):
            return rows.order_by().values("pk")[:MAX_COUNTED].count()
        return len(rows)


class ReadOnlyAdmin(ScopedAdmin):
    """Admin of rows that only the product writes."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    empty_value_display = NEVER
    empty_text = ""  # what a list without any row says, where it is not the usual sentence

    def page_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the context of a row's page besides its fields: `title`, for instance."""
        return {}

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        if obj is not None:
            shown = self.page_context(request, obj)
            context = {**context, **({"subtitle": None} if "title" in shown else {}), **shown}
        answer = super().render_change_form(request, context, add, change, form_url, obj)
        if obj is not None and isinstance(answer, TemplateResponse):
            own = f"admin/{self.opts.app_label}/{self.opts.model_name}/change_form.html"
            answer.template_name = [own, "admin/readonly_change_form.html"]
        return answer

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Return the fieldsets, with every time shown to the second."""
        groups = super().get_fieldsets(request, obj)
        if obj is None:
            return groups
        return [
            (name, {**group, "fields": [self._fact(f) for f in group["fields"]]}) for name, group in groups
        ]

    def _fact(self, field: Any) -> Any:
        try:
            column = self.opts.get_field(field) if isinstance(field, str) else None
        except FieldDoesNotExist:
            return field
        return detail_field(field, str(column.verbose_name)) if isinstance(column, DateTimeField) else field

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def choice_filter(
    title: str,
    field: str,
    choices: Iterable[tuple[str, str]],
    condition: Callable[[str], Q] | None = None,
) -> type[admin.SimpleListFilter]:
    """Return a list filter over fixed values, which needs no `SELECT DISTINCT`.

    `condition`: what holds of the rows of a value; unless given, they have it in the field.
    """
    fixed = [(str(value), str(label)) for value, label in choices]

    class OneOf(admin.SimpleListFilter):
        parameter_name = field

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return fixed

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            if not (value := self.value()):
                return queryset
            return queryset.filter(condition(value) if condition else Q(**{field: value}))

    OneOf.title = title
    return OneOf


def list_column(field: str, title: str, css: str = "") -> Callable[[Any], Any]:
    """Return a list column that shows a field under a heading of its own.

    `css` is the class of the value: "path" for long names that may be broken into lines.
    A time is shown as "3 h ago".
    """
    return _shown(field, title, css, time_ago, "")


def detail_field(field: str, title: str, css: str = "") -> Any:
    """Return a field of a read-only page; a time is shown to the second.

    `css` is "whole" for long values that take a line of their own, or "whole path".
    """
    return _shown(field, title, css, timestamp, NEVER)


def _shown(
    field: str, title: str, css: str, moment: Callable[[datetime], Any], empty: str
) -> Callable[[Any], Any]:
    @admin.display(description=title, ordering=field, empty_value=empty)
    def shown(row: Any) -> Any:
        label = getattr(row, f"get_{field}_display", None)
        value = label() if label else getattr(row, field)
        if isinstance(value, datetime):
            return moment(value)
        if value is None or value == "":
            return empty
        return format_html_fast('<span class="{}">{}</span>', css, value) if css else value

    shown.__name__ = field  # the cell's class is made of it
    return shown


def named_values(context: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the recorded context of an event or a failure as sorted (name, value).

    Empty values are left out.
    """
    return sorted((str(name), value) for name, value in context.items() if value not in ("", None))


def state_column(field: str, title: str = "state") -> Callable[[Any, Any], SafeString]:
    """Return a list column that shows a state as a badge (states.css)."""

    @admin.display(description=title, ordering=field)
    def column(self: Any, row: Any) -> SafeString:
        value = getattr(row, field)
        label = getattr(row, f"get_{field}_display", lambda: value)()
        return badge(value, label)

    return column


def admin_page(request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
    """Return a page inside the frame of the admin."""
    shared = {**admin.site.each_context(request), "title": title}
    return TemplateResponse(request, template, {**shared, **context})
