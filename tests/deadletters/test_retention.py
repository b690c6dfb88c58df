"""Retention: age, size, archive before deletion, restore byte for byte, alerts."""

from __future__ import annotations

import errno
import getpass
import io
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.files.storage import FileSystemStorage
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection

from criticizer.db import prepared
from criticizer.redaction import clean
from deadletters import batches, groups, transitions, workflow
from deadletters.models import (
    DeadLetter,
    DeadLetterGroup,
    LetterArchive,
    OperatorAlert,
    ReplayBatch,
    ReplayItem,
)
from deadletters.retention import letter_archive, policy
from deadletters.states import IN_WORK, BatchStatus, GroupStatus, ItemStatus, LetterStatus
from tests import factories
from tests.letters import archive_in

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _frozen(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> None:
    class Clock:
        @staticmethod
        def now() -> datetime:
            return NOW

    for module in (policy, transitions):
        monkeypatch.setattr(module, "timezone", Clock)
    monkeypatch.setattr(letter_archive, "_resealed_to", 0, raising=False)
    monkeypatch.setattr(policy, "_walked_at", None, raising=False)
    archive_in(tmp_path / "letters", settings)


def _letter(days: float = 0.0, **fields: Any) -> DeadLetter:
    at = NOW - timedelta(days=days)
    closed = {} if fields.get("status") not in {"resolved", "discarded"} else {"closed_at": at}
    letter: DeadLetter = factories.DeadLetterFactory(
        first_failure_at=at, last_failure_at=at, **{**closed, **fields}
    )
    return letter


def _rows() -> list[str]:
    """Return every letter with its payload as PostgreSQL writes it down."""
    return [
        row["line"]
        for row in prepared.rows(
            "SELECT (to_jsonb(l) - 'kept_until')::text || coalesce(to_jsonb(p)::text, '') AS line"
            " FROM dead_letters l LEFT JOIN dead_letter_payloads p ON p.letter_id = l.id ORDER BY l.id"
        )
    ]


def _left() -> set[int]:
    return set(DeadLetter.objects.values_list("pk", flat=True))


def test_old_letters_are_archived_unless_in_work() -> None:
    young = {_letter(6.9).pk, _letter(6.9, status=LetterStatus.RESOLVED).pk}
    worked_on = {_letter(30, status=status).pk for status in IN_WORK}
    for status in (LetterStatus.NEW, LetterStatus.RESOLVED, LetterStatus.DISCARDED):
        _letter(7.1, status=status)
    policy.maintain()
    assert _left() == young | worked_on
    assert {letter.expires_at is None for letter in DeadLetter.objects.filter(pk__in=worked_on)} == {True}


def test_excess_letters_are_archived_closed_then_oldest_first(settings: Any) -> None:
    settings.DLQ_MAX_SIZE = 4
    oldest = _letter(6)
    closed = _letter(1, status=LetterStatus.RESOLVED)
    kept = {_letter(days).pk for days in (5, 4, 3)} | {_letter(6.5, status=LetterStatus.TRIAGED).pk}
    policy.maintain()
    assert _left() == kept
    assert not {oldest.pk, closed.pk} & _left()


def test_excess_letters_of_one_requester_do_not_push_out_those_of_others(settings: Any) -> None:
    settings.DLQ_MAX_SIZE = 5
    others = {_letter(6).pk, _letter(5).pk}
    flood = [
        _letter(days, job=factories.ReviewJobFactory(requested_by="key:flood")) for days in (3, 2, 1, 0.5)
    ]
    policy.maintain()
    assert _left() == others | {letter.pk for letter in flood[1:]}
    settings.DLQ_MAX_SIZE = 3
    policy.maintain()
    assert _left() == {max(others)} | {letter.pk for letter in flood[2:]}  # of as many each: the oldest


def test_postponed_letters_are_archived_last_when_over_size(settings: Any) -> None:
    settings.DLQ_MAX_SIZE = 1
    back = _letter(20, kept_until=NOW + timedelta(days=3))
    for days in (5, 4):
        _letter(days)
    policy.maintain()
    assert _left() == {back.pk}
    settings.DLQ_MAX_SIZE = 0
    policy.maintain()
    assert _left() == set()


def _batch(status: BatchStatus, letters: list[DeadLetter], days: float = 0.0, touched: float = -1.0) -> int:
    """Put letters into a batch requested `days` ago and last changed `touched` days ago."""
    batch = batches.draft(filter={}, ids=[letter.pk for letter in letters], actor="ann", reason="OPS-1")
    at = NOW - timedelta(days=days)
    with connection.cursor() as cursor:
        # What was done, and when it was asked for, cannot be changed otherwise.
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            "UPDATE replay_batches SET status = %s, requested_at = %s, needs_approval = %s WHERE id = %s",
            [status.value, at, status == BatchStatus.AWAITING, batch.pk],
        )
        seen = at if touched < 0 else NOW - timedelta(days=touched)
        cursor.execute("UPDATE replay_batch_events SET created_at = %s WHERE batch_id = %s", [seen, batch.pk])
        cursor.execute("SET LOCAL session_replication_role = origin")
    return batch.pk


