"""Stored artifacts: rotation of keys, and verification against the rows."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from django.core.files.storage import FileSystemStorage, storages
from django.core.management import CommandError, call_command
from django.utils import timezone

from criticizer.models import Circuit, SecurityEvent
from criticizer.resilience.failures import Component, ErrorClass, RetryableFailure
from criticizer.security.encryption import Vault, key_id
from deadletters.types import Failed
from reviews.artifacts import integrity as artifact_care
from reviews.artifacts import recipe, store
from reviews.models import Artifact, JobEvent
from reviews.pipeline import StageClaim
from reviews.replay import adapter
from reviews.states import JobStatus, Stage
from tests import factories

pytestmark = pytest.mark.django_db
OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


@pytest.fixture(autouse=True)
def _old_key(settings: Any) -> None:
    settings.ARTIFACT_KEYS = [OLD]


def stored(kind: Artifact.Kind = Artifact.Kind.CHANGE, text: bytes = b"content", job: Any = None) -> Artifact:
    job = job or factories.ReviewJobFactory()
    claim = StageClaim(1, uuid4(), 1, Stage.FETCH, 1, 5, 1, job.pk, "12345", 1)
    store.store(claim, kind, text).save()
    return Artifact.objects.latest("id")


def file_of(artifact: Artifact) -> Path:
    return Path(store.storage(is_raw=artifact.is_raw).path(artifact.name))


def files() -> list[str]:
    roots = [Path(storages[name].path("")) for name in ("artifacts_raw", "artifacts_redacted")]
    return sorted(path.name for root in roots for path in root.rglob("*") if path.is_file())


def faults() -> list[tuple[str, str]]:
    events = SecurityEvent.objects.filter(kind=SecurityEvent.Kind.ARTIFACT_FAULT).order_by("id")
    return [(event.reason, event.path) for event in events]


class RefusedError(Exception):
    """Error of a bucket's client, which is no OSError."""


AWAY = RetryableFailure(
    ErrorClass.UPSTREAM_UNAVAILABLE, Component.INTERNAL, "the storage of artifacts failed"
)


def fails(patch: pytest.MonkeyPatch, method: str, error: Exception, times: int = 1) -> list[str]:
    """Let a method of the storage fail `times` times; return the list of names of its calls."""
    works, called = getattr(FileSystemStorage, method), list[str]()

    def either(storage: FileSystemStorage, name: str, *args: Any) -> Any:
        called.append(name)
        if len(called) <= times:
            raise error
        return works(storage, name, *args)

    patch.setattr(FileSystemStorage, method, either)
    return called


# -- rotation ------------------------------------------------------------------------------------


def test_after_a_rotation_the_old_key_is_not_needed(settings: Any) -> None:
    made = [stored(), stored(Artifact.Kind.PROMPT, b"prompt")]
    settings.ARTIFACT_KEYS = [NEW, OLD]
    assert store.content_of(made[0]) == b"content"  # both open during the overlap
    out = StringIO()
    call_command("rotate_artifact_keys", stdout=out)
    assert "2 resealed, 0 changed by others, 0 failed, 0 left under older keys." in out.getvalue()
    settings.ARTIFACT_KEYS = [NEW]
    for artifact, text in zip(made, (b"content", b"prompt"), strict=True):
        artifact.refresh_from_db()
        assert (artifact.key_id, store.content_of(artifact)) == (key_id(NEW), text)
    assert len(files()) == 2


def test_rotation_is_bounded_and_resumes(settings: Any) -> None:
    for _ in range(5):
        stored()
    settings.ARTIFACT_KEYS = [NEW, OLD]
    assert [artifact_care.rotate_keys(limit=2, batch=1).left for _ in range(4)] == [3, 1, 0, 0]
    assert artifact_care.rotate_keys().resealed == 0


