"""Banners above a review: what did not run, what ended the job."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse
from django.utils.text import capfirst

from criticizer.resilience.failures import hint_for, kind_with_code
from deadletters.models import DeadLetter
from deadletters.states import OPEN_LETTER
from notifications.rendering.report import suppressed_line
from reviews import job_configuration
from reviews.drift.wording import summary
from reviews.models import ReviewJob
from reviews.pipeline import why_not_acceptable
from reviews.recipients.viewing_scopes import Scope
from reviews.reports import banner_within, limitation_note
from reviews.states import JobStatus, Stage
from reviews.web.rerun import newer_than


@dataclass(frozen=True, slots=True)
class Notice:
    """A banner above the review.

    `kind` is info, warn or danger. `is_about_files`: the coverage says more.
    """

    kind: str
    text: str
    hint: str = ""
    url: str = ""
    link: str = ""
    is_about_files: bool = False


def notices_of(job: ReviewJob, scope: Scope, *, for_operator: bool) -> list[Notice]:
    """Return the banners above the findings: what did not run, what ended the job.

    The job's own banner counts files of the whole change, so others than users who see every file only learn
    that the review is partial.
    """
    notices = []
    if job.status == JobStatus.SUPERSEDED:
        notices.append(_superseded(job, scope))
    if job.status == JobStatus.DEAD_LETTERED:
        notices += _dead_letters(job, for_operator=for_operator)
    if job.status == JobStatus.TIMED_OUT:
        notices.append(_timed_out(job, for_operator=for_operator))
    if job.status == JobStatus.CANCELLED:
        reason = capfirst(job.status_reason.removeprefix("cancelled "))
        notices.append(Notice("info", "This review was cancelled.", reason))
    if job.is_late and job.status != JobStatus.TIMED_OUT:
        notices.append(Notice("warn", "This review finished after its deadline."))
    if banner := banner_within(job.banner, job.stopped, scope):
        notices.append(Notice("warn" if job.stopped else "info", banner, is_about_files=True))
    if job.footer and scope.everything:
        notices.append(Notice("info", job.footer))
    if job.series:
        notices.append(Notice("info", limitation_note(job)))
    notices += [
        Notice("warn", line.text) for line in job_configuration.lines_of(job) if scope.allows(line.file)
    ]
    if scope.everything and (count := job_configuration.suppressed_in(job)):
        notices.append(Notice("info", suppressed_line(count)))
    if scope.everything and (counted := summary(job.documents)):
        notices.append(Notice("info", counted))
    return notices


def _timed_out(job: ReviewJob, *, for_operator: bool) -> Notice:
    """Return the notice of a missed deadline, and of a late result if there is one."""
    if why_not_acceptable(job.pk):
        return Notice("danger", "This review was not finished before its deadline.", job.status_reason)
    text = "Late result: this review missed its deadline, and no recipient was notified."
    if not for_operator:
        return Notice("warn", text, "An operator can have it delivered.")
    address = reverse("admin:reviews_reviewjob_accept_late", args=[job.pk])
    return Notice(
        "warn", text, "It is for viewing only until you accept it.", address, "Accept the late result"
    )


def _superseded(job: ReviewJob, scope: Scope) -> Notice:
    newest = newer_than(job)
    text = "A newer version of this changelist was requested, so this review was stopped."
    if newest is None or not scope.jobs().filter(pk=newest.pk).exists():
        return Notice("info", text)
    address = reverse("reviews:detail", args=[newest.pk])
    return Notice("info", text, url=address, link=f"Open version {newest.review_version}")


def _dead_letters(job: ReviewJob, *, for_operator: bool) -> list[Notice]:
    """Return why the job stopped; only operators get the hint and the link to the dead letter."""
    letters = (
        job.dead_letters.filter(status__in=OPEN_LETTER)
        .order_by("-id")
        .only("id", "code", "error_class", "stage", "detail")
    )
    return [_dead_letter(letter, for_operator=for_operator) for letter in letters] or [
        Notice("danger", "This review stopped, and an operator discarded its dead letter.", job.status_reason)
    ]


def _dead_letter(letter: DeadLetter, *, for_operator: bool) -> Notice:
    kind = kind_with_code(letter.code)
    text = kind.message if kind else "This review stopped."
    if not for_operator:
        if letter.stage == Stage.NOTIFY:
            return Notice(
                "warn", text, "The review is complete. An operator is handling its undelivered messages."
            )
        return Notice("danger", text, "An operator must resolve it before the review can continue.")
    return Notice(
        "danger",
        text,
        f"{hint_for(kind, letter.detail) if kind else letter.error_class} ({letter.code})",
        url=reverse("admin:deadletters_deadletter_change", args=[letter.pk]),
        link="Open the dead letter",
    )
