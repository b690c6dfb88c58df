"""Encrypted artifacts of a job, raw and redacted in separate storages (specification 001, 9.4).

A file is written before the row that names it is committed, under a name no other attempt
uses: a crash leaves at most a file without a row.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages
from django.db.models.functions import Now
from django.utils import timezone

from criticizer.failures import ErrorClass, PermanentFailure, Place
from criticizer.vault import Vault, VaultError
from reviews.models import Artifact
from reviews.pipeline import StageClaim

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """A written file whose row is not committed yet; `save` inserts the row."""

    job_id: int
    kind: Artifact.Kind
    name: str
    sha256: str
    size_bytes: int

    @property
    def is_raw(self) -> bool:
        return self.kind == Artifact.Kind.CHANGE

    def save(self) -> None:
        days = settings.ARTIFACT_RAW_TTL_DAYS if self.is_raw else settings.ARTIFACT_REDACTED_TTL_DAYS
        Artifact.objects.create(
            job_id=self.job_id,
            kind=self.kind,
            is_raw=self.is_raw,
            name=self.name,
            sha256=self.sha256,
            size_bytes=self.size_bytes,
            expires_at=timezone.now() + timedelta(days=days),
        )


def _storage(*, is_raw: bool) -> Storage:
    return storages["artifacts_raw" if is_raw else "artifacts_redacted"]


def store(claim: StageClaim, kind: Artifact.Kind, data: bytes) -> Stored:
    """Seal and write `data`; call `save` on the result inside the recording commit."""
    name = f"{claim.job_id}/{kind.value}-{claim.token}.bin"
    sealed = Vault(settings.ARTIFACT_KEYS).seal(data)
    saved = _storage(is_raw=kind == Artifact.Kind.CHANGE).save(name, ContentFile(sealed))
    return Stored(claim.job_id, kind, saved, hashlib.sha256(data).hexdigest(), len(data))


def exists(job_id: int, kind: Artifact.Kind) -> bool:
    """Say whether the newest artifact of the kind can still be read."""
    artifact = _newest(job_id, kind)
    return artifact is not None and _storage(is_raw=artifact.is_raw).exists(artifact.name)


def load(job_id: int, kind: Artifact.Kind) -> bytes:
    """Return the newest artifact of the kind.

    Raises PermanentFailure: NOT_FOUND when it has expired, CONFIG_INVALID when no key opens it,
    SCHEMA_INVALID when it does not match its digest.
    """
    artifact = _newest(job_id, kind)
    if artifact is None:
        raise PermanentFailure(
            ErrorClass.NOT_FOUND, Place.SOURCE, f"the {kind.value} artifact has expired; restart from fetch"
        )
    try:
        with _storage(is_raw=artifact.is_raw).open(artifact.name) as file:
            data = Vault(settings.ARTIFACT_KEYS).open(file.read())
    except FileNotFoundError as error:
        raise PermanentFailure(
            ErrorClass.NOT_FOUND,
            Place.SOURCE,
            f"the file of the {kind.value} artifact is gone; restart from fetch",
        ) from error
    except VaultError as error:
        raise PermanentFailure(ErrorClass.CONFIG_INVALID, Place.CONFIGURATION, str(error)) from error
    if hashlib.sha256(data).hexdigest() != artifact.sha256:
        raise PermanentFailure(
            ErrorClass.SCHEMA_INVALID, Place.INTERNAL, "the artifact does not match its digest"
        )
    return data


def delete_expired(limit: int = 200) -> int:
    """Delete the files of artifacts whose time is up (001, 9.4); return how many.

    The row stays, with `deleted_at`: replay says that the artifact is gone instead of failing.
    A crash between file and row repeats the deletion, which then finds no file.
    """
    due = Artifact.objects.filter(deleted_at=None, expires_at__lte=Now()).order_by("expires_at")[:limit]
    for artifact in due:
        _storage(is_raw=artifact.is_raw).delete(artifact.name)
        Artifact.objects.filter(pk=artifact.pk, deleted_at=None).update(deleted_at=Now())
    if due:
        log.info("artifacts_deleted", artifacts=len(due))
    return len(due)


def _newest(job_id: int, kind: Artifact.Kind) -> Artifact | None:
    return Artifact.objects.filter(job_id=job_id, kind=kind, deleted_at=None).order_by("-id").first()
