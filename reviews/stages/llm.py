"""Stage llm: ask the model about the redacted change; `review_rows` stores the review."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.utils import timezone

from criticizer.redaction import Redactor
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
)
from reviews import config, linter_results, pipeline, scans
from reviews.artifacts import recipe, redactor
from reviews.artifacts.redactor import RedactedChange
from reviews.pipeline import StageClaim, dependencies
from reviews.pipeline.async_executor import in_database, in_lone_thread, in_thread
from reviews.pipeline.executor import Written, with_reconnect
from reviews.replay import allowlist_recheck
from reviews.reviewers.coverage_texts import (
    NO_MODEL_BANNER,
    limit_text,
)
from reviews.reviewers.model import LimitReached
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.review import ReviewOutcome, checks_only, review_prepared, review_without_model
from reviews.reviewers.review_context import ReviewContext
from reviews.reviewers.units import KnownUnit, keys_of
from reviews.sources.allowlist import AllowList
from reviews.sources.passes import Passes
from reviews.stages import agent_review, documents, units
from reviews.stages.model_client import Backed, Model, ProgressKeeper, open_models, verifier_of, wait_of
from reviews.stages.review_rows import stored
from reviews.token_ledger import TokenLedger

log = structlog.get_logger(__name__)
T = TypeVar("T")

_AWAY = "The language model is not available at the moment."


async def run(claim: StageClaim) -> Written:
    """Review the fetched change of `claim` and return the function that stores the review.

    A job that ends during the review gets the part that is finished. So does a job whose soft deadline comes
    when something is reviewed (guarantee G385). With LLM_REQUIRED=false an open circuit, and the last failure
    of the model, become a banner.

    Raises the failures of `review_prepared`, and DependencyUnavailable while the model must not be
    called; finished answers are kept for the next attempt. Raises PermanentFailure CONFIG_INVALID when a
    model is required and none is configured; REDACTION_BLOCKED, with a security event, when redaction or
    its guard is in doubt; PATH_DENIED, with a security event, when the allow-list no longer allows the
    change. Nothing is sent from then on.
    """
    try:
        return await _run(claim)
    except PermanentFailure as failure:
        if failure.error_class is ErrorClass.REDACTION_BLOCKED:
            await in_database(partial(redactor.record_blocked, claim, failure))
        raise


async def _run(claim: StageClaim) -> Written:
    if await in_database(lambda: scans.is_scan(claim.job_id)):
        return await _with_change(claim, lambda change_of: _checked(claim, change_of().prepared, ""))
    if await in_database(lambda: agent_review.is_by_agents(claim)):
        return await _with_change(claim, lambda change_of: _by_agents(claim, change_of()))
    models = await open_models()
    if not models:
        if settings.LLM_REQUIRED:
            raise PermanentFailure(
                ErrorClass.CONFIG_INVALID,
                Component.CONFIGURATION,
                "LLM_REQUIRED is set and LLM_PROVIDER is none",
            )
        log.warning("review_without_model", job=claim.job_id, dependency="", why="LLM_PROVIDER is none")
        return await _with_change(claim, lambda change_of: _checked(claim, change_of().prepared))
    until = time.monotonic() + claim.soft_deadline_in
    ready = await _with_change(claim, lambda change_of: _ready(claim, models, change_of))
    keeper = ProgressKeeper(claim, ready.progress)
    try:
        outcome = await _review(claim, models, ready, keeper, until)
        return await in_thread(lambda: stored(claim, outcome, ready.change.prepared, ready.progress))
    except BaseException:
        # Also at a shutdown: the next attempt starts from the answers.
        await keeper.keep_rest()
        raise
    finally:
        await keeper.close()


@dataclass(frozen=True, slots=True)
class _Ready:
    """A review that can begin.

    `away` says why its model must not be called, if so. `allow_list` was read before the check that allowed
    the change, so a later edit shows.
    """

    change: RedactedChange
    allow_list: AllowList
    progress: dict[str, str]
    away: DependencyUnavailable | None
    known: Mapping[str, KnownUnit]


async def _with_change(claim: StageClaim, work: Callable[[Callable[[], RedactedChange]], T]) -> T:
    """Run `work` in a thread; it gets a function that opens the redacted change."""
    # The list may have been edited since the fetch, which may be days ago.
    check = partial(allowlist_recheck.gone_sources, claim.changelist_id, "llm")

    def opening(way: Callable[[int, redactor.Check], RedactedChange]) -> Callable[[], T]:
        return lambda: work(lambda: with_reconnect(lambda: way(claim.job_id, check)))

    try:
        return await in_thread(opening(redactor.load))
    except redactor.Stale:
        return await in_lone_thread(opening(redactor.redact_again))


def _ready(claim: StageClaim, models: Sequence[Model], change_of: Callable[[], RedactedChange]) -> _Ready:
    """Open the redacted change, unless its review would have to wait."""
    waiting = with_reconnect(lambda: wait_of(models))
    progress = with_reconnect(lambda: pipeline.progress_of(claim) or units.kept_answers(claim))
    if waiting is not None and not _why_without(claim, models, waiting):
        if claim.soft_deadline_in > 0 or not progress:
            raise waiting
        waiting = None  # no call is made: the answers are published
    allow_list = with_reconnect(config.allow_list)
    change = change_of()
    reported = partial(linter_results.given_to_model, claim.job_id, change.prepared, is_first=not progress)
    change = replace(change, prepared=with_reconnect(reported))
    verifier = verifier_of(models, TokenLedger.of(claim), is_last_attempt=False)
    keys = keys_of(
        change.prepared,
        recipe.limits(),
        models[0].client.model,
        verifier.model if verifier else "",
        Passes(settings.REVIEW_PASSES),
        models[1].client.model if len(models) > 1 else "",
    )
    is_submitted = change.prepared.is_submitted and claim.changelist_id.isdecimal()
    known = with_reconnect(lambda: units.known_units(claim, keys, progress, is_submitted=is_submitted))
    return _Ready(change, allow_list, progress, waiting, known)


async def _review(
    claim: StageClaim, models: tuple[Model, ...], ready: _Ready, keeper: ProgressKeeper, until: float
) -> ReviewOutcome:
    async def may_continue() -> bool:
        return await in_thread(lambda: _is_wanted(claim, ready))

    is_last_attempt = claim.attempt >= claim.max_attempts
    ledger = TokenLedger.of(claim)
    client = Backed(models, ledger, is_last_attempt)
    around = ReviewContext(
        slots=models[0].slots,
        may_continue=may_continue,
        on_progress=keeper.note,
        on_part=keeper.note_part,
        keep=keeper.keep,
        verifier=verifier_of(models, ledger, is_last_attempt),
        redact=lambda texts: Redactor(settings.REDACTION_POLICY).redact_all(texts),
        is_last_attempt=is_last_attempt,
        passes=Passes(settings.REVIEW_PASSES),
        second=Backed(models[::-1], ledger, is_last_attempt) if len(models) > 1 else None,
        known=ready.known,
        until=until,
        verify_seconds=min(settings.LLM_TIMEOUT_SECONDS, max(claim.soft_deadline_in, 0) / 4),  # one call's
    )
    try:
        if ready.away is not None:
            raise ready.away
        outcome = await review_prepared(
            ready.change.prepared, client, recipe.limits(), ready.progress, around
        )
        return await documents.with_documents(
            claim, ready.change.prepared, client, ready.progress, around, outcome
        )
    except LimitReached as reached:
        why = limit_text(reached)
        if settings.LLM_REQUIRED:
            raise _over_limit(reached) from None
    except (Failure, DependencyUnavailable) as error:
        reason = error
        why = await in_thread(lambda: _why_without(claim, models, reason))
        if not why:
            raise
    log.warning("review_without_model", job=claim.job_id, dependency=models[0].name, why=why)
    prepared = ready.change.prepared
    outcome = review_without_model(prepared, client, recipe.limits(), ready.progress, why, around)
    return documents.without_model(prepared, outcome)


def _over_limit(reached: LimitReached) -> Exception:
    """Return the exception that ends a review when a token limit let nothing be reviewed.

    With a daily limit the review waits for the next day; with another one it fails.
    """
    if reached.limit.is_daily:
        return DependencyUnavailable("", left_of_day(timezone.now()).total_seconds(), limit_text(reached))
    return PermanentFailure(
        ErrorClass.POLICY_REJECTED,
        Component.INTERNAL,
        f"{limit_text(reached)} Nothing was reviewed."
        f" Raise TOKEN_LIMIT_PER_{reached.limit.name}, then replay.",
        context={"limit": reached.limit.value, "tokens": reached.tokens},
    )


def left_of_day(now: datetime) -> timedelta:
    """Return the time from `now` until the next midnight of its zone."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1) - now


