"""Admin of the allow-list, and the page that explains its decision about a path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path

from criticizer.admin_site.base import admin_page, choice_filter, list_column
from criticizer.admin_site.viewing_scope import not_of_reviews
from criticizer.queue import advisory_locks
from criticizer.resilience.failures import PermanentFailure
from reviews import config
from reviews.admin.audited import AuditedAdmin, register_audited
from reviews.models import AllowListEntry, SkippedPath
from reviews.sources.allowlist import AllowList, AllowListDecision
from reviews.sources.paths import canonical_case, encode_path, path_fault, printable
from reviews.sources.skipped_paths import SkippedPaths
from reviews.web.forms import AllowListDeletionForm, AllowListEntryForm, PathForm


@register_audited(
    AllowListEntry, list_column("pattern", "pattern", "path"), "kind", search="pattern__startswith"
)
class AllowListEntryAdmin(AuditedAdmin):
    """Lines that narrow DEPOT_ALLOW_LIST.

    Each edit is recorded with its author, time, reason and origin.
    """

    scope = not_of_reviews("which paths may be reviewed")
    empty_text = "No line narrows the ceiling: every path that it allows may be read."
    form = AllowListEntryForm
    deletion_form = AllowListDeletionForm
    list_display = (list_column("pattern", "pattern", "path"), "kind", "position", "reason")
    list_filter = (choice_filter("kind", "kind", AllowListEntry.Kind.choices),)
    search_fields = ("pattern__startswith",)
    ordering = ("position", "id")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.explain_view)
        return [path("explain/", view, name="reviews_allowlistentry_explain"), *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().changelist_view(
            request, {"ceiling": settings.DEPOT_ALLOW_LIST, **(extra_context or {})}
        )

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        with _one_edit_at_a_time(request):
            return super().changeform_view(request, object_id, form_url, extra_context)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        with _one_edit_at_a_time(request):
            return super().delete_view(request, object_id, extra_context)

    def explain_view(self, request: HttpRequest) -> HttpResponse:
        """Show whether a path is allowed and which line decides; nothing is fetched."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = PathForm(request.GET if "path" in request.GET else None)
        explanation = None
        if form.is_valid():
            explanation = explain(
                form.cleaned_data["path"], case_sensitive=not form.cleaned_data["ignore_case"]
            )
        return admin_page(
            request,
            "admin/reviews/allowlistentry/explain.html",
            "Would this path be allowed?",
            opts=self.opts,
            form=form,
            explanation=explanation,
        )


@contextmanager
def _one_edit_at_a_time(request: HttpRequest) -> Iterator[None]:
    """Let an edit see all lines that earlier edits changed, until it is committed (G223)."""
    with transaction.atomic():
        if request.method == "POST":
            advisory_locks.take(advisory_locks.Lock.ALLOW_LIST, "")
        yield


@dataclass(frozen=True, slots=True)
class ExplainStep:
    """The decision of one list; `row` is the stored line that decided, if one did."""

    name: str
    decision: AllowListDecision
    row: AllowListEntry | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Decision of `ChangeFetcher` about `path`.

    `compared` is the form in which it is compared, or empty when the path is not canonical; `advice`
    suggests a canonical path then.
    """

    path: str
    decision: AllowListDecision
    compared: str
    steps: tuple[ExplainStep, ...]
    advice: str = ""
    skipped: str = ""  # why no model reads it


def explain(path: str, *, case_sensitive: bool = True) -> Explanation:
    """Decide about `path` with the current lines, list by list."""
    fault = path_fault(path)
    ceiling = AllowList(settings.DEPOT_ALLOW_LIST).with_case(case_sensitive)
    try:
        decision = config.allow_list().with_case(case_sensitive).decide(path)
    except PermanentFailure as failure:
        # A stored line that is not valid denies everything: so does the fetcher.
        return Explanation(printable(path), AllowListDecision(allowed=False, reason=failure.detail), "", ())
    if fault is not None:
        return Explanation(printable(path), decision, "", (), _advice(path))
    steps = [ExplainStep("The ceiling (DEPOT_ALLOW_LIST)", ceiling.decide(path))]
    rows = list(AllowListEntry.objects.order_by("position", "id"))
    if rows:
        found = _rows_alone(rows, case_sensitive).decide(path)
        row = next((row for row in reversed(rows) if _text(row) == found.line), None)
        steps.append(ExplainStep("The lines of the admin", found, row))
    compared = canonical_case(path, case_sensitive=case_sensitive)
    patterns = list(SkippedPath.objects.values_list("pattern", flat=True))
    skipped = SkippedPaths(patterns, case_sensitive=case_sensitive).reason(path)
    return Explanation(printable(path), decision, printable(compared), tuple(steps), skipped=skipped)


def _rows_alone(rows: list[AllowListEntry], case_sensitive: bool) -> AllowList:
    # Without the ceiling; lines that only exclude leave the rest to it, so everything comes first.
    lines = [_text(row) for row in rows]
    if all(row.kind == AllowListEntry.Kind.EXCLUDE for row in rows):
        lines = [*settings.DEPOT_ALLOW_LIST, *lines]
    return AllowList(lines, case_sensitive)


def _text(row: AllowListEntry) -> str:
    return ("-" if row.kind == AllowListEntry.Kind.EXCLUDE else "") + row.pattern


def _advice(path: str) -> str:
    """Return how the path would be written if its characters were meant as they stand."""
    written = encode_path(path.strip())
    if path_fault(written) is None:
        return f"If the name really holds these characters, its depot path is {printable(written)}."
    return ""
