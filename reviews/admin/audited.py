"""Base classes of the admin of audited tables: a reason for each edit, and their history.

The database's triggers write the history (pghistory), not the admin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import pghistory
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from criticizer.admin_site.base import BoundedPaginator, ReadOnlyAdmin, choice_filter, list_column
from criticizer.admin_site.viewing_scope import ScopedAdmin
from reviews.audit.history import (
    A_PROGRAM,
    EDIT_WORDS,
    events_of,
    history_of,
    origin,
    reason_of,
    where_from,
    with_usernames,
)
from reviews.sources.allowlist import one_file_warning
from reviews.web.forms import DeletionForm

_Table = TypeVar("_Table", bound="HistoryMixin")
_DIGITS = 18  # fewer than the largest key has, which Python and PostgreSQL can both read


class HistoryMixin(ScopedAdmin):
    """Admin mixin: the history page of a row shows its recorded edits."""

    object_history_template = "admin/reviews/allowlistentry/object_history.html"

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().changelist_view(
            request, {"edits_address": self._edits_address(request), **(extra_context or {})}
        )

    def _edits_address(self, request: HttpRequest) -> str:
        """Return where the edits of all rows are listed; "" for people who may not read them."""
        edits = admin.site.get_model_admin(events_of(self.model))
        address = reverse(f"admin:{edits.opts.app_label}_{edits.opts.model_name}_changelist")
        return address if edits.has_view_permission(request) else ""

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        address = self._edits_address(request)
        if address and self.get_object(request, object_id) is None:
            words = "It does not exist any more, or never did. Edits of deleted rows are in this list."
            self.message_user(request, words, messages.WARNING)
            return HttpResponseRedirect(address)
        edits = [] if (row := _row_id(object_id)) is None else history_of(row, self.model)
        return super().history_view(request, object_id, {"edits": edits, **(extra_context or {})})


class AuditedAdmin(HistoryMixin):
    """Admin of a table whose edits are recorded with who, when, what, why and from where."""

    paginator = BoundedPaginator
    show_full_result_count = False
    deletion_form: ClassVar[type[DeletionForm]] = DeletionForm

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        # No bulk deletion: each deletion has a reason of its own.
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        with pghistory.context(**origin(request)):
            super().save_model(request, obj, form, change)
        if "pattern" in form.changed_data and (warning := one_file_warning(obj.pattern)):
            self.message_user(request, warning, messages.WARNING)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_delete_permission(request):
            raise PermissionDenied
        form = self.deletion_form(request.POST or None, _row_id(object_id))
        if request.method == "POST" and not form.is_valid():
            why = " ".join(str(text) for texts in form.errors.values() for text in texts)
            self.message_user(request, f"Nothing was deleted. {why}", messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        reason = form.cleaned_data["reason"] if form.is_valid() else ""
        with pghistory.context(**origin(request, deletion_reason=reason)):
            return super().delete_view(request, object_id, {"reason_form": form, **(extra_context or {})})


class EditsAdmin(ReadOnlyAdmin):
    """Every edit of an audited table, deleted rows included."""

    empty_text = "No edit yet. The database records each one: who, when, what and why."
    list_display_links = None
    list_select_related = ("pgh_context",)
    list_filter = (choice_filter("edit", "pgh_label", EDIT_WORDS.items()),)
    ordering = ("-pgh_id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return with_usernames(super().get_queryset(request))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the columns of the list, which the page of an edit shows too. No list links to it."""
        return self.list_display

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.list_display

    def page_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"title": str(row)}

    @admin.display(description="who")
    def who(self, row: Any) -> str:
        return row.username or A_PROGRAM

    @admin.display(description="what", ordering="pgh_label")
    def what(self, row: Any) -> str:
        return EDIT_WORDS[row.pgh_label]

    @admin.display(description="reason")
    def why(self, row: Any) -> str:
        return reason_of(row)

    @admin.display(description="from where")
    def where(self, row: Any) -> str:
        return where_from(row)


def _row_id(text: str) -> int | None:
    """Return the primary key that an address names; None for what no row can have."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


def register_audited(
    model: type[Model], *columns: Any, who: Any = "who", search: str
) -> Callable[[type[_Table]], type[_Table]]:
    """Return the decorator that registers an audited table, and the list of its edits.

    The list says when, who, what, these columns, why and from where; `search` are its fields to search.
    """
    shown = (list_column("pgh_created_at", "when"), who, "what", *columns, "why", "where")

    def register(table: type[_Table]) -> type[_Table]:
        admin.site.register(model, table)
        admin.site.register(
            events_of(model), EditsAdmin, list_display=shown, scope=table.scope, search_fields=search.split()
        )
        return table

    return register
