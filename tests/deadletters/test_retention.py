"""Retention (specification 003, 3.2): age, size, archive before deletion, restore byte for byte, alerts."""

from __future__ import annotations

import errno
import io
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage
from django.core.management import CommandError, call_command
from django.db import DatabaseError

from criticizer import sql
from criticizer.redaction import clean
from deadletters import letter_archive, retention
from deadletters.models import DeadLetter, DeadLetterGroup, LetterArchive, OperatorAlert
from deadletters.states import IN_WORK, LetterStatus
from tests import factories

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _frozen(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> None:
    class Clock:
        @staticmethod
        def now() -> datetime:
            return NOW

    for module in (retention, letter_archive):
        monkeypatch.setattr(module, "timezone", Clock)
    monkeypatch.setattr(letter_archive, "_resealed_to", 0, raising=False)
    monkeypatch.setattr(retention, "_walked_at", None, raising=False)
    storages = {**settings.STORAGES}
    storages["letter_archive"] = {
        **storages["letter_archive"],
        "OPTIONS": {**storages["letter_archive"]["OPTIONS"], "location": tmp_path / "letters"},
    }
    settings.STORAGES = storages


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
        for row in sql.rows(
            "SELECT (to_jsonb(l) - 'kept_until')::text || coalesce(to_jsonb(p)::text, '') AS line"
            " FROM dead_letters l LEFT JOIN dead_letter_payloads p ON p.letter_id = l.id ORDER BY l.id"
        )
    ]


def _left() -> set[int]:
    return set(DeadLetter.objects.values_list("pk", flat=True))


def test_what_is_over_age_goes_and_what_is_worked_on_stays() -> None:
    young = {_letter(6.9).pk, _letter(6.9, status=LetterStatus.RESOLVED).pk}
    worked_on = {_letter(30, status=status).pk for status in IN_WORK}
    for status in (LetterStatus.NEW, LetterStatus.RESOLVED, LetterStatus.DISCARDED):
        _letter(7.1, status=status)
    retention.maintain()
    assert _left() == young | worked_on
    assert {letter.expires_at is None for letter in DeadLetter.objects.filter(pk__in=worked_on)} == {True}


def test_what_is_over_size_goes_closed_ones_first_then_the_oldest(settings: Any) -> None:
    settings.DLQ_MAX_SIZE = 4
    oldest = _letter(6)
    closed = _letter(1, status=LetterStatus.RESOLVED)
    kept = {_letter(days).pk for days in (5, 4, 3)} | {_letter(6.5, status=LetterStatus.TRIAGED).pk}
    retention.maintain()
    assert _left() == kept
    assert not {oldest.pk, closed.pk} & _left()


def test_more_than_a_round_holds_goes_in_the_next_ones(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(retention, "IN_A_FILE", 2)
    monkeypatch.setattr(retention, "FILES_A_ROUND", 2)
    job_letters = [_letter(8) for _ in range(7)]
    assert [retention.enforce(NOW), retention.enforce(NOW), retention.enforce(NOW)] == [4, 3, 0]
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
    retention.maintain()
    assert _rows() == []
    for archive in LetterArchive.objects.all():
        back = letter_archive.restore(archive, actor="ann", reason="OPS-1: asked for")
        assert (len(back.letters), back.skipped) == (3, {})
    assert _rows() == before
    assert DeadLetterGroup.objects.get().open_count == open_before == 1
    retention.maintain()
    assert _rows() == before  # what came back stays for another seven days
    letter = DeadLetter.objects.order_by("pk")[0]
    assert [event.action for event in letter.events.all()] == ["archived", "restored"]
    again = letter_archive.restore(LetterArchive.objects.get(), actor="ann", reason="twice")
    assert set(again.skipped.values()) == {"it is there already"}


def test_the_archive_is_sealed_and_a_changed_file_is_noticed() -> None:
    letter = _letter(8, detail="the word platypus")
    retention.maintain()
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
        retention.maintain()
    assert len(_left()) == 1


def test_a_letter_taken_up_while_it_is_being_archived_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    letter, other = _letter(8), _letter(8)
    whole = letter_archive._opened

    def taken_up(name: str) -> bytes:
        from deadletters import workflow

        workflow.triage(letter.pk, actor="ann", category="data")
        return whole(name)

    monkeypatch.setattr(letter_archive, "_opened", taken_up)
    assert retention.enforce(NOW) == 1
    assert _left() == {letter.pk}
    assert LetterArchive.objects.get().letter_count == 1
    assert other.pk not in _left()


def test_keys_can_be_rotated_under_the_archive(settings: Any) -> None:
    _letter(8)
    retention.maintain()
    old_name = LetterArchive.objects.get().name
    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode(), *settings.ARTIFACT_KEYS]
    retention.maintain()
    settings.ARTIFACT_KEYS = settings.ARTIFACT_KEYS[:1]
    archive = LetterArchive.objects.get()
    assert len(list(letter_archive.read(archive))) == 1
    assert not letter_archive.storage().exists(old_name)


