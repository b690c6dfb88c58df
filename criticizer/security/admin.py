"""Admin of security events (read-only)."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from criticizer.admin_site.base import ReadOnlyAdmin, fact, named_values, one_of, titled
from criticizer.models import SecurityEvent


@admin.register(SecurityEvent)
class SecurityEventAdmin(ReadOnlyAdmin):
    list_display = (
        titled("created_at", "when"),
        titled("kind", "event"),
        titled("changelist_id", "changelist", "path"),
        titled("path", "path", "path"),
        "reason",
        titled("actor", "who"),
    )
    list_filter = (one_of("event", "kind", SecurityEvent.Kind.choices),)
    search_fields = ("changelist_id__exact", "actor__exact", "path__startswith")
    search_help_text = "A changelist or an actor, exactly; or the beginning of a path."
    ordering = ("-created_at", "-id")
    fields = (
        fact("created_at", "when"), fact("kind", "event"), fact("changelist_id", "changelist", "path"),
        fact("actor", "who"), fact("path", "path", "whole path"), fact("reason", "reason", "whole"),
    )  # fmt: skip

    def page_context(self, request: HttpRequest, row: SecurityEvent) -> dict[str, Any]:
        return {"title": row.get_kind_display(), "context_facts": named_values(row.context)}