def test_escalated_letters_stay_until_closed(settings: Any) -> None:
    letter = _letter(30, is_escalated=True)
    assert letter.expires_at is None
    settings.DLQ_MAX_SIZE = 0
    policy.maintain()
    assert _left() == {letter.pk}
    workflow.discard(letter.pk, actor="ann", reason="OPS-1: nobody needs it")
    policy.maintain()
    assert _left() == set()


def test_escalated_letters_raise_no_expiry_alert() -> None:
    _letter(6.5, is_escalated=True)
    policy.maintain()
    assert not OperatorAlert.objects.exists()


def test_unenforceable_size_limit_alerts_once_a_day(settings: Any) -> None:
    settings.DLQ_MAX_SIZE = 1
    _letter(3, is_escalated=True)
    _letter(3, status=LetterStatus.TRIAGED)
    letter = _letter(3)

    def told() -> list[str]:
        found = OperatorAlert.objects.filter(kind="over_size").order_by("pk")
        return [alert.text.partition(":")[0] for alert in found]

    policy.enforce(NOW)
    assert (_left() & {letter.pk}, told()) == (set(), [])
    for at in (NOW, NOW + timedelta(hours=1), NOW + timedelta(days=1)):
        policy.enforce(at)
    assert told() == ["1 too many on 2026-03-01", "1 too many on 2026-03-02"]


def test_a_letter_that_was_replayed_or_reopened_is_not_called_untouched() -> None:
    fresh, replayed, reopened = (_letter(8) for _ in range(3))
    for letter, action, actor in (
        (fresh, "created", "criticizer"),
        (replayed, "replayed", "ann"),
        (replayed, "failed_again", "criticizer"),
        (reopened, "discarded", "ann"),
    ):
        factories.DeadLetterEventFactory(letter=letter, action=action, actor=actor)
    policy.enforce(NOW)
    archive = LetterArchive.objects.get()
    assert (archive.letter_count, archive.untouched_count) == (3, 1)


def test_retention_is_postponed_after_a_cancelled_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "AT_ONCE", 2)
    going = [_letter(days) for days in (40, 8, 8, 6.5)]
    young, back, closed = _letter(5.9), _letter(40, kept_until=NOW + timedelta(days=2)), _letter(8)
    batch = _batch(BatchStatus.DRAFT, [*going, young, back, closed])
    workflow.discard(closed.pk, actor="ann", reason="OPS-1")
    assert batches.cancel(batch, actor="ann").ok
    policy.enforce(NOW)
    kept = dict(DeadLetter.objects.values_list("pk", "kept_until"))
    until = NOW + timedelta(days=7)
    assert [kept[letter.pk] for letter in going] == [until] * 4
    assert (kept[young.pk], kept[back.pk]) == (None, back.kept_until)
    assert kept[closed.pk] is None
    assert policy.enforce(until + timedelta(hours=1)) == len(kept)


@pytest.mark.django_db(transaction=True)
def test_cancel_does_not_wait_for_a_locked_letter() -> None:
    letters = [_letter(8).pk, _letter(8).pk]
    batch = batches.draft(filter={}, ids=letters, actor="ann", reason="OPS-1")
    with connection.copy().cursor() as other, connection.cursor() as cursor:
        other.execute("BEGIN")
        other.execute("SELECT FROM dead_letters WHERE id = %s FOR UPDATE", [letters[0]])
        cursor.execute("SET lock_timeout = '5s'")
        try:
            assert batches.cancel(batch.pk, actor="ann").ok
        finally:
            cursor.execute("RESET lock_timeout")
            other.connection.close()
    until = dict(DeadLetter.objects.values_list("pk", "kept_until"))
    assert until == {letters[0]: None, letters[1]: NOW + timedelta(days=7)}


