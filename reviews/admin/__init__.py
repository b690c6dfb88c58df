"""The console's view of reviews, the allow-list and API keys."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString
from django.views.decorators.cache import never_cache

from criticizer.admin_site.base import ReadOnlyAdmin, choice_filter, detail_field, list_column, state_column
from criticizer.admin_site.keyset import KeysetAdmin
from criticizer.admin_site.list_rendering import badge, format_html_fast
from criticizer.security.client_ip import client_ip
from deadletters.admin.forms import ReasonForm
from reviews import pipeline
from reviews.admin import (
    job_lists,  # registers the attempts as well
    message_preview,
)
from reviews.admin import sources as source_admin  # noqa: F401  registers the event ledger
from reviews.admin import subscriptions as recipient_admin  # noqa: F401  registers subscriptions and preferences
from reviews.admin import viewer_scopes as scope_admin  # noqa: F401  registers the viewing scopes
from reviews.admin.allow_list_explain import explain
from reviews.admin.audited import AuditedAdmin, EditsAdmin
from reviews.artifacts import reader as artifact_reading
from reviews.artifacts.reader import ReadFailed, ReadRefused
from reviews.audit.history import AllowListEntryEvent
from reviews.intake import api_keys
from reviews.models import AllowListEntry, ApiKey, Artifact, ReviewJob
from reviews.recipients.scopes import scope_of
from reviews.search import JOB_WORDS
from reviews.web.forms import AllowListEntryForm, ApiKeyForm, PathForm
from reviews.web.review_page import results_of, stages_of


@admin.register(ReviewJob)
class ReviewJobAdmin(KeysetAdmin):
    change_form_template = "admin/reviews/reviewjob/change_form.html"
    list_display = (
        "changelist",
        list_column("review_version", "version"),
        "state",
        list_column("title", "title", "words"),
        list_column("author", "author", "words"),
        list_column("created_at", "requested"),
    )
    list_only = (
        "changelist_id", "review_version", "status", "is_late", "title", "author", "created_at",
    )  # fmt: skip
    orderings = job_lists.JOB_ORDERINGS
    search_keys = job_lists.JOB_KEYS
    search_words = JOB_WORDS
    starting_views = job_lists.JOB_VIEWS
    fields = readonly_fields = ("state",)  # change_form.html shows the whole job
    status_word = state_column("status")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(scope_of(request.user).of_jobs()).defer("recipients")

    @admin.display(description="changelist", ordering="changelist_id")
    def changelist(self, job: ReviewJob) -> SafeString:
        return format_html_fast('<span class="path">{}</span>', job.changelist_id)

    @admin.display(description="state")
    def state(self, job: ReviewJob) -> SafeString:
        word = self.status_word(job)
        return format_html_fast('{} <span class="quiet">late</span>', word) if job.is_late else word

    def view_on_site(self, job: ReviewJob) -> str:
        return reverse("reviews:detail", args=[job.pk])

    def page_context(self, request: HttpRequest, row: ReviewJob) -> dict[str, Any]:
        """Return the job with its stages, attempts, findings, coverage and deliveries, each bounded."""
        scope = scope_of(request.user)
        return {
            "title": f"Review of {row.changelist_id[:80]}, version {row.review_version}",
            "job": row,
            "stages": stages_of(row, scope),
            "results": results_of(row, scope),
            "letters": row.dead_letters.order_by("-id")[:20],
            "events": row.events.order_by("-id")[:50],
            "may_read_message": message_preview.may_read(request.user),
            "may_accept_late": request.user.has_perm("reviews.accept_late")
            and not pipeline.why_not_acceptable(row.pk),
        }

    def get_urls(self) -> list[Any]:
        accept = self.admin_site.admin_view(self.accept_late_view)
        return [
            path("<int:job_id>/accept-late/", accept, name="reviews_reviewjob_accept_late"),
            *super().get_urls(),
        ]

    def accept_late_view(self, request: HttpRequest, job_id: int) -> HttpResponse:
        """Ask why, then have the late result of a timed-out review delivered (003, 4.3)."""
        if not request.user.has_perm("reviews.accept_late"):
            raise PermissionDenied
        job = get_object_or_404(self.get_queryset(request), pk=job_id)
        address = reverse("admin:reviews_reviewjob_change", args=[job_id])
        if problem := pipeline.why_not_acceptable(job_id):
            self.message_user(request, f"Nothing was accepted: {problem}.", messages.WARNING)
            return HttpResponseRedirect(address)
        form = ReasonForm(request.POST or None)
        if not form.is_valid():
            context = {
                **self.admin_site.each_context(request),
                "title": "Accept the late result",
                "opts": self.opts,
                "form": form,
                "job": job,
            }
            return TemplateResponse(request, "admin/reviews/reviewjob/accept_late.html", context)
        problem = pipeline.accept_late(job_id, request.user.get_username(), form.cleaned_data["reason"])
        if problem:
            self.message_user(request, f"Nothing was accepted: {problem}.", messages.WARNING)
        else:
            self.message_user(request, "Accepted: the recipients are told now.", messages.SUCCESS)
        return HttpResponseRedirect(address)


@admin.register(AllowListEntry)
class AllowListEntryAdmin(AuditedAdmin):
    """Lines inside the ceiling. Each edit is kept with who, when, what, why and from where (001, 9.1)."""

    events = AllowListEntryEvent
    form = AllowListEntryForm
    list_display = (list_column("pattern", "pattern", "path"), "kind", "position", "reason")
    list_filter = (choice_filter("kind", "kind", AllowListEntry.Kind.choices),)
    search_fields = ("pattern__startswith",)
    ordering = ("position", "id")
    change_list_template = "admin/reviews/allowlistentry/change_list.html"
    delete_confirmation_template = "admin/reviews/allowlistentry/delete_confirmation.html"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.explain_view)
        return [path("explain/", view, name="reviews_allowlistentry_explain"), *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().changelist_view(
            request, {"ceiling": settings.DEPOT_ALLOW_LIST, **(extra_context or {})}
        )

    def explain_view(self, request: HttpRequest) -> HttpResponse:
        """Answer "would this path be allowed?" with the line that decides; nothing is fetched."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = PathForm(request.GET if "path" in request.GET else None)
        explanation = None
        if form.is_valid():
            asked = form.cleaned_data
            explanation = explain(asked["path"], case_sensitive=not asked["ignore_case"])
        context = {
            **self.admin_site.each_context(request),
            "title": "Would this path be allowed?",
            "opts": self.opts,
            "form": form,
            "explanation": explanation,
        }
        return TemplateResponse(request, "admin/reviews/allowlistentry/explain.html", context)


