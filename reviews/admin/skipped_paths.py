"""Admin of the paths that no model reads: edited with a reason and a history."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest

from criticizer.admin_site.base import list_column
from criticizer.admin_site.viewing_scope import not_of_reviews
from criticizer.resilience.failures import PermanentFailure
from reviews import config
from reviews.admin.audited import AuditedAdmin, register_audited
from reviews.models import AllowListEntry, SkippedPath
from reviews.sources.allowlist import example_path
from reviews.sources.skipped_paths import SkippedPaths
from reviews.web.forms import ReasonedEdit, checked_pattern


class SkippedPathForm(ReasonedEdit[SkippedPath]):
    """A path that the model need not read, and the reason for this edit."""

    class Meta:
        model = SkippedPath
        fields = ("pattern", "reason")

    def clean_pattern(self) -> str:
        return checked_pattern(self.cleaned_data["pattern"])


@register_audited(SkippedPath, list_column("pattern", "pattern", "path"), search="pattern__startswith")
class SkippedPathAdmin(AuditedAdmin):
    """Paths that only the checks read.

    Unlike an exclude line of the allow-list, such a path stops no change.
    """

    scope = not_of_reviews("which paths no model reads")
    empty_text = (
        "No path is skipped. Add one for files that the model need not read, such as //depot/main/vendor/..."
    )
    form = SkippedPathForm
    list_display = (list_column("pattern", "pattern", "path"), "reason")
    search_fields = ("pattern__startswith",)
    ordering = ("pattern",)

    def save_model(self, request: HttpRequest, obj: SkippedPath, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if "pattern" in form.changed_data and (warning := reach_warning(obj.pattern)):
            self.message_user(request, warning, messages.WARNING)


def reach_warning(pattern: str) -> str:
    """Return what to say of a pattern that skips nothing, or all that may be read; else ""."""
    try:
        allowed = config.allow_list()
    except PermanentFailure:
        return ""  # a stored line of the allow-list is not valid, and every fetch says so
    includes = AllowListEntry.objects.filter(kind=AllowListEntry.Kind.INCLUDE)
    lines = list(includes.values_list("pattern", flat=True)) or [
        line for line in settings.DEPOT_ALLOW_LIST if not line.startswith("-")
    ]
    skipped = SkippedPaths([pattern])
    if all(skipped.reason(example_path(line)) for line in lines):
        return f"{pattern} keeps every path from the model: from now on only the checks read a change."
    fixed, star, _ = pattern.partition("*")
    folder = pattern.removesuffix("...") if not star else f"{fixed.rpartition('/')[0]}/"
    is_reached = allowed.may_touch(folder) if star or folder != pattern else allowed.decide(pattern).allowed
    return "" if is_reached else f"{pattern} matches nothing that may be read. Check how it is written."
