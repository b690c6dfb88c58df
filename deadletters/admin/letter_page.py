"""What the page of one dead letter shows: its steps, what is known of each, and what is asked now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from criticizer.admin_site.list_rendering import badge
from deadletters.models import DeadLetter
from deadletters.retention.policy import batch_in_hand
from deadletters.states import CLOSED_LETTER, IN_WORK, OPEN_LETTER, EditStatus, LetterStatus

STEPS = {
    "triage": "Triage",
    "remediate": "Remediate",
    "validate": "Validate",
    "replay": "Replay",
    "verify": "Verify",
    "resolve": "Resolve",
}
_ORDER = tuple(STEPS)
# What each step asks of who takes it (000, 8.5).
HELP = {
    "triage": "Look at the error, the stage and the attempts, and say what kind of failure it is. "
    "The suggestion comes from the error class.",
    "remediate": "Do what mends the cause, then write down what was done. Nothing is replayed without "
    "this evidence.",
    "validate": "Criticizer checks that a replay can work and tells nobody twice: the circuit, the "
    "artifacts, newer versions, deliveries already made, credentials.",
    "replay": "The job goes back to work. The original payload is used again, and it ends as it "
    "should or comes back here.",
    "verify": "The replayed job has ended well. Check that its effect is really there: findings stored, "
    "each delivery with its provider's evidence. What is missing may arrive later: check again then.",
    "resolve": "Write down how it ended, and close the letter.",
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
# Steps that may be taken again, which takes the letter back to them, and from which states.
_AGAIN: Mapping[str, tuple[str, ...]] = {
    "triage": (LetterStatus.TRIAGED, LetterStatus.REMEDIATED, LetterStatus.VALIDATED),
    "remediate": (LetterStatus.REMEDIATED, LetterStatus.VALIDATED),
    "validate": (LetterStatus.VALIDATED,),
}
SOON = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """One step of the way. `state` is done, now, later or ended (discarded before it was taken)."""

    name: str
    title: str
    state: str

    @property
    def word(self) -> str:
        return {"done": "done", "now": "to be done now", "later": "later", "ended": "not taken"}[self.state]


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of a step that was taken."""

    title: str
    text: str
    actor: str
    at: datetime | None
    lines: Sequence[str] = ()
    link: str = ""
    checks: Sequence[Any] = ()
    redo: str = ""  # the step's name, when it may be taken again


@dataclass(frozen=True, slots=True)
class Closed:
    """How a letter ended; `actor` and `reason` are empty where the timeline does not say."""

    actor: str
    at: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class Kept:
    """Until when a letter stays in the console."""

    until: datetime | None
    sentence: str
    is_soon: bool = False
    address: str = ""  # of the batch that the sentence names


def letter_chip(letter: DeadLetter) -> SafeString:
    """Return how far a letter is: the same word and look wherever letters are shown."""
    return badge("verified" if letter.is_verified else letter.status, letter.state_word)


def current(letter: DeadLetter) -> str:
    """Return the step a letter has come to; empty when it is closed."""
    name = _NOW.get(letter.status, "")
    return "resolve" if letter.is_verified else name


def awaited(letter: DeadLetter) -> str:
    """Return the step that an operator takes now; empty while the job works, and when it is closed."""
    return "" if letter.status in AT_WORK else current(letter)


def redone(letter: DeadLetter, step: str) -> str:
    """Return `step` when the letter may take it again, otherwise ""."""
    return step if letter.status in _AGAIN.get(step, ()) else ""


def steps_of(letter: DeadLetter) -> list[WorkflowStep]:
    """Return the six steps as the page draws them."""
    now = current(letter)
    if letter.status == LetterStatus.RESOLVED:
        taken = len(_ORDER)
    elif now:
        taken = _ORDER.index(now)
    else:
        times = (
            letter.triaged_at,
            letter.remediated_at,
            letter.validated_at,
            letter.replayed_at,
            letter.verified_at,
        )
        taken = sum(time is not None for time in times)
    rest = "later" if now else "ended"
    return [
        WorkflowStep(name, STEPS[name], "done" if index < taken else "now" if name == now else rest)
        for index, name in enumerate(_ORDER)
    ]


def facts_of(letter: DeadLetter) -> list[Fact]:
    """Return who did what when, step by step, in the present round."""
    facts = []
    if letter.triaged_at:
        text = letter.get_category_display() + (f"\n{letter.triage_note}" if letter.triage_note else "")
        facts.append(
            Fact("Triage", text, letter.triaged_by, letter.triaged_at, redo=redone(letter, "triage"))
        )
    if letter.remediated_at:
        facts.append(
            Fact(
                "Remediate",
                letter.evidence_note,
                letter.remediated_by,
                letter.remediated_at,
                lines=[str(line) for line in letter.checklist],
                link=safe_link(letter.evidence_link),
                redo=redone(letter, "remediate"),
            )
        )
    if letter.validated_at and letter.status != LetterStatus.REMEDIATED:
        text = f"Overridden: {letter.override_reason}" if letter.override_reason else ""
        facts.append(
            Fact(
                "Validate",
                text,
                letter.validated_by,
                letter.validated_at,
                checks=letter.validation,
                redo=redone(letter, "validate"),
            )
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
    """Return the countdown of the retention (003, 3.2)."""
    until = letter.expires_at
    if letter.status in IN_WORK:
        return Kept(None, "Somebody works on it, so it stays.")
    if until is None:
        return Kept(None, "It is escalated, so it stays until somebody resolves or discards it.")
    if letter.edits.filter(status=EditStatus.REQUESTED).exists():
        return Kept(None, "An edit of it waits for approval, so it stays.")
    if batch := batch_in_hand(letter.pk):
        address = reverse("admin:deadletters_replaybatch_change", args=[batch])
        return Kept(None, f"Batch {batch} has it in hand, so it stays.", address=address)
    if letter.status in CLOSED_LETTER:
        what = "It is archived then; the archive brings it back."
    else:
        what = (
            "Nobody works on it. It is archived then; the archive brings it back. "
            "Alerts count such letters, and do not name them."
        )
    return Kept(until, what, is_soon=letter.status in OPEN_LETTER and until - timezone.now() < SOON)


def safe_link(address: str) -> str:
    """Return an address that may stand in a link; "" for anything but http and https."""
    return address if address.startswith(("https://", "http://")) else ""
