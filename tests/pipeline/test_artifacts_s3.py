"""Artifacts in buckets: the S3 protocol over a real socket, as moto speaks it (documented).

Needs the extra `s3` and moto[server], which the suite does not install: pip install both to run it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from django.utils import timezone

from criticizer.resilience.failures import ErrorClass, PermanentFailure, RetryableFailure
from criticizer.security.encryption import Vault
from criticizer.storage import artifact_storages
from deadletters.models import DeadLetter, LetterArchive
from deadletters.retention import letter_archive, orphan_files, policy
from reviews.artifacts import store
from reviews.models import Artifact
from reviews.pipeline import StageClaim
from reviews.states import Stage
from tests import factories

moto_server = pytest.importorskip("moto.server", reason="needs moto[server]")
boto3 = pytest.importorskip("boto3", reason="needs the extra s3")
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def server(settings: Any, tmp_path: Any) -> Iterator[Any]:
    running = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    address = "http://{}:{}".format(*running.get_host_and_port())
    client = boto3.client(
        "s3",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    for bucket in ("raw", "redacted", "letters"):
        client.create_bucket(Bucket=bucket)
    values = {
        "ARTIFACT_STORAGE": "s3",
        "ARTIFACT_S3_BUCKET_RAW": "raw",
        "ARTIFACT_S3_BUCKET_REDACTED": "redacted",
        "ARTIFACT_S3_BUCKET_LETTERS": "letters",
        "ARTIFACT_S3_ENDPOINT": address,
        "ARTIFACT_S3_REGION": "us-east-1",
        "ARTIFACT_S3_ACCESS_KEY": "test",
        "ARTIFACT_S3_SECRET_KEY": "test",
    }
    settings.STORAGES = {**settings.STORAGES, **artifact_storages(values, tmp_path)}
    yield running, client
    running.stop()


def _claim(job_id: int) -> StageClaim:
    return StageClaim(1, uuid4(), 1, Stage.FETCH, 1, 5, 1, job_id, "12345", 1)


def test_artifact_is_stored_and_deleted_in_its_bucket(
    server: Any, post: Callable[..., Any], settings: Any
) -> None:
    _, client = server
    job_id = post().job_id
    store.store(_claim(job_id), Artifact.Kind.CHANGE, b"content of a change").save()
    artifact = Artifact.objects.get()
    (stored,) = client.list_objects_v2(Bucket="raw")["Contents"]
    assert b"content" not in client.get_object(Bucket="raw", Key=stored["Key"])["Body"].read()
    assert "Contents" not in client.list_objects_v2(Bucket="redacted")
    assert store.load(job_id, Artifact.Kind.CHANGE) == b"content of a change"

    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode(), *settings.ARTIFACT_KEYS]
    assert store.reseal(artifact, Vault(settings.ARTIFACT_KEYS))
    assert store.load(job_id, Artifact.Kind.CHANGE) == b"content of a change"
    assert len(client.list_objects_v2(Bucket="raw")["Contents"]) == 1

    Artifact.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert store.delete_expired() == 1
    assert "Contents" not in client.list_objects_v2(Bucket="raw")


def test_a_lost_object_and_a_lost_storage_are_told_apart(server: Any, post: Callable[..., Any]) -> None:
    running, client = server
    job_id = post().job_id
    store.store(_claim(job_id), Artifact.Kind.CHANGE, b"x").save()
    client.delete_object(Bucket="raw", Key=Artifact.objects.get().name)
    with pytest.raises(PermanentFailure) as lost:
        store.load(job_id, Artifact.Kind.CHANGE)
    assert lost.value.error_class is ErrorClass.NOT_FOUND
    client.delete_bucket(Bucket="raw")
    with pytest.raises(PermanentFailure) as refused:
        store.store(_claim(job_id), Artifact.Kind.CHANGE, b"x")
    assert refused.value.error_class is ErrorClass.CONFIG_INVALID
    running.stop()
    with pytest.raises(RetryableFailure) as away:
        store.store(_claim(job_id), Artifact.Kind.CHANGE, b"x")
    assert away.value.error_class is ErrorClass.UPSTREAM_UNAVAILABLE


@pytest.mark.long
def test_removed_dead_letters_lie_in_a_bucket_of_their_own(server: Any, settings: Any) -> None:
    _, client = server
    letter = factories.DeadLetterFactory()
    factories.DeadLetterEventFactory(letter=letter)
    long_ago = timezone.now() - timedelta(days=8)
    DeadLetter.objects.update(first_failure_at=long_ago, last_failure_at=long_ago)
    policy.maintain()
    archive = LetterArchive.objects.get()
    assert [stored["Key"] for stored in client.list_objects_v2(Bucket="letters")["Contents"]] == [
        archive.name
    ]
    assert all("Contents" not in client.list_objects_v2(Bucket=bucket) for bucket in ("raw", "redacted"))

    settings.ARTIFACT_KEYS = [Fernet.generate_key().decode(), *settings.ARTIFACT_KEYS]
    assert letter_archive.reseal() == 1
    archive.refresh_from_db()
    plain = b"".join(json.dumps(entry).encode() + b"\n" for entry in letter_archive.read(archive))
    stray = letter_archive.write(plain, timezone.now()).name
    assert orphan_files.remove(timezone.now()) == 0
    assert orphan_files.remove(timezone.now() + timedelta(days=8)) == 1
    assert not letter_archive.storage().exists(stray)
    archive.refresh_from_db()
    assert letter_archive.restore(archive, actor="ann", reason="OPS-1").letters == [letter.pk]

    client.delete_object(Bucket="letters", Key=archive.name)
    with pytest.raises(letter_archive.ArchiveDamaged):
        list(letter_archive.read(archive))
