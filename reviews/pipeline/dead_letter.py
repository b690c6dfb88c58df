"""Draft of the dead letter of a failed stage."""

from __future__ import annotations

from criticizer.db import prepared
from criticizer.redaction import clean, clean_context
from criticizer.resilience.failures import Failure
from deadletters.types import LetterDraft
from reviews.pipeline.dependencies import source_of
from reviews.states import Stage


def draft(job_id: int, stage: Stage, failure: Failure, stack: str) -> LetterDraft:
    """Return the draft for a stage that just failed; `stack` is already redacted."""
    kind = failure.kind
    facts = prepared.row(
        """
        SELECT j.changelist_id, j.review_version, s.attempts, s.max_attempts,
               s.first_failure_at, s.last_failure_at,
               (SELECT a.name FROM artifacts a WHERE a.job_id = j.id AND a.kind = 'change'
                 ORDER BY a.id DESC LIMIT 1) AS artifact
          FROM jobs j JOIN stage_runs s ON s.job_id = j.id WHERE j.id = %(job)s AND s.stage = %(stage)s""",
        {"job": job_id, "stage": stage.value},
    )
    assert facts is not None
    return LetterDraft(
        job_id=job_id,
        stage=stage.value,
        error_class=str(failure.error_class),
        code=kind.code,
        severity=kind.severity.value,
        retryable=failure.retryable,
        detail=clean(failure.detail, 1000),
        last_stack=stack,
        sanitized_context=clean_context(
            {
                **failure.context,
                "job": job_id,
                "stage": stage.value,
                "attempts": facts["attempts"],
                "max_attempts": facts["max_attempts"],
                "changelist_id": facts["changelist_id"],
                "review_version": facts["review_version"],
            }
        ),
        payload_reference=facts["artifact"] or f"changelist {facts['changelist_id']}",
        attempts=facts["attempts"],
        first_failure_at=facts["first_failure_at"],
        last_failure_at=facts["last_failure_at"],
        source=source_of(job_id, stage, facts["changelist_id"], failure.context.get("delivery")),
    )
