"""What operators decide about groups of failures: each is one call of `groups`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.utils import timezone

from criticizer.admin_site.bulk_actions import ActionResult, BulkAction, count_results
from deadletters import groups
from deadletters.admin.forms import AssignForm, GroupReasonForm, NoteForm, SnoozeForm
from deadletters.models import DeadLetterGroup
from deadletters.states import GroupStatus
from deadletters.types import Result


def _each(act: Callable[..., Result]) -> Callable[[Sequence[int], str, Mapping[str, Any]], ActionResult]:
    """Return what does `act` to one group after another and adds the answers up."""

    def acting(ids: Sequence[int], actor: str, given: Mapping[str, Any]) -> ActionResult:
        results = []
        for pk in ids:
            try:
                result = act(pk, actor=actor, **given)
            except DeadLetterGroup.DoesNotExist:
                result = Result(False, "the group does not exist any more")
            results.append((result.ok, result.message))
        return count_results(results)

    return acting


def _snooze(group_id: int, *, actor: str, hours: int, reason: str) -> Result:
    return groups.snooze(group_id, actor=actor, until=timezone.now() + timedelta(hours=hours), reason=reason)


def _with_open_letters(ids: Sequence[int]) -> dict[int, str]:
    found = DeadLetterGroup.objects.filter(pk__in=ids, open_count__gt=0)
    return {pk: groups.open_words(count) for pk, count in found.values_list("pk", "open_count")}


def _end_snooze(group_id: int, *, actor: str, reason: str) -> Result:
    return groups.snooze(group_id, actor=actor, until=None, reason=reason)


def _not_snoozed(ids: Sequence[int]) -> dict[int, str]:
    found = DeadLetterGroup.objects.filter(pk__in=ids)
    return {group.pk: groups.NOT_SNOOZED for group in found if not groups.is_snoozed(group)}


def _noted(ids: Sequence[int]) -> Mapping[str, Any]:
    """Return what is there of one group, nothing of several."""
    found = DeadLetterGroup.objects.filter(pk__in=ids).values("note", "runbook_url").first()
    return found if found and len(ids) == 1 else {}


ACKNOWLEDGE = BulkAction(
    "acknowledge",
    "Acknowledge",
    "Says that somebody looks after it. Without an owner you become it.",
    "acknowledged",
    GroupReasonForm,
    _each(groups.acknowledge),
)
RESOLVE = BulkAction(
    "resolve",
    "Resolve",
    "Says that the failure is over. When it happens again the group opens by itself.",
    "resolved",
    GroupReasonForm,
    _each(groups.resolve_group),
    refused=_with_open_letters,
)
IGNORE = BulkAction(
    "ignore",
    "Ignore",
    "Nobody is asked to look at it any more, also when it happens again. Its letters stay and are counted. "
    "Use it with caution: only Reopen brings it back.",
    "ignored",
    GroupReasonForm,
    _each(groups.ignore),
    is_final=True,
)
REOPEN = BulkAction(
    "reopen",
    "Reopen",
    "It asks for attention again.",
    "reopened",
    GroupReasonForm,
    _each(groups.reopen),
)
ASSIGN = BulkAction(
    "assign",
    "Assign",
    "Says who looks after it.",
    "assigned",
    AssignForm,
    _each(groups.assign),
)
SNOOZE = BulkAction(
    "snooze",
    "Snooze",
    "It asks for no attention for a while. Its letters stay open.",
    "snoozed",
    SnoozeForm,
    _each(_snooze),
)
END_SNOOZE = BulkAction(
    "end_snooze",
    "End the snooze",
    "It asks for attention again at once.",
    "no longer snoozed",
    GroupReasonForm,
    _each(_end_snooze),
    refused=_not_snoozed,
)
NOTE = BulkAction(
    "annotate",
    "Note and runbook",
    "What people should know who meet this failure. It replaces the note and the runbook that are there.",
    "annotated",
    NoteForm,
    _each(groups.annotate),
    initial=_noted,
)
DEEDS = (ACKNOWLEDGE, RESOLVE, IGNORE, REOPEN, ASSIGN, SNOOZE, END_SNOOZE, NOTE)


def deeds_for(group: DeadLetterGroup) -> tuple[BulkAction, ...]:
    """Return the actions that make sense for a group as it is."""
    unwanted = {
        GroupStatus.OPEN: {REOPEN.name},
        GroupStatus.ACKNOWLEDGED: {ACKNOWLEDGE.name},
        GroupStatus.RESOLVED: {ACKNOWLEDGE.name, RESOLVE.name, SNOOZE.name},
        GroupStatus.IGNORED: {ACKNOWLEDGE.name, IGNORE.name, SNOOZE.name},
    }[GroupStatus(group.status)]
    if not groups.is_snoozed(group):
        unwanted |= {END_SNOOZE.name}
    return tuple(deed for deed in DEEDS if deed.name not in unwanted)
