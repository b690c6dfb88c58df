"""Fetched changes, and reviews with a stored redacted diff, made as the stage makes them."""

from __future__ import annotations

from uuid import uuid4

from criticizer.redaction import Redactor
from reviews import config
from reviews.artifacts import store
from reviews.models import Artifact, ReviewJob
from reviews.pipeline import StageClaim
from reviews.recipients.viewing_scopes import EVERYTHING, Scope
from reviews.repository_configuration import Configurations
from reviews.reviewers import prepared_change_codec
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.sources.base import Change, FileChange
from reviews.sources.registry import source_for
from reviews.stages import fetch
from reviews.states import Stage
from tests.reviewers import build


def store_diff(job: ReviewJob, *files: FileChange) -> None:
    """Store the redacted form of a change as the stage fetch does."""
    prepared = prepare(build.change(*files), Redactor(), ReviewLimits(max_calls=200))
    claim = StageClaim(1, uuid4(), 1, Stage.FETCH, 1, 5, 1, job.pk, job.changelist_id, job.review_version)
    store.store(claim, Artifact.Kind.REDACTED, prepared_change_codec.to_json(prepared, "test")).save()


def fetched(changelist_id: str, scope: Scope = EVERYTHING) -> Change:
    """Fetch a change as the stage does for a job of which nothing is kept yet."""
    source = source_for(changelist_id, config.sources())
    return fetch._fetch(changelist_id, source, scope, Configurations(source, config.allow_list()))
