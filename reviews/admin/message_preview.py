"""Admin preview of a review's message: nothing is stored, nothing is sent."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe

from notifications.admin import preview
from notifications.providers.base import Message
from reviews.models import ReviewJob
from reviews.recipients import recipient_reports
from reviews.recipients.viewing_scopes import scope_of_job
from reviews.reports import messages_for, report_of
from reviews.states import Stage, StageStatus

# The same permissions as for a delivery's message, because a preview shows code and the recipient.
_PERMISSIONS = ("reviews.view_reviewjob", "notifications.view_delivery", "reviews.view_all_files")
_reads_messages = permission_required(_PERMISSIONS, raise_exception=True)


def may_read(user: Any) -> bool:
    """Return whether a user may read the messages of reviews."""
    return bool(user.has_perms(_PERMISSIONS))


class RecipientForm(forms.Form):
    """The recipient whose message is shown; each reads only of files in their viewing scope."""

    recipient = forms.ChoiceField()

    def __init__(self, data: QueryDict | None, recipients: list[str]) -> None:
        super().__init__(data, label_suffix="")
        choice: Any = self.fields["recipient"]
        choice.choices = [(recipient, recipient) for recipient in recipients]


@require_safe
@_reads_messages
def job_message(request: HttpRequest, job_id: int) -> HttpResponse:
    """Show the message to one of a review's recipients in every form."""
    job = get_object_or_404(ReviewJob, pk=job_id)
    form = _form(request, job)
    recipient = _chosen(form, job)
    query = QueryDict(mutable=True)
    query["recipient"] = recipient
    frame = f"{reverse('job-message-html', args=[job_id])}?{query.urlencode()}&scheme="
    return preview.page(request, recipient, _message(job, recipient), frame, job=job, form=form)


@require_safe
@_reads_messages
def job_message_html(request: HttpRequest, job_id: int) -> HttpResponse:
    """Return the HTML of the message, for the frame of the page above."""
    job = get_object_or_404(ReviewJob, pk=job_id)
    return preview.html_answer(request, _message(job, _chosen(_form(request, job), job)))


def _form(request: HttpRequest, job: ReviewJob) -> RecipientForm:
    return RecipientForm(request.GET if "recipient" in request.GET else None, job.recipients)


def _chosen(form: RecipientForm, job: ReviewJob) -> str:
    if form.is_valid():
        return str(form.cleaned_data["recipient"])
    return str(job.recipients[0]) if job.recipients and not form.is_bound else ""


def _message(job: ReviewJob, recipient: str) -> Message | None:
    """Return the message to one of the review's recipients; None where there is none.

    The review has no result, or the recipient is not one of its own.
    """
    is_reviewed = job.stages.filter(stage=Stage.LLM, status=StageStatus.SUCCEEDED).exists()
    if not recipient or not is_reviewed:
        return None
    reports = recipient_reports.reports_for(
        report_of(job), [recipient], job.recipient_origins, scope_of_job(job)
    )
    return messages_for(job, reports)[recipient]
