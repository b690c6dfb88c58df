"""How the console finds jobs and attempts: orders, search keys, views. Each is served by an index."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import detail_field, list_column, named_values, state_column
from criticizer.admin_site.keyset import KeysetAdmin, Ordering
from criticizer.admin_site.list_rendering import badge, format_html_fast
from criticizer.admin_site.search_query import Key, SearchProblem, age, exact, flags, number
from criticizer.resilience.failures import ErrorClass, kind_with_code
from reviews.models import Attempt, ReviewJob, StageRun
from reviews.recipients.scopes import scope_of
from reviews.states import ACTIVE_JOB, AttemptOutcome, JobStatus, Stage, StageStatus

ERROR_CLASSES = [(name.value, name.value) for name in ErrorClass]
_ENDED = Q(finished_at__isnull=False)
# What a stage is in that has begun and is not done.
_AT_STAGE = (StageStatus.RUNNING, StageStatus.RETRY_WAIT, StageStatus.FAILED)


def _with_stage(stage_condition: Q) -> Q:
    return Q(Exists(StageRun.objects.filter(stage_condition, job=OuterRef("pk"))))


def _stage_key() -> Key:
    def condition(text: str) -> Q:
        if text.lower() not in Stage.values:
            raise SearchProblem(f"\u201c{text}\u201d is none of {', '.join(Stage.values)}")
        return _with_stage(Q(stage=text.lower(), status__in=_AT_STAGE))

    return Key(condition, "The stage it is at, or failed in", "llm")


def _error_key() -> Key:
    known = {value.lower(): value for value, _ in ERROR_CLASSES}

    def condition(text: str) -> Q:
        if text.lower() not in known:
            raise SearchProblem(f"\u201c{text}\u201d is none of {', '.join(known.values())}")
        return _with_stage(Q(error_class=known[text.lower()]))

    return Key(condition, "The class of the last failure of one of its stages", "RATE_LIMITED")


JOB_ORDERINGS = {
    "newest": Ordering("Newest", ("-created_at", "-id")),
    "oldest": Ordering("Oldest", ("created_at", "id")),
    "finished": Ordering("Finished last", ("-finished_at", "-id"), where=_ENDED),
}
JOB_KEYS = {
    "cl": exact("changelist_id", "The changelist", example="12345"),
    "state": exact("status", "The state; several with commas", choices=JobStatus.choices),
    "stage": _stage_key(),
    "error": _error_key(),
    "age": age("created_at", "How long ago it was requested", example="<2d"),
    "finished": age("finished_at", "How long ago it ended", example="<1h"),
    "version": number("review_version", "The version of the review", example=">1"),
    "key": exact("idempotency_key", "The idempotency key of the request", example="p4-12345"),
    "is": flags(
        {"late": Q(is_late=True), "ended": _ENDED, "active": Q(status__in=ACTIVE_JOB)},
        "Late, ended or active",
    ),
}
JOB_VIEWS = {
    "At work": "q=is%3Aactive",
    "Failed": "q=state%3Adead_lettered%2Ctimed_out",
    "Late": "q=is%3Alate",
}


@admin.register(Attempt)
class AttemptAdmin(KeysetAdmin):
    """Every try at a stage: what the numbers of the dashboard are made of."""

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
        "error": exact("error_class", "The class of the failure", choices=ERROR_CLASSES),
        "stage": exact("stage_run__stage", "The stage", choices=Stage.choices),
        "outcome": exact("outcome", "How it ended", choices=AttemptOutcome.choices, example="failed"),
        "cl": exact("stage_run__job__changelist_id", "The changelist", example="12345"),
        "age": age("started_at", "How long ago it began", example="<1h"),
        "number": number("number", "Which attempt of its stage it was", example=">1"),
    }
    starting_views = {"Failed today": "q=outcome%3Afailed+age%3A%3C1d"}
    change_form_template = "admin/reviews/attempt/change_form.html"
    fieldsets = (
        ("Attempt", {"fields": (
            "state", "which", "job", "stage_attempts", "letter", detail_field("started_at", "started"),
            detail_field("finished_at", "ended"),
            "took", "tried_again", detail_field("worker", "worker", "path"),
        )}),
    )  # fmt: skip
    state = state_column("outcome", "outcome")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        found = super().get_queryset(request)
        scope = scope_of(request.user)
        if scope.everything:
            return found
        return found.filter(stage_run__job__in=ReviewJob.objects.filter(scope.of_jobs()))

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

    # -- lines of the page --------------------------------------------------------------------

    @admin.display(description="attempt")
    def which(self, attempt: Attempt) -> str:
        return f"{attempt.number} of {attempt.stage_run.max_attempts}"

    @admin.display(description="stage")
    def stage_attempts(self, attempt: Attempt) -> SafeString:
        """Show the stage as it is now, with the way to all of its attempts."""
        run = attempt.stage_run
        search = f'cl:"{run.job.changelist_id}" stage:{run.stage}'
        address = reverse("admin:reviews_attempt_changelist", query={"q": search})
        state = badge(run.status, run.get_status_display())
        return format_html_fast(
            '{} {} <a href="{}">all its attempts</a>', run.get_stage_display(), state, address
        )

    @admin.display(description="dead letter")
    def letter(self, attempt: Attempt) -> SafeString | str:
        run = attempt.stage_run
        letter = run.job.dead_letters.filter(stage=run.stage).order_by("-id").first()
        if letter is None:
            return "none"
        address = reverse("admin:deadletters_deadletter_change", args=[letter.pk])
        state = badge(letter.status, letter.get_status_display())
        return format_html_fast('<a href="{}">Letter {}</a> {}', address, letter.pk, state)

    @admin.display(description="tried again after")
    def tried_again(self, attempt: Attempt) -> str:
        delay = attempt.retry_delay_seconds
        return "" if delay is None else f"{delay:.1f} s"
