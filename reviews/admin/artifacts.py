"""Admin of artifacts: the list, and the page that shows one's content."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache

from criticizer.admin_site.base import ReadOnlyAdmin, admin_page, choice_filter, detail_field, list_column
from criticizer.admin_site.viewing_scope import of_job
from criticizer.security.client_ip import client_ip
from reviews.artifacts import reader
from reviews.artifacts.reader import ReadFailed, ReadRefused
from reviews.models import Artifact


@admin.register(Artifact)
class ArtifactAdmin(ReadOnlyAdmin):
    """Stored artifacts. Reading one needs a permission and is always recorded."""

    scope = of_job("job")
    empty_text = (
        "Nothing is stored yet. A review stores the change as it was fetched, without "
        "secrets, and as the model saw it."
    )
    list_display = (
        list_column("job", "review", "path"),
        "kind",
        "contents",
        list_column("size_bytes", "bytes"),
        list_column("created_at", "written"),
        list_column("expires_at", "expires"),
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
        detail_field("expires_at", "expires"), detail_field("checked_at", "checked"),
        detail_field("deleted_at", "deleted"),
        "fault", detail_field("key_id", "key"), detail_field("name", "name", "whole path"),
    )  # fmt: skip

    @admin.display(description="contents")
    def contents(self, artifact: Artifact) -> str:
        return "raw" if artifact.is_raw else "redacted"

    def get_urls(self) -> list[URLPattern]:
        # Not behind `admin_view`: a refusal must be recorded, not redirected to the login.
        view = never_cache(self.content_view)
        return [path("<int:pk>/content/", view, name="reviews_artifact_content"), *super().get_urls()]

    def page_context(self, request: HttpRequest, row: Artifact) -> dict[str, Any]:
        may_read = reader.may_read(row, request.user)
        address = reverse("admin:reviews_artifact_content", args=[row.pk]) if may_read else ""
        return {"content_address": address}

    def content_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show an artifact's text; reading and refusal are both recorded in the audit."""
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path(), reverse("admin:login"))
        artifact = Artifact.objects.select_related("job").filter(pk=pk).first()
        if artifact is None:
            raise Http404
        try:
            content = reader.read(artifact, request.user, client_ip(request))
        except ReadRefused as refused:
            raise PermissionDenied(str(refused)) from refused
        except ReadFailed as failed:
            self.message_user(request, str(failed), messages.ERROR)
            return HttpResponseRedirect(reverse("admin:reviews_artifact_changelist"))
        template, title = "admin/reviews/artifact/content.html", str(artifact)
        return admin_page(request, template, title, opts=self.opts, artifact=artifact, content=content)
