"""What the console does to letters: the steps of one, and the actions on many. Each is one domain call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.urls import reverse

from criticizer.admin_site.bulk_actions import ActionResult, BulkAction
from deadletters import batches, workflow
from deadletters.admin.forms import (
    BatchForm,
    ManyValidateForm,
    NothingForm,
    ReasonForm,
    RemediateForm,
    ResolveForm,
    TriageManyForm,
)
from deadletters.models import DeadLetter
from deadletters.states import OPEN_LETTER
from deadletters.types import Tally

CHECKED_AT_ONCE = 2_000  # letters of a draft whose dry run is worth waiting for


def take(step: str, letter: DeadLetter, actor: str, given: Mapping[str, Any]) -> tuple[bool, str]:
    """Take one step of one letter as it was looked at; return whether it was taken, and a sentence."""
    version = letter.row_version
    try:
        if step == "triage":
            result: Any = workflow.triage(
                letter.pk,
                actor=actor,
                category=given["category"],
                note=given["note"],
                row_version=version,
            )
        elif step == "remediate":
            result = workflow.remediate(
                letter.pk,
                actor=actor,
                evidence_link=given["evidence_link"],
                evidence_note=given["evidence_note"],
                checklist=given.get("checklist", ()),
                row_version=version,
            )
        elif step == "validate":
            reason = given.get("override_reason", "")
            result = workflow.validate(letter.pk, actor=actor, override_reason=reason, row_version=version)
        elif step == "replay":
            result = workflow.replay(
                letter.pk,
                actor=actor,
                reason=given["reason"],
                restart=given["start"] == "restart",
                row_version=version,
            )
        elif step == "verify":
            result = workflow.verify(letter.pk, actor=actor, row_version=version)
        elif step == "resolve":
            result = workflow.resolve(
                letter.pk, actor=actor, resolution=given["resolution"], row_version=version
            )
        else:
            result = workflow.discard(letter.pk, actor=actor, reason=given["reason"], row_version=version)
    except DeadLetter.DoesNotExist:
        return False, "the letter does not exist any more"
    return result.ok, result.message


# -- many --------------------------------------------------------------------------------------


def _sum(tally: Tally) -> ActionResult:
    missing = {"escalated: the effect is missing": tally.escalated} if tally.escalated else {}
    return ActionResult(tally.done, dict(tally.skipped), missing)


def _triage(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
    return _sum(workflow.triage_many(ids, actor=actor, category=given["category"], note=given["note"]))


def _remediate(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
    link, note = given["evidence_link"], given["evidence_note"]
    return _sum(workflow.remediate_many(ids, actor=actor, evidence_link=link, evidence_note=note))


def _validate(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
    return _sum(workflow.validate_many(ids, actor=actor, override_reason=given["override_reason"]))


def _verify(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
    return _sum(workflow.verify_many(ids, actor=actor))


def _resolve(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
    return _sum(workflow.resolve_many(ids, actor=actor, resolution=given["resolution"]))


def _discard(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
    return _sum(workflow.discard_many(ids, actor=actor, reason=given["reason"]))


def _reopen(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
    return _sum(workflow.reopen_many(ids, actor=actor, reason=given["reason"]))


TRIAGE = BulkAction(
    "triage",
    "Triage",
    "Say what kind of failure it is. Letters that are further on already are left alone.",
    "triaged",
    TriageManyForm,
    _triage,
)
REMEDIATE = BulkAction(
    "remediate",
    "Remediate",
    "Write down what was done about the cause. Letters that are not triaged yet are left alone.",
    "remediated",
    RemediateForm,
    _remediate,
)
VALIDATE = BulkAction(
    "validate",
    "Validate",
    "Each letter is checked by itself, each dependency is asked once. Letters whose checks fail stay where "
    "they are.",
    "validated",
    ManyValidateForm,
    _validate,
)
VERIFY = BulkAction(
    "verify",
    "Verify",
    "The effect of each replay is checked: findings stored, deliveries with their evidence. A letter whose "
    "effect is missing is escalated.",
    "verified",
    NothingForm,
    _verify,
)
RESOLVE = BulkAction(
    "resolve",
    "Resolve",
    "The same notes close every letter whose effect has been verified. The others are left alone.",
    "resolved",
    ResolveForm,
    _resolve,
)
DISCARD = BulkAction(
    "discard",
    "Discard",
    "The letters are closed without another try. Their jobs stay as they are, and readable. Reopen takes "
    "this back for as long as the letters are kept and their jobs are dead-lettered.",
    "discarded",
    ReasonForm,
    _discard,
)
REOPEN = BulkAction(
    "reopen",
    "Reopen",
    "The discard is taken back: the letters are new again, and their steps begin anew. A letter whose job is "
    "not dead-lettered any more, or failed later elsewhere, stays closed.",
    "reopened",
    ReasonForm,
    _reopen,
    refused=workflow.why_not_reopened,
)
_BATCH_QUESTION = (
    "This makes a draft with exactly these letters; nothing is replayed yet. The draft says of each letter "
    "whether it can be replayed, and runs at a rate of your choice once it is submitted."
)


def batch(query: str, *, is_everything: bool) -> BulkAction:
    """Return the action that makes the draft of a replay of all that a search finds, or of some of it."""

    def make(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
        return _draft(ids, {"q": query, "picked": 0 if is_everything else len(ids)}, actor, given)

    return BulkAction(
        "replay_batch",
        "Replay",
        _BATCH_QUESTION,
        "put into a batch",
        BatchForm,
        make,
        press="Make a draft of {what}",
    )


def _of_groups(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
    letters = DeadLetter.objects.filter(group__in=ids, status__in=OPEN_LETTER)
    found = list(letters.order_by("-last_failure_at", "-id").values_list("pk", flat=True))
    if not found:
        return ActionResult(0, {"no letter of theirs is open": len(ids)})
    return _draft(found, {"groups": list(ids)}, actor, given)


BATCH = batch("", is_everything=False)
BATCH_OF_GROUPS = BulkAction(
    "replay_all",
    "Replay all open letters",
    _BATCH_QUESTION.replace("exactly these letters", "every open letter of these groups"),
    "put into a batch",
    BatchForm,
    _of_groups,
    press="Make a draft of the open letters of {what}",
)


def _draft(
    ids: Sequence[int], chosen_by: dict[str, Any], actor: str, given: Mapping[str, Any]
) -> ActionResult:
    """Make the draft, look at it once where that is quick, and lead to its page."""
    try:
        batch = batches.draft(filter=chosen_by, ids=ids, actor=actor, reason=given["reason"])
    except ValueError as error:
        return ActionResult(0, {str(error).rstrip(".").lower(): len(ids)})
    if batch.item_count <= CHECKED_AT_ONCE:
        batches.dry_run(batch.pk)
    gone = len(set(ids)) - batch.item_count
    return ActionResult(
        batch.item_count,
        {"they do not exist any more": gone} if gone else {},
        address=reverse("admin:deadletters_replaybatch_change", args=[batch.pk]),
        link="Open the batch",
    )
