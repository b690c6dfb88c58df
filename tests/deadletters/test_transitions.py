"""The database refuses every move that the tables of `deadletters.states` do not list."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models import TextChoices

from criticizer.db import prepared
from deadletters.models import DeadLetter, LetterEdit, ReplayBatch, ReplayItem
from deadletters.states import (
    BATCH_TRANSITIONS,
    EDIT_TRANSITIONS,
    GROUP_TRANSITIONS,
    IN_WORK,
    ITEM_TRANSITIONS,
    LETTER_TRANSITIONS,
    BatchStatus,
    EditStatus,
    GroupStatus,
    ItemStatus,
    LetterStatus,
)
from tests import factories

pytestmark = pytest.mark.django_db

# Everything that CHECKs want of any state, so that only the move itself can be refused.
_ALL_STEPS = """
UPDATE dead_letters SET status = %s,
  category = 'data', triaged_by = 'x', triaged_at = now(), evidence_note = 'done', remediated_by = 'x',
  remediated_at = now(), validation_ok = true, validated_by = 'x', validated_at = now(),
  replay_reason = 'why', replayed_by = 'x', replayed_at = now(), verified_by = 'x', verified_at = now(),
  resolution = 'well', resolved_by = 'x',
  closed_at = CASE WHEN %s IN ('resolved', 'discarded') THEN now() END
 WHERE id = %s"""


_NO = ("P0001", "23502", "23514")  # a trigger's exception, NOT NULL, a CHECK


def _tried(statement: str, parameters: Any) -> bool:
    """Say whether the database takes a statement; leave no trace."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            transaction.set_rollback(True)
    except DatabaseError as error:
        if getattr(error.__cause__, "sqlstate", "") not in _NO:
            raise  # a slip of the pen is no refusal
        return False
    return True


def _wrong(before: TextChoices, taken: dict[TextChoices, bool], table: Any) -> list[str]:
    return [
        f"{before} to {after}: {'taken' if got else 'refused'}"
        for after, got in taken.items()
        if got != ((before, after) in table or before == after)
    ]


@pytest.mark.parametrize("before", list(LetterStatus))
def test_letter_transitions_outside_the_table_are_refused(before: LetterStatus) -> None:
    letter = factories.DeadLetterFactory(status=before)
    taken = {after: _tried(_ALL_STEPS, [after, after, letter.pk]) for after in LetterStatus}
    assert not _wrong(before, taken, LETTER_TRANSITIONS)
    assert DeadLetter.objects.get(pk=letter.pk).status == before


def test_unknown_status_is_refused() -> None:
    letter = factories.DeadLetterFactory()
    assert not _tried("UPDATE dead_letters SET status = %s WHERE id = %s", ["open", letter.pk])


@pytest.mark.parametrize(
    ("status", "takes_away"),
    [
        (LetterStatus.TRIAGED, "category = ''"),
        (LetterStatus.TRIAGED, "triaged_at = NULL"),
        (LetterStatus.TRIAGED, "triaged_by = ''"),
        (LetterStatus.REMEDIATED, "evidence_note = '', evidence_link = ''"),
        (LetterStatus.REMEDIATED, "evidence_note = '   ', evidence_link = 'x'"),
        (LetterStatus.REMEDIATED, "remediated_by = ''"),
        (LetterStatus.VALIDATED, "validation_ok = NULL"),
        (LetterStatus.VALIDATED, "validation_ok = false, override_reason = 'ok'"),
        (LetterStatus.VALIDATED, "validated_at = NULL"),
        (LetterStatus.REPLAYING, "replay_reason = ''"),
        (LetterStatus.REPLAYING, "replayed_by = ''"),
        (LetterStatus.VERIFYING, "category = 'other'"),
        (LetterStatus.RESOLVED, "verified_at = NULL"),
        (LetterStatus.RESOLVED, "resolution = ' '"),
        (LetterStatus.RESOLVED, "closed_at = NULL"),
        (LetterStatus.NEW, "closed_at = now()"),
    ],
)
def test_a_step_without_its_evidence_is_refused(status: LetterStatus, takes_away: str) -> None:
    letter = factories.DeadLetterFactory(status=status)
    assert not _tried(f"UPDATE dead_letters SET {takes_away} WHERE id = %s", [letter.pk])
    assert _tried("UPDATE dead_letters SET detail = 'else' WHERE id = %s", [letter.pk])


@pytest.mark.parametrize("status", list(LetterStatus))
def test_a_letter_that_is_worked_on_cannot_be_deleted(status: LetterStatus) -> None:
    letter = factories.DeadLetterFactory(status=status)
    factories.DeadLetterEventFactory(letter=letter, action="archived")
    gone = _tried(
        "WITH p AS (DELETE FROM dead_letter_payloads WHERE letter_id = %s) SELECT 1", [letter.pk]
    ) and _tried(
        "DELETE FROM dead_letter_payloads WHERE letter_id = %s; DELETE FROM dead_letters WHERE id = %s",
        [letter.pk, letter.pk],
    )
    assert gone == (status not in IN_WORK)


