"""The page of one dead letter: its steps, their records, and the form of the current step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from criticizer.admin_site.base import named_values
from criticizer.admin_site.bulk_actions import AdminForm
from criticizer.admin_site.list_rendering import badge
from criticizer.admin_site.search_query import row_number
from criticizer.inert_links import web_link
from criticizer.security import reauthentication
from deadletters import batches, workflow
from deadletters.admin.forms import OverrideForm, RemediateForm, ReplayForm, ResolveForm, TriageForm
from deadletters.admin.letter_advice import advice_on
from deadletters.edits import edit_requests
from deadletters.models import DeadLetter
from deadletters.retention.policy import batch_in_hand
from deadletters.states import BEFORE_REPLAY, CLOSED_LETTER, IN_WORK, OPEN_LETTER, EditStatus, LetterStatus

STEPS = {
    "triage": "Triage",
    "remediate": "Remediate",
    "validate": "Validate",
    "replay": "Replay",
    "verify": "Verify",
    "resolve": "Resolve",
}
_ORDER = tuple(STEPS)
# The instructions of each step.
HELP = {
    "triage": "Look at the error, the stage and the attempts, then classify the failure. "
    "The suggestion comes from the error class.",
    "remediate": "Fix the cause, then record what was done. A replay needs this evidence.",
    "validate": "Criticizer checks that a replay can work, and that it would notify no recipient twice: the "
    "circuit, the artifacts, newer versions, deliveries already made, credentials.",
    "replay": "Runs the review again from the stage that you choose. If it fails again, the dead letter "
    "comes back as new.",
    "verify": "The replayed job has succeeded. Check its effect: findings stored, each delivery with its "
    "provider's evidence. What is missing may arrive later; check again then.",
    "resolve": "Record how it ended, and close the dead letter.",
}
_BUTTONS = {
    **STEPS,
    "remediate": "Record the remediation",
    "validate": "Run the checks",
    "verify": "Check the effect",
}
_NOW: Mapping[str, str] = {
    LetterStatus.NEW: "triage",
    LetterStatus.TRIAGED: "remediate",
    LetterStatus.REMEDIATED: "validate",
    LetterStatus.VALIDATED: "replay",
    LetterStatus.REPLAY_PENDING: "replay",
    LetterStatus.REPLAYING: "replay",
    LetterStatus.VERIFYING: "verify",
}
AT_WORK = (LetterStatus.REPLAY_PENDING, LetterStatus.REPLAYING)
# Steps that may be repeated, which takes the letter back to them, and from which states.
_REPEATABLE: Mapping[str, tuple[str, ...]] = {
    "triage": (LetterStatus.TRIAGED, LetterStatus.REMEDIATED, LetterStatus.VALIDATED),
    "remediate": (LetterStatus.REMEDIATED, LetterStatus.VALIDATED),
    "validate": (LetterStatus.VALIDATED,),
}
SOON = timedelta(days=1)
MAX_ATTEMPTS_SHOWN = 200
MAX_TOGETHER = 10_000  # letters of a group that are counted
EVENTS_PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """One step. `state` is done, now, later or ended (discarded before it was taken)."""

    name: str
    title: str
    state: str

    @property
    def word(self) -> str:
        return {"done": "done", "now": "current step", "later": "later", "ended": "not taken"}[self.state]


@dataclass(frozen=True, slots=True)
class Fact:
    """The record of a step that was taken."""

    title: str
    text: str
    actor: str
    at: datetime | None
    lines: Sequence[str] = ()
    link: str = ""
    checks: Sequence[Any] = ()
    redo: str = ""  # the step's name, when it may be repeated


@dataclass(frozen=True, slots=True)
class Closed:
    """End of a letter; `actor` and `reason` are empty where the timeline does not have them."""

    actor: str
    at: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class Kept:
    """Time for which a letter is stored before it is archived, as text and as a date."""

    until: datetime | None
    sentence: str
    is_soon: bool = False
    address: str = ""  # of the batch that the sentence names


def letter_chip(letter: DeadLetter) -> SafeString:
    """Return the state of a letter as a badge, the same wherever letters are shown."""
    return badge("verified" if letter.is_verified else letter.status, letter.state_word)


def current(letter: DeadLetter) -> str:
    """Return the current step of a letter; empty when it is closed."""
    return "resolve" if letter.is_verified else _NOW.get(letter.status, "")


def awaited(letter: DeadLetter) -> str:
    """Return the step that waits for an operator; empty while the job runs and after the end."""
    return "" if letter.status in AT_WORK else current(letter)


def redone(letter: DeadLetter, step: str) -> str:
    """Return `step` when it may be repeated, otherwise ""."""
    return step if letter.status in _REPEATABLE.get(step, ()) else ""


def steps_of(letter: DeadLetter) -> list[WorkflowStep]:
    """Return the six steps with their states."""
    now = current(letter)
    if letter.status == LetterStatus.RESOLVED:
        taken = len(_ORDER)
    elif now:
        taken = _ORDER.index(now)
    else:
        names = ("triaged_at", "remediated_at", "validated_at", "replayed_at", "verified_at")
        taken = sum(getattr(letter, name) is not None for name in names)
    rest = "later" if now else "ended"
    return [
        WorkflowStep(name, STEPS[name], "done" if index < taken else "now" if name == now else rest)
        for index, name in enumerate(_ORDER)
    ]


def facts_of(letter: DeadLetter) -> list[Fact]:
    """Return who did what when, step by step, since the letter was last new."""
    facts = []
    if letter.triaged_at:
        text = "\n".join(filter(None, [letter.get_category_display(), letter.triage_note]))
        facts.append(
            Fact("Triage", text, letter.triaged_by, letter.triaged_at, redo=redone(letter, "triage"))
        )
    if letter.remediated_at:
        lines, link = [str(line) for line in letter.checklist], web_link(letter.evidence_link)
        again = redone(letter, "remediate")
        who, at = letter.remediated_by, letter.remediated_at
        facts.append(Fact("Remediate", letter.evidence_note, who, at, lines=lines, link=link, redo=again))
    if letter.validated_at and letter.status != LetterStatus.REMEDIATED:
        text = f"Overridden: {letter.override_reason}" if letter.override_reason else ""
        checks, again = letter.validation, redone(letter, "validate")
        facts.append(
            Fact("Validate", text, letter.validated_by, letter.validated_at, checks=checks, redo=again)
        )
    if letter.replayed_at:
        start = "from the first stage" if letter.is_restart else f"from stage {letter.stage}"
        facts.append(Fact(f"Replay {start}", letter.replay_reason, letter.replayed_by, letter.replayed_at))
    if letter.verified_at:
        facts.append(Fact("Verify", "", letter.verified_by, letter.verified_at, checks=letter.verification))
    if letter.resolution:
        facts.append(Fact("Resolve", letter.resolution, letter.resolved_by, letter.closed_at))
    return facts


def closed(letter: DeadLetter) -> Closed | None:
    """Return who closed a letter, when and why; None while it is open."""
    if letter.status not in CLOSED_LETTER:
        return None
    # The actions that close a letter are called as the states to which they lead.
    event = letter.events.filter(action=letter.status).order_by("-id").first()
    actor = event.actor if event else letter.resolved_by
    return Closed(actor, letter.closed_at, letter.resolution or (event.reason if event else ""))


def kept(letter: DeadLetter) -> Kept:
    """Return how long the letter is stored, and why."""
    until = letter.expires_at
    if letter.status in IN_WORK:
        return Kept(None, "It is not archived while it is being worked on.")
    if until is None:
        return Kept(None, "It is escalated: it is not archived before it is resolved or discarded.")
    if letter.edits.filter(status=EditStatus.REQUESTED).exists():
        return Kept(None, "It is not archived while an edit of it waits for approval.")
    if batch := batch_in_hand(letter.pk):
        address = reverse("admin:deadletters_replaybatch_change", args=[batch])
        return Kept(None, f"It is not archived while it is part of batch {batch}.", address=address)
    if letter.status in CLOSED_LETTER:
        what = "It is archived then, and can be restored."
    else:
        what = (
            "It is not being worked on. It is archived then, and can be restored. "
            "Alerts count such dead letters without naming them."
        )
    return Kept(until, what, is_soon=letter.status in OPEN_LETTER and until - timezone.now() < SOON)


def together(letter: DeadLetter) -> int:
    """Return how many letters the replay form of a letter's group takes, this one included.

    0 when the form leaves this letter out. MAX_TOGETHER stands for that many or more.
    """
    if letter.group is None or letter.status not in BEFORE_REPLAY:
        return 0
    same = batches.replayable(letter.group)
    return same[:MAX_TOGETHER].count() if same.filter(pk=letter.pk).exists() else 0


# -- context of the page -----------------------------------------------------------------------


def form_of(step: str, letter: DeadLetter, request: HttpRequest | None) -> AdminForm | None:
    """Return the form of a step, bound when there is a request; None for steps without fields."""
    data = request.POST if request is not None else None
    if step == "triage":
        suggested = workflow.suggested_category(letter.error_class)
        return TriageForm(data, initial={"category": str(letter.category or suggested)})
    if step == "remediate":
        return RemediateForm(data, checklist=workflow.checklist(letter.category))
    if step == "validate":
        asks = _may_be_overridden(letter) and (data is None or data.get("do") == "override")
        return OverrideForm(data) if asks else None
    if step == "replay":
        return ReplayForm(data, stage=letter.stage)
    return ResolveForm(data) if step == "resolve" else None


def _may_be_overridden(letter: DeadLetter) -> bool:
    """Return whether an operator may override the checks that failed."""
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
            buttons.append({"value": "override", "label": "Override and continue", "skips_form": False})
    view = f"admin:deadletters_deadletter_{step}"
    return {
        "step": step,
        "step_title": STEPS[step],
        "step_help": HELP[step],
        "step_address": reverse(view, args=[letter.pk]),
        "form": form,
        "checks": checks,
        "buttons": buttons,
        **reauthentication.password_notice(request, view, _address(letter.pk)),
    }


def _waiting(letter: DeadLetter) -> dict[str, str] | None:
    """Return what a letter waits for while its job runs or a batch holds it."""
    if not current(letter):
        return None
    if letter.status == LetterStatus.REPLAY_PENDING:
        item = letter.replay_items.filter(status="ready").order_by("-id").first()
        address = reverse("admin:deadletters_replaybatch_change", args=[item.batch_id]) if item else ""
        text = "A batch will replay it."
        return {"title": "Replay", "text": text, "address": address, "link": "Open the batch"}
    return {
        "title": "Replay",
        "text": "The job is running. When it succeeds, verify its effect here; when it fails again, the dead "
        "letter comes back as new.",
        "address": reverse("admin:reviews_reviewjob_change", args=[letter.job_id]),
        "link": "Follow the job",
    }


def letter_context(letter: DeadLetter) -> dict[str, Any]:
    runs = letter.job.stages.filter(stage=letter.stage)
    return {
        "letter": letter,
        **_reopening(letter),
        **advice_on(letter),
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
    """Return one page of the timeline, newest first."""
    rows = letter.events.order_by("-id")
    older = row_number(before)
    newest = rows.values_list("pk", flat=True).first() or 0
    found = list((rows if older is None else rows.filter(pk__lt=older))[: EVENTS_PER_PAGE + 1])
    return {
        "events": found[:EVENTS_PER_PAGE],
        "events_before": found[EVENTS_PER_PAGE - 1].pk if len(found) > EVENTS_PER_PAGE else None,
        "is_older_page": older is not None,
        "last_event": newest,
    }


def lineage(letter: DeadLetter) -> dict[str, Any]:
    """Return the waiting edit of a letter, and the letters before and after it."""
    edits = {
        edit.status: edit
        for edit in letter.edits.filter(status__in=(EditStatus.REQUESTED, EditStatus.APPLIED)).order_by("-pk")
    }
    successor = letter.generations.values_list("pk", flat=True).first()
    parent = letter.parent_id
    has_parent = parent and DeadLetter.objects.filter(pk=parent).exists()  # it may be in the archive
    return {
        "waiting_edit": edits.get(EditStatus.REQUESTED),
        "applied_edit": edits.get(EditStatus.APPLIED),
        "successor": successor,
        "successor_address": _address(successor) if successor else "",
        "parent_address": _address(parent) if parent and has_parent else "",
        "may_edit": not edit_requests.why_not(letter),
    }


def _address(letter_id: int) -> str:
    return reverse("admin:deadletters_deadletter_change", args=[letter_id])
