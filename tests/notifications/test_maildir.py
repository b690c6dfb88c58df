"""The maildir: one file per message, complete or absent, found in every folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from criticizer.resilience.failures import PermanentFailure, RetryableFailure, UncertainFailure
from notifications.providers.base import Evidence, Question
from notifications.providers.email import maildir
from notifications.providers.email.maildir import Maildir
from tests.notifications.samples import SENDER, message

QUESTION = Question(message(), "", 0.0)


def test_the_message_appears_whole_in_new_and_tmp_is_left_empty(tmp_path: Path) -> None:
    name = Maildir(tmp_path, SENDER).send(message())
    assert str(message().token) in name
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]
    assert list((tmp_path / "tmp").iterdir()) == []
    assert (tmp_path / "new" / name).read_bytes().endswith(b"--\n")
    assert (tmp_path / "new" / name).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("flags", [":2,", ":2,S", ":2,RS"])
def test_a_message_that_was_read_is_still_found(tmp_path: Path, flags: str) -> None:
    provider = Maildir(tmp_path, SENDER)
    name = provider.send(message())
    (tmp_path / "new" / name).rename(tmp_path / "cur" / f"{name}{flags}")
    assert provider.look_up(QUESTION).evidence is Evidence.FOUND


def test_absence_is_proof_even_before_the_first_message(tmp_path: Path) -> None:
    assert Maildir(tmp_path / "none", SENDER).look_up(QUESTION).evidence is Evidence.ABSENT


def test_a_leftover_draft_is_not_a_message(tmp_path: Path) -> None:
    provider = Maildir(tmp_path, SENDER)
    name = provider.send(message(token=2))
    (tmp_path / "tmp" / f"{message().created_at_epoch}.{message().token}.criticizer.1.x").touch()
    assert provider.look_up(QUESTION).evidence is Evidence.ABSENT
    assert name != provider.send(message())


def test_a_full_disk_is_repeated_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Maildir(tmp_path, SENDER)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RetryableFailure):
            provider.send(message())
    assert list((tmp_path / "tmp").iterdir()) == list((tmp_path / "new").iterdir()) == []
    provider.send(message())
    assert provider.look_up(QUESTION).evidence is Evidence.FOUND


def test_a_failure_after_the_message_appeared_is_uncertain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Maildir(tmp_path, SENDER)

    def failing(directory: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(maildir, "sync", failing)
    with pytest.raises(UncertainFailure):
        provider.send(message())
    assert provider.look_up(QUESTION).evidence is Evidence.FOUND


def test_a_path_that_is_no_directory_is_a_matter_of_configuration(tmp_path: Path) -> None:
    (tmp_path / "mail").write_text("")
    with pytest.raises(PermanentFailure):
        Maildir(tmp_path / "mail", SENDER).send(message())


def test_a_probe_writes_nothing_that_stays_and_says_what_is_wrong(tmp_path: Path) -> None:
    assert Maildir(tmp_path / "mail", SENDER).probe() == "The maildir can be written."
    assert list((tmp_path / "mail").rglob("*.*")) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(PermanentFailure, match="cannot be written"):
        Maildir(tmp_path / "file", SENDER).probe()
