"""The console's view of reviews, the allow-list and API keys."""

from __future__ import annotations

from typing import Any

import pghistory
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from criticizer.admin import BoundedPaginator, ReadOnlyAdmin, one_of, state_column
from reviews import keys
from reviews.audit import (
    A_PROGRAM,
    EDIT_WORDS,
    AllowListEntryEvent,
    history_of,
    origin,
    where_from,
    with_usernames,
)
from reviews.forms import AllowListEntryForm, ApiKeyForm, DeletionForm
from reviews.models import AllowListEntry, ApiKey, ReviewJob
from reviews.review_page import results_of, stages_of
from reviews.states import JobStatus


@admin.register(ReviewJob)
class ReviewJobAdmin(ReadOnlyAdmin):
    change_form_template = "admin/reviews/reviewjob/change_form.html"
    list_display = ("changelist", "review_version", "state", "title", "author", "created_at", "is_late")
    list_filter = (one_of("status", "status", JobStatus.choices),)
    search_fields = ("changelist_id__exact", "idempotency_key__exact")
    search_help_text = "A changelist or an idempotency key, exactly."
    ordering = ("-created_at", "-id")
    fields = readonly_fields = ("state",)  # change_form.html shows the whole job
    state = state_column("status")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("recipients")

    @admin.display(description="changelist", ordering="changelist_id")
    def changelist(self, job: ReviewJob) -> SafeString:
        return format_html('<span class="path">{}</span>', job.changelist_id)

    def view_on_site(self, job: ReviewJob) -> str:
        return reverse("reviews:detail", args=[job.pk])

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the job with its stages, attempts, findings, coverage and deliveries, each bounded."""
        job = self.get_object(request, object_id)
        if isinstance(job, ReviewJob):
            extra_context = {
                "title": f"Review of {job.changelist_id[:80]}, version {job.review_version}",
                "subtitle": None,
                "job": job,
                "stages": stages_of(job),
                "results": results_of(job),
                "letters": job.dead_letters.order_by("-id")[:20],
                **(extra_context or {}),
            }
        return super().change_view(request, object_id, form_url, extra_context)


@admin.register(AllowListEntry)
class AllowListEntryAdmin(admin.ModelAdmin[AllowListEntry]):
    """Lines inside the ceiling. Each edit is kept with who, when, what, why and from where (001, 9.1)."""

    form = AllowListEntryForm
    paginator = BoundedPaginator
    show_full_result_count = False
    list_display = ("pattern", "kind", "position", "reason")
    list_filter = (one_of("kind", "kind", AllowListEntry.Kind.choices),)
    search_fields = ("pattern__startswith",)
    ordering = ("position", "id")
    object_history_template = "admin/reviews/allowlistentry/object_history.html"
    delete_confirmation_template = "admin/reviews/allowlistentry/delete_confirmation.html"

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Take the bulk deletion away: each deletion has a reason of its own."""
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def save_model(self, request: HttpRequest, obj: AllowListEntry, form: Any, change: bool) -> None:
        with pghistory.context(**origin(request)):
            super().save_model(request, obj, form, change)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
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
        """Show the edits as the database's triggers recorded them, not as the admin tells them."""
        edits = history_of(int(object_id)) if object_id.isdigit() else []
        return super().history_view(request, object_id, {"edits": edits, **(extra_context or {})})


@admin.register(AllowListEntryEvent)
class AllowListEditAdmin(ReadOnlyAdmin):
    """Every edit of the allow-list, deleted lines included."""

    list_display = ("pgh_created_at", "who", "what", "pattern", "kind", "reason", "where")
    list_display_links = None
    list_select_related = ("pgh_context",)
    list_filter = (one_of("edit", "pgh_label", EDIT_WORDS.items()),)
    search_fields = ("pattern__startswith",)
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


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """Keys are made and revoked here; the key itself is shown once and its digest never."""

    list_display = ("name", "role", "prefix", "state", "created_at", "last_used_at")
    list_filter = (one_of("role", "role", ApiKey.Role.choices),)
    search_fields = ("name",)
    ordering = ("name",)
    actions = ("revoke",)
    fields = ("name", "role", "prefix", "state", "created_at", "last_used_at", "revoked_at")
    readonly_fields = ("state",)

    @admin.display(description="state")
    def state(self, key: ApiKey) -> SafeString:
        value, label = ("revoked", "Revoked") if key.revoked_at else ("alive", "Valid")
        return format_html('<span class="state" data-state="{}">{}</span>', value, label)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("reviews.add_apikey"))

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("reviews.change_apikey"))

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm[Any]]:
        return super().get_form(request, obj, change, **kwargs) if obj else ApiKeyForm

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.fields if obj else ("name", "role")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.readonly_fields if obj else ()

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        key = keys.create(obj.name, obj.role)
        obj.pk = ApiKey.objects.values_list("pk", flat=True).get(name=obj.name)
        obj.__dict__["key_shown_once"] = key

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: Any = None) -> HttpResponse:
        """Show the key in this answer only: messages would store it in the session."""
        context = {
            **self.admin_site.each_context(request),
            "title": "The new API key",
            "opts": self.opts,
            "name": obj.name,
            "key": obj.__dict__["key_shown_once"],
        }
        answer = TemplateResponse(request, "admin/reviews/apikey/created.html", context)
        answer["Cache-Control"] = "no-store"
        return answer

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        results = [keys.revoke(name) for name in queryset.values_list("name", flat=True)]
        skipped = len(results) - sum(results)
        text = f"{sum(results)} revoked" + (f", {skipped} skipped: already revoked" if skipped else "") + "."
        self.message_user(request, text, messages.WARNING if skipped else messages.SUCCESS)
