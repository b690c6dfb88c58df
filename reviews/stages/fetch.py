"""Stage fetch: read the change under the allow-list, store it encrypted, find its recipients."""

from __future__ import annotations

from criticizer.redaction import clean
from criticizer.resilience import gate
from reviews import config
from reviews.artifacts import store
from reviews.models import Artifact, ReviewJob
from reviews.pipeline import StageClaim
from reviews.pipeline.executor import Written
from reviews.recipients import resolve
from reviews.recipients.scopes import EVERYTHING, Scope, scope_of_job
from reviews.sources import change_codec
from reviews.sources.base import Change, Source
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.perforce.source import PerforceSource
from reviews.sources.registry import source_for


def run(claim: StageClaim) -> Written:
    """Fetch the changelist of `claim` and return the function that stores it.

    Raises the failures of `ChangeFetcher.fetch` and `resolve.find`, and DependencyUnavailable while
    Perforce must not be called.
    """
    source = source_for(claim.changelist_id, config.sources())
    scope = scope_of_job(ReviewJob.objects.only("series", "scope_prefixes").get(pk=claim.job_id))
    change = _fetch(claim.changelist_id, source, scope)
    found = resolve.find(claim, change, source)
    stored = store.store(claim, Artifact.Kind.CHANGE, change_codec.to_json(change))
    title = next((line.strip() for line in change.description.splitlines() if line.strip()), "")

    def write() -> None:
        stored.save()
        ReviewJob.objects.filter(pk=claim.job_id).update(
            author=clean(change.author, 255),
            title=clean(title, 200)[:255],
            version_key=change.version_key,
        )
        resolve.freeze(claim, found)

    return write


def _fetch(changelist_id: str, source: Source | None = None, scope: Scope = EVERYTHING) -> Change:
    source = source or source_for(changelist_id, config.sources())
    fetcher = ChangeFetcher(
        source,
        config.allow_list(),
        config.record_violation,
        may_read=None if scope.everything else scope.allows,
    )
    if not isinstance(source, PerforceSource):
        return fetcher.fetch(changelist_id)  # git is local and has no circuit
    with gate.guarded(config.perforce_dependency()):
        return fetcher.fetch(changelist_id)
