"""Groups of failures: counted by commits of letters, decided by operators, reopened.

A failure that occurs again reopens its group.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, timedelta
from typing import Any

import pytest
from django.utils import timezone

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from deadletters import groups, workflow
from deadletters.models import DeadLetter, DeadLetterGroup, OperatorAlert
from deadletters.states import GroupStatus, LetterStatus
from tests import factories
from tests.deadletters.conftest import Fail, Work, denied
from tests.letters import remove, walk_and_replay

pytestmark = pytest.mark.django_db


def test_failures_alike_are_one_group_with_daily_counts(fail: Fail) -> None:
    letters = [fail(str(number), failure=denied(f"key {number}00 expired")) for number in range(3)]
    fail("9", failure=denied("another thing"))
    group = letters[0].group
    group.refresh_from_db()
    assert {letter.group_id for letter in letters} == {group.pk}
    assert (group.open_count, group.total_count, group.normalized_message) == (3, 3, "key <n> expired")
    assert (group.stage, group.error_class, group.source) == ("llm", "AUTH_DENIED", "llm:none")
    failed_on = Counter(letter.last_failure_at.astimezone(UTC).date() for letter in letters)
    assert {day.day: day.count for day in group.days.all()} == failed_on  # midnight may be between them
    assert group.first_seen <= group.last_seen


def test_the_open_letters_of_a_group_are_counted_by_the_database() -> None:
    group, other = (factories.DeadLetterGroupFactory(fingerprint=f"v1:{n}") for n in "ab")
    letters = [factories.DeadLetterFactory(group=group) for _ in range(3)]
    factories.DeadLetterFactory(group=group, status=LetterStatus.RESOLVED)
    workflow.discard(letters[0].pk, actor="ann", reason="OPS-1")
    DeadLetter.objects.filter(pk=letters[1].pk).update(group=other)
    remove(letters[2].pk)
    counts = dict(DeadLetterGroup.objects.values_list("pk", "open_count"))
    assert counts == {group.pk: 0, other.pk: 1}


def test_a_letter_that_fails_again_counts_again_and_is_open_once(fail: Fail, work: Work) -> None:
    from tests import scripted

    letter = fail()
    scripted.SCRIPT["llm"].append(denied())
    walk_and_replay(letter.pk)
    work()
    letter.group.refresh_from_db()
    assert (letter.group.open_count, letter.group.total_count) == (1, 2)


@pytest.mark.parametrize(
    ("status", "afterwards"),
    [
        (GroupStatus.OPEN, GroupStatus.OPEN),
        (GroupStatus.ACKNOWLEDGED, GroupStatus.ACKNOWLEDGED),
        (GroupStatus.RESOLVED, GroupStatus.OPEN),
        (GroupStatus.IGNORED, GroupStatus.IGNORED),
    ],
)
def test_recurrence_opens_resolved_groups(fail: Fail, status: GroupStatus, afterwards: GroupStatus) -> None:
    group = fail("1").group
    DeadLetterGroup.objects.update(status=status)
    fail("2")
    group.refresh_from_db()
    assert group.status == afterwards
    assert group.events.filter(action="reopened", actor="criticizer").exists() == (status != afterwards)
    told = OperatorAlert.objects.filter(kind="reopened", dedup_key__startswith=f"reopened:{group.pk}:")
    assert told.count() == (status != afterwards)


def test_recurrence_after_resolution_alerts_once_a_day(fail: Fail) -> None:
    secret = "password=Hunter2Hunter2Hunter2"
    group = fail("1", failure=denied(f"{secret} refused")).group
    for changelist in ("2", "3"):
        DeadLetterGroup.objects.update(status=GroupStatus.RESOLVED)
        fail(changelist, failure=denied(f"{secret} refused"))
    alert = OperatorAlert.objects.get(kind="reopened")
    assert alert.title == "AUTH_DENIED in llm came back after its group was resolved"
    assert alert.text.startswith(f"Group {group.pk}: ")
    assert "Hunter2" not in alert.text
    assert alert.path == f"/admin/deadletters/deadlettergroup/{group.pk}/change/"


# Raised anew each time: an exception keeps the stack of where it was raised before.
_DEFECT = (ErrorClass.INTERNAL_BUG, Component.INTERNAL, "unhandled KeyError: api_key=Hunter2Hunter2")
_MISSING = (ErrorClass.CONFIG_INVALID, Component.CONFIGURATION, "the data directory is full")
_REFUSED = (ErrorClass.NOT_FOUND, Component.REVIEWER, "no such model")


def _critical() -> list[OperatorAlert]:
    return list(OperatorAlert.objects.filter(kind="critical").order_by("pk"))


@pytest.mark.parametrize(("failure", "told"), [(_DEFECT, 1), (_MISSING, 1), (_REFUSED, 0)])
def test_critical_failure_alerts_once_a_day(fail: Fail, failure: Any, told: int) -> None:
    letter = fail("1", failure=PermanentFailure(*failure))
    fail("2", failure=PermanentFailure(*failure))
    alerts = _critical()
    assert len(alerts) == told
    for alert in alerts:
        assert alert.title == f"{failure[0]} in llm: a critical failure"
        assert alert.text == f"Letter {letter.pk}: {letter.detail}"
        assert "Hunter2" not in alert.text
        assert alert.path == f"/admin/deadletters/deadletter/{letter.pk}/change/"


def test_critical_failure_of_a_replay_alerts(fail: Fail, work: Work) -> None:
    from tests import scripted

    letter = fail(failure=PermanentFailure(*_REFUSED))
    scripted.SCRIPT["llm"].append(PermanentFailure(*_DEFECT))
    walk_and_replay(letter.pk)
    work()
    assert [alert.title for alert in _critical()] == ["INTERNAL_BUG in llm: a critical failure"]


@pytest.mark.parametrize(
    ("group", "told"),
    [
        ({"status": GroupStatus.IGNORED}, 0),
        ({"snooze_until": timezone.now() + timedelta(days=1)}, 0),
        ({"snooze_until": timezone.now() - timedelta(days=1)}, 1),
        ({"status": GroupStatus.ACKNOWLEDGED}, 1),
        ({"status": GroupStatus.RESOLVED}, 1),
    ],
)
def test_ignored_or_snoozed_critical_failure_does_not_alert(
    fail: Fail, group: dict[str, Any], told: int
) -> None:
    fail("1", failure=PermanentFailure(*_DEFECT))
    OperatorAlert.objects.all().delete()  # that was yesterday
    DeadLetterGroup.objects.update(**group)
    fail("2", failure=PermanentFailure(*_DEFECT))
    assert len(_critical()) == told


def test_a_group_with_open_letters_is_not_resolved(fail: Fail) -> None:
    letter = fail()
    refused = groups.resolve_group(letter.group_id, actor="ann", reason="OPS-1")
    assert (refused.ok, refused.message) == (False, "1 of its letters is still open")
    workflow.discard(letter.pk, actor="ann", reason="OPS-1")
    assert groups.resolve_group(letter.group_id, actor="ann", reason="OPS-1").ok


def test_group_actions_are_recorded_in_its_timeline() -> None:
    group = factories.DeadLetterGroupFactory()
    assert groups.acknowledge(group.pk, actor="ann").ok
    assert not groups.acknowledge(group.pk, actor="bob").ok
    assert groups.snooze(group.pk, actor="ann", until=timezone.now() + timedelta(hours=1), reason="night").ok
    assert not groups.snooze(group.pk, actor="ann", until=timezone.now()).ok
    assert groups.assign(group.pk, actor="ann", owner="team blue").ok
    assert not groups.annotate(group.pk, actor="ann", note="x", runbook_url="javascript:1").ok
    assert groups.annotate(group.pk, actor="ann", note="call bob", runbook_url="https://wiki/x").ok
    assert not groups.ignore(group.pk, actor="ann", reason=" ").ok
    assert groups.ignore(group.pk, actor="ann", reason="noise").ok
    assert groups.reopen(group.pk, actor="ann").ok
    group.refresh_from_db()
    assert (group.status, group.owner, group.note, group.snooze_until) == (
        "open",
        "team blue",
        "call bob",
        None,
    )
    assert [event.action for event in group.events.all()] == [
        "acknowledged", "snoozed", "assigned", "annotated", "ignored", "reopened"
    ]  # fmt: skip


def test_snooze_can_be_ended() -> None:
    group = factories.DeadLetterGroupFactory()
    assert groups.snooze(group.pk, actor="ann", until=None).message == "it is not snoozed"
    groups.snooze(group.pk, actor="ann", until=timezone.now() + timedelta(hours=1), reason="night")
    assert groups.snooze(group.pk, actor="bob", until=None, reason="morning").ok
    group.refresh_from_db()
    assert group.snooze_until is None
    assert [event.reason for event in group.events.order_by("id")][1:] == ["no longer: morning"]


def test_annotation_is_recorded_and_keeps_other_fields() -> None:
    group = factories.DeadLetterGroupFactory()
    old, new = "https://wiki/old", "https://wiki/new"
    for given in (
        {"note": "call bob", "runbook_url": old},
        {"runbook_url": new},
        {"note": "call carol"},
        {"note": "", "runbook_url": ""},
    ):
        assert groups.annotate(group.pk, actor="ann", **given).ok
    assert not groups.annotate(group.pk, actor="ann", note="").ok
    assert [event.reason for event in group.events.order_by("id")] == [
        f"runbook: none \u2192 {old}; note: call bob",
        f"runbook: {old} \u2192 {new}",
        "note: call carol",
        f"runbook: {new} \u2192 none; note: none",
    ]


def test_occurrence_is_no_new_version_of_a_group(fail: Fail) -> None:
    group = fail("1").group
    group.refresh_from_db()
    version = group.row_version
    fail("2")
    group.refresh_from_db()
    assert group.row_version == version
