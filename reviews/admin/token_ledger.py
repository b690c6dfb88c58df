"""Admin of the token ledger (read-only)."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import detail_field, list_column, state_column
from criticizer.admin_site.keyset import KeysetAdmin
from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.admin_site.ordering import Ordering
from criticizer.admin_site.search_query import age, exact, number
from criticizer.admin_site.viewing_scope import of_job
from reviews.models import LedgerEntry
from reviews.states import LedgerState


@admin.register(LedgerEntry)
class LedgerEntryAdmin(KeysetAdmin):
    """Calls to language models and their tokens; the dashboard shows the limits."""

    scope = of_job("job")
    list_display = (
        list_column("call", "call", "path"),
        "shown_state",
        "review",
        list_column("source", "source", "path"),
        list_column("model", "model"),
        list_column("tokens", "tokens"),
        list_column("input_tokens", "read"),
        list_column("cached_tokens", "of it cached"),
        list_column("output_tokens", "written"),
        list_column("started_at", "started"),
    )
    list_select_related = ("job",)
    list_only = (
        "call", "state", "source", "model", "tokens", "input_tokens", "cached_tokens", "output_tokens",
        "started_at", "job__changelist_id", "job__review_version",
    )  # fmt: skip
    orderings = {"newest": Ordering("Newest", ("-started_at", "-id"))}
    search_keys = {
        "state": exact("state", "The state", choices=LedgerState, example="unknown"),
        "cl": exact("job__changelist_id", "The changelist", example="12345"),
        "source": exact("source", "Perforce, or a repository", example="perforce"),
        "model": exact("model", "The model that was asked"),
        "llm": exact("dependency", "The model server", example="llm:openai"),
        "call": exact("call", "The id of the call, as in the log"),
        "tokens": number("tokens", "The tokens that count", example=">20000"),
        "age": age("started_at", "Time since it started", example="<1h"),
    }
    starting_views = {"Without a report": "q=state%3Aunknown", "Today": "q=age%3A%3C1d"}
    empty_text = "No call to a language model in the last 30 days."
    fieldsets = (
        ("Call", {"fields": (
            "shown_state", "review", detail_field("source", "source", "path"),
            detail_field("dependency", "model server", "path"), detail_field("model", "model"),
            detail_field("started_at", "started"), detail_field("ended_at", "ended"),
        )}),
        ("Tokens", {"fields": (
            detail_field("tokens", "counted"), detail_field("reserved_tokens", "reserved"),
            detail_field("input_tokens", "read"), detail_field("cached_tokens", "of it cached"),
            detail_field("cache_write_tokens", "of it put into the cache"),
            detail_field("output_tokens", "written"),
        )}),
    )  # fmt: skip
    shown_state = state_column("state", "state")

    def page_context(self, request: HttpRequest, row: LedgerEntry) -> dict[str, Any]:
        return {"title": f"Call {row.call}"}

    @admin.display(description="review")
    def review(self, entry: LedgerEntry) -> SafeString:
        address = reverse("admin:reviews_reviewjob_change", args=[entry.job_id])
        return format_html_fast('<a class="path" href="{}">{}</a>', address, str(entry.job)[:80])
