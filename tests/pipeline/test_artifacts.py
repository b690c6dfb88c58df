"""Artifacts expire: the file is deleted and the row stays (guarantee G101)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.storage import storages
from django.utils import timezone

from criticizer.resilience.failures import ErrorClass, PermanentFailure
from reviews.artifacts import store
from reviews.models import Artifact
from reviews.pipeline import StageClaim
from reviews.states import Stage

pytestmark = pytest.mark.django_db(transaction=True)


def _stored(job_id: int, kind: Artifact.Kind = Artifact.Kind.CHANGE) -> Artifact:
    claim = StageClaim(1, uuid4(), 1, Stage.FETCH, 1, 5, 1, job_id, "12345", 1)
    store.store(claim, kind, b"content of a change").save()
    return Artifact.objects.latest("id")


def test_stored_artifact_is_encrypted_and_read_back(post: Callable[..., Any]) -> None:
    job_id = post().job_id
    artifact = _stored(job_id)
    with storages["artifacts_raw"].open(artifact.name) as file:
        assert b"content" not in file.read()
    assert store.load(job_id, Artifact.Kind.CHANGE) == b"content of a change"
    assert artifact.expires_at <= timezone.now() + timedelta(days=7)


def test_raw_and_redacted_are_in_separate_storages(post: Callable[..., Any]) -> None:
    job_id = post().job_id
    raw, redacted = _stored(job_id), _stored(job_id, Artifact.Kind.PROMPT)
    assert storages["artifacts_raw"].exists(raw.name)
    assert not storages["artifacts_redacted"].exists(raw.name)
    assert storages["artifacts_redacted"].exists(redacted.name)


def test_an_expired_artifact_is_deleted_and_replay_says_so(post: Callable[..., Any]) -> None:
    job_id = post().job_id
    artifact = _stored(job_id)
    assert store.delete_expired() == 0
    Artifact.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert store.delete_expired() == 1
    assert store.delete_expired() == 0
    assert not storages["artifacts_raw"].exists(artifact.name)
    with pytest.raises(PermanentFailure, match="restart from fetch") as failed:
        store.load(job_id, Artifact.Kind.CHANGE)
    assert failed.value.error_class is ErrorClass.NOT_FOUND


def test_changed_file_is_refused(post: Callable[..., Any], settings: Any) -> None:
    job_id = post().job_id
    artifact = _stored(job_id)
    path = storages["artifacts_raw"].path(artifact.name)
    with open(path, "r+b") as file:  # noqa: PTH123
        file.seek(20)
        was = file.read(1)
        file.seek(20)
        file.write(b"Y" if was == b"X" else b"X")
    with pytest.raises(PermanentFailure) as failed:
        store.load(job_id, Artifact.Kind.CHANGE)
    assert failed.value.error_class is ErrorClass.CONFIG_INVALID
