"""The actions on groups of failures: each is one call of `groups`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.utils import timezone

from criticizer.admin_site.bulk_actions import Act, BulkAction, for_each
from deadletters import groups
from deadletters.admin.forms import AssignForm, GroupReasonForm, NoteForm, SnoozeForm
from deadletters.models import DeadLetterGroup
from deadletters.states import GroupStatus
from deadletters.types import Result

WORK = "deadletters.work_deadlettergroup"


def _each(act: Callable[..., Result]) -> Act:
    def one(pk: int, **given: Any) -> str:
        try:
            result = act(pk, **given)
        except DeadLetterGroup.DoesNotExist:
            return "the group does not exist any more"
        return "" if result.ok else result.message

    return for_each(one)


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
    """Return the present note and runbook of one group; nothing for several."""
    found = DeadLetterGroup.objects.filter(pk__in=ids).values("note", "runbook_url").first()
    return found if found and len(ids) == 1 else {}


def _action(
    name: str, button: str, question: str, done: str, act: Callable[..., Result], **more: Any
) -> BulkAction:
    return BulkAction(
        name, button, question, done, WORK, more.pop("form", GroupReasonForm), _each(act), **more
    )


ACKNOWLEDGE = _action(
    "acknowledge",
    "Acknowledge",
    "Shows that the group is being looked after. A group without an owner becomes yours.",
    "acknowledged",
    groups.acknowledge,
)
RESOLVE = _action(
    "resolve",
    "Resolve",
    "Marks the failure as over. When it happens again, the group opens by itself.",
    "resolved",
    groups.resolve_group,
    refused=_with_open_letters,
)
IGNORE = _action(
    "ignore",
    "Ignore",
    "The group asks for no attention any more, also when the failure happens again. Its dead letters stay "
    "and are counted. Use it with caution: only Reopen undoes it.",
    "ignored",
    groups.ignore,
    is_final=True,
)
REOPEN = _action("reopen", "Reopen", "The group asks for attention again.", "reopened", groups.reopen)
ASSIGN = _action(
    "assign", "Assign", "Sets the owner of the group.", "assigned", groups.assign, form=AssignForm
)
SNOOZE = _action(
    "snooze",
    "Snooze",
    "The group asks for no attention for a while. Its dead letters stay open.",
    "snoozed",
    _snooze,
    form=SnoozeForm,
)
END_SNOOZE = _action(
    "end_snooze",
    "End the snooze",
    "The group asks for attention again at once.",
    "no longer snoozed",
    _end_snooze,
    refused=_not_snoozed,
)
NOTE = _action(
    "annotate",
    "Note and runbook",
    "Notes for everyone who meets this failure. They replace the present note and runbook.",
    "annotated",
    groups.annotate,
    form=NoteForm,
    initial=_noted,
)
GROUP_ACTIONS = (ACKNOWLEDGE, RESOLVE, IGNORE, REOPEN, ASSIGN, SNOOZE, END_SNOOZE, NOTE)


def actions_for(group: DeadLetterGroup) -> tuple[BulkAction, ...]:
    """Return the actions that make sense for a group as it is."""
    unwanted = {
        GroupStatus.OPEN: {REOPEN.name},
        GroupStatus.ACKNOWLEDGED: {ACKNOWLEDGE.name},
        GroupStatus.RESOLVED: {ACKNOWLEDGE.name, RESOLVE.name, SNOOZE.name},
        GroupStatus.IGNORED: {ACKNOWLEDGE.name, IGNORE.name, SNOOZE.name},
    }[GroupStatus(group.status)]
    if not groups.is_snoozed(group):
        unwanted |= {END_SNOOZE.name}
    return tuple(action for action in GROUP_ACTIONS if action.name not in unwanted)
