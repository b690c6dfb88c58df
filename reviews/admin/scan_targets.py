"""Admin of the paths whose documentation is scanned: edited with a reason and a history."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest
from django.urls import reverse

from criticizer.admin_site.base import list_column
from criticizer.admin_site.viewing_scope import not_of_reviews
from criticizer.resilience.failures import Failure
from criticizer.wording import plural_count
from notifications.recipients import normalise
from reviews.admin.audited import AuditedAdmin, register_audited
from reviews.intake import scans
from reviews.intake.api_keys import check_tree
from reviews.models import Scan, ScanTarget
from reviews.web.forms import ReasonedEdit, accepted


class ScanTargetForm(ReasonedEdit[ScanTarget]):
    """A path that is scanned, how often, who is notified, and the reason for this edit."""

    class Meta:
        model = ScanTarget
        fields = ("path", "every_hours", "recipients", "reason")
        widgets = {"recipients": forms.Textarea(attrs={"rows": 3, "cols": 60})}
        help_texts = {
            "path": "Such as //app/... for the git repository app, //github/owner/name/... for one of a code"
            " host, //depot/project/... for a depot path, or //app/docs/... for a folder. It cannot be edited"
            " later, as it decides who may read the scans: add another path instead."
        }

    def clean_path(self) -> str:
        try:
            return check_tree(self.cleaned_data["path"].strip())
        except ValueError as error:
            raise forms.ValidationError(
                "Write a whole folder, such as //app/... or //app/docs/..."
            ) from error

    def clean_recipients(self) -> str:
        return "\n".join(accepted(normalise, one) for one in self.cleaned_data["recipients"].split())


@register_audited(ScanTarget, list_column("path", "path", "path"), "every_hours", search="path__startswith")
class ScanTargetAdmin(AuditedAdmin):
    """Paths whose documents are scanned as a whole, without a change."""

    scope = not_of_reviews("which paths are scanned")
    empty_text = (
        "No path is scanned. Add one to verify all documents of a git repository, such as //app/..., of a"
        " depot path, such as //depot/project/..., or of a folder of it."
    )
    form = ScanTargetForm
    list_display = (
        list_column("path", "path", "path"),
        "every_hours",
        list_column("next_at", "next scan"),
        "problem",
        "reason",
    )
    search_fields = ("path__startswith",)
    ordering = ("path",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ("path",) if obj else ()

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[Any, ...]:
        # Counted: Django's own would load every document of every scan.
        count = Scan.objects.filter(target__in=objs).count()
        return [plural_count(count, "scan")], {"scans": count}, set(), []

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        scans.delete(obj, request.user.get_username())

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if "every_hours" in form.changed_data:
            obj.next_at, obj.problem = None, ""  # due now, from which the new interval counts
        super().save_model(request, obj, form, change)
        try:
            scans.repository_of(obj)
        except Failure as failure:
            self.message_user(request, f"It cannot be scanned yet: {failure.detail}.", messages.WARNING)

    def view_on_site(self, obj: Any) -> str:
        return reverse("reviews:scan-target", args=[obj.pk])
