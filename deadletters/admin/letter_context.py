"""The context of one letter's page: the form of its step, what it waits for, its attempts and history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from criticizer.admin_site.base import named_values
from criticizer.admin_site.bulk_actions import AdminForm
from criticizer.resilience.failures import kind_with_code
from criticizer.security import reauthentication
from deadletters import workflow
from deadletters.admin.edit_page import lineage
from deadletters.admin.forms import OverrideForm, RemediateForm, ReplayForm, ResolveForm, TriageForm
from deadletters.admin.letter_page import HELP, STEPS, closed, current, facts_of, kept, steps_of
from deadletters.models import DeadLetter
from deadletters.states import DISCARDABLE, LetterStatus

MAX_ATTEMPTS_SHOWN = 200
EVENTS_PER_PAGE = 50
_BUTTONS = {
    "triage": "Triage",
    "remediate": "Record the remedy",
    "validate": "Run the checks",
    "replay": "Replay",
    "verify": "Check the effect",
    "resolve": "Resolve",
}


def form_of(step: str, letter: DeadLetter, request: HttpRequest | None) -> AdminForm | None:
    """Return the form that a step asks for, filled in when there is a request; None for just a button."""
    data = request.POST if request is not None else None
    if step == "triage":
        suggested = workflow.suggested_category(letter.error_class)
        return TriageForm(data, initial={"category": str(letter.category or suggested)})
    if step == "remediate":
        return RemediateForm(data, checklist=workflow.checklist(letter.category))
    if step == "validate":
        asks = _may_be_overruled(letter) and (data is None or data.get("do") == "override")
        return OverrideForm(data) if asks else None
    if step == "replay":
        return ReplayForm(data, stage=letter.stage)
    return ResolveForm(data) if step == "resolve" else None


def _may_be_overruled(letter: DeadLetter) -> bool:
    """Say whether the checks that failed leave the decision to the operator."""
    failed = [check for check in letter.validation if not check.get("ok")]
    return letter.validation_ok is False and not any(check.get("is_hard") for check in failed)


def step_context(
    request: HttpRequest, letter: DeadLetter, step: str, form: AdminForm | None
) -> dict[str, Any]:
    if not step:
        return {"step": "", "waiting": _waiting(letter)}
    buttons = [{"value": step, "label": _BUTTONS[step], "skips_form": False}]
    checks: Sequence[Any] = letter.verification if step == "verify" else ()
    if step == "validate" and letter.validation_ok is False:
        checks = letter.validation
        buttons = [{"value": "check", "label": "Run the checks again", "skips_form": True}]
        if form is not None:
            buttons.append({"value": "override", "label": "Override and go on", "skips_form": False})
    here = reverse("admin:deadletters_deadletter_change", args=[letter.pk])
    view = f"admin:deadletters_deadletter_{step}"
    return {
        "step": step,
        "step_title": STEPS[step],
        "step_help": HELP[step],
        "step_address": reverse(view, args=[letter.pk]),
        "form": form,
        "checks": checks,
        "buttons": buttons,
        **reauthentication.asking(request, view, here),
    }


def _waiting(letter: DeadLetter) -> dict[str, str] | None:
    """Say what a letter waits for while its job, or a batch, is at it."""
    if not current(letter):
        return None
    if letter.status == LetterStatus.REPLAY_PENDING:
        item = letter.replay_items.filter(status="ready").order_by("-id").first()
        address = reverse("admin:deadletters_replaybatch_change", args=[item.batch_id]) if item else ""
        text = "A batch will replay it in its turn."
        return {"title": "Replay", "text": text, "address": address, "link": "Open the batch"}
    return {
        "title": "Replay",
        "text": "The job is at work. When it succeeds the letter asks for its verification; when it fails "
        "again the letter comes back as new.",
        "address": reverse("admin:reviews_reviewjob_change", args=[letter.job_id]),
        "link": "Follow the job",
    }


def letter_context(letter: DeadLetter) -> dict[str, Any]:
    runs = letter.job.stages.filter(stage=letter.stage)
    return {
        "letter": letter,
        "may_discard": letter.status in DISCARDABLE,
        **_reopening(letter),
        "kind": kind_with_code(letter.code),
        "steps": steps_of(letter),
        "facts": facts_of(letter),
        "kept": kept(letter),
        "closed": closed(letter),
        "last_stack": letter.last_stack,
        "attempt_rows": [
            row for run in runs for row in run.attempt_rows.order_by("-id")[:MAX_ATTEMPTS_SHOWN]
        ],
        "context_facts": named_values(letter.sanitized_context),
        "job_address": reverse("admin:reviews_reviewjob_change", args=[letter.job_id]),
        "review_address": reverse("reviews:detail", args=[letter.job_id]),
        **lineage(letter),
    }


def _reopening(letter: DeadLetter) -> dict[str, Any]:
    if letter.status != LetterStatus.DISCARDED:
        return {"may_reopen": False, "why_not_reopened": ""}
    problem = workflow.why_not_reopened([letter.pk]).get(letter.pk, "")
    return {"may_reopen": not problem, "why_not_reopened": problem}


def events_context(letter: DeadLetter, before: str) -> dict[str, Any]:
    """Return one page of the history, newest first."""
    rows = letter.events.order_by("-id")
    is_older = before.isascii() and before.isdigit() and len(before) < 19
    newest = rows.values_list("pk", flat=True).first() or 0
    found = list((rows.filter(pk__lt=int(before)) if is_older else rows)[: EVENTS_PER_PAGE + 1])
    return {
        "events": found[:EVENTS_PER_PAGE],
        "events_before": found[EVENTS_PER_PAGE - 1].pk if len(found) > EVENTS_PER_PAGE else None,
        "is_older_page": is_older,
        "last_event": newest,
    }