@admin.register(AllowListEntryEvent)
class AllowListEditAdmin(EditsAdmin):
    """Every edit of the allow-list, deleted lines included."""

    list_display = (
        list_column("pgh_created_at", "when"),
        "who",
        "what",
        list_column("pattern", "pattern", "path"),
        "kind",
        "reason",
        "where",
    )
    search_fields = ("pattern__startswith",)


@admin.register(Artifact)
class ArtifactAdmin(ReadOnlyAdmin):
    """Which artifacts exist, for how long, and a way to read one, which is always recorded."""

    change_form_template = "admin/reviews/artifact/change_form.html"
    list_display = (
        list_column("job", "review", "path"),
        "kind",
        "contents",
        list_column("size_bytes", "bytes"),
        list_column("created_at", "written"),
        list_column("expires_at", "kept until"),
        list_column("deleted_at", "deleted"),
        "fault",
    )
    list_select_related = ("job",)
    list_filter = (
        choice_filter("kind", "kind", Artifact.Kind.choices),
        choice_filter("fault", "fault", Artifact.Fault.choices),
    )
    search_fields = ("job__changelist_id__exact",)
    search_help_text = "A changelist, exactly."
    ordering = ("-id",)
    fields = readonly_fields = (
        "job", "kind", "contents", detail_field("size_bytes", "bytes"), detail_field("created_at", "written"),
        detail_field("expires_at", "kept until"), detail_field("checked_at", "checked"),
        detail_field("deleted_at", "deleted"),
        "fault", detail_field("key_id", "key"), detail_field("name", "name", "whole path"),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return those of the reviews within their viewing scope: a row names its changelist."""
        scope, found = scope_of(request.user), super().get_queryset(request)
        return found if scope.everything else found.filter(job__in=scope.jobs())

    @admin.display(description="contents")
    def contents(self, artifact: Artifact) -> str:
        return "raw" if artifact.is_raw else "redacted"

    def get_urls(self) -> list[URLPattern]:
        # Not behind `admin_view`: who is logged in and refused must leave a trace, not be sent to log in.
        view = never_cache(self.content_view)
        return [path("<int:pk>/content/", view, name="reviews_artifact_content"), *super().get_urls()]

    def page_context(self, request: HttpRequest, row: Artifact) -> dict[str, Any]:
        may_read = artifact_reading.may_read(row, request.user)
        address = reverse("admin:reviews_artifact_content", args=[row.pk]) if may_read else ""
        return {"content_address": address}

    def content_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show an artifact's text to those who may read it; both outcomes leave an audit row."""
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path(), reverse("admin:login"))
        artifact = Artifact.objects.select_related("job").filter(pk=pk).first()
        if artifact is None:
            raise Http404
        try:
            content = artifact_reading.read(artifact, request.user, client_ip(request))
        except ReadRefused as refused:
            raise PermissionDenied(str(refused)) from refused
        except ReadFailed as failed:
            self.message_user(request, str(failed), messages.ERROR)
            return HttpResponseRedirect(reverse("admin:reviews_artifact_changelist"))
        context = {
            **self.admin_site.each_context(request),
            "title": str(artifact),
            "opts": self.opts,
            "artifact": artifact,
            "content": content,
        }
        return TemplateResponse(request, "admin/reviews/artifact/content.html", context)


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """Keys are made and revoked here; the key itself is shown once and its digest never."""

    add_form_template = "admin/change_form.html"  # the read-only form has no button to save with
    list_display = (
        list_column("name", "name", "path"),
        "state",
        "role",
        list_column("prefix", "begins with", "path"),
        list_column("created_at", "made"),
        list_column("last_used_at", "last used"),
    )
    list_filter = (choice_filter("role", "role", ApiKey.Role.choices),)
    search_fields = ("name",)
    ordering = ("name",)
    actions = ("revoke",)
    fields = (
        "name", "state", "role", detail_field("prefix", "begins with", "path"),
        detail_field("created_at", "made"),
        detail_field("last_used_at", "last used"), detail_field("revoked_at", "revoked"), "prefixes",
    )  # fmt: skip
    readonly_fields = ("state",)

    @admin.display(description="state")
    def state(self, key: ApiKey) -> SafeString:
        value, label = ("revoked", "Revoked") if key.revoked_at else ("alive", "Valid")
        return badge(value, label)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("reviews.add_apikey"))

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("reviews.change_apikey"))

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm[Any]]:
        return super().get_form(request, obj, change, **kwargs) if obj else ApiKeyForm

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.fields if obj else ("name", "role", "prefixes")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.readonly_fields if obj else ()

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        key = api_keys.create(obj.name, obj.role, form.cleaned_data["prefixes"])
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
        results = [api_keys.revoke(name) for name in queryset.values_list("name", flat=True)]
        skipped = len(results) - sum(results)
        text = f"{sum(results)} revoked" + (f", {skipped} skipped: already revoked" if skipped else "") + "."
        self.message_user(request, text, messages.WARNING if skipped else messages.SUCCESS)