LIVE = (BatchStatus.DRAFT, BatchStatus.AWAITING, BatchStatus.RUNNING, BatchStatus.PAUSED, BatchStatus.STOPPED)


@pytest.mark.parametrize("status", list(BatchStatus))
def test_letters_in_a_batch_stay(status: BatchStatus, settings: Any) -> None:
    held, also_held, free = _letter(8), _letter(30), _letter(8)
    batch = _batch(status, [held, also_held], days=2)
    ReplayItem.objects.filter(batch=batch, letter=also_held).update(status=ItemStatus.READY)
    policy.maintain()
    assert _left() == ({held.pk, also_held.pk} if status in LIVE else set())
    assert policy.batch_in_hand(held.pk) == (batch if status in LIVE else None)
    settings.DLQ_MAX_SIZE = 0
    policy.maintain()
    assert _left() == ({held.pk, also_held.pk} if status in LIVE else set())
    assert free.pk not in _left()


def test_letters_a_batch_has_finished_are_archived() -> None:
    letter = _letter(8)
    batch = _batch(BatchStatus.RUNNING, [letter])
    ReplayItem.objects.filter(batch=batch).update(status=ItemStatus.SKIPPED, finished_at=NOW)
    policy.maintain()
    assert _left() == set()


@pytest.mark.parametrize("status", LIVE)
@pytest.mark.parametrize(("asked", "touched", "holds"), [(30, 6.9, True), (30, 7.1, False), (6.9, 6.9, True)])
def test_idle_batch_stops_holding_its_letters(
    status: BatchStatus, asked: float, touched: float, holds: bool
) -> None:
    letter = _letter(40)
    _batch(status, [letter], days=asked, touched=touched)
    policy.maintain()
    # One that runs is touched by its worker.
    assert bool(_left()) == (holds or status == BatchStatus.RUNNING)


def test_a_letter_put_into_a_batch_while_it_is_being_archived_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    letter = _letter(8)
    whole = letter_archive._opened

    def drafted(name: str) -> bytes:
        if not ReplayBatch.objects.exists():
            batches.draft(filter={}, ids=[letter.pk], actor="ann", reason="OPS-1")
        return whole(name)

    monkeypatch.setattr(letter_archive, "_opened", drafted)
    assert policy.enforce(NOW) == 0
    assert (_left(), _files()) == ({letter.pk}, set())


def test_letters_kept_by_a_batch_or_restore_raise_no_expiry_alert() -> None:
    _batch(BatchStatus.DRAFT, [_letter(6.5)])
    _letter(6.5, kept_until=NOW + timedelta(days=3))
    policy.maintain()
    assert not OperatorAlert.objects.exists()
    _letter(30, kept_until=NOW + timedelta(hours=20))
    policy.maintain()
    assert OperatorAlert.objects.get().title.startswith("1 dead letters")


@pytest.mark.long
def test_retention_queries_use_their_indexes() -> None:
    """The plan uses the indexes: at 200,000 letters it takes milliseconds, a full scan does not."""
    for number in range(100):  # so many that it matters to the planner which index has fewer of them
        _letter(8, status=LetterStatus.NEW if number % 20 == 0 else LetterStatus.RESOLVED)
    asked = {"limit": 500, "now": NOW, "before": NOW, "since": NOW}
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE dead_letters")
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        cursor.execute(f"EXPLAIN {policy._OLDEST}", asked)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "using dead_letters_closed" in plan
    assert "using dead_letters_open" in plan
    assert "Seq Scan on dead_letters" not in plan


