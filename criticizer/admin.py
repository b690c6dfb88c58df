"""The console's shared manners, and the kernel's own tables in it (read-only).

The stock Django admin, extended: nothing here writes a state. Lists never count a whole
table, filters never ask for distinct values, and what nobody may edit has no form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import django_q.admin  # noqa: F401  registers its tables, see below
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.safestring import SafeString
from django_q.models import Failure, Schedule, Success

from criticizer.cells import chip, fill
from criticizer.health import BEAT_SECONDS
from criticizer.models import SecurityEvent, WorkerCluster

admin.site.site_header = "Criticizer"
admin.site.site_title = "Criticizer"
admin.site.index_title = "Console"

# Results and schedules of django-q2 are off: their empty tables would only mislead. They are
# registered by the import above, and autodiscovery does not repeat it.
admin.site.unregister([Failure, Schedule, Success])

MAX_COUNTED = 10_000
_SECOND, _MINUTE = "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"
_TIME = '<time class="moment" datetime="{}" title="{} UTC">{}</time>'


class BoundedPaginator(Paginator[Any]):
    """Counts at most `MAX_COUNTED` rows: a list must open fast however long its table has grown."""

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        if isinstance(rows, QuerySet):
            return rows.order_by().values("pk")[:MAX_COUNTED].count()
        return len(rows)


class ReadOnlyAdmin(admin.ModelAdmin[Any]):
    """Shows rows that only the product writes."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    change_form_template = "admin/readonly_change_form.html"

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        plural = str(self.opts.verbose_name_plural)
        title = plural[:1].upper() + plural[1:]
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def one_of(title: str, field: str, choices: Iterable[tuple[str, str]]) -> type[admin.SimpleListFilter]:
    """Return a list filter over fixed values, which needs no `SELECT DISTINCT`."""
    fixed = [(str(value), str(label)) for value, label in choices]

    class OneOf(admin.SimpleListFilter):
        parameter_name = field

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return fixed

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(**{field: self.value()}) if self.value() else queryset

    OneOf.title = title
    return OneOf


def opens_with(title: str, field: str, choices: Iterable[tuple[str, str]], first: str) -> type[Any]:
    """Return a filter as `one_of` does, that is set to `first` until something else is chosen."""
    base = one_of(title, field, choices)

    class OpensWith(base):  # type: ignore[misc, valid-type]
        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            value = self.value() or first
            return queryset if value == "all" else queryset.filter(**{field: value})

        def choices(self, changelist: ChangeList) -> Iterable[dict[str, Any]]:
            for value, label in [*self.lookup_choices, ("all", "All")]:
                yield {
                    "selected": (self.value() or first) == value,
                    "query_string": changelist.get_query_string({self.parameter_name: value}),
                    "display": label,
                }

    OpensWith.title = title
    return OpensWith


def titled(field: str, title: str, css: str = "") -> Callable[[Any], Any]:
    """Return a list column that shows a field under a heading of its own.

    `css` is the class of what it shows: "path" for names that may have to be broken into lines.
    Times are UTC, to the minute; the second is in the tooltip.
    """

    @admin.display(description=title, ordering=field, empty_value="")
    def column(row: Any) -> Any:
        label = getattr(row, f"get_{field}_display", None)
        value = label() if label else getattr(row, field)
        if isinstance(value, datetime):
            at = value.astimezone(UTC)
            return fill(_TIME, at.isoformat(timespec="seconds"), f"{at:{_SECOND}}", f"{at:{_MINUTE}}")
        return fill('<span class="{}">{}</span>', css, value) if css and value else value

    column.__name__ = field  # the cell's class is made of it
    return column


def state_column(field: str, title: str = "state") -> Callable[[Any, Any], SafeString]:
    """Return a list column that shows a state as a word with an icon (states.css)."""

    @admin.display(description=title, ordering=field)
    def column(self: Any, row: Any) -> SafeString:
        value = getattr(row, field)
        label = getattr(row, f"get_{field}_display", lambda: value)()
        return chip(value, label)

    return column


@admin.register(SecurityEvent)
class SecurityEventAdmin(ReadOnlyAdmin):
    list_display = (
        titled("created_at", "when"),
        titled("kind", "event"),
        titled("changelist_id", "changelist", "path"),
        titled("path", "path", "path"),
        "reason",
        titled("actor", "who"),
    )
    list_filter = (one_of("event", "kind", SecurityEvent.Kind.choices),)
    search_fields = ("changelist_id__exact", "actor__exact", "path__startswith")
    search_help_text = "A changelist or an actor, exactly; or the beginning of a path."
    ordering = ("-created_at", "-id")
    fields = ("created_at", "kind", "changelist_id", "path", "reason", "actor", "context")


@admin.register(WorkerCluster)
class WorkerClusterAdmin(ReadOnlyAdmin):
    list_display = (
        "queue",
        "state",
        titled("host", "machine", "path"),
        titled("pid", "process"),
        "workers",
        titled("started_at", "started"),
        titled("beat_at", "last beat"),
    )
    list_filter = (one_of("queue", "queue", [("stages", "stages"), ("llm", "llm")]),)
    ordering = ("queue", "-beat_at")
    fields = ("id", "queue", "state", "host", "pid", "workers", "started_at", "beat_at", "draining")
    readonly_fields = ("state",)

    @admin.display(description="state")
    def state(self, cluster: WorkerCluster) -> SafeString:
        """Say whether the cluster still beats: rows of killed ones stay for a while."""
        silent = (timezone.now() - cluster.beat_at).total_seconds() > BEAT_SECONDS
        value, label = ("silent", "Silent") if silent else ("alive", "Alive")
        if cluster.draining and not silent:
            value, label = "running", "Draining"
        return chip(value, label)


# Autodiscovery looks for this module only; it needs what is above.
from criticizer import circuit_admin, queue_admin  # noqa: E402, F401