def _is_wanted(claim: StageClaim, ready: _Ready) -> bool:
    """Return whether the review continues. Raises when the allow-list no longer allows it."""
    try:
        if not pipeline.still_ours(claim):
            return False
        allow_list = allowlist_recheck.refuse_outside(
            claim.changelist_id, ready.change.paths, "llm", seen=ready.allow_list
        )
        context = ready.change.prepared.context_paths
        if allow_list is not ready.allow_list and allowlist_recheck.outside(
            claim.changelist_id, context, allow_list
        ):
            raise RetryableFailure(
                ErrorClass.WRITE_CONFLICT, Component.INTERNAL, "the allow-list was narrowed during the review"
            )
        return True
    except (DatabaseError, InterfaceError):
        return True  # unknown now; recording is fenced


def _why_without(claim: StageClaim, models: Sequence[Model], error: Failure | DependencyUnavailable) -> str:
    """Return why the review continues without its model, or "" when it must not."""
    if settings.LLM_REQUIRED:
        return ""
    if isinstance(error, DependencyUnavailable):
        # A rate limit ends soon; a circuit may stay open, or half open, for hours.
        names = {model.name for model in models}
        return _AWAY if with_reconnect(lambda: dependencies.away(names)) == names else ""
    is_final = not error.retryable or claim.attempt >= claim.max_attempts
    return error.kind.message if is_final and error.component is Component.REVIEWER else ""


def _checked(claim: StageClaim, prepared: Prepared, banner: str = NO_MODEL_BANNER) -> Written:
    with_reconnect(lambda: linter_results.place_waiting(claim.job_id))
    return stored(claim, checks_only(prepared, recipe.limits(), banner), prepared, {})


def _by_agents(claim: StageClaim, change: RedactedChange) -> Written:
    return stored(claim, agent_review.review(claim, change), change.prepared, {})