def test_retention_run_is_bounded(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(policy, "IN_A_FILE", 2)
    monkeypatch.setattr(policy, "FILES_A_RUN", 2)
    job_letters = [_letter(8) for _ in range(7)]
    assert [policy.enforce(NOW), policy.enforce(NOW), policy.enforce(NOW)] == [4, 3, 0]
    assert sum(LetterArchive.objects.values_list("letter_count", flat=True)) == len(job_letters)


def test_everything_removed_is_restored_byte_for_byte() -> None:
    for number, status in enumerate((LetterStatus.NEW, LetterStatus.RESOLVED, LetterStatus.DISCARDED)):
        _letter(
            8 + number,
            status=status,
            detail='ünïcode \u2028 \\ " and a <tag>',
            last_stack="Traceback\n  reviews/x.py:1 f",
            sanitized_context={"float": 1.5, "nested": {"list": [1, None, "é"]}},
        )
    open_before = DeadLetterGroup.objects.get().open_count
    before = _rows()
    policy.maintain()
    assert _rows() == []
    for archive in LetterArchive.objects.all():
        back = letter_archive.restore(archive, actor="ann", reason="OPS-1: asked for")
        assert (len(back.letters), back.skipped) == (3, {})
    assert _rows() == before
    assert DeadLetterGroup.objects.get().open_count == open_before == 1
    policy.maintain()
    assert _rows() == before  # what came back stays for another seven days
    letter = DeadLetter.objects.order_by("pk")[0]
    assert [event.action for event in letter.events.all()] == ["archived", "restored"]
    again = letter_archive.restore(LetterArchive.objects.get(), actor="ann", reason="twice")
    assert set(again.skipped.values()) == {"it already exists"}


@pytest.mark.parametrize(
    ("status", "letter_is", "afterwards"),
    [
        (GroupStatus.RESOLVED, LetterStatus.NEW, GroupStatus.OPEN),
        (GroupStatus.RESOLVED, LetterStatus.DISCARDED, GroupStatus.RESOLVED),
        (GroupStatus.IGNORED, LetterStatus.NEW, GroupStatus.IGNORED),
        (GroupStatus.ACKNOWLEDGED, LetterStatus.NEW, GroupStatus.ACKNOWLEDGED),
    ],
)
def test_restored_open_letter_opens_its_resolved_group(
    status: GroupStatus, letter_is: LetterStatus, afterwards: GroupStatus
) -> None:
    letter = _letter(8, status=letter_is)
    policy.maintain()
    if status == GroupStatus.RESOLVED:
        assert groups.resolve_group(letter.group_id, actor="ann", reason="it is over").ok
    else:
        DeadLetterGroup.objects.update(status=status)
    letter_archive.restore(LetterArchive.objects.get(), actor="bob", reason="OPS-1: asked for")
    group = DeadLetterGroup.objects.get()
    assert (group.status, group.open_count) == (afterwards, int(letter_is == LetterStatus.NEW))
    reopened = [(event.actor, event.reason) for event in group.events.filter(action="reopened")]
    back = [("bob", f"dead letter {letter.pk} is back from the archive: OPS-1: asked for")]
    assert reopened == (back if status != afterwards else [])


def test_restored_letters_of_a_file_are_counted_once() -> None:
    letter, other = _letter(8), _letter(8)
    policy.maintain()
    archive = LetterArchive.objects.get()

    def restored(*letters: int) -> int:
        letter_archive.restore(archive, actor="ann", reason="OPS-1", letters=letters)
        return LetterArchive.objects.get(pk=archive.pk).restored_count

    assert restored(letter.pk) == 1
    policy.enforce(NOW + timedelta(days=8))
    assert LetterArchive.objects.count() == 2
    assert restored(letter.pk) == 1  # the second file holds it as it was last
    assert restored() == 2
    assert _left() == {other.pk}
    with pytest.raises(ValueError, match="A reason is required"):
        letter_archive.restore(archive, actor="ann", reason=" ")


def test_the_file_of_a_letter_is_found_also_under_another_key(settings: Any) -> None:
    letter = _letter(8)
    policy.enforce(NOW)
    other = _letter(8)
    policy.enforce(NOW)
    first, second = LetterArchive.objects.order_by("pk")
    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode(), *settings.ARTIFACT_KEYS]
    letter_archive.reseal()
    for number, file in ((letter.pk, first), (other.pk, second)):
        assert LetterArchive.objects.get(letter_archive.named(number)).pk == file.pk
        # As files were named in timelines before: by their names alone.
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute("UPDATE dead_letter_events SET context = '{}'")
            cursor.execute("SET LOCAL session_replication_role = origin")
        assert LetterArchive.objects.get(letter_archive.named(number)).pk == file.pk
    assert not letter_archive.named(987_654)
    assert not LetterArchive.objects.filter(letter_archive.holding(987_654)).exists()


def test_archive_is_encrypted_and_tampering_is_detected() -> None:
    letter = _letter(8, detail="the word platypus")
    policy.maintain()
    archive = LetterArchive.objects.get()
    path = Path(letter_archive.storage().path(archive.name))
    assert b"platypus" not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    assert next(letter_archive.read(archive))["letter"]["id"] == letter.pk
    path.write_bytes(path.read_bytes()[:-9] + b"tampered=")
    with pytest.raises(letter_archive.ArchiveDamaged):
        list(letter_archive.read(archive))


