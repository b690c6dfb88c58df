"""The redacted form of a fetched change: made and stored by fetch, opened by llm (guarantee G160).

The only module that opens the raw artifact on the way to a model. It does so when the redacted one
is missing, was made under other rules, policy or limits, or hides a part of a path that is wanted;
what it hands on is redacted again.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace

import structlog
from django.conf import settings
from django.utils.crypto import salted_hmac

from criticizer.models import SecurityEvent
from criticizer.redaction.rules.issuer_tokens import RULESET
from criticizer.resilience.failures import ErrorClass, PermanentFailure
from criticizer.security.known_secrets import configured_secrets
from reviews.artifacts import store
from reviews.models import Artifact
from reviews.pipeline import StageClaim
from reviews.reviewers import prepared_codec, redactor
from reviews.reviewers.prepare import Prepared, ReviewLimits
from reviews.sources import change_codec
from reviews.sources.base import Change
from reviews.sources.enforcement import without_old_side

# Gets the real paths and old paths; returns the old paths that may not be read any more, and raises for
# any other.
Check = Callable[[Sequence[str], Sequence[str]], Collection[str]]

_LARGE_BYTES = 4_000_000
log = structlog.get_logger(__name__)


class Stale(Exception):
    """The stored redacted change cannot stand for the raw one."""


@dataclass(frozen=True, slots=True)
class RedactedChange:
    """A prepared change, with the real paths of its files, which are checked and never sent."""

    prepared: Prepared
    paths: tuple[str, ...]


def limits() -> ReviewLimits:
    return ReviewLimits(
        max_input_tokens=settings.LLM_MAX_INPUT_TOKENS, skip_paths=tuple(settings.LLM_SKIP_PATHS)
    )


def make(claim: StageClaim, change: Change) -> tuple[Prepared, list[store.Stored]]:
    """Redact a fetched change; return it with its two artifacts, which `save` in the commit.

    Raises as `redactor.redact_change` and `store.store` do.
    """
    raw = change_codec.to_json(change)
    data = _redacted(raw)
    stored = [
        store.store(claim, kind, content)
        for kind, content in ((Artifact.Kind.CHANGE, raw), (Artifact.Kind.REDACTED, data))
    ]
    if len(raw) > _LARGE_BYTES:
        # The allocator keeps what a large change took; a worker lives for thousands of changes.
        _give_memory_back()
    return _opened(data), stored


def load(job_id: int, check: Check) -> RedactedChange:
    """Return the stored redacted change of a job, which today's allow-list lets be read.

    Raises Stale when `redact_again` is needed, what `check` raises, and what `store.load` raises.
    """
    stored = _stored(job_id)
    if stored is None or check(stored.paths, list(filter(None, stored.old_paths))):
        raise Stale
    return RedactedChange(stored, stored.paths)


def redact_again(job_id: int, check: Check) -> RedactedChange:
    """Return the change of a job as today's allow-list lets it be read, made anew. May take long.

    Raises what `check` raises, what `redactor.redact_change` raises, and what `store.load` raises:
    NOT_FOUND when the raw artifact has expired.
    """
    change = _raw(job_id)
    paths = tuple(file.path for file in change.files)
    gone = check(paths, [file.old_path for file in change.files if file.old_path is not None])
    kept = tuple(without_old_side(file) if file.old_path in gone else file for file in change.files)
    log.info("change_redacted_again", job=job_id)
    return RedactedChange(_opened(_redacted(change_codec.to_json(replace(change, files=kept)))), paths)


def _give_memory_back() -> None:
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # glibc
        libc.malloc_trim(0)


def record_blocked(claim: StageClaim, failure: PermanentFailure) -> None:
    """Write the security event of a change that redaction refused, without content."""
    SecurityEvent.objects.create(
        kind=SecurityEvent.Kind.REDACTION_BLOCKED,
        changelist_id=claim.changelist_id[:128],
        reason=str(failure.context.get("reason_code", ""))[:64],
        context={"stage": claim.stage.value, "job": claim.job_id, "attempt": claim.attempt},
    )


def paths(job_id: int) -> tuple[str, ...]:
    """Return the real paths of a job's files. Raises what `store.load` raises where `load` would."""
    stored = _stored(job_id)
    return stored.paths if stored is not None else tuple(file.path for file in _raw(job_id).files)


def _stored(job_id: int) -> Prepared | None:
    """Return the stored redacted change, or None if it cannot stand for the raw one."""
    try:
        prepared = prepared_codec.from_json(
            store.load(job_id, Artifact.Kind.REDACTED), _recipe(), settings.REDACTION_POLICY
        )
    except PermanentFailure as failure:
        if failure.error_class is not ErrorClass.NOT_FOUND:
            raise
        return None
    return None if prepared is None or prepared.hides_names else prepared


def _raw(job_id: int) -> Change:
    return change_codec.from_json(store.load(job_id, Artifact.Kind.CHANGE))


def _redacted(raw: bytes) -> bytes:
    return redactor.redact_change(raw, settings.REDACTION_POLICY, limits(), _recipe())


def _opened(data: bytes) -> Prepared:
    prepared = prepared_codec.from_json(data, _recipe(), settings.REDACTION_POLICY)
    assert prepared is not None
    return prepared


def _recipe() -> str:
    """Identify what a redacted change depends on besides the raw one. Never shows a secret.

    Without the Perforce tickets: they are renewed while the change waits, and workers that know another
    one would redact it again each time. The guard looks for them before each call.
    """
    parts = [
        prepared_codec.FORMAT,
        RULESET,
        settings.REDACTION_POLICY,
        asdict(limits()),
        sorted(set(configured_secrets())),
    ]
    return salted_hmac("reviews.artifacts.redactor", json.dumps(parts), algorithm="sha256").hexdigest()
