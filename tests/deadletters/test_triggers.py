"""Triggers that refuse to bypass a step, an approval or a frozen selection."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, transaction

from criticizer.db import prepared
from deadletters import batches
from deadletters.models import DeadLetterEvent, DeadLetterPayload, LetterArchive, ReplayBatch, ReplayItem
from deadletters.states import CLOSED_LETTER, IN_WORK, LetterStatus
from reviews import pipeline
from reviews.models import ReviewJob
from reviews.states import JobStatus, Stage
from tests import factories
from tests.deadletters.test_transitions import _tried
from tests.letters import remove

pytestmark = pytest.mark.django_db

AFTER_DRAFT = ("awaiting", "running", "paused", "stopped", "finished", "cancelled")
_SUBMITTED = [
    "requested_by = 'mallory'",
    "requested_at = now() - interval '1 day'",
    "reason = 'something else'",
    'filter = \'{"q": "else"}\'',
    "is_restart = NOT is_restart",
    "resolves_verified = NOT resolves_verified",
    "override_reason = 'because'",
    "evidence_link = 'https://ops.example.com/2'",
    "evidence_note = 'nothing at all'",
    "category = 'transient'",
    "canary_size = 0",
    "item_count = 1",
    "needs_approval = NOT needs_approval",
    "approved_by = 'mallory', approved_at = now()",
    "approved_at = now() - interval '1 day'",
]
_MAY_CHANGE = [
    "rate_per_minute = 7, max_in_flight = 9, next_item_at = now()",
    "report = '{}', status_reason = 'a look'",
    "started_at = now(), finished_at = now()",
]


def drafted(**given: Any) -> ReplayBatch:
    letters = [factories.DeadLetterFactory().pk for _ in range(2)]
    return batches.draft(
        filter={}, ids=letters, actor="ann", reason="OPS-1: mended", evidence_note="OPS-1", **given
    )


def brought_to(status: str) -> ReplayBatch:
    """Bring a batch that needs an approval, or one that needs none, to a state as people do."""
    batch = drafted(is_restart=status == "awaiting")
    assert batches.submit(batch.pk, actor="ann").ok
    if status == "paused":
        batches.pause(batch.pk, actor="ann")
    elif status == "cancelled":
        batches.cancel(batch.pk, actor="ann")
    elif status in {"stopped", "finished"}:
        ReplayBatch.objects.filter(pk=batch.pk).update(status=status)
    batch.refresh_from_db()
    assert batch.status == status
    return batch


def _update(batch: ReplayBatch, changes: str) -> bool:
    return _tried(f"UPDATE replay_batches SET {changes} WHERE id = %s", [batch.pk])


@pytest.mark.parametrize("status", AFTER_DRAFT)
def test_submitted_batch_cannot_be_changed(status: str) -> None:
    batch = brought_to(status)
    assert [changes for changes in _SUBMITTED if _update(batch, changes)] == []
    assert [changes for changes in _MAY_CHANGE if not _update(batch, changes)] == []


@pytest.mark.parametrize("given", [{"is_restart": True}, {"override_reason": "the host has moved"}])
def test_dangerous_batch_never_runs_without_approval(given: dict[str, Any]) -> None:
    batch = drafted(**given)
    assert not _update(batch, "status = 'running'")
    assert not _update(batch, "status = 'awaiting'")  # it would not wait for anybody
    assert not _update(batch, "approved_by = 'bob', approved_at = now()")  # in advance
    assert not _update(batch, "status = 'running', approved_by = 'bob', approved_at = now()")
    batches.submit(batch.pk, actor="ann")
    for changes in (
        "status = 'running'",
        "status = 'running', needs_approval = false",
        "status = 'running', approved_by = 'bob'",  # nobody knows when
        "approved_by = 'bob', approved_at = now()",
        "status = 'running', approved_by = 'ann', approved_at = now()",
        "status = 'running', requested_by = 'eve', approved_by = 'ann', approved_at = now()",
    ):
        assert not _update(batch, changes), changes
    assert _update(batch, "status = 'running', approved_by = 'bob', approved_at = now()")


def test_large_draft_keeps_needing_approval() -> None:
    batch = drafted()
    assert _update(batch, "needs_approval = true")
    ReplayBatch.objects.update(needs_approval=True)
    assert not _update(batch, "needs_approval = false")
    assert not _update(batch, "status = 'running'")


def test_large_batch_never_runs_without_approval(settings: Any) -> None:
    settings.REPLAY_APPROVAL_ABOVE = 1
    batch = drafted()
    assert batch.needs_approval
    for changes in (
        "status = 'running'",
        "status = 'running', item_count = 1",
        "status = 'running', needs_approval = false",
        "status = 'running', approved_by = 'bob', approved_at = now()",
        "needs_approval = false",
    ):
        assert not _update(batch, changes), changes
    assert _update(batch, "status = 'awaiting'")
    settings.REPLAY_APPROVAL_ABOVE = 2  # of drafts that are made from now on
    assert batches.submit(batch.pk, actor="ann").message == "submitted: another person must approve it"
    assert batches.submit(drafted().pk, actor="ann").message == "started"


def test_a_draft_whose_dangerous_setting_is_taken_back_needs_no_approval() -> None:
    batch = drafted(is_restart=True, override_reason="the host has moved")
    assert batches.configure(batch.pk, actor="ann", is_restart=False).ok
    assert not _update(batch, "status = 'running'")
    assert batches.configure(batch.pk, actor="ann", override_reason="").ok
    assert batches.submit(batch.pk, actor="ann").message == "started"


@pytest.mark.parametrize("part", ["drafted", "configured", "submitted"])
def test_maker_of_a_batch_cannot_approve_it(part: str) -> None:
    people = {"drafted": "bob", "configured": "bob", "submitted": "bob", part: "mallory"}
    batch = batches.draft(
        filter={},
        ids=[factories.DeadLetterFactory().pk],
        actor=people["drafted"],
        reason="OPS-1: mended",
        evidence_note="OPS-1",
    )
    batches.configure(batch.pk, actor=people["configured"], is_restart=True)
    batches.set_pace(batch.pk, actor="carol", rate_per_minute=7)
    batches.submit(batch.pk, actor=people["submitted"])
    approve = "status = 'running', approved_by = '{}', approved_at = now()"
    assert not _update(batch, approve.format("mallory"))
    assert not _update(batch, approve.format("bob"))
    assert _update(batch, approve.format("carol"))


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("status", "'running'"),
        ("status, needs_approval", "'awaiting', true"),
        ("status, is_restart, approved_by, approved_at", "'running', true, 'bob', now()"),
        ("approved_by, approved_at", "'bob', now()"),
    ],
)
def test_batch_is_inserted_as_an_unapproved_draft(columns: str, values: str) -> None:
    statement = "INSERT INTO replay_batches (reason, requested_by, {}) VALUES ('OPS-1', 'ann', {})"
    assert not _tried(statement.format(columns, values), [])
    assert _tried(statement.format("status", "'draft'"), [])


# -- items -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["draft", *AFTER_DRAFT])
def test_a_selection_stays_as_it_was_frozen(status: str) -> None:
    batch = drafted() if status == "draft" else brought_to(status)
    other, item = drafted(), batch.items.order_by("id")[0]
    for changes in (
        f"batch_id = {other.pk}",
        f"letter_id = {factories.DeadLetterFactory().pk}",
        "job_id = job_id + 1",
        "group_id = group_id + 1",
        "lane = 'another'",
    ):
        assert not _tried(f"UPDATE replay_items SET {changes} WHERE id = %s", [item.pk]), changes
    may = "is_canary = true, verdict = 'eligible', detail = 'a look'"
    assert _tried(f"UPDATE replay_items SET {may} WHERE id = %s", [item.pk])
    assert not _tried("DELETE FROM replay_items WHERE id = %s", [item.pk])
    assert not _tried("DELETE FROM replay_items WHERE batch_id = %s", [batch.pk])
    assert not _tried("DELETE FROM replay_batches WHERE id = %s", [batch.pk])


@pytest.mark.parametrize("status", ["draft", *AFTER_DRAFT])
def test_letters_join_a_batch_only_while_it_is_a_draft(status: str) -> None:
    batch = drafted() if status == "draft" else brought_to(status)
    letter = factories.DeadLetterFactory()
    join = (
        "INSERT INTO replay_items (batch_id, letter_id, job_id, group_id, lane)"
        " SELECT b.id, l.id, l.job_id, l.group_id, '1' FROM dead_letters l, replay_batches b"
        " WHERE l.id = %s AND b.id = ANY(%s)"
    )
    assert _tried(join, [letter.pk, [batch.pk]]) == (status == "draft")
    assert _tried(join, [letter.pk, [batch.pk, drafted().pk]]) == (status == "draft")  # all of a statement
    assert ReplayItem.objects.filter(batch=batch).count() == 2


def test_only_failed_items_have_a_failed_group() -> None:
    item = drafted().items.order_by("id")[0]
    into = f"UPDATE replay_items SET {{}} WHERE id = {item.pk}"
    assert not _tried(into.format("failed_group_id = group_id"), [])
    ReplayItem.objects.filter(pk=item.pk).update(status="ready")
    ReplayItem.objects.filter(pk=item.pk).update(status="replaying", started_at=item.batch.requested_at)
    assert not _tried(into.format("status = 'succeeded', failed_group_id = group_id"), [])
    assert _tried(into.format("status = 'failed', failed_group_id = group_id"), [])


# -- jobs --------------------------------------------------------------------------------------

_TO_WORK = "UPDATE jobs SET status = 'queued', finished_at = NULL WHERE id = %s"


@pytest.mark.parametrize("status", list(LetterStatus))
def test_job_is_replayed_only_with_a_replaying_letter(status: LetterStatus) -> None:
    letter = factories.DeadLetterFactory(status=status)
    assert _tried(_TO_WORK, [letter.job_id]) == (status == LetterStatus.REPLAYING)


def test_letter_of_another_job_does_not_allow_a_replay() -> None:
    factories.DeadLetterFactory(status=LetterStatus.REPLAYING)
    assert not _tried(_TO_WORK, [factories.ReviewJobFactory(status=JobStatus.DEAD_LETTERED).pk])
    untouched = factories.job_with_stages(status=JobStatus.DEAD_LETTERED)
    with pytest.raises(DatabaseError, match="no letter of it is being replayed"), transaction.atomic():
        pipeline.replay(untouched.pk, Stage.FETCH)
    assert not ReviewJob.objects.exclude(status=JobStatus.DEAD_LETTERED).exists()


def test_a_late_result_is_accepted_without_a_letter() -> None:
    assert _tried(_TO_WORK, [factories.ReviewJobFactory(status=JobStatus.TIMED_OUT).pk])


# -- letters, payloads, archives ---------------------------------------------------------------


def test_origin_of_a_letter_cannot_be_changed() -> None:
    letter, other = factories.DeadLetterFactory(), factories.DeadLetterFactory()
    for changes in (
        f"job_id = {other.job_id}",
        f"parent_id = {other.pk}, generation = 2",
        "created_at = created_at - interval '1 day'",
        "failed_replay_count = -1",
    ):
        assert not _tried(f"UPDATE dead_letters SET {changes} WHERE id = %s", [letter.pk]), changes
    second = factories.DeadLetterFactory(parent=letter, generation=2)
    for changes in (f"parent_id = {other.pk}", "generation = 3", "parent_id = NULL, generation = 1"):
        assert not _tried(f"UPDATE dead_letters SET {changes} WHERE id = %s", [second.pk]), changes
    assert _tried("UPDATE dead_letters SET failed_replay_count = 1, stage = 'llm' WHERE id = %s", [letter.pk])


# A letter as it stands, under another number, and of a stage of which none is open.
_BORN = """
INSERT INTO dead_letters
SELECT (jsonb_populate_record(l, jsonb_build_object('id', %s, 'stage', 'other', 'status', %s,
          'closed_at', CASE WHEN %s IN ('resolved', 'discarded') THEN now() END))).*
  FROM dead_letters l WHERE id = %s"""


@pytest.mark.parametrize("status", list(LetterStatus))
def test_letter_is_inserted_new_or_restored_closed(status: LetterStatus) -> None:
    letter = factories.DeadLetterFactory(status=LetterStatus.RESOLVED)  # it has all that CHECKs want
    twin = letter.pk + 1_000_000
    is_new, may_come_back = status == LetterStatus.NEW, status not in IN_WORK
    factories.DeadLetterEventFactory(letter=letter, action="archived")  # of another letter
    for action, may in (("created", is_new), ("archived", may_come_back), ("restored", is_new)):
        DeadLetterEvent.objects.create(letter_id=twin, action=action, actor="ann")
        assert _tried(_BORN, [twin, status, status, letter.pk]) == may, action


@pytest.mark.parametrize("status", [LetterStatus.NEW, *CLOSED_LETTER])
def test_letter_is_deleted_only_once_archived(status: LetterStatus) -> None:
    letter, other = factories.DeadLetterFactory(status=status), factories.DeadLetterFactory()
    DeadLetterPayload.objects.all().delete()
    delete = "DELETE FROM dead_letters WHERE id = %s"
    factories.DeadLetterEventFactory(letter=other, action="archived")
    factories.DeadLetterEventFactory(letter=letter, action="created")
    assert not _tried(delete, [letter.pk])
    for action, may in (("archived", True), ("refused", True), ("restored", False), ("archived", True)):
        factories.DeadLetterEventFactory(letter=letter, action=action)
        assert _tried(delete, [letter.pk]) == may, action


def test_letter_is_not_deleted_with_its_job() -> None:
    letter = factories.DeadLetterFactory()
    with pytest.raises(DatabaseError, match="goes only once it is archived"), transaction.atomic():
        letter.job.delete()
    remove(letter.pk)
    letter.job.delete()
    assert not ReviewJob.objects.filter(pk=letter.job_id).exists()


def test_a_payload_stays_with_its_letter() -> None:
    letter = factories.DeadLetterFactory()
    bare = factories.DeadLetterFactory()
    DeadLetterPayload.objects.filter(letter=bare).delete()
    move = "UPDATE dead_letter_payloads SET letter_id = %s WHERE letter_id = %s"
    assert not _tried(move, [bare.pk, letter.pk])
    assert _tried("UPDATE dead_letter_payloads SET last_stack = 'x' WHERE letter_id = %s", [letter.pk])


def test_archive_rows_cannot_be_changed() -> None:
    found = LetterArchive.objects.create(
        name="a", sha256="0" * 64, key_id="1", letter_count=2, first_letter=1, last_letter=2
    )
    for changes in (
        "sha256 = '1'",
        "letter_count = 1",
        "first_letter = 2",
        "last_letter = 3",
        "created_at = created_at - interval '1 day'",
    ):
        assert not _tried(f"UPDATE letter_archives SET {changes} WHERE id = %s", [found.pk]), changes
    assert _tried("UPDATE letter_archives SET name = 'b', key_id = '2' WHERE id = %s", [found.pk])
    for whole in ("DELETE FROM letter_archives", "TRUNCATE letter_archives"):
        assert not _tried(whole, []), whole
    assert LetterArchive.objects.filter(pk=found.pk).exists()


def test_every_column_of_a_batch_is_either_kept_or_may_change() -> None:
    columns = prepared.rows("SELECT column_name AS name FROM information_schema.columns"
                       " WHERE table_schema = 'public' AND table_name = 'replay_batches'")  # fmt: skip
    said = {part.split(" = ")[0].strip() for line in (*_SUBMITTED, *_MAY_CHANGE) for part in line.split(", ")}
    assert {row["name"] for row in columns} - said == {"id", "status", "row_version"}
