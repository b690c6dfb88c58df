"""Opening of the dead letter of a stage that is not tried again."""

from __future__ import annotations

from criticizer.db import prepared
from criticizer.redaction import clean, clean_context
from criticizer.resilience.failures import Failure
from deadletters import ingest
from deadletters.types import LetterDraft
from reviews.agents import expire
from reviews.pipeline.dependencies import source_of
from reviews.states import Stage


def open_letter(job_id: int, stage: Stage, failure: Failure, stack: str = "") -> None:
    """Open the dead letter of a job, and cancel its open tasks. `stack` is already redacted.

    Part of the transaction that has just dead-lettered the job: both happen, or neither.
    """
    expire.cancel([job_id])
    ingest.open_letter(_draft(job_id, stage, failure, stack))


def _draft(job_id: int, stage: Stage, failure: Failure, stack: str) -> LetterDraft:
    kind = failure.kind
    delivery = failure.context.get("delivery")
    facts = prepared.row(
        """
        SELECT j.changelist_id, j.review_version, s.attempts, s.max_attempts, s.first_failure_at,
               s.last_failure_at, j.request_id, left(j.request_sha256, 16) AS request_hash,
               a.name AS artifact, left(a.sha256, 16) AS payload_hash, d.token::text AS message_id,
               d.notification_id
          FROM jobs j JOIN stage_runs s ON s.job_id = j.id
          LEFT JOIN deliveries d ON d.id = %(delivery)s AND d.job_id = j.id
          LEFT JOIN LATERAL (SELECT name, sha256 FROM artifacts WHERE job_id = j.id AND kind = 'change'
                              ORDER BY id DESC LIMIT 1) a ON true
         WHERE j.id = %(job)s AND s.stage = %(stage)s""",
        {"job": job_id, "stage": stage.value, "delivery": delivery if isinstance(delivery, int) else None},
    )
    assert facts is not None
    ids = ("request_id", "request_hash", "payload_hash", "message_id", "notification_id")
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
                **{name: facts[name] for name in ids if facts[name]},
            }
        ),
        payload_reference=facts["artifact"] or f"changelist {facts['changelist_id']}",
        attempts=facts["attempts"],
        first_failure_at=facts["first_failure_at"],
        last_failure_at=facts["last_failure_at"],
        source=source_of(job_id, stage, facts["changelist_id"], delivery),
    )
