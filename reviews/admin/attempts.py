"""Admin of attempts (read-only)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import detail_field, list_column, named_values, state_column
from criticizer.admin_site.keyset import KeysetAdmin
from criticizer.admin_site.list_rendering import badge, format_html_fast
from criticizer.admin_site.ordering import Ordering
from criticizer.admin_site.search_query import Key, age, exact, number
from criticizer.admin_site.viewing_scope import of_whole_job
from criticizer.resilience.failures import ErrorClass, kind_with_code
from reviews.models import Attempt
from reviews.states import AttemptOutcome, Stage


def _without_index(key: Key) -> Key:
    """Return a key that no index serves: rare matches would take reading all attempts."""
    return replace(key, reads_rows=True)


@admin.register(Attempt)
class AttemptAdmin(KeysetAdmin):
    """Attempts of all stages; the dashboard counts them."""

    scope = of_whole_job("stage_run__job")
    empty_text = "No stage of a review has run yet."
    list_display = (
        "number_of",
        "stage",
        "state",
        "why",
        "job",
        list_column("worker", "worker", "path"),
        list_column("started_at", "started"),
        "took",
    )
    list_display_links = ("number_of",)
    list_select_related = ("stage_run__job",)
    list_only = (
        "number", "outcome", "error_class", "detail", "worker", "started_at", "finished_at",
        "stage_run__stage", "stage_run__job__changelist_id", "stage_run__job__review_version",
    )  # fmt: skip
    orderings = {"newest": Ordering("Newest", ("-started_at", "-id"))}
    search_keys = {
        "error": exact("error_class", "The error class", choices=ErrorClass),
        "stage": _without_index(exact("stage_run__stage", "The stage", choices=Stage)),
        "outcome": _without_index(exact("outcome", "The outcome", choices=AttemptOutcome, example="failed")),
        "cl": exact("stage_run__job__changelist_id", "The changelist", example="12345"),
        "age": replace(age("started_at", "Time since it started", example="<1h"), is_range=True),
        "number": _without_index(number("number", "The number of the attempt in its stage", example=">1")),
    }
    starting_views = {"Failed today": "q=outcome%3Afailed+age%3A%3C1d"}
    fieldsets = (
        ("Attempt", {"fields": (
            "state", "which", "job", "stage_attempts", "letter", detail_field("started_at", "started"),
            detail_field("finished_at", "ended"),
            "took", "tried_again", detail_field("worker", "worker", "path"),
        )}),
    )  # fmt: skip
    state = state_column("outcome", "outcome")

    def page_context(self, request: HttpRequest, row: Attempt) -> dict[str, Any]:
        return {
            "title": f"Attempt {row.number} at stage {row.stage_run.stage}",
            "kind": kind_with_code(row.code),
            "context_facts": named_values(row.context),
        }

    @admin.display(description="attempt")
    def number_of(self, attempt: Attempt) -> int:
        return attempt.number

    @admin.display(description="stage")
    def stage(self, attempt: Attempt) -> str:
        return attempt.stage_run.stage

    @admin.display(description="error", empty_value="")
    def why(self, attempt: Attempt) -> SafeString | str:
        if not attempt.error_class:
            return ""
        return format_html_fast(
            '{}<br><span class="quiet">{}</span>', attempt.error_class, attempt.detail[:140]
        )

    @admin.display(description="review")
    def job(self, attempt: Attempt) -> SafeString:
        job = attempt.stage_run.job
        address = reverse("admin:reviews_reviewjob_change", args=[job.pk])
        return format_html_fast('<a class="path" href="{}">{}</a>', address, str(job)[:80])

    @admin.display(description="took", empty_value="")
    def took(self, attempt: Attempt) -> str:
        if attempt.finished_at is None:
            return ""
        return f"{(attempt.finished_at - attempt.started_at).total_seconds():.1f} s"

    @admin.display(description="attempt")
    def which(self, attempt: Attempt) -> str:
        return f"{attempt.number} of {attempt.stage_run.max_attempts}"

    @admin.display(description="stage")
    def stage_attempts(self, attempt: Attempt) -> SafeString:
        run = attempt.stage_run
        search = f'cl:"{run.job.changelist_id}" stage:{run.stage}'
        address = reverse("admin:reviews_attempt_changelist", query={"q": search})
        state = badge(run.status, run.get_status_display())
        return format_html_fast(
            '{} {} <a href="{}">all attempts</a>', run.get_stage_display(), state, address
        )

    @admin.display(description="dead letter")
    def letter(self, attempt: Attempt) -> SafeString | str:
        run = attempt.stage_run
        letter = run.job.dead_letters.filter(stage=run.stage).order_by("-id").first()
        if letter is None:
            return "none"
        address = reverse("admin:deadletters_deadletter_change", args=[letter.pk])
        state = badge(letter.status, letter.get_status_display())
        return format_html_fast('<a href="{}">Dead letter {}</a> {}', address, letter.pk, state)

    @admin.display(description="tried again after")
    def tried_again(self, attempt: Attempt) -> str:
        delay = attempt.retry_delay_seconds
        return "" if delay is None else f"{delay:.1f} s"
