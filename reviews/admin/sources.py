"""The event ledger and the polled sources in the admin (read-only)."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from criticizer.admin_site.base import ReadOnlyAdmin, choice_filter, list_column
from criticizer.admin_site.list_rendering import badge
from criticizer.admin_site.viewing_scope import not_of_reviews, of_job
from reviews.models import SourceEvent, SourcePosition

# Outcome -> CSS state with the same meaning (states.css).
_LOOKS = {
    SourceEvent.Outcome.CREATED: "alive",
    SourceEvent.Outcome.JOINED: "superseded",
    SourceEvent.Outcome.SEEN_BEFORE: "skipped",
    SourceEvent.Outcome.FOUND_BY_POLL: "silent",
    SourceEvent.Outcome.REFUSED: "failed",
}


@admin.register(SourceEvent)
class SourceEventAdmin(ReadOnlyAdmin):
    """Events that triggers sent or the poll found, with the review of each."""

    scope = of_job("job")
    empty_text = "No trigger, code host or poll has reported a change yet."
    list_display = (
        list_column("received_at", "received"),
        "event",
        list_column("changelist_id", "changelist", "path"),
        list_column("server", "server", "path"),
        "origin",
        "state",
        "review",
        "repeats",
    )
    list_filter = (
        choice_filter("outcome", "outcome", SourceEvent.Outcome.choices),
        choice_filter("origin", "origin", SourceEvent.Origin.choices),
        choice_filter("event", "event", SourceEvent.Kind.choices),
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
        return badge(look, label)

    @admin.display(description="review")
    def review(self, row: Any) -> SafeString | str:
        if row.job is None:
            return "none"
        address = reverse("admin:reviews_reviewjob_change", args=[row.job_id])
        return format_html('<a href="{}">{}</a>', address, row.job)


@admin.register(SourcePosition)
class SourcePositionAdmin(ReadOnlyAdmin):
    """The position of the poll in each stream, and how many events no trigger sent."""

    scope = not_of_reviews("how far the poll is")
    empty_text = (
        "No source has been polled yet. Set SOURCE_POLL_SECONDS to find changes that no trigger reported."
    )
    list_display = (
        list_column("stream", "stream", "path"),
        "condition",
        list_column("place", "position", "path"),
        list_column("missing", "missed"),
        list_column("last_missing_at", "last missed"),
        list_column("polled_at", "polled"),
        "problem",
    )
    ordering = ("stream",)
    fields = ("stream", "condition", "place", "missing", "last_missing_at", "polled_at", "problem")
    readonly_fields = ("condition",)

    @admin.display(description="state")
    def condition(self, row: Any) -> SafeString:
        look, label = ("silent", "Stopped") if row.problem else ("alive", "Complete")
        return format_html('<span class="condition" data-state="{}">{}</span>', look, label)
