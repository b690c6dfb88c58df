"""Stage fetch: read a change under the allow-list, find its recipients, redact and store it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import structlog
from django.conf import settings

from criticizer.redaction import clean
from criticizer.resilience import gate
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from reviews import config, pipeline, scans
from reviews.artifacts import recipe, redactor, store
from reviews.drift.fetching import DocumentVerifier, Root, Sight
from reviews.intake import pull_requests
from reviews.models import HostVersion, ReviewJob
from reviews.models.jobs import SCAN
from reviews.pipeline import StageClaim
from reviews.pipeline.executor import Written, with_reconnect
from reviews.recipients import resolve
from reviews.recipients.viewing_scopes import Scope, scope_of_job
from reviews.repository_configuration import Configurations, as_json
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.redactor import verify_documents
from reviews.reviewers.unsent import unsent_reason
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Change, ChangeStatus, Source
from reviews.sources.context_files import ContextFetcher
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.mirror import Redirected
from reviews.sources.pull import PullSource
from reviews.sources.rules import RuleReader
from reviews.sources.skipped_paths import SkippedPaths
from reviews.stages import documents as described_by
from reviews.stages import scan, semantic

log = structlog.get_logger(__name__)


def run(claim: StageClaim) -> Written:
    """Fetch the changelist of `claim` and return the function that stores it.

    Raises the failures of `ChangeFetcher.fetch`, `resolve.find` and `redactor.make`, with a security
    event of REDACTION_BLOCKED, and DependencyUnavailable while Perforce must not be called.
    """
    job = ReviewJob.objects.only(
        "changelist_id", "series", "scope_prefixes", "configuration", "created_at", "kind"
    ).get(pk=claim.job_id)
    if job.kind == SCAN:
        return _scanned(claim, job)
    source = config.source_of_job(job)
    configurations = Configurations(source, config.allow_list(), job)
    try:
        change = _fetch(claim.changelist_id, source, scope_of_job(job), configurations)
    except PermanentFailure as failure:
        if isinstance(source, PullSource):
            if failure.error_class is ErrorClass.NOT_FOUND:
                with_reconnect(partial(_review_newer_head, job, source))
            elif isinstance(failure, Redirected):
                with_reconnect(partial(_follow_new_name, job))
        raise
    found = resolve.find(claim, change, source)
    prepared, artifacts = _redacted(claim, change)
    frozen = configurations.frozen()

    def write() -> None:
        for artifact in artifacts:
            artifact.save()
        ReviewJob.objects.filter(pk=claim.job_id).update(
            author=clean(prepared.author, 255),
            title=clean(prepared.title, 200)[:255],
            version_key=change.version_key,
            context_files=[clean(path, 1024) for path in sorted(_read_beside(change)) if path],
            documents={**change.documents.counts, "note": change.documents.note} if change.documents else {},
            configuration=as_json(frozen),
        )
        configurations.remember(job)
        pipeline.note_kind(claim.job_id, claim.changelist_id, _kind_of(change, source))
        resolve.freeze(claim, found)

    return write


def _scanned(claim: StageClaim, job: ReviewJob) -> Written:
    """Scan the commit of a job; return the function that stores its result as a change."""
    found = scan.run(claim, job)
    prepared, artifacts = _redacted(claim, found.change)
    counted = found.change.documents
    assert counted is not None

    def write() -> None:
        for artifact in artifacts:
            artifact.save()
        ReviewJob.objects.filter(pk=claim.job_id).update(
            title=clean(prepared.title, 200)[:255],
            context_files=[clean(path, 1024) for path in sorted(_read_beside(found.change)) if path],
            documents={**counted.counts, "note": counted.note},
            configuration=as_json([found.configuration]),
        )
        if config.embeddings() is not None:
            semantic.forget(semantic.repository_of(claim.changelist_id))  # the next review indexes it again
        scans.drop_old_claims(claim.job_id)

    return write


def _read_beside(change: Change) -> set[str]:
    """Return the files outside the change of which parts are stored with it."""
    untrue = change.documents.untrue if change.documents else ()
    found = {path for claim in untrue for path in (claim.path, *claim.evidence)}
    found |= {section.path for section in change.documents.sections} if change.documents else set()
    found |= {file.path for file in change.context} | {rule.path for rule in change.rules}
    return found - {path for file in change.files for path in (file.path, file.old_path)}


def _kind_of(change: Change, source: Source | None) -> ChangeStatus:
    """Return the status of a change; a pull request is not part of its stream yet."""
    return ChangeStatus.SHELVED if isinstance(source, PullSource) else change.status


def _review_newer_head(job: ReviewJob, source: PullSource) -> None:
    """Supersede the review of a head that the host no longer has by one of the newest head.

    Does nothing where the pull request has no other head.
    """
    version, newest = HostVersion.of_job(job), source.newest_head()
    if version is None or newest in ("", version.head_sha):
        return
    found = config.pull_now(version.change)
    if found is None or found.head_sha == newest:
        pull_requests.find_head(version.change_id, newest)


def _follow_new_name(job: ReviewJob) -> None:
    """Store the new name of a repository that its host has renamed, and raise RetryableFailure.

    Redirects of git are not followed, and no event has reported the new name. The next attempt asks whether
    the repository may be read under it. Returns where the name is not new, and where the host refuses to say
    it for good; raises the failure of a host that cannot say it now.
    """
    version = HostVersion.of_job(job)
    try:
        found = config.pull_now(version.change) if version is not None else None
    except PermanentFailure as refused:
        log.info("new_name_not_found", job=job.pk, error_class=str(refused.error_class))
        return
    if version is None or found is None:
        return
    change, name = version.change, found.repository.name
    if name.lower() != change.full_name.lower():
        pull_requests.rename(change.host, change.repository_id, name)
        detail = f"the repository was renamed: it is fetched from {name} now"
        raise RetryableFailure(ErrorClass.UPSTREAM_UNAVAILABLE, Component.SOURCE, detail)


def _redacted(claim: StageClaim, change: Change) -> tuple[Prepared, list[store.Stored]]:
    try:
        return redactor.make(claim, change)
    except PermanentFailure as failure:
        if failure.error_class is ErrorClass.REDACTION_BLOCKED:
            with_reconnect(partial(redactor.record_blocked, claim, failure))
        raise


def _fetch(changelist_id: str, source: Source, scope: Scope, configurations: Configurations) -> Change:
    allow_list = config.allow_list()  # one for the whole fetch
    may_read = None if scope.everything else scope.allows
    fetcher = ChangeFetcher(source, allow_list, config.record_violation, may_read=may_read)
    dependency = config.source_dependency(changelist_id)
    with gate.guarded(dependency) if dependency else nullcontext():
        skipped = config.skipped_paths(source)
        reading = _Reading(source, allow_list, scope, configurations, skipped, recipe.limits())
        change = reading.with_documents(reading.marked(fetcher.fetch(changelist_id)))
        # Documents compare both sides of a moved file.
        moved = fetcher.with_moved_in(change, reading.is_left_out)
        return reading.for_model(reading.marked(moved) if moved is not change else change)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The reading of one change: its documents, its context, and marks on what no model may get."""

    source: Source
    allow_list: AllowList
    scope: Scope
    configurations: Configurations
    skipped: SkippedPaths
    limits: ReviewLimits

    def marked(self, change: Change) -> Change:
        """Return the change with marks on the files that its repository or an operator leaves out."""
        return self.skipped.applied(self.configurations.applied(change))

    def with_documents(self, change: Change) -> Change:
        """Return the change with claims that it makes untrue (G473) and sections that describe it."""
        wanted = described_by.wanted()
        allow_list = self.allow_list.with_case(self.source.case_sensitive)
        roots = []
        for root, (files, documents) in self.configurations.rules().items():
            if not documents.is_on:
                continue
            sight = Sight(
                allow_list,
                literal_names=self.source.literal_names,
                may_read=None if self.scope.everything else self.scope.allows,
                is_excluded=files.is_excluded if documents.excludes_paths else None,
            )
            roots.append(
                Root(
                    root,
                    sight,
                    documents.reads,
                    documents.kinds,
                    documents.most,
                    sections=wanted.sections if documents.asks_model else 0,
                    keeps_rest=wanted.is_by_meaning,
                    may_send=self._may_send,
                )
            )
        return DocumentVerifier(self.source, verify_documents).added_to(change, roots)

    def for_model(self, change: Change) -> Change:
        """Return the change with its rules and with the files it uses, where a model will read it."""
        if settings.LLM_PROVIDER == "none" or self.limits.is_compact:
            return change
        rules = RuleReader(self.source, self.allow_list, self._may_send)
        change = rules.added_to(change, config.team_rules())
        if self.limits.context_share == 0:
            return change
        return ContextFetcher(self.source, self.allow_list, self._may_send).added_to(change)

    def is_left_out(self, path: str) -> bool:
        """Return whether an operator, the repository or the kind of a file keeps it from models."""
        return self._is_unsent(path) or self.configurations.is_excluded(path)

    def _may_send(self, path: str) -> bool:
        """Return whether a model may be sent a file outside the change."""
        return self.scope.allows(path) and not self._is_unsent(path) and self.configurations.may_send(path)

    def _is_unsent(self, path: str) -> bool:
        return bool(self.skipped.reason(path) or unsent_reason(path, self.limits.skip_paths))
