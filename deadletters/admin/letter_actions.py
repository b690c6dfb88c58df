"""The steps of one dead letter, and the actions on many. Each is one call of the domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.urls import reverse

from criticizer.admin_site.bulk_actions import Act, ActionResult, AdminForm, BulkAction
from criticizer.resilience.failures import ErrorClass
from deadletters import batches, workflow
from deadletters.admin.base import RowAction
from deadletters.admin.forms import (
    BatchForm,
    ManyValidateForm,
    ReasonForm,
    RemediateForm,
    ResolveForm,
    TriageManyForm,
)
from deadletters.models import DeadLetter
from deadletters.ports import recovery
from deadletters.states import BEFORE_REPLAY, DISCARDABLE, OPEN_LETTER
from deadletters.types import Tally

REPLAY = "deadletters.replay_deadletter"
CHECKED_AT_ONCE = 2_000  # letters of a draft whose dry run is quick enough to wait for


def take_step(step: str, letter: DeadLetter, actor: str, form: Mapping[str, Any]) -> tuple[bool, str]:
    """Take one step of a letter; return whether it was taken, and the message.

    `form` is the data of the step's form.
    """
    given = dict(form)
    if step == "replay":
        given["restart"] = given.pop("start") == "restart"
    try:
        result: Any = getattr(workflow, step)(letter.pk, actor=actor, row_version=letter.row_version, **given)
    except DeadLetter.DoesNotExist:
        return False, "the dead letter does not exist any more"
    return result.ok, result.message


def _discard_problem(letter: DeadLetter, user: Any) -> str:
    return "" if letter.status in DISCARDABLE else f"the dead letter is {letter.state_word.lower()}"


DISCARD_ONE = RowAction(
    "discard",
    "Discard",
    "The dead letter is closed without another attempt. The job does not change and can still be read; a "
    "newer version of the changelist can still be reviewed.",
    workflow.discard,
    REPLAY,
    _discard_problem,
)


def _give_up_problem(letter: DeadLetter, user: Any) -> str:
    if not user.has_perm("notifications.decide_delivery"):
        return "you need the permission to decide about deliveries"
    if letter.error_class != ErrorClass.RECIPIENT_REJECTED or letter.status not in BEFORE_REPLAY:
        return f"the dead letter is {letter.state_word.lower()}, for {letter.error_class}"
    return recovery().why_not_give_up(letter.job_id)


GIVE_UP = RowAction(
    "give_up",
    "Give up this recipient",
    "The recipient's server refused the message. The review ends as delivered to the others, and the dead "
    "letter is resolved.",
    batches.give_up_recipients,
    REPLAY,
    _give_up_problem,
)


# -- many --------------------------------------------------------------------------------------


def _many(act: Callable[..., Tally]) -> Act:
    def acting(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
        tally = act(ids, actor=actor, **given)
        missing = {"escalated: the effect is missing": tally.escalated} if tally.escalated else {}
        return ActionResult(tally.done, tally.skipped, missing)

    return acting


TRIAGE = BulkAction(
    "triage",
    "Triage",
    "Classify the failure. Dead letters that are further on already are skipped.",
    "triaged",
    REPLAY,
    TriageManyForm,
    _many(workflow.triage_many),
)
REMEDIATE = BulkAction(
    "remediate",
    "Remediate",
    "Record what was done about the cause. Dead letters that are not triaged yet are skipped.",
    "remediated",
    REPLAY,
    RemediateForm,
    _many(workflow.remediate_many),
)
VALIDATE = BulkAction(
    "validate",
    "Validate",
    "Each dead letter is checked by itself, each dependency is checked once. Dead letters whose checks fail "
    "keep their state.",
    "validated",
    REPLAY,
    ManyValidateForm,
    _many(workflow.validate_many),
)
VERIFY = BulkAction(
    "verify",
    "Verify",
    "The effect of each replay is checked: findings stored, deliveries with their evidence. A dead letter "
    "whose effect is missing is escalated.",
    "verified",
    REPLAY,
    AdminForm,
    _many(workflow.verify_many),
)
RESOLVE = BulkAction(
    "resolve",
    "Resolve",
    "The same notes close every dead letter whose effect has been verified. The others are skipped.",
    "resolved",
    REPLAY,
    ResolveForm,
    _many(workflow.resolve_many),
)
DISCARD = BulkAction(
    "discard",
    "Discard",
    "The dead letters are closed without another attempt. Their jobs do not change and can still be read. "
    "Reopen undoes this as long as the dead letters are stored and their reviews are still dead-lettered.",
    "discarded",
    REPLAY,
    ReasonForm,
    _many(workflow.discard_many),
)
REOPEN = BulkAction(
    "reopen",
    "Reopen",
    "Discarded dead letters are new again and start with triage. A dead letter whose job is not "
    "dead-lettered any more, or failed again elsewhere, stays closed.",
    "reopened",
    REPLAY,
    ReasonForm,
    _many(workflow.reopen_many),
    refused=workflow.why_not_reopened,
)
_BATCH_QUESTION = (
    "This creates a draft with exactly these dead letters; nothing is replayed yet. The draft shows of each "
    "whether it can be replayed, and runs at the rate that you set once it is submitted."
)


def batch(query: str, *, is_everything: bool) -> BulkAction:
    """Return the action that drafts a replay of all that a search finds, or of some of it."""

    def make(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
        return _draft(ids, {"q": query, "picked": 0 if is_everything else len(ids)}, actor, given)

    return BulkAction(
        "replay_batch",
        "Replay",
        _BATCH_QUESTION,
        "put into a batch",
        REPLAY,
        BatchForm,
        make,
        press="Create a draft of {what}",
    )


def _of_groups(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
    letters = DeadLetter.objects.filter(group__in=ids, status__in=OPEN_LETTER)
    found = list(letters.order_by("-last_failure_at", "-id").values_list("pk", flat=True))
    if not found:
        return ActionResult(0, {"none of its dead letters is open": len(ids)})
    return _draft(found, {"groups": list(ids)}, actor, given)


BATCH = batch("", is_everything=False)
BATCH_OF_GROUPS = BulkAction(
    "replay_all",
    "Replay all open dead letters",
    _BATCH_QUESTION.replace("exactly these dead letters", "every open dead letter of these groups"),
    "put into a batch",
    REPLAY,
    BatchForm,
    _of_groups,
    press="Create a draft of the open dead letters of {what}",
)


def _draft(
    ids: Sequence[int], chosen_by: dict[str, Any], actor: str, given: Mapping[str, Any]
) -> ActionResult:
    """Create the draft, make its dry run where that is quick, and link to its page."""
    try:
        made = batches.draft(filter=chosen_by, ids=ids, actor=actor, reason=given["reason"])
    except ValueError as error:
        return ActionResult(0, {str(error).rstrip(".").lower(): len(ids)})
    if made.item_count <= CHECKED_AT_ONCE:
        batches.dry_run(made.pk)
    gone = len(set(ids)) - made.item_count
    return ActionResult(
        made.item_count,
        {"they do not exist any more": gone} if gone else {},
        address=reverse("admin:deadletters_replaybatch_change", args=[made.pk]),
        link="Open the batch",
    )
