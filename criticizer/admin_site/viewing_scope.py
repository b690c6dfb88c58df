"""Viewing scopes of the admin: how each table's rows lead to a review (guarantee G180).

`ScopedAdmin.get_queryset` narrows the rows of a user who may not see every file. Lists, counts, pages,
actions, exports and histories start from it, so a row outside the scope does not exist for that user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst

from criticizer.admin_site.search_query import MAX_CHARACTERS

# A `reviews.recipients.viewing_scopes.Scope`. Its parameter `job` is the lookup from a row to its review.
Visible = Any
# user -> `Visible`, or None for a user who may see every file. The app of the reviews registers it.
PROVIDERS: list[Callable[[Any], Visible | None]] = []


@dataclass(frozen=True, slots=True)
class RowScope:
    """Rule by which a table is narrowed: by `condition`, or not at all.

    `why` says why it is not narrowed by single reviews.
    """

    condition: Callable[[Visible], Any] | None
    why: str = ""


def of_job(job: str) -> RowScope:
    """Return the scope of rows of one review: seen with any file of it."""
    return RowScope(lambda visible: visible.of_jobs(job))


def of_whole_job(job: str) -> RowScope:
    """Return the scope of rows whose texts may name any file of their review.

    They are seen when all its files may be seen.
    """
    return RowScope(lambda visible: visible.of_whole_jobs(job))


def across_reviews(why: str) -> RowScope:
    """Return the scope of rows that sum up or quote many reviews.

    They are for users who may see every file.
    """
    return RowScope(lambda _: Q(pk__in=()), why)


def not_of_reviews(why: str) -> RowScope:
    """Return the scope of rows that say nothing of a review.

    The table's own permission is enough.
    """
    return RowScope(None, why)


def visible_to(user: Any) -> Visible | None:
    """Return the conditions for a user, None for one who may see every file."""
    (provider,) = PROVIDERS
    return provider(user)


class ScopedAdmin(admin.ModelAdmin[Any]):
    """Base of every admin of the product: rows outside the user's viewing scope do not exist."""

    scope: RowScope

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return narrowed(super().get_queryset(request), request.user, self.scope)

    def row(self, request: HttpRequest, pk: Any) -> Any:
        """Return a row that the user may see, or None."""
        return self.get_queryset(request).filter(pk=pk).first()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find nothing for a search that is too long.

        Each of its words would be a condition on each field.
        """
        if len(search_term) > MAX_CHARACTERS:
            messages.error(request, f"A search has at most {MAX_CHARACTERS} characters.")
            return queryset.none(), False
        return super().get_search_results(request, queryset, search_term)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow the list's own filters, and filters by a column with choices, which saved views use.

        Any other filter would reveal values that no page shows.
        """
        own = [str(getattr(one, "parameter_name", one)) for one in self.get_list_filter(request)]
        choices = [column.name for column in self.opts.concrete_fields if column.choices]
        is_own = lookup in choices or any(lookup == name or lookup.startswith(f"{name}__") for name in own)
        return is_own and super().lookup_allowed(lookup, value, request)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *location: Any, **named: Any
    ) -> Any:
        """Ignore chosen keys that no row of the table can have: Django would fail on them."""
        form = request.POST.copy()
        chosen = form.getlist(ACTION_CHECKBOX_NAME)
        form.setlist(ACTION_CHECKBOX_NAME, [key for key in chosen if self._is_key(key)])
        request.POST = form  # type: ignore[assignment]
        return super().response_action(request, queryset, *location, **named)

    def _is_key(self, text: str) -> bool:
        try:
            self.opts.pk.to_python(text)
        except (ValidationError, ValueError):
            return False
        return "\x00" not in text

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        is_narrowed = self.scope.condition is not None and visible_to(request.user) is not None
        shown = {"title": capfirst(self.opts.verbose_name_plural)}  # not "Select … to change": many only read
        if is_narrowed:
            shown["subtitle"] = "Only what your viewing scopes allow is listed"
        return super().changelist_view(request, {**shown, **(extra_context or {})})


def narrowed(rows: QuerySet[Any], user: Any, scope: RowScope) -> QuerySet[Any]:
    """Return the rows that a user may see."""
    if scope.condition is None or (visible := visible_to(user)) is None:
        return rows
    return rows.filter(scope.condition(visible))


def of_registered(model: type[Model], user: Any) -> QuerySet[Any]:
    """Return the rows of a registered table that a user may see.

    Other pages use it for what they show of the table.
    """
    registered: Any = admin.site.get_model_admin(model)
    return narrowed(QuerySet(model), user, registered.scope)
