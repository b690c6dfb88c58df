"""Documentation drift by meaning: sections are chosen, asked about and stored with a review."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import structlog
from django.conf import settings

from criticizer.redaction import RedactionBlocked, clean
from criticizer.resilience.failures import DependencyUnavailable, Failure
from reviews.artifacts import recipe
from reviews.drift.wording import Unsure
from reviews.pipeline import StageClaim
from reviews.pipeline.async_executor import in_database
from reviews.reviewers.base import Finding, Stopped
from reviews.reviewers.document_answers import SectionVerdict
from reviews.reviewers.document_review import (
    DocumentReview,
    DocumentsOutcome,
    SectionResult,
    numbered,
    questions_of,
)
from reviews.reviewers.model import ModelClient
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.review import ReviewOutcome, fates_of
from reviews.reviewers.review_context import ReviewContext
from reviews.stages import semantic, units

SPARE = 2  # sections fetched for each one that is asked about: some may be left out before
MOST_BY_MEANING = 200

log = structlog.get_logger(__name__)


class Wanted(NamedTuple):
    """The number of sections with which a change is fetched.

    `is_by_meaning`: sections that do not map to the change in other ways are among them.
    """

    sections: int
    is_by_meaning: bool


def wanted() -> Wanted:
    """Return which sections the llm stage will have a use for."""
    has_model = settings.LLM_PROVIDER != "none" and not recipe.limits().is_compact
    if not has_model or not settings.DOCUMENT_SECTIONS:
        return Wanted(0, False)
    if settings.EMBEDDINGS_BASE_URL and settings.LLM_PROVIDER != "agent":
        return Wanted(MOST_BY_MEANING, True)
    return Wanted(SPARE * settings.DOCUMENT_SECTIONS, False)


async def with_documents(
    claim: StageClaim,
    prepared: Prepared,
    client: ModelClient,
    progress: dict[str, str],
    around: ReviewContext,
    outcome: ReviewOutcome,
) -> ReviewOutcome:
    """Return a review with the sections that its change made untrue by meaning (G479).

    Raises what `around.may_continue` raises, as the review itself may not go on then. Any other failure
    leaves the review as it was.
    """
    if not prepared.sections or not settings.DOCUMENT_SECTIONS or outcome.stopped is Stopped.ENDED:
        return outcome
    try:
        found = await _asked(claim, prepared, client, progress, around, outcome)
    except (Failure, DependencyUnavailable):
        raise  # of `may_continue`
    except RedactionBlocked as blocked:
        log.warning("documents_not_asked", job=claim.job_id, reason_code=blocked.reason_code)
        return outcome
    except Exception:  # a defect here must not keep a change from its review
        log.exception("documents_failed", job=claim.job_id)
        return outcome
    return joined(prepared, outcome, found)


async def _asked(
    claim: StageClaim,
    prepared: Prepared,
    client: ModelClient,
    progress: dict[str, str],
    around: ReviewContext,
    outcome: ReviewOutcome,
) -> DocumentsOutcome:
    found_by = await semantic.ordered(claim, prepared)
    questions, unasked = questions_of(prepared, found_by.sections, client.model, settings.DOCUMENT_SECTIONS)
    keys = [question.key for question in questions]
    known = await in_database(lambda: units.known_answers(claim, keys))
    asking = DocumentReview(prepared, client, recipe.limits(), progress, around, known)
    if outcome.stopped is not None:  # its time or its tokens are used up: only known answers are used
        over = outcome.stopped is Stopped.OVER_LIMIT
        reason = Unsure.OVER_LIMIT if over else Unsure.NO_TIME
        unasked += [
            SectionResult(one.section, SectionVerdict.UNCERTAIN, reason)
            for one in questions
            if one.key not in known
        ]
        questions = [one for one in questions if one.key in known]
    found = await asking.ask(questions)
    found.results += unasked
    found.note = found_by.note
    found.units += found_by.units
    return found


def without_model(prepared: Prepared, outcome: ReviewOutcome) -> ReviewOutcome:
    """Return a review without its model, with its unasked sections as uncertain ones."""
    sections = [section for section in prepared.sections if section.files][: settings.DOCUMENT_SECTIONS]
    results = [SectionResult(section, SectionVerdict.UNCERTAIN, Unsure.UNAVAILABLE) for section in sections]
    return joined(prepared, outcome, DocumentsOutcome(results)) if results else outcome


def joined(prepared: Prepared, outcome: ReviewOutcome, found: DocumentsOutcome) -> ReviewOutcome:
    """Return a review with the results of its sections.

    A finding is left out where a check has proven the same lines untrue.
    """
    review = outcome.review
    new = [finding for finding in found.findings if not _is_proven(finding, review.findings)]
    findings = numbered(new, len(prepared.findings))
    log.info(
        "documents_compared",
        sections=len(found.results),
        untrue=len(new),
        uncertain=sum(one.verdict is SectionVerdict.UNCERTAIN for one in found.results),
        asked=found.asked,
        failed=found.failed,
    )
    return replace(
        outcome,
        review=replace(review, findings=(*review.findings, *findings), usage=review.usage + found.usage),
        prompts=(*outcome.prompts, *found.prompts),
        answers=(*outcome.answers, *found.answers),
        fates=(*outcome.fates, *fates_of(findings)),
        units=(*outcome.units, *found.units),
        documents=_as_stored(found),
        failing_documents=(found.failed, found.asked) if found.fails_often else None,
    )


def _is_proven(finding: Finding, others: tuple[Finding, ...]) -> bool:
    """Return whether a check has proven the same lines untrue: its finding is the certain one."""
    assert finding.line is not None
    end = finding.end_line or finding.line
    return any(
        other.source == "check:drift"
        and other.file == finding.file
        and other.line is not None
        and finding.line <= other.line <= end
        for other in others
    )


def _as_stored(found: DocumentsOutcome) -> Mapping[str, Any]:
    """Return the results for pages, messages and the API (see `reviews.drift.wording`)."""
    sections = [
        {
            "document": clean(one.section.path, 1024),
            "line": one.section.line,
            "verdict": one.verdict.value,
            "reason": one.reason.value,
            "confidence": one.confidence,
            "how": list(one.section.how),
        }
        for one in found.results
    ]
    return {"sections": sections, "note": found.note}
