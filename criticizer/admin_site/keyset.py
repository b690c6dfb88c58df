"""Lists of the admin that stay fast however long their tables grow.

A page is found by the values of its last row (`?after=`, `?before=`), never by an offset; the
orders are fixed and each is served by an index; rows are counted up to a bound, and not at all
when even that takes too long. An example, for a table with the index `(last_seen, id)`:

    @admin.register(Group)
    class GroupAdmin(KeysetAdmin):
        orderings = {
            "newest": Ordering("Last seen", ("-last_seen", "-id")),
            "most": Ordering("Most dead letters", ("-open_count", "-id")),
        }
        search_keys = {
            "state": exact("status", "The group's state", choices=GroupStatus),
            "stage": exact("stage", "Where it failed", choices=["llm"]),
            "age": age("last_seen", "How long ago it failed last"),
        }
        search_words = full_text("normalized_message")
        starting_views = {"Open, most first": "q=state%3Aopen&by=most"}
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlencode

import structlog
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import ReadOnlyAdmin
from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.admin_site.newest_matches import page_by_keys
from criticizer.admin_site.ordering import Ordering, beyond, cursor, cursor_of, read_cursor, up_to
from criticizer.admin_site.saved_views import normalized_query, views_of
from criticizer.admin_site.search_query import Key, SearchProblem, condition_of, range_to_read
from criticizer.db.full_text import FullTextFilter
from criticizer.db.query_limits import (
    NO_PARALLEL_WORKERS,
    BoundedCount,
    StatementTimeout,
    bounded_count,
    statement_timeout,
)

log = structlog.get_logger(__name__)

AFTER, BEFORE, BY = "after", "before", "by"
PAGE_MILLISECONDS = 3_000  # a page that takes longer is cancelled, with a message
LOOK_AHEAD = 20_000  # rows of the list that are searched then, and twice as many each further time
LOOK_SECONDS = 1.0  # after which no further rows are searched
READ_SECONDS = 0.03  # the same for a search without an index, which reads rows from the start


class KeysetChangeList(ChangeList):
    """A page of a list, with the addresses of the next and previous pages."""

    model_admin: KeysetAdmin
    ordering_name = ""  # Django asks for addresses before it is known
    newer_url = older_url = first_url = ""
    is_cancelled = False
    looked_at = 0  # rows that were searched when the search of all took too long
    back = ""

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        # Django would compute for each row how its address leads back to this list.
        self.back = f"?{self.preserved_filters}" if self.preserved_filters else ""
        self.preserved_filters = ""

    def url_for_result(self, result: Model) -> str:
        return f"{super().url_for_result(result)}{self.back}"

    def get_filters(self, request: HttpRequest) -> Any:
        by = self.params.get(BY, "")
        self.ordering_name = by if by in self.model_admin.orderings else self._first
        # These are not filters; and a new filter or search starts at the first page.
        for name in (AFTER, BEFORE):
            self.params.pop(name, None)
        for name in (AFTER, BEFORE, BY):
            self.filter_params.pop(name, None)
        return super().get_filters(request)

    def get_query_string(self, new_params: Any = None, remove: Any = None) -> str:
        kept = {} if self.ordering_name in {"", self._first} else {BY: self.ordering_name}
        return super().get_query_string({**kept, **(new_params or {})}, remove)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        return list(self.ordering.fields)

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        return super().get_queryset(request, *args, **kwargs).filter(self.ordering.where)

    @property
    def _first(self) -> str:
        return next(iter(self.model_admin.orderings))

    @property
    def ordering(self) -> Ordering:
        return self.model_admin.orderings[self.ordering_name]

    @property
    def orders(self) -> list[tuple[str, str, bool]]:
        """Return (title, address, is this one) of each order."""
        return [
            (
                ordering.title,
                self.get_query_string({BY: None if name == self._first else name}),
                name == self.ordering_name,
            )
            for name, ordering in self.model_admin.orderings.items()
        ]

    def get_results(self, request: HttpRequest) -> None:
        found: list[Any] = []
        count = BoundedCount(0)
        read = None if request.GET.get(BEFORE) else range_to_read(self.query, self.model_admin.search_keys)
        try:
            if read is not None:
                self.is_cancelled = True  # until it is known to be whole
                found = self._near(request, READ_SECONDS, read)
            else:
                with statement_timeout(self.model_admin.page_milliseconds, NO_PARALLEL_WORKERS):
                    found = self._page(request)
        except StatementTimeout:
            self.is_cancelled = True
            log.warning("list_took_too_long", model=self.opts.label_lower, search=bool(self.query))
            found = self._near(request, LOOK_SECONDS, Q())
        if self.is_cancelled:
            messages.warning(request, self._why_partial(is_read=read is not None))
            count = BoundedCount(len(found), f"at least {len(found)}")
        elif self.newer_url or self.older_url:
            count = bounded_count(self.queryset)
        else:
            count = BoundedCount(len(found))  # all of them are on this page
        self.result_list = found
        self.result_count = count
        self.full_result_count = None
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = self.multi_page = False
        self.paginator = Paginator(found, self.list_per_page)

    def _why_partial(self, *, is_read: bool) -> str:
        if not self.looked_at:
            return "The search took too long. Narrow it with a state, a class or an age."
        why = "No index serves this search" if is_read else "The search took too long"
        return (
            f"{why}: only the next {self.looked_at:,} rows of the list were searched. "
            "The next page continues there. Narrow it with a state, a class or an age to see more at once."
        )

    def _near(self, request: HttpRequest, seconds: float, within: Q) -> list[Any]:
        """Return the matches among the next rows `within`.

        `older_url` leads on from the last row searched. It searches `LOOK_AHEAD` rows, and more until
        `seconds` have passed. A full page counts as cancelled no longer, nor does a list that was searched to
        its end.
        """
        if request.GET.get(BEFORE):
            return []
        ordering, size = self.ordering, self.list_per_page
        start = read_cursor(request.GET.get(AFTER, ""), self.model, ordering)
        self.first_url = "" if start is None else self.get_query_string()
        everything = self.root_queryset.filter(ordering.where, within).order_by(*ordering.fields)
        found: list[Any] = []
        step, ends_at = LOOK_AHEAD, time.monotonic() + seconds
        with suppress(StatementTimeout):
            while True:
                behind = Q() if start is None else Q(beyond(self.model, ordering, start, backwards=False))
                with statement_timeout(self.model_admin.page_milliseconds, NO_PARALLEL_WORKERS):
                    keys = everything.filter(behind).values_list(*ordering.names)
                    start = next(iter(keys[step - 1 : step]), None)
                    here = behind if start is None else behind & Q(up_to(self.model, ordering, start))
                    found += self._listed(self.queryset).filter(here)[: size + 1 - len(found)]
                self.looked_at += step
                self.is_cancelled = len(found) <= size and start is not None
                self.older_url = "" if start is None else self.get_query_string({AFTER: cursor(start)})
                if not self.is_cancelled or time.monotonic() >= ends_at:
                    break
                step *= 2
        if len(found) > size:
            found = found[:size]
            self.older_url = self.get_query_string({AFTER: cursor_of(found[-1], ordering)})
        # Where no index serves the search, none leads back.
        if found and self.first_url and not self.is_cancelled and not within:
            self.newer_url = self.get_query_string({BEFORE: cursor_of(found[0], ordering)})
        return found

    def _listed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        only = self.model_admin.list_only
        return rows.only(*only, *self.ordering.names) if only else rows

    def _by_keys(self, after: list[Any] | None, number: int) -> list[Any] | None:
        """Return the next rows, found by the newest keys of a term; None where that is not certain."""
        if self.get_filters_params():
            return None
        rows = self.apply_select_related(self.root_queryset).order_by(*self.ordering.fields)
        rows = self._listed(rows)
        return page_by_keys(rows, self.query, self.model_admin.search_keys, self.ordering, after, number)

    def _page(self, request: HttpRequest) -> list[Any]:
        ordering, size = self.ordering, self.list_per_page
        before = read_cursor(request.GET.get(BEFORE, ""), self.model, ordering)
        after = read_cursor(request.GET.get(AFTER, ""), self.model, ordering)
        rows = self._listed(self.queryset)
        if before is not None:
            rows = rows.filter(beyond(self.model, ordering, before, backwards=True))
            found = list(rows.order_by(*ordering.reversed())[: size + 1])
            has_newer, has_older = len(found) > size, True
            found = found[:size][::-1]
        else:
            if after is not None:
                rows = rows.filter(beyond(self.model, ordering, after, backwards=False))
            by_keys = self._by_keys(after, size + 1)
            found = list(rows[: size + 1]) if by_keys is None else by_keys
            has_newer, has_older = after is not None, len(found) > size
            found = found[:size]
        if has_newer:
            self.first_url = self.get_query_string()
        if found and has_newer:
            self.newer_url = self.get_query_string({BEFORE: cursor_of(found[0], ordering)})
        if found and has_older:
            self.older_url = self.get_query_string({AFTER: cursor_of(found[-1], ordering)})
        return found


class KeysetAdmin(ReadOnlyAdmin):
    """A list paged by key, with the search grammar, saved views and bounded counts.

    The docstring of the module has an example.
    """

    orderings: Mapping[str, Ordering]
    search_keys: Mapping[str, Key] = {}
    search_words: FullTextFilter | None = None  # what words without a key are looked up in
    starting_views: Mapping[str, str] = {}  # title -> query string: offered beside the saved ones
    list_only: tuple[str, ...] = ()  # the fields that a list shows, for tables with many or wide ones
    change_list: type[KeysetChangeList] = KeysetChangeList
    page_milliseconds = PAGE_MILLISECONDS
    change_list_template = "admin/keyset_change_list.html"
    sortable_by = ()

    def __init__(self, model: type[Any], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        for ordering in self.orderings.values():
            ordering.check(model)

    @property
    def search_example(self) -> str:
        return " ".join(f"{name}:{key.example}" for name, key in list(self.search_keys.items())[:3])

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        return tuple(self.search_keys)  # shows the box; the grammar does the searching

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        try:
            return queryset.filter(condition_of(search_term, self.search_keys, self.search_words)), False
        except SearchProblem as problem:
            messages.error(request, str(problem))
            return queryset.none(), False

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return next(iter(self.orderings.values())).fields

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return self.change_list

    def action_checkbox(self, obj: Model) -> SafeString:
        """Return the row's checkbox as Django draws it, without rendering a template per row."""
        return format_html_fast(
            '<input type="checkbox" name="{}" value="{}" class="action-select" '
            'aria-label="Select this object for an action - {}">',
            ACTION_CHECKBOX_NAME,
            obj.pk,
            obj,
        )

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        query = request.GET.urlencode()
        without_search = [pair for pair in parse_qsl(normalized_query(query)) if pair[0] != "q"]
        shown = {
            "views": views_of(request.user, self.opts.label_lower, self.starting_views, query),
            "view_query": normalized_query(query),
            "without_query": f"?{urlencode(without_search)}",
        }
        return super().changelist_view(request, {**shown, **(extra_context or {})})
