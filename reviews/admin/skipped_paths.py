"""Admin of the paths that no model reads: edited with a reason and a history."""

from __future__ import annotations

from django.contrib import admin

from criticizer.admin_site.base import list_column
from criticizer.admin_site.viewing_scope import not_of_reviews
from reviews.admin.audited import AuditedAdmin, register_edits
from reviews.audit.history import SkippedPathEvent
from reviews.models import SkippedPath
from reviews.web.forms import ReasonedEdit, checked_pattern


class SkippedPathForm(ReasonedEdit[SkippedPath]):
    """A path that the model need not read, and the reason for this edit."""

    class Meta:
        model = SkippedPath
        fields = ("pattern", "reason")

    def clean_pattern(self) -> str:
        return checked_pattern(self.cleaned_data["pattern"])


@admin.register(SkippedPath)
class SkippedPathAdmin(AuditedAdmin):
    """What the checks alone read; unlike an exclude line of the allow-list, it stops no change."""

    scope = not_of_reviews("which paths no model reads")
    empty_text = (
        "No path is skipped. Add one for files that the model need not read, such as //depot/main/vendor/..."
    )
    events = SkippedPathEvent
    form = SkippedPathForm
    list_display = (list_column("pattern", "pattern", "path"), "reason")
    search_fields = ("pattern__startswith",)
    ordering = ("pattern",)


register_edits(
    SkippedPathEvent,
    SkippedPathAdmin.scope,
    list_column("pattern", "pattern", "path"),
    search="pattern__startswith",
)
