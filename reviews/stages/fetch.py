"""Stage fetch: read the change under the allow-list and keep it, encrypted."""

from __future__ import annotations

from criticizer import dependencies
from criticizer.redaction import clean
from reviews import artifacts, changes, config
from reviews.executor import Written
from reviews.models import Artifact, ReviewJob
from reviews.pipeline import StageClaim
from reviews.sources.base import Change
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.perforce import PerforceSource
from reviews.sources.registry import source_for


def run(claim: StageClaim) -> Written:
    """Fetch the changelist of `claim` and return what stores it.

    Raises the failures of `ChangeFetcher.fetch`, and Waiting while Perforce must not be called.
    """
    change = _fetch(claim.changelist_id)
    stored = artifacts.store(claim, Artifact.Kind.CHANGE, changes.to_json(change))
    title = next((line.strip() for line in change.description.splitlines() if line.strip()), "")

    def write() -> None:
        stored.save()
        ReviewJob.objects.filter(pk=claim.job_id).update(
            author=clean(change.author, 255),
            title=clean(title, 200)[:255],
            version_key=change.version_key,
        )

    return write


def _fetch(changelist_id: str) -> Change:
    source = source_for(changelist_id, config.sources())
    fetcher = ChangeFetcher(source, config.allow_list(), config.record_violation)
    if not isinstance(source, PerforceSource):
        return fetcher.fetch(changelist_id)  # git is local: nothing to protect
    with dependencies.guarded(config.perforce_dependency()):
        return fetcher.fetch(changelist_id)