def test_nothing_is_removed_when_the_file_does_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    _letter(8)
    monkeypatch.setattr(letter_archive, "_opened", lambda name: b"something else")
    with pytest.raises(letter_archive.ArchiveDamaged):
        policy.maintain()
    assert len(_left()) == 1


def test_a_letter_taken_up_while_it_is_being_archived_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    letter, other = _letter(8), _letter(8)
    whole = letter_archive._opened

    def taken_up(name: str) -> bytes:
        workflow.triage(letter.pk, actor="ann", category="data")
        return whole(name)

    monkeypatch.setattr(letter_archive, "_opened", taken_up)
    assert policy.enforce(NOW) == 1
    assert _left() == {letter.pk}
    assert LetterArchive.objects.get().letter_count == 1
    assert other.pk not in _left()


def test_archive_keys_can_be_rotated(settings: Any) -> None:
    _letter(8)
    policy.maintain()
    old_name = LetterArchive.objects.get().name
    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode(), *settings.ARTIFACT_KEYS]
    policy.maintain()
    settings.ARTIFACT_KEYS = settings.ARTIFACT_KEYS[:1]
    archive = LetterArchive.objects.get()
    assert len(list(letter_archive.read(archive))) == 1
    assert not letter_archive.storage().exists(old_name)


def _files() -> set[str]:
    root = Path(letter_archive.storage().path(""))
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def _archived(monkeypatch: pytest.MonkeyPatch, files: int) -> list[LetterArchive]:
    with monkeypatch.context() as patch:
        patch.setattr(policy, "IN_A_FILE", 1)
        for _ in range(files):
            _letter(8)
        policy.enforce(NOW)
    return list(LetterArchive.objects.order_by("pk"))


def test_damaged_file_does_not_block_key_rotation(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    lost, broken, refused, *whole = _archived(monkeypatch, 5)
    Path(letter_archive.storage().path(lost.name)).unlink()
    Path(letter_archive.storage().path(broken.name)).write_bytes(b"no token")
    path = Path(letter_archive.storage().path(refused.name))
    path.unlink()
    path.mkdir()  # an error of the file system, which may pass
    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode(), *settings.ARTIFACT_KEYS]
    for _ in range(4):
        letter_archive.reseal(2)
    settings.ARTIFACT_KEYS = settings.ARTIFACT_KEYS[:1]
    for found in LetterArchive.objects.filter(pk__in=[archive.pk for archive in whole]):
        assert len(list(letter_archive.read(found))) == 1
    assert LetterArchive.objects.filter(name__in=[lost.name, broken.name, refused.name]).count() == 3


def test_archive_names_are_not_redacted() -> None:
    """An operator who is told that a file is damaged must be able to find it."""
    for seconds in range(500):
        text = f"{letter_archive._new_name(NOW + timedelta(seconds=seconds))}, with 1 letters, is missing"
        assert clean(text) == text


def test_unreadable_resealed_file_replaces_nothing(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    (archive,) = _archived(monkeypatch, 1)
    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode(), *settings.ARTIFACT_KEYS]
    with monkeypatch.context() as patch:
        patch.setattr(letter_archive, "_opened", lambda _: b"something else")
        assert letter_archive.reseal() == 0
    assert _files() == {archive.name}
    assert letter_archive.reseal() == 1
    assert len(list(letter_archive.read(LetterArchive.objects.get()))) == 1


def test_archive_file_is_fsynced_before_letters_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk: list[Path] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        on_disk.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", noted)
    file = letter_archive.write(b"{}\n", NOW)
    root = Path(letter_archive.storage().path(""))
    path = root / file.name
    assert on_disk == [path, *(parent for parent in path.parents if parent.is_relative_to(root))]


def test_letter_is_restored_from_its_newest_file_only() -> None:
    letter = _letter(8)
    policy.maintain()
    first = LetterArchive.objects.get()
    assert letter_archive.restore(first, actor="ann", reason="OPS-1: asked for").letters == [letter.pk]
    assert workflow.discard(letter.pk, actor="ann", reason="OPS-1: done by hand").ok
    DeadLetter.objects.update(closed_at=NOW - timedelta(days=8), kept_until=None)
    policy.maintain()
    last = LetterArchive.objects.exclude(pk=first.pk).get()
    refused = letter_archive.restore(first, actor="ann", reason="OPS-2: all of it")
    assert (refused.letters, list(refused.skipped)) == ([], [letter.pk])
    assert refused.skipped[letter.pk] == f"file {last.pk} of the archive holds a newer copy"
    assert letter_archive.restore(last, actor="ann", reason="OPS-2: all of it").letters == [letter.pk]
    assert DeadLetter.objects.get().status == "discarded"


