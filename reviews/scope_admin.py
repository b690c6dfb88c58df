"""Viewing scopes in the admin: which group reads which depot trees, with a reason and a history."""

from __future__ import annotations

from typing import Any

import pghistory
from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from criticizer.admin import BoundedPaginator, ReadOnlyAdmin, one_of
from reviews.audit import (
    A_PROGRAM,
    EDIT_WORDS,
    ViewerScopeEvent,
    history_of,
    origin,
    where_from,
    with_usernames,
)
from reviews.forms import DeletionForm
from reviews.keys import check_tree
from reviews.models import ViewerScope


class ViewerScopeForm(forms.ModelForm[ViewerScope]):
    """A group and a depot tree it may read, with the reason for this edit."""

    class Meta:
        model = ViewerScope
        fields = ("group", "prefix", "reason")

    def clean_prefix(self) -> str:
        prefix = str(self.cleaned_data["prefix"]).strip()
        try:
            check_tree(prefix)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        return prefix

    def clean_reason(self) -> str:
        reason = str(self.cleaned_data["reason"]).strip()
        if len(reason) < 3:
            raise forms.ValidationError("Say why: a ticket, an incident or a sentence.")
        return reason

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        if self.instance.pk and self.changed_data and "reason" not in self.changed_data:
            self.add_error("reason", "Say why it is changed now: the reason is still the one before.")
        return cleaned


@admin.register(ViewerScope)
class ViewerScopeAdmin(admin.ModelAdmin[ViewerScope]):
    form = ViewerScopeForm
    paginator = BoundedPaginator
    show_full_result_count = False
    list_display = ("prefix", "group", "reason")
    list_select_related = ("group",)
    search_fields = ("prefix__startswith", "group__name__exact")
    ordering = ("group", "prefix")
    object_history_template = "admin/reviews/allowlistentry/object_history.html"
    delete_confirmation_template = "admin/reviews/viewerscope/delete_confirmation.html"

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Take the bulk deletion away: each deletion has a reason of its own."""
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def save_model(self, request: HttpRequest, obj: ViewerScope, form: Any, change: bool) -> None:
        with pghistory.context(**origin(request)):
            super().save_model(request, obj, form, change)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_delete_permission(request):
            raise PermissionDenied
        form = DeletionForm(request.POST or None)
        if request.method == "POST" and not form.is_valid():
            self.message_user(request, "Nothing was deleted: say why first.", messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        reason = form.cleaned_data["reason"] if form.is_valid() else ""
        with pghistory.context(**origin(request, deletion_reason=reason)):
            return super().delete_view(request, object_id, {"reason_form": form, **(extra_context or {})})

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        edits = history_of(int(object_id), ViewerScopeEvent) if object_id.isdecimal() else []
        return super().history_view(request, object_id, {"edits": edits, **(extra_context or {})})


@admin.register(ViewerScopeEvent)
class ViewerScopeEditAdmin(ReadOnlyAdmin):
    """Every edit of the viewing scopes, deleted ones included."""

    list_display = ("pgh_created_at", "who", "what", "group_id", "prefix", "reason", "where")
    list_display_links = None
    list_select_related = ("pgh_context",)
    list_filter = (one_of("edit", "pgh_label", EDIT_WORDS.items()),)
    search_fields = ("prefix__startswith",)
    ordering = ("-pgh_id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return with_usernames(super().get_queryset(request))

    @admin.display(description="who")
    def who(self, row: Any) -> str:
        return row.username or A_PROGRAM

    @admin.display(description="what", ordering="pgh_label")
    def what(self, row: Any) -> str:
        return EDIT_WORDS[row.pgh_label]

    @admin.display(description="from where")
    def where(self, row: Any) -> str:
        return where_from(row)
