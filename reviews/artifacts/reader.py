"""Reading of artifacts by people, under their permission and viewing scope; all is audited."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import structlog

from criticizer.models import SecurityEvent
from criticizer.resilience.failures import PermanentFailure
from reviews.artifacts import store
from reviews.models import Artifact, CoverageRow, FindingRow, ReviewJob
from reviews.recipients.viewing_scopes import Scope, scope_of
from reviews.sources import change_codec

log = structlog.get_logger(__name__)
_shown: dict[tuple[int, int], float] = {}
_lock = threading.Lock()

MAX_SHOWN = 200_000  # characters
SHOWN_AGAIN_SECONDS = 3600.0  # in which pages with the same diff are one read of a person
READ, READ_RAW = "reviews.read_artifact", "reviews.read_raw_artifact"


class ReadRefused(Exception):
    """Refusal of an artifact that the person may not read. It is audited."""


class ReadFailed(Exception):
    """Failure to read an artifact; the text has the reason. The attempt is audited."""


@dataclass(frozen=True, slots=True)
class ArtifactText:
    """The text of an artifact, at most `MAX_SHOWN` characters. `hidden` counts the rest."""

    text: str
    hidden: int


def may_read(artifact: Artifact, user: Any) -> bool:
    """Return whether `user` may read the artifact.

    Only staff may, and raw artifacts need a permission of their own.
    """
    needed = READ_RAW if artifact.is_raw else READ
    return bool(user.is_active and user.is_staff and user.has_perm(needed))


def read(artifact: Artifact, user: Any, address: str) -> ArtifactText:
    """Return an artifact's text for `user` at the client address `address`.

    The audit row is written before anything is returned. Raises ReadRefused and ReadFailed.
    """
    if not may_read(artifact, user):
        raise _refused(artifact, user, address, "no permission")
    scope = scope_of(user)
    if not _is_inside(scope, _known_files(artifact)):
        raise _refused(artifact, user, address, "outside the viewing scope")
    try:
        if artifact.deleted_at is not None:
            raise ReadFailed("The artifact has expired and its file is deleted.")
        data = store.content_of(artifact)
        # The rows do not name where a renamed file came from.
        named = None if scope.everything else _paths_in(artifact, data)
        if named is not None and not _is_inside(scope, named):
            raise _refused(artifact, user, address, "outside the viewing scope")
    except PermanentFailure as failure:
        _audit(SecurityEvent.Kind.ARTIFACT_REFUSED, artifact, user, address, failure.error_class)
        raise ReadFailed(failure.detail) from failure
    except ReadFailed:
        _audit(SecurityEvent.Kind.ARTIFACT_REFUSED, artifact, user, address, "expired")
        raise
    _audit(SecurityEvent.Kind.ARTIFACT_READ, artifact, user, address, "")
    text = data.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return ArtifactText(text[:MAX_SHOWN], max(len(text) - MAX_SHOWN, 0))


def record_shown(job: ReviewJob, user: Any, address: str) -> None:
    """Record that pages show `user` the redacted change of a review.

    Once an hour, for each process.
    """
    artifact = job.artifacts.filter(kind=Artifact.Kind.REDACTED, deleted_at=None).order_by("-id").first()
    if artifact is None or _is_recorded(key := (user.pk, artifact.pk)):
        return
    _audit(SecurityEvent.Kind.ARTIFACT_READ, artifact, user, address, "shown on the pages of its review")
    with _lock:
        _shown[key] = time.monotonic()


def _is_recorded(key: tuple[int, int]) -> bool:
    before = time.monotonic() - SHOWN_AGAIN_SECONDS
    with _lock:
        for old in [old for old, at in _shown.items() if at < before]:
            del _shown[old]
        return key in _shown


def _known_files(artifact: Artifact) -> set[str]:
    """Return the depot paths that the rows of the artifact's review name."""
    covered = CoverageRow.objects.filter(job=artifact.job_id).values_list("file", flat=True)
    found = FindingRow.objects.filter(job=artifact.job_id).values_list("file", flat=True)
    read = ReviewJob.objects.values_list("context_files", flat=True).get(pk=artifact.job_id)
    return {path for path in (*covered, *found, *read) if path.startswith("//")}


def _is_inside(scope: Scope, paths: Collection[str]) -> bool:
    """Return whether all files are in the scope: an artifact is read whole or not at all.

    While the files of a review are not known, only people who see every file may read it.
    """
    return scope.everything or (bool(paths) and all(map(scope.allows, paths)))


def _paths_in(artifact: Artifact, data: bytes) -> set[str] | None:
    """Return every path in a fetched change, old paths included; None for other artifacts."""
    if artifact.kind == Artifact.Kind.REDACTED:
        fields = json.loads(data)
        context = fields.get("context_paths", ())
        return set(filter(None, [*fields["paths"], *fields["old_paths"], *context]))
    if artifact.kind != Artifact.Kind.CHANGE:
        return None
    change = change_codec.from_json(data)
    named = [path for file in change.files for path in (file.path, file.old_path)]
    untrue = change.documents.untrue if change.documents else ()
    verified = [path for claim in untrue for path in (claim.path, *claim.evidence)]
    verified += [section.path for section in change.documents.sections] if change.documents else []
    return set(filter(None, [*named, *(file.path for file in change.context), *verified]))


def _refused(artifact: Artifact, user: Any, address: str, reason: str) -> ReadRefused:
    _audit(SecurityEvent.Kind.ARTIFACT_REFUSED, artifact, user, address, reason)
    return ReadRefused("You may not read this artifact. The attempt has been recorded.")


def _audit(kind: SecurityEvent.Kind, artifact: Artifact, user: Any, address: str, reason: str) -> None:
    SecurityEvent.objects.create(
        kind=kind,
        changelist_id=artifact.job.changelist_id[:128],
        path=artifact.name,
        reason=reason,
        actor=user.get_username()[:255],
        context={
            "artifact": artifact.pk,
            "artifact_kind": artifact.kind,
            "job": artifact.job_id,
            "raw": artifact.is_raw,
            "address": address[:64],
        },
    )
    log.warning("security_event", kind=kind.value, artifact=artifact.pk, raw=artifact.is_raw, reason=reason)
