"""One review from a fetched change to findings and coverage.

`prepare` does the work of the processor (diffs, redaction, checks, packing) and may run in a
thread. `review_prepared` only waits for the network.

    change ─► diff ─► checks ────────────────────────► findings ─► merge ─► verify ─► budget ─► Review
                 └─► redact ─► pack ─► model, per part ─► anchor ──┘

Each raw finding is named by its part and place, and each of these steps says how those ended that
go no further: `ReviewOutcome.fates` has every one once (guarantee G155).

A part whose answer is unusable, even after one repair turn, is named in the coverage and the
review goes on. Retryable failures and waits end the attempt; the answers already paid for
are in `progress`, and the next attempt starts from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace

from criticizer.resilience.failures import ErrorClass
from reviews.reviewers.base import Fate, Fated, Finding, RawId, Review, Usage
from reviews.reviewers.coverage_texts import (
    NO_MODEL_BANNER,
    UNAVAILABLE,
    degraded_banner,
    fallback_banner,
    incomplete_banner,
    unverified_banner,
)
from reviews.reviewers.merging import merged
from reviews.reviewers.model import ModelClient
from reviews.reviewers.model_review import ModelReview, PartResult
from reviews.reviewers.prepare import Prepared, ReviewLimits
from reviews.reviewers.ranking import within_budget
from reviews.reviewers.review_context import ReviewContext
from reviews.reviewers.verifying import Verified, verified


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """A review, and the redacted artifacts that led to it, for storage.

    `prompts[i]` was answered by `answers[i]`; a repair turn is a pair of its own. Answers
    taken over from an earlier attempt are not repeated. `fates` holds the end of each raw finding;
    `refuted_of` is (called refuted, asked about) when the verifier refuted too many to be believed.
    Of `parts` parts, `reviewed` have a useful answer and `failed[class]` failed; the rest was
    never sent: the review was `stopped`, or went on without its model.
    """

    review: Review
    prompts: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    fates: tuple[Fated, ...] = ()
    refuted_of: tuple[int, int] | None = None
    parts: int = 0
    reviewed: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    stopped: bool = False

    @property
    def dropped(self) -> Mapping[str, int]:
        """Return how many findings are not shown, by reason."""
        unseen = (f for f in self.fates if f.fate in {Fate.DROPPED, Fate.MERGED, Fate.REFUTED})
        return dict(Counter(f.reason if f.fate is Fate.DROPPED else f.fate.value for f in unseen))


def checks_only(prepared: Prepared, limits: ReviewLimits = ReviewLimits()) -> ReviewOutcome:  # noqa: B008
    """Return the review of an installation without a language model."""
    findings = within_budget(merged(_of_checks(prepared)), limits.page_budget)
    review = Review(findings, prepared.coverage_by_checks(), NO_MODEL_BANNER, Usage(), "")
    return ReviewOutcome(review, fates=_fates(findings))


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
    findings = merged([*_of_checks(prepared), *_of_parts(results)])
    judged = await verified(asking, results, findings)
    banner = "" if asking.calls.is_stopped else incomplete_banner(len(failures), len(results))
    return _outcome(prepared, client, asking, results, judged, banner)


def review_without_model(
    prepared: Prepared,
    client: ModelClient,
    limits: ReviewLimits,
    progress: MutableMapping[str, str],
    why: str,
    around: ReviewContext | None = None,
) -> ReviewOutcome:
    """Return the results of checks and earlier answers; `why` is a sentence about the model."""
    asking = ModelReview(prepared, client, limits, progress, around or ReviewContext())
    results = asking.known_parts(UNAVAILABLE)
    reviewed = sum(not result.reason for result in results)
    known = Verified(merged([*_of_checks(prepared), *_of_parts(results)]))
    return _outcome(prepared, client, asking, results, known, degraded_banner(why, reviewed, len(results)))


def _of_checks(prepared: Prepared) -> list[Finding]:
    return [replace(finding, raw=RawId(0, 1, n)) for n, finding in enumerate(prepared.findings)]


def _of_parts(results: Sequence[PartResult]) -> list[Finding]:
    """Return the findings of all parts; from here on their names are those of one review."""
    for number, result in enumerate(results, start=1):
        result.findings = tuple(replace(f, raw=_in_part(number, f.raw)) for f in result.findings)
        result.dropped = tuple(replace(f, raw=_in_part(number, f.raw)) for f in result.dropped)
    return [finding for result in results for finding in result.findings]


def _in_part(number: int, raw: RawId | None) -> RawId:
    assert raw is not None
    return raw._replace(part=number)


def _fates(findings: Sequence[Finding]) -> tuple[Fated, ...]:
    """Return the fates of findings that are kept, and of those merged into them."""
    fates: list[Fated] = []
    for finding in findings:
        unfolded = Fate.DEMOTED if finding.demoted else Fate.SHOWN
        fates += finding.fates(Fate.FOLDED if finding.folded else unfolded, finding.folded)
    return tuple(fates)


def _outcome(
    prepared: Prepared,
    client: ModelClient,
    asking: ModelReview,
    results: Sequence[PartResult],
    judged: Verified,
    banner: str,
) -> ReviewOutcome:
    findings = within_budget(judged.findings, asking.limits.page_budget)
    served = Counter(result.model for result in results if result.by_fallback)
    banners = [
        banner,
        fallback_banner(served, len(results)),
        unverified_banner(judged.unanswered, judged.asked),
    ]
    review = Review(
        findings=findings,
        coverage=prepared.coverage([(result.part.chunk, result.reason) for result in results]),
        banner=" ".join(filter(None, banners)),
        usage=sum((result.usage for result in results), judged.usage),
        model=", ".join(dict.fromkeys(filter(None, (result.model for result in results)))) or client.model,
        asked="" if served else client.model,
    )
    return ReviewOutcome(
        review,
        tuple(asking.calls.prompts),
        tuple(asking.calls.answers),
        fates=(
            *_fates(findings),
            *judged.refuted,
            *(fate for result in results for fate in result.dropped),
        ),
        refuted_of=(judged.claims, judged.asked) if judged.is_unbelievable else None,
        parts=len(results),
        reviewed=sum(not result.reason for result in results),
        failed=dict(Counter(str(r.failure.error_class) for r in results if r.failure is not None)),
        stopped=asking.calls.is_stopped,
    )