# How a batch, which is born a draft, comes to a state.
_WAYS = {
    BatchStatus.DRAFT: (),
    BatchStatus.PAUSED: (BatchStatus.RUNNING, BatchStatus.PAUSED),
    BatchStatus.STOPPED: (BatchStatus.RUNNING, BatchStatus.STOPPED),
    BatchStatus.FINISHED: (BatchStatus.RUNNING, BatchStatus.FINISHED),
}
# Everything that CHECKs want of any state, so that only the move itself can be refused.
_MOVE_BATCH = """
UPDATE replay_batches
   SET status = state, needs_approval = needs_approval OR (status = 'draft' AND state = 'awaiting'),
       approved_by = CASE WHEN status = 'awaiting' AND state = 'running' THEN 'bob' ELSE approved_by END,
       approved_at = CASE WHEN status = 'awaiting' AND state = 'running' THEN now() ELSE approved_at END
  FROM (SELECT %(to)s::text AS state) AS wanted WHERE id = %(id)s"""


def _batch(status: BatchStatus = BatchStatus.DRAFT) -> ReplayBatch:
    batch: ReplayBatch = ReplayBatch.objects.create(reason="OPS-1", requested_by="ann", item_count=1)
    for to in _WAYS.get(status, (status,)):
        prepared.rows(_MOVE_BATCH, {"to": to.value, "id": batch.pk})
    batch.refresh_from_db()
    assert batch.status == status
    return batch


@pytest.mark.parametrize("before", list(BatchStatus))
def test_batch_transitions_outside_the_table_are_refused(before: BatchStatus) -> None:
    batch = _batch(before)
    taken = {after: _tried(_MOVE_BATCH, {"to": after.value, "id": batch.pk}) for after in BatchStatus}
    assert not _wrong(before, taken, BATCH_TRANSITIONS)


def test_requester_cannot_approve_a_batch() -> None:
    batch = _batch(BatchStatus.AWAITING)
    approve = (
        "UPDATE replay_batches SET status = 'running', approved_by = %s, approved_at = now() WHERE id = %s"
    )
    assert not _tried("UPDATE replay_batches SET status = 'running' WHERE id = %s", [batch.pk])
    assert not _tried(approve, ["ann", batch.pk])
    assert _tried(approve, ["bob", batch.pk])


@pytest.mark.parametrize("before", list(GroupStatus))
def test_group_transitions_outside_the_table_are_refused(before: GroupStatus) -> None:
    group = factories.DeadLetterGroupFactory(status=before)
    statement = "UPDATE dead_letter_groups SET status = %s WHERE id = %s"
    taken = {after: _tried(statement, [after, group.pk]) for after in GroupStatus}
    assert not _wrong(before, taken, GROUP_TRANSITIONS)


@pytest.mark.parametrize("before", list(ItemStatus))
def test_item_transitions_outside_the_table_are_refused(before: ItemStatus) -> None:
    letter = factories.DeadLetterFactory()
    item = ReplayItem.objects.create(
        batch=_batch(),
        letter=letter,
        job_id=letter.job_id,
        group_id=letter.group_id,
        lane="1",
        status=before,
        started_at=letter.created_at,
    )
    statement = "UPDATE replay_items SET status = %s WHERE id = %s"
    taken = {after: _tried(statement, [after, item.pk]) for after in ItemStatus}
    assert not _wrong(before, taken, ITEM_TRANSITIONS)


@pytest.mark.parametrize("before", list(EditStatus))
def test_edit_transitions_outside_the_table_are_refused(before: EditStatus) -> None:
    letter = factories.DeadLetterFactory()
    edit = LetterEdit.objects.create(
        letter=letter, before={}, after={}, reason="OPS-1", requested_by="ann", status=before,
        decided_by="bob", decided_at=letter.created_at,
    )  # fmt: skip
    statement = "UPDATE letter_edits SET status = %s WHERE id = %s"
    taken = {after: _tried(statement, [after, edit.pk]) for after in EditStatus}
    assert not _wrong(before, taken, EDIT_TRANSITIONS)
    assert not _tried("UPDATE letter_edits SET status='applied', decided_by = 'ann' WHERE id = %s", [edit.pk])


def test_every_status_pair_was_tried() -> None:
    every = (LetterStatus, BatchStatus, ItemStatus, GroupStatus)
    tried = [pair for states in every for pair in product(states, states)]
    assert len(tried) == 9 * 9 + 7 * 7 + 8 * 8 + 4 * 4


@pytest.mark.parametrize("table", ["dead_letter_events", "dead_letter_group_events", "replay_batch_events"])
def test_timelines_cannot_be_emptied(table: str) -> None:
    assert not _tried(f"TRUNCATE {table}", [])
