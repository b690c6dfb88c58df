"""Encrypted artifacts of a job, raw and redacted in separate storages.

A file is written before the row that names it is committed, under a name that no other attempt uses: a
crash leaves at most a file without a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import structlog
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages
from django.db.models.functions import Now
from django.utils import timezone

from criticizer.resilience.classification import classify
from criticizer.resilience.failures import Component, ErrorClass, Failure, PermanentFailure, RetryableFailure
from criticizer.security.encryption import Vault, VaultError
from reviews.artifacts.recipe import enough_for_a_review
from reviews.models import Artifact, JobEvent
from reviews.pipeline import StageClaim
from reviews.states import JobStatus

log = structlog.get_logger(__name__)

# What fetch stores: the redacted change is opened, or redacted again from the raw one.
FETCHED = (Artifact.Kind.CHANGE, Artifact.Kind.REDACTED)
# After so many files without an answer a round stops: each costs a timeout.
AWAY_AFTER = 3


@dataclass(frozen=True, slots=True)
class Stored:
    """A written file whose row is not committed yet; `save` inserts the row."""

    job_id: int
    kind: Artifact.Kind
    name: str
    sha256: str
    size_bytes: int
    key_id: str
    recipe: str = ""  # by which it can stand for the raw change

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
            key_id=self.key_id,
            recipe=self.recipe,
            expires_at=timezone.now() + timedelta(days=days),
        )


def storage(*, is_raw: bool) -> Storage:
    """Return the storage: raw and redacted artifacts never share one."""
    return storages["artifacts_raw" if is_raw else "artifacts_redacted"]


def store(claim: StageClaim, kind: Artifact.Kind, data: bytes, recipe: str = "") -> Stored:
    """Seal and write `data`; call `save` on the result inside the recording commit.

    Raises RetryableFailure UPSTREAM_UNAVAILABLE when the storage does not answer, PermanentFailure
    CONFIG_INVALID when it refuses.
    """
    name = f"{claim.job_id}/{kind.value}-{claim.token}.bin"
    vault = Vault(settings.ARTIFACT_KEYS)
    with classified():
        saved = storage(is_raw=kind == Artifact.Kind.CHANGE).save(name, ContentFile(vault.seal(data)))
    return Stored(
        claim.job_id, kind, saved, hashlib.sha256(data).hexdigest(), len(data), vault.newest, recipe
    )


def load(job_id: int, kind: Artifact.Kind) -> bytes:
    """Return the newest artifact of the kind.

    Raises PermanentFailure: NOT_FOUND when it has expired, CONFIG_INVALID when no key opens it,
    SCHEMA_INVALID when it does not match its digest; and what `store` raises.
    """
    return opened(newest(job_id, kind))


def newest(job_id: int, kind: Artifact.Kind) -> Artifact:
    """Return the newest artifact of the kind, unopened.

    Raises PermanentFailure NOT_FOUND as `load`.
    """
    stored = Artifact.objects.filter(job_id=job_id, kind=kind, deleted_at=None)
    artifact = stored.order_by("-id").first()
    if artifact is None:
        raise PermanentFailure(
            ErrorClass.NOT_FOUND,
            Component.SOURCE,
            f"the {kind.value} artifact has expired; restart from fetch",
        )
    return artifact


def opened(artifact: Artifact) -> bytes:
    """Return the plain bytes of an artifact, with a line in the log. Raises what `load` raises."""
    log.info("artifact_opened", job=artifact.job_id, kind=artifact.kind, raw=artifact.is_raw)
    return content_of(artifact)


def content_of(artifact: Artifact) -> bytes:
    """Return the plain bytes of one artifact. Raises what `load` raises."""
    try:
        data = Vault(settings.ARTIFACT_KEYS).open(_read(artifact))
    except FileNotFoundError as error:
        raise PermanentFailure(
            ErrorClass.NOT_FOUND,
            Component.SOURCE,
            f"the file of the {artifact.kind} artifact is gone; restart from fetch",
        ) from error
    except VaultError as error:
        raise PermanentFailure(ErrorClass.CONFIG_INVALID, Component.CONFIGURATION, str(error)) from error
    if hashlib.sha256(data).hexdigest() != artifact.sha256:
        raise PermanentFailure(
            ErrorClass.SCHEMA_INVALID, Component.INTERNAL, "the artifact does not match its digest"
        )
    return data


def _read(artifact: Artifact) -> bytes:
    """Return the sealed bytes. Raises FileNotFoundError, and what `store` raises."""
    try:
        return _bytes_of(artifact.name, is_raw=artifact.is_raw)
    except FileNotFoundError:
        # After a rotation of the keys the content has a new name.
        name = Artifact.objects.values_list("name", flat=True).get(pk=artifact.pk)
        if name == artifact.name:
            raise
        return _bytes_of(name, is_raw=artifact.is_raw)


def _bytes_of(name: str, *, is_raw: bool) -> bytes:
    with classified(), storage(is_raw=is_raw).open(name) as file:
        return bytes(file.read())


@contextmanager
def classified() -> Iterator[None]:
    """Turn what a storage raises, except for a missing file, into a `Failure`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        raise classify(error) from error


def reseal(artifact: Artifact, vault: Vault) -> bool:
    """Seal one artifact with the newest key; return False when its row was deleted or changed.

    The new file is written whole under a new name before the row points to it, and the old one is
    deleted last: a crash leaves a file without a row, never a row without its content.
    Raises VaultError, FileNotFoundError when the row has no file, and what `store` raises.
    """
    sealed = vault.reseal(_read(artifact))
    namespace = storage(is_raw=artifact.is_raw)
    stem = artifact.name.rpartition(".")[0].partition("~")[0]
    with classified():
        saved = namespace.save(f"{stem}~{vault.newest}.bin", ContentFile(sealed))
    updated = Artifact.objects.filter(pk=artifact.pk, name=artifact.name, deleted_at=None).update(
        name=saved, key_id=vault.newest
    )
    with classified():
        namespace.delete(artifact.name if updated else saved)
    return updated == 1


def delete_expired(limit: int = 200) -> int:
    """Delete the files of expired artifacts (guarantee G101); return how many.

    The row stays, with `deleted_at`, so that a replay can report that the artifact has expired. A crash
    between file and row repeats the deletion, which then finds no file.
    """
    due = Artifact.objects.filter(deleted_at=None, expires_at__lte=Now()).select_related("job")
    deleted = unanswered = 0
    for artifact in due.order_by("expires_at")[:limit]:
        try:
            with classified():
                storage(is_raw=artifact.is_raw).delete(artifact.name)
        except Failure as failure:
            # One file that cannot be deleted does not stop the others; the verification reports it.
            log.error("artifact_not_deleted", artifact=artifact.pk, **failure.facts)
            unanswered += isinstance(failure, RetryableFailure)
            if unanswered == AWAY_AFTER:
                break
            continue
        deleted += Artifact.objects.filter(pk=artifact.pk, deleted_at=None).update(deleted_at=Now())
        is_needed = artifact.kind in FETCHED and artifact.job.status == JobStatus.DEAD_LETTERED
        if is_needed and not artifact.job.artifacts.filter(enough_for_a_review()).exists():
            JobEvent.objects.create(
                job_id=artifact.job_id,
                kind=JobEvent.Kind.ALERT,
                actor="retention",
                reason="the fetched change has expired: a replay must restart from fetch",
            )
    if deleted:
        log.info("artifacts_deleted", artifacts=deleted)
    return deleted