def _files() -> set[str]:
    root = Path(letter_archive.storage().path(""))
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def _archived(monkeypatch: pytest.MonkeyPatch, files: int) -> list[LetterArchive]:
    with monkeypatch.context() as patch:
        patch.setattr(retention, "IN_A_FILE", 1)
        for _ in range(files):
            _letter(8)
        retention.enforce(NOW)
    return list(LetterArchive.objects.order_by("pk"))


def test_a_lost_or_broken_file_keeps_no_other_under_the_old_key(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
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


def test_no_name_of_a_file_reads_as_a_secret() -> None:
    """An operator who is told that a file is damaged must be able to find it."""
    for seconds in range(500):
        text = f"{letter_archive._new_name(NOW + timedelta(seconds=seconds))}, with 1 letters, is gone"
        assert clean(text) == text


def test_a_damaged_file_is_told_once(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    (lost,) = _archived(monkeypatch, 1)
    Path(letter_archive.storage().path(lost.name)).unlink()
    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode(), *settings.ARTIFACT_KEYS]
    for _ in range(3):
        assert letter_archive.reseal() == 0
    (alert,) = OperatorAlert.objects.filter(kind="archive_damaged")
    assert lost.name in alert.text


def test_a_file_that_does_not_read_back_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    _letter(8)
    monkeypatch.setattr(letter_archive, "_opened", lambda name: b"something else")
    for _ in range(2):
        with pytest.raises(letter_archive.ArchiveDamaged):
            retention.enforce(NOW)
    assert _files() == set()


def test_a_file_whose_commit_fails_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    letter = _letter(8)
    with monkeypatch.context() as patch:
        patch.setattr(retention, "_DELETE", "SELECT 1/0")
        with pytest.raises(DatabaseError):
            retention.enforce(NOW)
    assert (_files(), _left()) == (set(), {letter.pk})
    assert retention.enforce(NOW) == 1
    assert len(_files()) == 1


def test_a_file_that_is_not_written_whole_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    _letter(8)
    whole = FileSystemStorage.save

    def full(self: FileSystemStorage, name: str, content: Any) -> str:
        whole(self, name, content)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FileSystemStorage, "save", full)
    with pytest.raises(OSError, match="No space left"):
        retention.enforce(NOW)
    assert _files() == set()


def test_files_without_a_row_go_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed before the commit leaves one."""
    (kept,) = _archived(monkeypatch, 1)
    young, old = (
        letter_archive.storage().save(f"2026/02/{name}", ContentFile(b"x")) for name in ("young", "old")
    )
    for name, days in ((kept.name, 300), (young, 6.9), (old, 7.1)):
        at = (NOW - timedelta(days=days)).timestamp()
        os.utime(letter_archive.storage().path(name), (at, at))
    retention.maintain()
    assert _files() == {kept.name, young}
    assert list(letter_archive.read(kept))


def test_operators_are_told_ahead_when_it_happens_and_of_too_many(settings: Any) -> None:
    settings.DLQ_ALERT_PER_DAY = 2
    group = factories.DeadLetterGroupFactory()
    group.days.create(day=NOW.date(), count=3)
    _letter(6.5)
    _letter(8)
    retention.maintain()
    retention.maintain()  # once a day
    kinds = sorted(OperatorAlert.objects.values_list("kind", flat=True))
    assert kinds == ["expired", "expiring", "too_many"]


def test_a_quiet_day_tells_nobody() -> None:
    _letter(1)
    retention.maintain()
    assert not OperatorAlert.objects.exists()


def test_the_commands_list_print_and_restore() -> None:
    letter, other = _letter(8), _letter(8)
    retention.maintain()
    out = io.StringIO()
    call_command("read_letter_archive", stdout=out)
    name = out.getvalue().split("\t")[0]
    assert "2 letters" in out.getvalue()
    out = io.StringIO()
    call_command("read_letter_archive", name, letter=[letter.pk], stdout=out)
    assert json.loads(out.getvalue())["letter"]["detail"] == letter.detail
    out = io.StringIO()
    call_command("restore_letters", name, letter=[other.pk], reason="OPS-1", actor="ann", stdout=out)
    assert "1 restored, 0 skipped" in out.getvalue()
    assert _left() == {other.pk}
    with pytest.raises(CommandError, match="not in the archive"):
        call_command("restore_letters", "nowhere", reason="OPS-1")