@pytest.mark.parametrize("moment", ["before the row", "before the old file goes"])
def test_crash_in_a_rotation_loses_nothing_and_the_next_run_finishes(
    settings: Any, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    artifact = stored()
    settings.ARTIFACT_KEYS = [NEW, OLD]

    def crash(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if moment == "before the row":
            patch.setattr("django.db.models.query.QuerySet.update", crash)
        else:
            patch.setattr("django.core.files.storage.FileSystemStorage.delete", crash)
        with pytest.raises(KeyboardInterrupt):
            artifact_care.rotate_keys()
    assert len(files()) == 2  # the new file is there, and the old one
    artifact.refresh_from_db()
    assert store.content_of(artifact) == b"content"
    artifact_care.rotate_keys()
    settings.ARTIFACT_KEYS = [NEW]
    artifact.refresh_from_db()
    assert store.content_of(artifact) == b"content"


def test_content_is_read_under_its_new_name_after_a_rotation(settings: Any) -> None:
    looked_up = stored()
    settings.ARTIFACT_KEYS = [NEW, OLD]
    artifact_care.rotate_keys()
    assert not file_of(looked_up).exists()
    assert store.content_of(looked_up) == b"content"


def test_artifact_that_no_key_opens_is_reported_and_others_are_rotated(settings: Any) -> None:
    stored()
    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode()]
    stored()
    settings.ARTIFACT_KEYS = [NEW, OLD]
    done = artifact_care.rotate_keys()
    assert (done.resealed, done.failed, done.left) == (1, 1, 1)
    with pytest.raises(CommandError, match=r"the artifact does not open with any of ARTIFACT_KEYS \(1\)"):
        call_command("rotate_artifact_keys", stdout=StringIO())


def test_a_rotation_says_why_an_artifact_was_not_resealed(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_of(stored()).unlink()
    file_of(stored()).unlink()
    stored()
    settings.ARTIFACT_KEYS = [NEW, OLD]
    fails(monkeypatch, "_save", OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(CommandError) as refused:
        call_command("rotate_artifact_keys", stdout=StringIO())
    assert str(refused.value) == (
        "Not resealed: the artifact's file is gone (2); the data directory cannot be used: No space left on"
        " device (1). Which ones: artifact_not_resealed in the log."
    )


def test_rotation_stops_when_the_storage_is_unavailable(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each artifact would cost a timeout."""
    for _ in range(5):
        stored()
    settings.ARTIFACT_KEYS = [NEW, OLD]
    out = StringIO()
    with monkeypatch.context() as patch:
        asked = fails(patch, "_open", AWAY, times=99)
        with pytest.raises(CommandError, match=r"the storage of artifacts failed \(3\)\. Stopped because"):
            call_command("rotate_artifact_keys", stdout=out)
    assert len(asked) == store.AWAY_AFTER
    assert "0 resealed, 0 changed by others, 3 failed, 5 left under older keys." in out.getvalue()
    assert artifact_care.rotate_keys().resealed == 5


@pytest.mark.parametrize("method", ["_open", "_save", "delete"])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "I/O error"), RefusedError("no"), AWAY], ids=repr)
def test_file_that_fails_does_not_stop_the_rotation(
    settings: Any, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception
) -> None:
    made = [stored(), stored()]
    settings.ARTIFACT_KEYS = [NEW, OLD]
    with monkeypatch.context() as patch:
        fails(patch, method, error)
        done = artifact_care.rotate_keys()
    assert (done.resealed, done.failed) == (1, 1)
    artifact_care.rotate_keys()
    settings.ARTIFACT_KEYS = [NEW]
    for artifact in made:
        artifact.refresh_from_db()
        assert store.content_of(artifact) == b"content"


# -- verification --------------------------------------------------------------------------------


def test_intact_artifacts_have_no_fault() -> None:
    stored(), stored(Artifact.Kind.PROMPT)
    seen = artifact_care.verify(10)
    assert (seen.opened, seen.faults) == (2, 0)
    assert artifact_care.find_orphans().files == 2
    call_command("verify_artifacts", stdout=StringIO())
    assert faults() == []


def damage_gone(artifact: Artifact) -> None:
    file_of(artifact).unlink()


def damage_bytes(artifact: Artifact) -> None:
    file_of(artifact).write_bytes(b"something else")


def damage_other_content(artifact: Artifact) -> None:
    file_of(artifact).write_bytes(Vault([OLD]).seal(b"another change"))


@pytest.mark.parametrize(
    ("damage", "fault"),
    [(damage_gone, "missing"), (damage_bytes, "unreadable"), (damage_other_content, "changed")],
)
def test_a_damaged_artifact_is_reported_once(damage: Callable[[Artifact], None], fault: str) -> None:
    artifact = stored()
    damage(artifact)
    assert artifact_care.verify(10).broken == 1
    assert artifact_care.verify(10, all_now=True).broken == 0
    artifact.refresh_from_db()
    assert artifact.fault == fault
    assert faults() == [(Artifact.Fault(fault).label, artifact.name)]
    with pytest.raises(CommandError, match="1 artifacts with a fault"):
        call_command("verify_artifacts", stdout=StringIO())


def test_repaired_artifact_loses_its_fault() -> None:
    artifact = stored()
    content = file_of(artifact).read_bytes()
    file_of(artifact).unlink()
    artifact_care.verify(10)
    file_of(artifact).write_bytes(content)
    artifact_care.verify(10, all_now=True)
    artifact.refresh_from_db()
    assert artifact.fault == ""


def test_overdue_artifacts_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = stored()
    Artifact.objects.update(expires_at=timezone.now() - timedelta(hours=1))

    def refuse(*args: Any) -> None:
        raise PermissionError("read-only")

    with monkeypatch.context() as patch:
        patch.setattr("django.core.files.storage.FileSystemStorage.delete", refuse)
        assert store.delete_expired() == 0
    assert artifact_care.verify(10).overdue == 1
    assert artifact_care.verify(10).overdue == 0
    assert faults() == [("Kept beyond its expiry", artifact.name)]
    assert store.delete_expired() == 1  # the disk is writable again
    assert files() == []


@pytest.mark.parametrize("error", [RefusedError("AccessDenied"), AWAY], ids=repr)
def test_file_that_cannot_be_deleted_does_not_stop_the_deletion(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    stored(), stored()
    Artifact.objects.update(expires_at=timezone.now() - timedelta(hours=1))
    fails(monkeypatch, "delete", error)
    assert [store.delete_expired() for _ in range(3)] == [1, 1, 0]
    assert files() == []


def test_unavailable_storage_is_not_tried_for_every_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(5):
        stored()
    with monkeypatch.context() as patch:
        opened = fails(patch, "_open", AWAY, times=5)
        artifact_care.verify_round()
        assert len(opened) == 3
    assert artifact_care.verify(10).opened == 5
    Artifact.objects.update(expires_at=timezone.now() - timedelta(hours=1))
    asked = fails(monkeypatch, "delete", AWAY, times=3)
    assert store.delete_expired() == 0
    assert len(asked) == 3
    assert store.delete_expired() == 5


def test_unanswered_check_is_no_fault_and_others_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    stored(), stored()
    fails(monkeypatch, "_open", AWAY)
    with pytest.raises(RetryableFailure):
        artifact_care.verify(10)
    assert Artifact.objects.filter(checked_at=None).count() == 1
    assert artifact_care.verify(10).opened == 1
    assert faults() == []


def test_files_without_a_row_that_cannot_be_deleted_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    old = (timezone.now() - timedelta(days=8)).timestamp()
    for artifact in (stored(), stored()):
        os.utime(file_of(artifact), (old, old))
    Artifact.objects.all().delete()
    with monkeypatch.context() as patch:
        fails(patch, "delete", RefusedError("AccessDenied"))
        assert artifact_care.find_orphans().orphaned == 2
    assert len(files()) == 1
    assert {reason for reason, _ in faults()} == {
        "A file that no row names",
        "A file without a row was older than its time and is deleted",
    }


def test_storage_that_cannot_be_listed_does_not_fail_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_care, "_walked_at", None)
    listed = fails(monkeypatch, "listdir", RefusedError("AccessDenied"))
    artifact_care.verify_round()
    assert listed == [""]


def test_a_file_without_a_row_is_reported_and_deleted_when_its_time_is_up() -> None:
    artifact = stored()
    path = file_of(artifact)
    Artifact.objects.all().delete()
    assert artifact_care.find_orphans().orphaned == 0  # young: its row may not be committed yet
    old = (timezone.now() - timedelta(hours=7)).timestamp()
    os.utime(path, (old, old))
    assert [artifact_care.find_orphans().orphaned for _ in range(2)] == [1, 0]
    assert path.exists()
    old = (timezone.now() - timedelta(days=8)).timestamp()
    os.utime(path, (old, old))
    artifact_care.find_orphans()
    assert not path.exists()
    assert [reason for reason, _ in faults()] == [
        "A file that no row names",
        "A file without a row was older than its time and is deleted",
    ]


def test_each_round_checks_the_artifacts_checked_longest_ago() -> None:
    made = [stored() for _ in range(3)]
    assert artifact_care.verify(2).opened == 2
    assert artifact_care.verify(2).opened == 1
    assert artifact_care.verify(2).opened == 0  # all of them within a day
    assert Artifact.objects.filter(checked_at=None).count() == 0
    assert len(made) == 3


# -- replay --------------------------------------------------------------------------------------


def problems(job: Any, *, restart: bool) -> list[str]:
    """Return what stands in the way of a replay from the stage llm."""
    checks = adapter.JobRecovery().survey([Failed(job.pk, "llm")], restart=restart)[job.pk]
    return [check.message for check in checks if not check.ok]


def test_expiry_under_an_open_dead_letter_is_shown_on_the_job_and_at_validation() -> None:
    job = factories.ReviewJobFactory(status=JobStatus.DEAD_LETTERED)
    stored(job=job)
    assert problems(job, restart=False) == []
    Artifact.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    store.delete_expired()
    (problem,) = problems(job, restart=False)
    assert "expired" in problem
    assert "restart from the first stage" in problem
    assert problems(job, restart=True) == []  # it is fetched again
    Circuit.objects.create(name="p4:unset", state="open")
    assert problems(job, restart=True)[-1] == (
        "the change artifact has expired, and cannot be fetched again now: the circuit of p4:unset is open"
    )
    event = JobEvent.objects.get(job=job)
    assert (event.kind, event.reason) == (
        "alert",
        "the fetched change has expired: a replay must restart from fetch",
    )


def test_a_redacted_change_of_another_recipe_is_not_enough_for_a_replay(settings: Any) -> None:
    job = factories.ReviewJobFactory(status=JobStatus.DEAD_LETTERED)
    raw, redacted = stored(job=job), stored(Artifact.Kind.REDACTED, job=job)
    Artifact.objects.filter(pk=redacted.pk).update(recipe=recipe.current())
    Artifact.objects.filter(pk=raw.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    store.delete_expired()
    assert problems(job, restart=False) == []
    assert not JobEvent.objects.filter(job=job).exists()
    settings.REDACTION_POLICY = {"emails": True}
    assert "expired" in problems(job, restart=False)[0]
    stored(job=job)
    assert problems(job, restart=False) == []
    Artifact.objects.filter(kind="change").update(expires_at=timezone.now() - timedelta(seconds=1))
    store.delete_expired()
    assert "expired" in problems(job, restart=False)[0]
    assert JobEvent.objects.get(job=job).kind == "alert"


def test_change_that_no_key_opens_fails_the_validation(settings: Any) -> None:
    job = factories.ReviewJobFactory(status=JobStatus.DEAD_LETTERED)
    stored(job=job)
    settings.ARTIFACT_KEYS = [NEW]
    for restart in (False, None):  # no source is configured either
        (opens,) = adapter.JobRecovery().probe(Failed(job.pk, "llm"), restart=restart)
        assert not opens.ok
        assert "restart from the first stage" in opens.message
