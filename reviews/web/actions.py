"""Confirmation pages for a rerun and for a cancellation, backed by the API's own functions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone

from deadletters.states import OPEN_LETTER
from reviews import pipeline
from reviews.intake import kept_requests
from reviews.models import ReviewJob
from reviews.recipients.viewing_scopes import Scope, scope_of
from reviews.reviewers.base import CoverageStatus
from reviews.reviewers.coverage_texts import LASTING
from reviews.roles import CANCEL, READ, REQUEST
from reviews.states import JobStatus
from reviews.web import rerun
from reviews.web.labels import state_for_readers
from reviews.web.notices import Notice
from reviews.web.reader_page import FORM, page_for

MAX_AN_HOUR = 10  # reviews that one reviewer requests
_MAX_REASONS = 100  # looked at; each names its file's own details


class CancelForm(forms.Form):
    reason = forms.CharField(
        max_length=400, strip=True, help_text="Shown to readers of the review.", label="Reason"
    )


def offered(user: Any, job: ReviewJob, scope: Scope) -> dict[str, bool]:
    """Return which actions the page of a job offers to a user who sees `scope`."""
    return {
        "may_review_again": user.has_perm(REQUEST)
        and not (rerun.why_not(job, scope.jobs()) or _reserved(user, job)),
        "may_cancel": job.is_active and user.has_perm(CANCEL),
    }


def _reserved(user: Any, job: ReviewJob) -> str:
    """Return why this user may not request the next version now, or "".

    Operators always may: they can stop what runs.
    """
    if user.has_perm(CANCEL):
        return ""
    if job.is_active:
        return "This version is still being reviewed."
    if job.dead_letters.filter(status__in=OPEN_LETTER).exists():
        return "This review stopped, and an operator can continue it where it stopped."
    return ""


def with_rerun_links(notices: list[Notice], job: ReviewJob, *, may_review_again: bool) -> list[Notice]:
    """Add a rerun link, or a hint to ask an operator, to notices that a rerun would resolve."""
    address = reverse("reviews:again", args=[job.pk])

    def helped(notice: Notice) -> Notice:
        if may_review_again:
            return replace(notice, url=address, link="Review again")
        return replace(notice, hint=f"{notice.hint} An operator can request another review.".strip())

    return [helped(notice) if _calls_for_another(notice, job) else notice for notice in notices]


def _calls_for_another(notice: Notice, job: ReviewJob) -> bool:
    if notice.url or job.is_active:
        return False
    if job.status in (JobStatus.CANCELLED, JobStatus.TIMED_OUT):
        return True
    return notice.text == job.banner and not _is_left_out_for_good(job)


def _is_left_out_for_good(job: ReviewJob) -> bool:
    """Return whether all that was not read has no text, so that no further review would read it."""
    if job.stopped:
        return False
    unread = job.coverage.exclude(status=CoverageStatus.REVIEWED)
    reasons = list(unread.order_by().values_list("reason", flat=True).distinct()[:_MAX_REASONS])
    return bool(reasons) and all(reason.startswith(LASTING) for reason in reasons)


@page_for(READ, REQUEST, methods=FORM)
def review_again(request: HttpRequest, job_id: int) -> HttpResponse:
    """Show what a rerun will do, and request it."""
    scope = scope_of(request.user)
    job = get_object_or_404(scope.jobs(), pk=job_id)
    if problem := _reserved(request.user, job) or too_many(request.user):
        messages.warning(request, f"Nothing was requested. {problem}")
        return _to(job.pk)
    if request.method == "POST":
        done = rerun.request(job, request.user.get_username(), scope.jobs())
        level = messages.SUCCESS if done.is_new else messages.WARNING
        # Until its files are known, a review is hidden from those who do not see every file.
        can_see = done.job_id is not None and scope.jobs().filter(pk=done.job_id).exists()
        later = "" if can_see or done.job_id is None else " It appears here when its files are known."
        messages.add_message(request, level, done.message + later)
        return _to(done.job_id if can_see and done.job_id else job.pk)
    if problem := rerun.why_not(job, scope.jobs()):
        messages.warning(request, f"Nothing was requested. {problem}")
        return _to(job.pk)
    context = {
        "job": job,
        "version": job.review_version + 1,
        "recipients": rerun.recipients_of(job),
        "finds_recipients": rerun.finds_recipients(job),
        "found_before": job.recipients if rerun.finds_recipients(job) else (),
        "has_late_result": job.status == JobStatus.TIMED_OUT and not pipeline.why_not_acceptable(job.pk),
        "has_open_letter": job.dead_letters.filter(status__in=OPEN_LETTER).exists(),
        "shows_recipients": request.user.is_staff,
    }
    return render(request, "reviews/again.html", context)


@page_for(READ, CANCEL, methods=FORM)
def cancel(request: HttpRequest, job_id: int) -> HttpResponse:
    """Ask for a reason, then cancel a running review."""
    job = get_object_or_404(scope_of(request.user).jobs(), pk=job_id)
    form = CancelForm(request.POST or None, label_suffix="")
    if not job.is_active:
        return _ended(request, job)
    if not form.is_valid():
        notified = job.deliveries.filter(status="sent").count()
        return render(request, "reviews/cancel.html", {"job": job, "form": form, "notified": notified})
    if not pipeline.cancel(job.pk, request.user.get_username(), form.cleaned_data["reason"]):
        job.refresh_from_db()
        return _ended(request, job)
    kept_requests.forget(job.pk)
    messages.success(request, "This review is cancelled: nothing more is sent for it.")
    return _to(job.pk)


def too_many(user: Any) -> str:
    """Return why a reviewer has to wait before another request, or "" (guarantee G264).

    Operators never have to.
    """
    if user.has_perm(CANCEL):
        return ""
    since = timezone.now() - timedelta(hours=1)
    asked = ReviewJob.objects.filter(created_at__gte=since, requested_by=user.get_username())
    if asked[:MAX_AN_HOUR].count() < MAX_AN_HOUR:
        return ""
    return f"You requested {MAX_AN_HOUR} reviews in the last hour, the maximum. Try again later."


def _ended(request: HttpRequest, job: ReviewJob) -> HttpResponse:
    if job.status == JobStatus.CANCELLED:
        messages.info(request, "This review is already cancelled.")
    else:
        ended = state_for_readers(job.status).lower()
        messages.warning(request, f"Nothing was cancelled: this review has already ended ({ended}).")
    return _to(job.pk)


def _to(job_id: int) -> HttpResponseRedirect:
    return HttpResponseRedirect(reverse("reviews:detail", args=[job_id]))
