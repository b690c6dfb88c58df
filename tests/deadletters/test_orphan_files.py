"""Files of the archive that no row names: superfluous ones are deleted, an only copy stays."""

from __future__ import annotations

import io
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.files.base import ContentFile
from django.core.management import CommandError, call_command
from django.db import connection

from criticizer.db import prepared
from deadletters import workflow
from deadletters.models import DeadLetter, LetterArchive, OperatorAlert
from deadletters.retention import letter_archive, orphan_files, policy
from tests import factories
from tests.deadletters.test_retention import NOW, _files, _frozen, _letter

__all__ = ["_frozen"]
pytestmark = pytest.mark.django_db


def _failed(days: float = 8) -> DeadLetter:
    letter = _letter(days)
    factories.DeadLetterEventFactory(letter=letter, action="created", actor="criticizer")
    return letter


def _aged(name: str, days: float = 7.1) -> str:
    at = (NOW - timedelta(days=days)).timestamp()
    os.utime(letter_archive.storage().path(name), (at, at))
    return name


def _left_over(*letters: DeadLetter, days: float = 7.1) -> str:
    """Write the file of a process that was killed before its commit."""
    lines = prepared.rows(policy._LINES, {"ids": [letter.pk for letter in letters]})
    plain = "".join(f"{row['line']}\n" for row in lines).encode()
    return _aged(letter_archive.write(plain, NOW).name, days)


def _past_the_guards(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement)
        cursor.execute("SET LOCAL session_replication_role = origin")


def _told() -> list[str]:
    found = OperatorAlert.objects.filter(kind=orphan_files.KIND).order_by("pk")
    return [alert.text.partition(". Was")[0] for alert in found]


def test_superfluous_orphan_file_is_deleted_after_retention() -> None:
    letter, other = _failed(1), _failed()
    old, young = _left_over(letter, other), _left_over(letter, other, days=6.9)
    workflow.triage(letter.pk, actor="ann", category="data")
    policy.enforce(NOW)  # the other letter is in another file by now
    (archive,) = LetterArchive.objects.all()
    _aged(archive.name, 300)
    assert _files() == {old, young, archive.name}
    assert orphan_files.remove(NOW) == 1
    assert _files() == {young, archive.name}
    assert _told() == []
    assert [entry["letter"]["id"] for entry in letter_archive.read(archive)] == [other.pk]


def test_maintenance_removes_orphan_files() -> None:
    _left_over(_failed(1))
    policy.maintain()
    assert _files() == set()


def test_only_copy_stays_and_alerts_once() -> None:
    _failed()
    policy.enforce(NOW)
    name = _aged(LetterArchive.objects.get().name)
    _past_the_guards("DELETE FROM letter_archives")
    for _ in range(2):
        assert orphan_files.remove(NOW) == 0
    assert _files() == {name}
    assert _told() == [f"{name} holds 1 dead letters without another copy in this database"]


def test_restored_older_database_deletes_no_newer_copy() -> None:
    """It was restored from a backup: its letter is the one of then."""
    letter = _failed()
    workflow.triage(letter.pk, actor="ann", category="data")
    name = _left_over(letter)
    _past_the_guards("UPDATE dead_letters SET row_version = row_version - 1")
    assert orphan_files.remove(NOW) == 0
    assert _files() == {name}
    _past_the_guards("UPDATE dead_letters SET row_version = row_version + 1")
    OperatorAlert.objects.all().delete()
    assert orphan_files.remove(NOW) == 1


def test_older_listed_copy_does_not_replace_a_newer_file() -> None:
    letter = _failed()
    policy.enforce(NOW)
    first = LetterArchive.objects.get()
    letter_archive.restore(first, actor="ann", reason="OPS-1")
    policy.enforce(NOW + timedelta(days=8))
    second = _aged(LetterArchive.objects.latest("pk").name)
    _past_the_guards(f"DELETE FROM letter_archives WHERE id <> {first.pk}")
    assert orphan_files.remove(NOW) == 0
    assert _files() == {first.name, second}
    assert not DeadLetter.objects.filter(pk=letter.pk).exists()


def test_letters_of_another_installation_have_the_same_numbers_and_stay() -> None:
    here, gone = _failed(1), _failed()
    name = _left_over(here, gone)
    policy.enforce(NOW)
    for table in ("dead_letters", "dead_letter_events"):
        _past_the_guards(f"UPDATE {table} SET created_at = created_at + interval '1 second'")
    assert orphan_files.remove(NOW) == 0
    assert name in _files()
    assert _told() == [f"{name} holds 2 dead letters without another copy in this database"]


def test_unreadable_orphan_file_stays(settings: Any) -> None:
    sealed = _left_over(_failed(1))
    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode()]
    no_letters = _aged(letter_archive.write(b'{"some": "thing"}\n', NOW).name)
    strange = _aged(letter_archive.storage().save("2026/02/strange", ContentFile(b"x")))
    assert orphan_files.remove(NOW) == 0
    assert _files() == {sealed, no_letters, strange}
    assert sorted(_told()) == sorted(
        [
            f"{no_letters} does not hold dead letters",
            *(f"{name} opens with none of ARTIFACT_KEYS" for name in (sealed, strange)),
        ]
    )


def test_orphan_removal_is_bounded_and_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphan_files, "OPENED_A_RUN", 2)
    for number in range(3):
        _aged(letter_archive.storage().save(f"2026/01/strange-{number}", ContentFile(b"x")))
    _left_over(_failed(1))
    removed = orphan_files.remove(NOW)
    assert len(_told()) + removed == 2
    assert (removed + orphan_files.remove(NOW), len(_told())) == (1, 3)


# -- reading one by hand ------------------------------------------------------------------------


def _printed(*arguments: str, **options: Any) -> tuple[list[dict[str, Any]], str]:
    out, err = io.StringIO(), io.StringIO()
    call_command("read_letter_archive", *arguments, stdout=out, stderr=err, **options)
    return [json.loads(line) for line in out.getvalue().splitlines()], err.getvalue()


def test_archive_file_is_read_without_the_database(django_assert_num_queries: Any) -> None:
    letter, other = _failed(), _failed()
    path = letter_archive.storage().path(_left_over(letter, other))
    with django_assert_num_queries(0):
        entries, said = _printed("--file", path)
    assert [entry["letter"]["id"] for entry in entries] == [letter.pk, other.pk]
    assert "their digests are not checked" in said
    assert [entry["letter"]["id"] for entry in _printed("--file", path, "--letter", str(other.pk))[0]] == [
        other.pk
    ]


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.write_bytes(b"x")
    for arguments, why in (
        (["--file", str(tmp_path / "nowhere")], "No such file"),
        (["--file", str(strange)], "opens with none of ARTIFACT_KEYS"),
        (["--file", str(strange), "--all"], "cannot be combined with names"),
        (["--file", str(strange), "--", "a-name"], "cannot be combined with names"),
    ):
        with pytest.raises(CommandError, match=why):
            _printed(*arguments)
