"""Stage llm: redact, check, ask the model, keep findings and coverage."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator
from dataclasses import asdict

from django.conf import settings
from psycopg.types.json import Jsonb

from criticizer import sql
from criticizer.failures import Failure, Place
from criticizer.redaction import Redactor, clean
from reviews import artifacts, changes, config, pipeline
from reviews.driver import in_thread
from reviews.executor import Written
from reviews.models import Artifact, CoverageRow, FindingRow
from reviews.pipeline import StageClaim
from reviews.reviewers.anthropic import AnthropicClient
from reviews.reviewers.model import LlmConfig, ModelClient
from reviews.reviewers.openai import OpenAIClient
from reviews.reviewers.preparation import Prepared, ReviewLimits, prepare
from reviews.reviewers.review import ReviewOutcome, review_prepared

_DEGRADED = "Only deterministic checks ran: the language model could not be used."
# A restart reviews again: the findings of the run before it go.
_SUMMARISE = """
WITH old_findings AS (DELETE FROM findings WHERE job_id = %(job)s),
old_coverage AS (DELETE FROM coverage WHERE job_id = %(job)s)
UPDATE jobs SET banner = %(banner)s, model_name = %(model)s, usage = %(usage)s WHERE id = %(job)s"""


async def run(claim: StageClaim) -> Written:
    """Review the fetched change of `claim` and return what stores the review.

    Raises the failures of `review_prepared`; with LLM_REQUIRED=false the last of them becomes
    a banner instead.
    """
    prepared, progress = await in_thread(lambda: (_prepare(claim), pipeline.progress_of(claim)))
    known = len(progress)
    limits = _limits()
    try:
        outcome = await review_prepared(prepared, await _client(), limits, progress)
    except Failure as failure:
        if len(progress) > known:
            # What was answered is paid for: the next attempt starts from it.
            await in_thread(lambda: pipeline.keep_progress(claim, progress))
        if not _may_degrade(failure, claim):
            raise
        outcome = await review_prepared(prepared, None, limits, banner=_DEGRADED)
    return await in_thread(lambda: _stored(claim, outcome))


def _prepare(claim: StageClaim) -> Prepared:
    change = changes.from_json(artifacts.load(claim.job_id, Artifact.Kind.CHANGE))
    return prepare(change, Redactor(settings.REDACTION_POLICY), _limits())


def _limits() -> ReviewLimits:
    return ReviewLimits(max_input_tokens=settings.LLM_MAX_INPUT_TOKENS)


def _may_degrade(failure: Failure, claim: StageClaim) -> bool:
    if settings.LLM_REQUIRED or failure.place is not Place.REVIEWER:
        return False
    return not failure.retryable or claim.attempt >= claim.max_attempts


def _stored(claim: StageClaim, outcome: ReviewOutcome) -> Written:
    """Write the redacted artifacts; return what inserts the rows."""
    review = outcome.review
    kept = []
    for kind, texts in ((Artifact.Kind.PROMPT, outcome.prompts), (Artifact.Kind.ANSWER, outcome.answers)):
        if texts:
            kept.append(artifacts.store(claim, kind, "\n\f\n".join(texts).encode()))
    findings = [
        FindingRow(
            job_id=claim.job_id,
            file=clean(finding.file, 1024),  # a file's name can hold a secret like any other text
            line=finding.line,
            end_line=finding.end_line,
            side=finding.side,
            severity=finding.severity,
            category=finding.category[:32],
            title=clean(finding.title, 160),
            message=clean(finding.message),
            suggestion=clean(finding.suggestion),
            source=finding.source[:64],
            quote=finding.quote,
            excerpt=[list(line) for line in finding.excerpt],
            confidence=finding.confidence,
            demoted=finding.demoted,
        )
        for finding in review.findings
    ]
    coverage = [
        CoverageRow(
            job_id=claim.job_id,
            file=clean(entry.file, 1024),
            status=entry.status,
            reason=clean(entry.reason, 255),
        )
        for entry in review.coverage
    ]

    def write() -> None:
        for stored in kept:
            stored.save()
        sql.rows(
            _SUMMARISE,
            {
                "job": claim.job_id,
                "banner": review.banner[:512],
                "model": clean(review.model, 128),
                "usage": Jsonb(asdict(review.usage)),
            },
        )
        FindingRow.objects.bulk_create(findings)
        CoverageRow.objects.bulk_create(coverage)

    return write


# One client per event loop: its connections belong to the loop.
_clients: weakref.WeakKeyDictionary[
    asyncio.AbstractEventLoop, tuple[ModelClient, AsyncGenerator[ModelClient, None]]
] = weakref.WeakKeyDictionary()


async def _client() -> ModelClient | None:
    """Return this loop's model client, or None with LLM_PROVIDER=none."""
    llm = config.model()
    if llm is None:
        return None
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        opened = _open(llm)
        _clients[loop] = (await anext(opened), opened)
    return _clients[loop][0]


async def _open(llm: LlmConfig) -> AsyncGenerator[ModelClient, None]:
    # asyncio.run closes unfinished generators at its end, and with this one the connections.
    client: ModelClient = OpenAIClient(llm) if settings.LLM_PROVIDER == "openai" else AnthropicClient(llm)
    try:
        yield client
    finally:
        await client.aclose()
