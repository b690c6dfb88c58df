"""One review from a fetched change to findings and coverage.

`prepare` does the work of the processor (diffs, redaction, checks, packing) and may run in a
thread. `review_prepared` only waits for the network.

    change ─► diff ─► checks ─────────────────────────────► findings ─► merge ─► Review
                 └─► redact ─► pack ─► model, per part ─► anchor ──┘

A part whose answer is unusable, even after one repair turn, is named in the coverage and the
review goes on. Retryable failures and waits end the attempt; the answers already paid for
are in `progress`, and the next attempt starts from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from criticizer.resilience.failures import ErrorClass
from reviews.reviewers.base import Review, Usage
from reviews.reviewers.coverage_texts import (
    NO_MODEL_BANNER,
    UNAVAILABLE,
    degraded_banner,
    fallback_banner,
    incomplete_banner,
)
from reviews.reviewers.merging import merged
from reviews.reviewers.model import ModelClient
from reviews.reviewers.model_review import ModelReview, PartResult, ReviewContext
from reviews.reviewers.prepare import Prepared, ReviewLimits


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """A review, and the redacted artifacts that led to it, for storage.

    `prompts[i]` was answered by `answers[i]`; a repair turn is a pair of its own. Answers
    taken over from an earlier attempt are not repeated. `dropped` counts rejected findings.
    Of `parts` parts, `reviewed` have a useful answer and `failed[class]` failed; the rest was
    never sent: the review was `stopped`, or went on without its model.
    """

    review: Review
    prompts: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    parts: int = 0
    reviewed: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    stopped: bool = False


def checks_only(prepared: Prepared) -> ReviewOutcome:
    """Return the review of an installation without a language model."""
    return ReviewOutcome(
        Review(merged(prepared.findings), prepared.coverage_by_checks(), NO_MODEL_BANNER, Usage(), "")
    )


async def review_prepared(
    prepared: Prepared,
    client: ModelClient,
    limits: ReviewLimits = ReviewLimits(),  # noqa: B008 - frozen
    progress: MutableMapping[str, str] | None = None,
    around: ReviewContext | None = None,
) -> ReviewOutcome:
    """Have the model review every part and put the review together.

    `progress` maps a part's digest to its finished answer as JSON; it is read first and added
    to as answers arrive, also when this raises. No findings is a valid outcome. When
    `around.may_continue` returns False, the outcome is `stopped`: what was finished until then.

    Raises RetryableFailure as the client does and DependencyUnavailable as it may too,
    once the calls in flight have ended; PermanentFailure AUTH_DENIED, PERMISSION_DENIED, NOT_FOUND
    or CONFIG_INVALID at the first such answer; SCHEMA_INVALID or POLICY_REJECTED when no part could
    be reviewed for that reason; REDACTION_BLOCKED when the guard refuses a request.
    """
    asking = ModelReview(
        prepared, client, limits, progress if progress is not None else {}, around or ReviewContext()
    )
    results = await asking.all_parts()
    failures = [result.failure for result in results if result.failure is not None]
    # Size alone never fails a review: the checks have read what the model cannot.
    unusable = [f for f in failures if f.error_class is not ErrorClass.TOKEN_LIMIT]
    if unusable and len(failures) == len(results):
        raise unusable[0]
    banner = "" if asking.is_stopped else incomplete_banner(len(failures), len(results))
    return _outcome(prepared, client, asking, results, banner)


def review_without_model(
    prepared: Prepared,
    client: ModelClient,
    limits: ReviewLimits,
    progress: MutableMapping[str, str],
    why: str,
) -> ReviewOutcome:
    """Return the results of checks and earlier answers; `why` is a sentence about the model."""
    asking = ModelReview(prepared, client, limits, progress, ReviewContext())
    results = asking.known_parts(UNAVAILABLE)
    reviewed = sum(not result.reason for result in results)
    return _outcome(prepared, client, asking, results, degraded_banner(why, reviewed, len(results)))


def _outcome(
    prepared: Prepared, client: ModelClient, asking: ModelReview, results: Sequence[PartResult], banner: str
) -> ReviewOutcome:
    raw = [*prepared.findings, *(f for result in results for f in result.findings)]
    findings = merged(raw)
    served = Counter(result.model for result in results if result.by_fallback)
    review = Review(
        findings=findings,
        coverage=prepared.coverage([(result.part.chunk, result.reason) for result in results]),
        banner=" ".join(filter(None, [banner, fallback_banner(served, len(results))])),
        usage=sum((result.usage for result in results), Usage()),
        model=", ".join(dict.fromkeys(filter(None, (result.model for result in results)))) or client.model,
        asked="" if served else client.model,
    )
    dropped: Counter[str] = Counter()
    if len(raw) > len(findings):
        dropped["merged"] = len(raw) - len(findings)
    for result in results:
        dropped.update(result.dropped)
    return ReviewOutcome(
        review,
        tuple(asking.prompts),
        tuple(asking.answers),
        dict(dropped),
        parts=len(results),
        reviewed=sum(not result.reason for result in results),
        failed=dict(Counter(str(r.failure.error_class) for r in results if r.failure is not None)),
        stopped=asking.is_stopped,
    )
