"""Reviews whose redacted diff is stored, made by the product's own preparation."""

from __future__ import annotations

from uuid import uuid4

from criticizer.redaction import Redactor
from reviews.artifacts import store
from reviews.models import Artifact, ReviewJob
from reviews.pipeline import StageClaim
from reviews.reviewers import prepared_codec
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.sources.base import FileChange
from reviews.states import Stage
from tests.reviewers import build


def store_diff(job: ReviewJob, *files: FileChange) -> None:
    """Store the redacted form of a change as the stage fetch does."""
    prepared = prepare(build.change(*files), Redactor(), ReviewLimits(max_calls=200))
    claim = StageClaim(1, uuid4(), 1, Stage.FETCH, 1, 5, 1, job.pk, job.changelist_id, job.review_version)
    store.store(claim, Artifact.Kind.REDACTED, prepared_codec.to_json(prepared, "test")).save()
