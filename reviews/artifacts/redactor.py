"""Redacted form of a fetched change: made and stored by fetch, opened by llm (G160).

The only module that opens the raw artifact on the way to a model. It does so when the redacted one is
missing, was made under other rules, policy or limits, or hides a part of a path that is wanted; what it
hands on is redacted again.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import structlog
from django.conf import settings

from criticizer.bounded_cache import BoundedCache
from criticizer.models import SecurityEvent
from criticizer.resilience.failures import ErrorClass, PermanentFailure
from reviews.artifacts import recipe, store
from reviews.models import Artifact
from reviews.pipeline import StageClaim
from reviews.reviewers import prepared_change_codec, redactor
from reviews.reviewers.base import Edit
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prepared_change_codec import FileDiffText
from reviews.sources import change_codec
from reviews.sources.base import Change
from reviews.sources.enforcement import without_old_side

# Gets the real paths, and those of old sides and of context; returns those of the latter that may not be
# read any more, and raises for any of the former.
Check = Callable[[Sequence[str], Sequence[str]], Collection[str]]

_LARGE_BYTES = 4_000_000
# By the digest of the stored change; the room is in its bytes, of which each takes about three.
_READ = BoundedCache[str, tuple[FileDiffText, ...]](16_000_000)
log = structlog.get_logger(__name__)


class Stale(Exception):
    """A stored redacted change that cannot stand for the raw one."""


@dataclass(frozen=True, slots=True)
class RedactedChange:
    """A prepared change, with the real paths of its files, which are checked and never sent."""

    prepared: Prepared
    paths: tuple[str, ...]


def make(claim: StageClaim, change: Change) -> tuple[Prepared, list[store.Stored]]:
    """Redact a fetched change; return it with its two artifacts, which `save` in the commit.

    Raises as `redactor.redact_change` and `store.store` do.
    """
    raw = change_codec.to_json(change)
    data, prepared, today = _redacted(raw)
    stored = [
        store.store(claim, Artifact.Kind.CHANGE, raw),
        store.store(claim, Artifact.Kind.REDACTED, data, recipe="" if prepared.hides_names else today),
    ]
    if len(raw) > _LARGE_BYTES:
        # The allocator keeps what a large change took; a worker lives for thousands of changes.
        _give_memory_back()
    return prepared, stored


def load(job_id: int, check: Check) -> RedactedChange:
    """Return the stored redacted change of a job, which today's allow-list lets be read.

    Raises Stale when `redact_again` is needed, what `check` raises, and what `store.load` raises.
    """
    stored = _stored(job_id)
    if stored is None:
        raise Stale
    gone = check(stored.paths, [*filter(None, stored.old_paths), *stored.context_paths])
    if any(path in gone for path in stored.old_paths):
        raise Stale
    return RedactedChange(stored.without_context(gone), stored.paths)


def redact_again(job_id: int, check: Check) -> RedactedChange:
    """Redact a job's change again, as today's allow-list lets it be read, and return it.

    It may take long. Raises what `check` raises, what `redactor.redact_change` raises, and what `store.load`
    raises: NOT_FOUND when the raw artifact has expired.
    """
    change = _raw(job_id)
    paths = tuple(file.path for file in change.files)
    old_paths = [file.old_path for file in change.files if file.old_path is not None]
    ruling = [rule.path for rule in change.rules if rule.path and rule.path not in paths]
    untrue = change.documents.untrue if change.documents else ()
    sections = change.documents.sections if change.documents else ()
    named = {path for claim in untrue for path in (claim.path, *claim.evidence)} - set(paths)
    named |= {section.path for section in sections} - set(paths)
    outside = [*(file.path for file in change.context), *ruling, *sorted(named)]
    gone = set(check(paths, [*old_paths, *outside]))
    rules = tuple(rule for rule in change.rules if rule.path not in gone)
    context = tuple(file for file in change.context if file.path not in gone)
    kept = tuple(without_old_side(file) if file.old_path in gone else file for file in change.files)
    documents = change.documents and replace(
        change.documents,
        untrue=tuple(claim for claim in untrue if gone.isdisjoint((claim.path, *claim.evidence))),
        sections=tuple(section for section in sections if section.path not in gone),
    )
    log.info("change_redacted_again", job=job_id)
    left = replace(change, files=kept, context=context, rules=rules, documents=documents)
    _, prepared, _ = _redacted(change_codec.to_json(left))
    return RedactedChange(prepared, paths)


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
    """Return the real paths of a job's files.

    Raises what `store.load` raises, where `load` would.
    """
    stored = _stored(job_id)
    return stored.paths if stored is not None else tuple(file.path for file in _raw(job_id).files)


def diffs(job_id: int) -> tuple[FileDiffText, ...]:
    """Return the redacted diff of a job for people.

    An artifact never changes, and a reader opens one file after the other: the newest stay read, each as
    long as its row says that it is stored. Raises ValueError, and what `store.load` raises.
    """
    artifact = store.newest(job_id, Artifact.Kind.REDACTED)
    found = _READ.get(artifact.sha256)
    if found is None:
        found = prepared_change_codec.diffs_of(store.opened(artifact))
        _READ.put(artifact.sha256, found, artifact.size_bytes)
    return found


def refused_edits(job_id: int, edits: Sequence[tuple[str, Edit]]) -> list[str]:
    """Return why each edit, with its file's path, must not be offered, "" where it is proven.

    None is proven where the raw change has expired, or takes too much to read.
    """
    try:
        return redactor.refused_edits(store.load(job_id, Artifact.Kind.CHANGE), edits)
    except PermanentFailure as failure:
        log.warning("edits_not_proven", job=job_id, why=failure.detail)
        return ["unread"] * len(edits)


def _stored(job_id: int) -> Prepared | None:
    """Return the stored redacted change, or None if it cannot stand for the raw one."""
    try:
        prepared = prepared_change_codec.from_json(
            store.load(job_id, Artifact.Kind.REDACTED), recipe.current(), settings.REDACTION_POLICY
        )
    except PermanentFailure as failure:
        if failure.error_class is not ErrorClass.NOT_FOUND:
            raise
        return None
    return None if prepared is None or prepared.hides_names else prepared


def _raw(job_id: int) -> Change:
    return change_codec.from_json(store.load(job_id, Artifact.Kind.CHANGE))


def _redacted(raw: bytes) -> tuple[bytes, Prepared, str]:
    """Redact a change; return its JSON, what that holds, and the recipe."""
    today = recipe.current()
    data = redactor.redact_change(raw, settings.REDACTION_POLICY, recipe.limits_for_packing(), today)
    prepared = prepared_change_codec.from_json(data, today, settings.REDACTION_POLICY)
    assert prepared is not None
    return data, prepared, today
