"""Makes one review: from a fetched change to findings and coverage.

`prepare` does the work of the processor (diffs, redaction, checks, packing) and may run in a
thread. `review_prepared` only waits for the network.

    change ─► diff ─► checks ────────────────────────► findings ─► merge ─► verify ─► budget ─► Review
                 └─► redact ─► pack ─► model, per part ─► anchor ──┘

Each raw finding is named by its part and place, and each of these steps states the fate of those that
go no further: `ReviewOutcome.fates` has every one once (guarantee G155).

A part whose answer is unusable, even after one repair turn, is named in the coverage and the
review goes on. Retryable failures and waits end the attempt; the answers already paid for
are in `progress`, and the next attempt starts from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from criticizer.resilience.failures import ErrorClass
from reviews.reviewers.base import Fate, Fated, Finding, RawId, Review, Stopped, Usage
from reviews.reviewers.chunks import Chunk
from reviews.reviewers.coverage_texts import (
    NO_MODEL_BANNER,
    UNAVAILABLE,
    UNREACHED,
    degraded_banner,
    fallback_banner,
    incomplete_banner,
    unseconded_banner,
    unverified_banner,
)
from reviews.reviewers.merging import merged
from reviews.reviewers.model import LimitReached, ModelClient
from reviews.reviewers.model_review import ModelReview, PartResult
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.ranking import seconded, within_budget
from reviews.reviewers.reported import without_reported
from reviews.reviewers.review_context import ReviewContext
from reviews.reviewers.rules import rules_of
from reviews.reviewers.units import AnsweredUnit, answered
from reviews.reviewers.verifying import Verified, verified


@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """A review, and the redacted artifacts that led to it, for storage.

    `prompts[i]` was answered by `answers[i]`; a repair turn is a pair of its own. Answers
    taken over from an earlier attempt are not repeated. `fates` holds the end of each raw finding;
    `refuted_of` is (called refuted, asked about) when the verifier refuted too many to be believed.
    Of `parts` parts, `reviewed` have a useful answer and `failed[class]` failed; the rest was
    never sent: `stopped` says why, or the review went on without its model. `limit` kept a call from
    starting, perhaps only one of the second pass. Parts that earlier reviews spared count as reviewed;
    `units` are for later reviews. `rules` names the parts that had each rule, from 1; 0: the spared ones.
    `documents` has the results of sections of documents; `failing_documents` is (unusable answers, asked
    about) when too many were unusable.
    """

    review: Review
    prompts: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    fates: tuple[Fated, ...] = ()
    refuted_of: tuple[int, int] | None = None
    units: tuple[AnsweredUnit, ...] = ()
    rules: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    parts: int = 0
    reviewed: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    stopped: Stopped | None = None
    limit: LimitReached | None = None
    footer: str = ""
    documents: Mapping[str, Any] = field(default_factory=dict)
    failing_documents: tuple[int, int] | None = None


def checks_only(
    prepared: Prepared,
    limits: ReviewLimits = ReviewLimits(),  # noqa: B008 - frozen
    banner: str = NO_MODEL_BANNER,
) -> ReviewOutcome:
    """Return the review of an installation without a language model."""
    findings = within_budget(merged(_of_checks(prepared)), limits.page_budget)
    review = Review(findings, prepared.coverage_by_checks(), banner, Usage(), "")
    return ReviewOutcome(review, fates=fates_of(findings))


async def review_prepared(
    prepared: Prepared,
    client: ModelClient,
    limits: ReviewLimits = ReviewLimits(),  # noqa: B008 - frozen
    progress: MutableMapping[str, str] | None = None,
    around: ReviewContext | None = None,
) -> ReviewOutcome:
    """Let the model review every part and put the review together.

    `progress` maps a part's digest to its finished answer as JSON; it is read first and added
    to as answers arrive, also when this raises. No findings is a valid outcome. When
    `around.may_continue` returns False, at `around.until` or at a limit of tokens, the outcome is
    `stopped`: what was finished until then.

    Raises LimitReached when a limit left nothing, RetryableFailure as the client does and
    DependencyUnavailable as it may too, once the calls in flight have ended; PermanentFailure
    AUTH_DENIED, PERMISSION_DENIED, NOT_FOUND or CONFIG_INVALID at the first such answer; SCHEMA_INVALID or
    POLICY_REJECTED when no part could be reviewed for that reason; REDACTION_BLOCKED when the guard refuses
    a request.
    """
    asking = ModelReview(
        prepared, client, limits, progress if progress is not None else {}, around or ReviewContext()
    )
    results = await asking.all_parts()
    stopped = asking.calls.stopped
    failures = [result.failure for result in results if result.failure is not None]
    # Size alone never fails a review: the checks have read what the model cannot.
    unusable = [f for f in failures if f.error_class is not ErrorClass.TOKEN_LIMIT]
    if unusable and len(failures) == len(results) and not asking.carried.models:
        raise unusable[0]
    findings, reported = _found(asking, results)
    judged = await verified(asking, results, findings)
    first = _first(results)
    unread = sum(result.failure is not None for result in first)
    seconding = sum(bool(result.reason) for result in results) - sum(bool(result.reason) for result in first)
    parts = len(first) + _spared(asking)
    banner = "" if stopped else incomplete_banner(unread, parts)
    banner = " ".join(filter(None, [banner, unseconded_banner(seconding)]))
    outcome = _outcome(asking, results, judged, banner, reported)
    return replace(outcome, stopped=stopped, limit=asking.calls.limit)


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
    first, spared = _first(results), _spared(asking)
    reviewed = sum(not result.reason for result in first) + spared
    findings, reported = _found(asking, results)
    banner = degraded_banner(why, reviewed, len(first) + spared)
    return _outcome(asking, results, Verified(findings), banner, reported)


def review_by_agents(
    asking: ModelReview, missing: Mapping[tuple[int, int], list[PartResult]], banner: str, footer: str
) -> ReviewOutcome:
    """Return the results of checks and agents, whose answers are in the progress of `asking`.

    `missing` holds the parts without an answer by pass and place. Nothing is kept for other reviews, as
    agents of another customer may read those.
    """
    results = asking.known_parts(UNREACHED[Stopped.UNANSWERED], missing)
    findings, reported = _found(asking, results)
    outcome = _outcome(asking, results, Verified(findings), banner, reported)
    return replace(outcome, units=(), footer=footer)


def _of_checks(prepared: Prepared) -> list[Finding]:
    return [replace(finding, raw=RawId(0, 1, n)) for n, finding in enumerate(prepared.findings)]


def _found(
    asking: ModelReview, results: Sequence[PartResult]
) -> tuple[tuple[Finding, ...], tuple[Fated, ...]]:
    """Return the findings of checks, of all parts and of earlier reviews.

    Returns also the fates of those that linters have reported. From here on the names of findings are those
    of one review: findings carried over count as one more part.
    """
    for number, result in enumerate(results, start=1):
        turn = result.part.turn
        result.findings = tuple(replace(f, raw=_in_part(number, f.raw, turn)) for f in result.findings)
        result.dropped = tuple(replace(f, raw=_in_part(number, f.raw, turn)) for f in result.dropped)
    last = len(results) + 1
    found = [
        *_of_checks(asking.prepared),
        *(finding for result in results for finding in result.findings),
        *(replace(finding, raw=_in_part(last, finding.raw)) for finding in asking.carried.findings),
    ]
    return without_reported(merged(found), asking.prepared.reported, asking.prepared.paths)


def _spared(asking: ModelReview) -> int:
    return max(0, len(asking.prepared.chunks) - len(asking.chunks))


def _in_part(number: int, raw: RawId | None, turn: int = 1) -> RawId:
    assert raw is not None
    return raw._replace(part=number, turn=turn)


def _first(results: Sequence[PartResult]) -> list[PartResult]:
    """Return the results of the first pass: it reads all, the others only second it."""
    return [result for result in results if result.part.turn == 1]


def fates_of(findings: Sequence[Finding]) -> tuple[Fated, ...]:
    """Return the fates of findings that are kept, and of those merged into them."""
    fates: list[Fated] = []
    for finding in findings:
        unfolded = Fate.CARRIED if finding.carried else Fate.DEMOTED if finding.demoted else Fate.SHOWN
        fates += finding.fates(Fate.FOLDED if finding.folded else unfolded, finding.folded)
    return tuple(fates)


def _outcome(
    asking: ModelReview,
    results: Sequence[PartResult],
    judged: Verified,
    banner: str,
    reported: Sequence[Fated],
) -> ReviewOutcome:
    """Put a review together; `reported` are the fates of what linters had found already."""
    prepared, client = asking.prepared, asking.client
    findings = within_budget(seconded(judged.findings, asking.passes), asking.limits.page_budget)
    earlier, spared, first = asking.carried, _spared(asking), _first(results)
    asked = [(result.part.chunk, result.reason) for result in first]
    served = Counter(result.model for result in first if result.by_fallback)
    banners = [
        banner,
        fallback_banner(served, len(first)),
        unverified_banner(judged.unanswered, judged.asked, asking.calls.stopped),
    ]
    models = [*(result.model for result in results), *earlier.models]
    review = Review(
        findings=findings,
        coverage=prepared.coverage([*asked, (earlier.chunk, "")], earlier.reviews),
        banner=" ".join(filter(None, banners)),
        usage=sum((result.usage for result in results), judged.usage + earlier.usage),
        model=", ".join(dict.fromkeys(filter(None, models))) or client.model,
        sole_model="" if served else client.model,
    )
    return ReviewOutcome(
        review,
        tuple(asking.calls.prompts),
        tuple(asking.calls.answers),
        fates=(
            *fates_of(findings),
            *judged.refuted,
            *(fate for result in results for fate in result.dropped),
            *(replace(fate, raw=_in_part(len(results) + 1, fate.raw)) for fate in earlier.dropped),
            *reported,
        ),
        refuted_of=(judged.claims, judged.asked) if judged.is_unbelievable else None,
        units=tuple(_answered(prepared, asking, results, judged)),
        rules=_rules_by_part(prepared, results, earlier.chunk),
        parts=len(first) + spared,
        reviewed=sum(not result.reason for result in first) + spared,
        failed=dict(Counter(str(r.failure.error_class) for r in first if r.failure is not None)),
    )


def _rules_by_part(
    prepared: Prepared, results: Sequence[PartResult], spared: Chunk
) -> Mapping[str, tuple[int, ...]]:
    parts: dict[str, list[int]] = {}
    asked = [
        (number, result.part.chunk) for number, result in enumerate(results, start=1) if not result.reason
    ]
    for number, chunk in [(0, spared), *asked]:
        for rule in rules_of(prepared.text.rules, chunk.files):
            parts.setdefault(rule.name, []).append(number)
    return {name: tuple(numbers) for name, numbers in parts.items()}


def _answered(
    prepared: Prepared, asking: ModelReview, results: Sequence[PartResult], judged: Verified
) -> Iterable[AnsweredUnit]:
    """Return the units that may be kept for later reviews: whole, judged answers of the model.

    Left out are answers that may be different the next time: those to a request that the model server cut,
    those of a second model, those that the verifier left open, and those with as many findings as an answer
    may have.
    """
    cap = 1 if asking.limits.is_compact else asking.limits.max_findings_per_chunk

    def is_whole(result: PartResult) -> bool:
        is_answered = not result.reason and not result.by_fallback
        return is_answered and len(result.findings) + len(result.dropped) < cap

    parts = [
        (result.part.chunk, result.model, result.usage.input_tokens)
        for result in _first(results)
        if is_whole(result) and any(result.part.chunk is chunk for chunk in asking.chunks)
    ]
    unseconded = {
        prepared.paths[file]
        for result in results
        if result.part.turn > 1 and not is_whole(result)
        for file in result.part.chunk.files
    }
    is_judged = asking.around.verifier is not None and not asking.limits.is_compact
    ours = [finding for finding in judged.findings if finding.source == "llm" and not finding.carried]
    is_open = unseconded | {
        finding.file
        for finding in ours
        if judged.is_unbelievable
        or finding.raw in judged.unjudged
        or (is_judged and not finding.verification and not finding.is_of_checks)
    }
    keys = {
        index: key
        for index, key in asking.asked_keys.items()
        if prepared.paths[prepared.units[index].hunks[0].file] not in is_open
    }
    return answered(prepared, keys, parts, ours, asking.limits.context_share)