def test_damaged_file_alerts_once(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    (lost,) = _archived(monkeypatch, 1)
    Path(letter_archive.storage().path(lost.name)).unlink()
    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode(), *settings.ARTIFACT_KEYS]
    for _ in range(3):
        assert letter_archive.reseal() == 0
    (alert,) = OperatorAlert.objects.filter(kind="archive_damaged")
    assert lost.name in alert.text


def test_unreadable_new_file_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    _letter(8)
    monkeypatch.setattr(letter_archive, "_opened", lambda name: b"something else")
    for _ in range(2):
        with pytest.raises(letter_archive.ArchiveDamaged):
            policy.enforce(NOW)
    assert _files() == set()


def test_file_of_a_failed_commit_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    letter = _letter(8)
    with monkeypatch.context() as patch:
        patch.setattr(policy, "_DELETE", "SELECT 1/0")
        with pytest.raises(DatabaseError):
            policy.enforce(NOW)
    assert (_files(), _left()) == (set(), {letter.pk})
    assert policy.enforce(NOW) == 1
    assert len(_files()) == 1


def test_partly_written_file_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    _letter(8)
    whole = FileSystemStorage.save

    def full(self: FileSystemStorage, name: str, content: Any) -> str:
        whole(self, name, content)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FileSystemStorage, "save", full)
    with pytest.raises(OSError, match="No space left"):
        policy.enforce(NOW)
    assert _files() == set()


def test_retention_alerts_of_expiry_archiving_and_volume(settings: Any) -> None:
    settings.DLQ_ALERT_PER_DAY = 2
    group = factories.DeadLetterGroupFactory()
    group.days.create(day=NOW.date(), count=3)
    _letter(6.5)
    _letter(8)
    policy.maintain()
    policy.maintain()  # once a day
    kinds = sorted(OperatorAlert.objects.values_list("kind", flat=True))
    assert kinds == ["expired", "expiring", "too_many"]


def test_archived_untouched_letters_alert_at_powers_of_ten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told() -> list[str]:
        found = OperatorAlert.objects.filter(kind="expired").order_by("pk")
        return [alert.text.split(" so far")[0] for alert in found]

    monkeypatch.setattr(policy, "IN_A_FILE", 3)
    for _ in range(3):
        _letter(8)
    _letter(8, status=LetterStatus.DISCARDED)  # somebody has looked at that one
    policy.maintain()
    assert told() == ["2 on 2026-03-01"]  # the discarded one goes first, in the file of two others
    for _ in range(6):
        _letter(8)
    policy.maintain()
    assert told() == ["2 on 2026-03-01"]
    for _ in range(4):
        _letter(8)
    policy.maintain()
    assert told() == ["2 on 2026-03-01", "12 on 2026-03-01"]
    assert [archive.untouched_count for archive in LetterArchive.objects.order_by("pk")][:2] == [2, 1]
    alert = OperatorAlert.objects.filter(kind="expired").latest("pk")
    assert alert.path == "/admin/deadletters/letterarchive/"
    _letter(8)
    policy.enforce(NOW + timedelta(days=1))
    assert told()[-1] == "1 on 2026-03-02"


def test_quiet_day_raises_no_alert() -> None:
    _letter(1)
    policy.maintain()
    assert not OperatorAlert.objects.exists()


def test_the_commands_list_print_and_restore() -> None:
    letter, other = _letter(8), _letter(8)
    policy.maintain()
    out = io.StringIO()
    call_command("read_letter_archive", stdout=out)
    name = out.getvalue().split("\t")[0]
    assert "2 dead letters" in out.getvalue()
    out = io.StringIO()
    call_command("read_letter_archive", name, letter=[letter.pk], stdout=out)
    assert json.loads(out.getvalue())["letter"]["detail"] == letter.detail
    out = io.StringIO()
    call_command("restore_letters", name, letter=[other.pk], reason="OPS-1", actor="ann", stdout=out)
    assert "1 restored, 0 skipped" in out.getvalue()
    assert _left() == {other.pk}
    # Who says to be somebody else stands beside the account of the machine.
    assert other.events.get(action="restored").actor == f"ann (restore_letters, account {getpass.getuser()})"
    with pytest.raises(CommandError, match="A reason is required"):
        call_command("restore_letters", name, reason="x")
    with pytest.raises(CommandError, match="not in the archive"):
        call_command("restore_letters", "nowhere", reason="OPS-1")
