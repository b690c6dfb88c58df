"""Admin of reviews: the list, the page of one review, and accepting a late result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import path, reverse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import admin_page, list_column, state_column
from criticizer.admin_site.keyset import KeysetAdmin
from criticizer.admin_site.list_rendering import format_html_fast
from criticizer.admin_site.ordering import Ordering
from criticizer.admin_site.search_query import Key, age, exact, flags, number
from criticizer.admin_site.viewing_scope import of_job, of_registered
from criticizer.resilience.failures import ErrorClass
from deadletters.admin.forms import ReasonForm
from deadletters.models import DeadLetter
from reviews import pipeline
from reviews.admin import message_preview
from reviews.models import FindingFate, ReviewJob, StageRun
from reviews.recipients.viewing_scopes import scope_of
from reviews.search import JOB_WORDS, in_states, jobs_with_stages, jobs_without_stages, newest_with_stages
from reviews.states import JobStatus, Stage, StageStatus
from reviews.web.fates import ledger_of
from reviews.web.progress import stages_of
from reviews.web.review_results import MAX_FINDINGS, results_of

_ENDED = Q(finished_at__isnull=False)


def _stage_key(key: Key, **also: Any) -> Key:
    """Return a key of stages as a key of jobs: one of the job's stages matches it."""

    def condition(text: str) -> Q:
        stages = StageRun.objects.filter(key.condition(text), job=OuterRef("pk"), **also)
        return Q(Exists(stages))

    return replace(key, condition=condition)


def _state_key(key: Key) -> Key:
    """Return a key of states whose list of ended reviews begins behind the backlog."""

    def condition(text: str) -> Q:
        key.condition(text)  # it refuses what is no state
        return in_states([state.strip().lower() for state in text.split(",")])

    return replace(key, condition=condition)


def _error_key(key: Key) -> Key:
    """Return a key of the error classes of stages, which have an index, as a key of jobs."""
    return replace(
        key,
        condition=lambda text: jobs_with_stages(StageRun.objects.filter(key.condition(text))),
        opposite=lambda text: jobs_without_stages(StageRun.objects.filter(key.condition(text))),
        newest=lambda text, below: newest_with_stages(StageRun.objects.filter(key.condition(text)), below),
    )


def _fates(job: ReviewJob) -> QuerySet[FindingFate]:
    rows = FindingFate.of_newest_run(job).select_related("finding", "merged_into__finding")
    return rows.defer("finding__excerpt", "merged_into__finding__excerpt")[:MAX_FINDINGS]


@admin.register(ReviewJob)
class ReviewJobAdmin(KeysetAdmin):
    scope = of_job("pk")
    empty_text = (
        "No review was requested yet. A trigger, a code host, a poll or a request through the API begins one."
    )
    list_display = (
        "changelist",
        list_column("review_version", "version"),
        "state",
        list_column("title", "title", "words"),
        list_column("author", "author", "words"),
        list_column("created_at", "requested"),
    )
    list_only = (
        "changelist_id", "review_version", "status", "is_late", "title", "author", "created_at",
    )  # fmt: skip
    # Each order and search key is served by an index.
    orderings = {
        "newest": Ordering("Newest", ("-created_at", "-id"), is_of_creation=True),
        "oldest": Ordering("Oldest", ("created_at", "id")),
        "finished": Ordering("Finished last", ("-finished_at", "-id"), where=_ENDED),
    }
    search_keys = {
        "cl": exact("changelist_id", "The changelist", example="12345"),
        "state": _state_key(exact("status", "The state; several with commas", choices=JobStatus)),
        "stage": _stage_key(
            exact("stage", "The current stage, or the one that failed", choices=Stage, example="llm"),
            status__in=(StageStatus.RUNNING, StageStatus.RETRY_WAIT, StageStatus.FAILED),
        ),
        "error": _error_key(
            exact(
                "error_class", "The last error class of a stage", choices=ErrorClass, example="RATE_LIMITED"
            )
        ),
        "age": age("created_at", "Time since it was requested", example="<2d"),
        "finished": age("finished_at", "Time since it ended", example="<1h"),
        "version": number("review_version", "The version of the review", example=">1"),
        "key": exact("idempotency_key", "The idempotency key of the request", example="p4-12345"),
        "is": flags(
            {"late": Q(is_late=True), "ended": _ENDED, "active": Q(finished_at__isnull=True)},
            "Late, ended or active",
        ),
    }
    search_words = JOB_WORDS
    starting_views = {
        "Running": "q=is%3Aactive",
        "Failed": "q=state%3Adead_lettered%2Ctimed_out",
        "Late": "q=is%3Alate",
    }
    fields = readonly_fields = ("state",)  # change_form.html shows the whole job
    status_badge = state_column("status")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("recipients")

    @admin.display(description="changelist", ordering="changelist_id")
    def changelist(self, job: ReviewJob) -> SafeString:
        return format_html_fast('<span class="path">{}</span>', job.changelist_id)

    @admin.display(description="state")
    def state(self, job: ReviewJob) -> SafeString:
        status = self.status_badge(job)
        return format_html_fast('{} <span class="quiet">late</span>', status) if job.is_late else status

    def view_on_site(self, job: ReviewJob) -> str:
        return reverse("reviews:detail", args=[job.pk])

    def page_context(self, request: HttpRequest, row: ReviewJob) -> dict[str, Any]:
        """Return the job with its stages, attempts, findings, coverage and deliveries, each bounded."""
        scope = scope_of(request.user)
        return {
            "title": f"Review of {row.changelist_id[:80]}, version {row.review_version}",
            "job": row,
            "stages": stages_of(row, scope),
            "results": results_of(row, scope),
            "letters": of_registered(DeadLetter, request.user).filter(job=row).order_by("-id")[:20],
            # Like the details of attempts, their texts may name any file.
            "events": row.events.order_by("-id")[:50] if scope.everything else (),
            "ledger": ledger_of(row, scope),
            "fates": _fates(row) if scope.everything else (),
            "may_read_message": message_preview.may_read(request.user),
            "may_accept_late": request.user.has_perm("reviews.accept_late")
            and not pipeline.why_not_acceptable(row.pk),
        }

    def get_urls(self) -> list[Any]:
        accept = self.admin_site.admin_view(self.accept_late_view)
        return [
            path("<int:job_id>/accept-late/", accept, name="reviews_reviewjob_accept_late"),
            *super().get_urls(),
        ]

    def accept_late_view(self, request: HttpRequest, job_id: int) -> HttpResponse:
        """Ask for a reason, then deliver the late result of a timed-out review."""
        if not request.user.has_perm("reviews.accept_late"):
            raise PermissionDenied
        job = get_object_or_404(self.get_queryset(request), pk=job_id)
        address = reverse("admin:reviews_reviewjob_change", args=[job_id])
        if problem := pipeline.why_not_acceptable(job_id):
            self.message_user(request, f"Nothing was accepted: {problem}.", messages.WARNING)
            return HttpResponseRedirect(address)
        form = ReasonForm(request.POST or None)
        if not form.is_valid():
            template, title = "admin/reviews/reviewjob/accept_late.html", "Accept the late result"
            return admin_page(request, template, title, opts=self.opts, form=form, job=job)
        problem = pipeline.accept_late(job_id, request.user.get_username(), form.cleaned_data["reason"])
        if problem:
            self.message_user(request, f"Nothing was accepted: {problem}.", messages.WARNING)
        else:
            self.message_user(request, "Accepted: the recipients are notified now.", messages.SUCCESS)
        return HttpResponseRedirect(address)
