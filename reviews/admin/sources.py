"""The event ledger and the polled sources in the admin (read-only)."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from criticizer.admin_site.base import ReadOnlyAdmin, one_of, titled
from criticizer.admin_site.list_rendering import chip
from reviews.models import SourceEvent, SourcePosition

# Outcome -> the look of a state that means as much (states.css).
_LOOKS = {
    SourceEvent.Outcome.CREATED: "alive",
    SourceEvent.Outcome.JOINED: "superseded",
    SourceEvent.Outcome.SEEN_BEFORE: "skipped",
    SourceEvent.Outcome.FOUND_BY_POLL: "silent",
    SourceEvent.Outcome.REFUSED: "failed",
}


@admin.register(SourceEvent)
class SourceEventAdmin(ReadOnlyAdmin):
    """What triggers told and the poll found, and which review came of it."""

    list_display = (
        titled("received_at", "received"),
        "event",
        titled("changelist_id", "changelist", "path"),
        titled("server", "server", "path"),
        "origin",
        "state",
        "review",
        "repeats",
    )
    list_filter = (
        one_of("outcome", "outcome", SourceEvent.Outcome.choices),
        one_of("origin", "origin", SourceEvent.Origin.choices),
        one_of("event", "event", SourceEvent.Kind.choices),
    )
    list_select_related = ("job",)
    search_fields = ("changelist_id__exact",)
    search_help_text = "A changelist, exactly."
    ordering = ("-received_at", "-id")
    fields = (
        "event", "changelist_id", "server", "origin", "state", "review",
        "version_key", "received_at", "repeats", "repeated_at",
    )  # fmt: skip
    readonly_fields = ("state", "review")

    @admin.display(description="outcome", ordering="outcome")
    def state(self, row: Any) -> SafeString:
        look = _LOOKS[SourceEvent.Outcome(row.outcome)]
        label = row.get_outcome_display()
        return chip(look, label)

    @admin.display(description="review")
    def review(self, row: Any) -> SafeString | str:
        if row.job is None:
            return "none"
        address = reverse("admin:reviews_reviewjob_change", args=[row.job_id])
        return format_html('<a href="{}">{}</a>', address, row.job)


@admin.register(SourcePosition)
class SourcePositionAdmin(ReadOnlyAdmin):
    """How far the poll has looked, and how much no trigger told."""

    list_display = (
        titled("stream", "stream", "path"),
        "condition",
        titled("place", "place", "path"),
        titled("missing", "not told"),
        titled("last_missing_at", "last not told"),
        titled("polled_at", "asked"),
        "problem",
    )
    ordering = ("stream",)
    fields = ("stream", "condition", "place", "missing", "last_missing_at", "polled_at", "problem")
    readonly_fields = ("condition",)

    @admin.display(description="state")
    def condition(self, row: Any) -> SafeString:
        look, label = ("silent", "Stopped") if row.problem else ("alive", "Asked to the end")
        return format_html('<span class="condition" data-state="{}">{}</span>', look, label)
