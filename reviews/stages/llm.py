"""Stage llm: ask the model about the redacted change, store findings and coverage."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError, transaction
from django.utils import timezone
from psycopg.types.json import Jsonb

from criticizer.db import prepared as sql
from criticizer.redaction import Redactor, clean
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    kind_of,
)
from criticizer.wording import plural_count
from deadletters import alerts
from reviews import config, fixes, linter_results, pipeline, scans
from reviews.artifacts import recipe, redactor, store
from reviews.artifacts.redactor import RedactedChange
from reviews.dismissals import fold_dismissed
from reviews.job_configuration import hidden_by_configuration
from reviews.models import Artifact, CoverageRow, FindingFate, FindingRow, JobEvent, ReviewJob, RuleUse
from reviews.pipeline import StageClaim, dependencies
from reviews.pipeline.async_executor import in_lone_thread, in_thread
from reviews.pipeline.executor import Written, with_reconnect
from reviews.replay import allowlist_recheck
from reviews.reviewers.base import CoverageStatus, Fate, Fated, RawId, Stopped
from reviews.reviewers.coverage_texts import (
    ALERT_ABOVE,
    NO_MODEL_BANNER,
    alert_text,
    limit_banner,
    limit_text,
    refuted_text,
    stopped_banner,
    unread_banner,
)
from reviews.reviewers.model import LimitReached
from reviews.reviewers.prepare import Prepared
from reviews.reviewers.review import ReviewOutcome, checks_only, review_prepared, review_without_model
from reviews.reviewers.review_context import ReviewContext
from reviews.reviewers.units import KnownUnit, keys_of
from reviews.sources.allowlist import AllowList
from reviews.sources.passes import Passes
from reviews.stages import agent_review, documents, units, versions
from reviews.stages.model_client import Backed, Model, ProgressKeeper, open_models, verifier_of, wait_of
from reviews.token_ledger import TokenLedger

log = structlog.get_logger(__name__)
T = TypeVar("T")

_AWAY = "The language model is not available at the moment."
# A restart reviews again: the findings of the run before it go.
_SUMMARISE = """
WITH old_findings AS (DELETE FROM findings WHERE job_id = %(job)s),
old_coverage AS (DELETE FROM coverage WHERE job_id = %(job)s),
old_rules AS (DELETE FROM rule_uses WHERE job_id = %(job)s)
UPDATE jobs SET banner = %(banner)s, footer = %(footer)s, stopped = %(stopped)s, model_name = %(model)s,
       usage = %(usage)s, documents = (documents - 'meaning') || %(documents)s
 WHERE id = %(job)s"""


async def run(claim: StageClaim) -> Written:
    """Review the fetched change of `claim` and return the function that stores the review.

    A job that ends during the review gets the part that is finished, and so does one that goes on when its
    soft deadline comes and something is reviewed (guarantee G385). With LLM_REQUIRED=false an open
    circuit, and the last failure of the model, become a banner.

    Raises the failures of `review_prepared`, and DependencyUnavailable while the model must not be
    called; finished answers are kept for the next attempt. Raises PermanentFailure CONFIG_INVALID when a
    model is required and none is configured; REDACTION_BLOCKED, with a security event, when redaction or
    its guard finds doubt; PATH_DENIED, with a security event, when the allow-list no longer allows the
    change. Nothing is sent from then on.
    """
    try:
        return await _run(claim)
    except PermanentFailure as failure:
        if failure.error_class is ErrorClass.REDACTION_BLOCKED:
            note = partial(redactor.record_blocked, claim, failure)
            await in_thread(lambda: with_reconnect(note))
        raise


async def _run(claim: StageClaim) -> Written:
    if await in_thread(lambda: with_reconnect(lambda: scans.is_scan(claim.job_id))):
        return await _with_change(claim, lambda change_of: _checked(claim, change_of().prepared, ""))
    if await in_thread(lambda: with_reconnect(lambda: agent_review.is_by_agents(claim))):
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
        return await in_thread(lambda: _stored(claim, outcome, ready.change.prepared, ready.progress))
    except BaseException:
        # Also at a shutdown: the next attempt starts from the answers.
        await keeper.keep_rest()
        raise
    finally:
        await keeper.close()


@dataclass(frozen=True, slots=True)
class _Ready:
    """A review that can begin; `away`: its model must not be called.

    `allow_list` is no newer than the one that allowed it.
    """

    change: RedactedChange
    allow_list: AllowList
    progress: dict[str, str]
    away: DependencyUnavailable | None
    known: Mapping[str, KnownUnit]


async def _with_change(claim: StageClaim, work: Callable[[Callable[[], RedactedChange]], T]) -> T:
    """Run `work`, which gets a function that opens the redacted change, in a thread."""
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
    """Return why a review ends of which nothing was reviewed: it waits for the next day, or fails."""
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
    """Return how long it is from `now` until the next midnight of its zone."""
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
    return error.kind.message if is_final and error.place is Component.REVIEWER else ""


def _checked(claim: StageClaim, prepared: Prepared, banner: str = NO_MODEL_BANNER) -> Written:
    with_reconnect(lambda: linter_results.place_waiting(claim.job_id))
    return _stored(claim, checks_only(prepared, recipe.limits(), banner), prepared, {})


def _by_agents(claim: StageClaim, change: RedactedChange) -> Written:
    return _stored(claim, agent_review.review(claim, change), change.prepared, {})


def _stored(
    claim: StageClaim, outcome: ReviewOutcome, prepared: Prepared, progress: Mapping[str, str]
) -> Written:
    """Write the redacted artifacts; return the function that inserts the rows."""
    outcome = with_reconnect(lambda: hidden_by_configuration(claim.job_id, outcome))
    review = outcome.review
    proven = with_reconnect(lambda: fixes.proven(claim.job_id, review.findings))
    review = replace(review, usage=review.usage + proven.usage)
    artifacts = []
    for kind, texts in ((Artifact.Kind.PROMPT, outcome.prompts), (Artifact.Kind.ANSWER, outcome.answers)):
        if texts:
            artifacts.append(store.store(claim, kind, "\n\f\n".join(texts).encode()))
    fates = {fated.raw: _fate_row(claim, fated) for fated in outcome.fates}
    findings = [
        FindingRow(
            job_id=claim.job_id,
            fate=fates[finding.raw] if finding.raw else None,
            verification=finding.verification,
            folded=finding.folded,
            file=clean(finding.file, 1024),  # a file's name can hold a secret, like any text
            line=finding.line,
            end_line=finding.end_line,
            side=finding.side,
            severity=finding.severity,
            category=finding.category[:32],
            title=clean(finding.title, 160),
            message=clean(finding.message),
            suggestion=clean(finding.suggestion),
            source=finding.source[:64],
            excerpt=[list(line) for line in finding.excerpt],
            edit=proven.edits.get(finding.raw, []),
            confidence=finding.confidence,
            demoted=finding.demoted,
            evidence=[clean(path, 1024) for path in finding.evidence],
            rule=clean(finding.rule, 1024),
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

    log.info(
        "review_done",
        job=claim.job_id,
        findings=len(findings),
        raw_findings=len(fates),
        parts=outcome.parts,
        reviewed=outcome.reviewed,
        stopped=outcome.stopped,
    )

    if left_out := Counter(
        row.reason for row in coverage if row.reason and row.status != CoverageStatus.REVIEWED
    ):
        reasons = dict(left_out.most_common(5))
        log.warning("files_not_reviewed", job=claim.job_id, files=left_out.total(), reasons=reasons)

    write_endings = with_reconnect(lambda: versions.compare(claim, findings, coverage, prepared))

    def write() -> None:
        for artifact in artifacts:
            artifact.save()
        sql.rows(
            _SUMMARISE,
            {
                "job": claim.job_id,
                "banner": _banner(claim, outcome)[:512],
                "footer": outcome.footer,
                "stopped": outcome.stopped or "",
                "model": clean(review.model, 128),
                "usage": Jsonb({**asdict(review.usage), "asked": review.asked}),
                "documents": Jsonb({"meaning": outcome.documents} if outcome.documents else {}),
            },
        )
        _save_fates(outcome, fates)
        versions.keep_critical_shown(findings)
        FindingRow.objects.bulk_create(findings)
        CoverageRow.objects.bulk_create(coverage)
        RuleUse.objects.bulk_create(_rule_uses(claim, outcome, prepared))
        write_endings()
        fold_dismissed(claim.job_id, findings)
        units.save_units(claim, outcome.units)
        if outcome.stopped:
            if outcome.stopped is not Stopped.UNANSWERED:  # the tasks keep what agents answered
                units.keep_answers(claim, progress)
            _log_partial(claim, outcome)
        _raise_alerts(claim, outcome)

    return write


def _rule_uses(claim: StageClaim, outcome: ReviewOutcome, prepared: Prepared) -> list[RuleUse]:
    texts = {rule.name: "" if rule.path else rule.text.text[:600] for rule in prepared.text.rules}
    cited = Counter(finding.rule for finding in outcome.review.findings)
    return [
        RuleUse(job_id=claim.job_id, name=clean(name, 1024), text=texts[name], parts=parts, cited=cited[name])
        for name, parts in outcome.rules.items()
    ]


def _fate_row(claim: StageClaim, fated: Fated) -> FindingFate:
    return FindingFate(
        job_id=claim.job_id,
        attempt_id=claim.attempt_id,
        **fated.raw._asdict(),
        fate=fated.fate,
        reason=clean(fated.reason, 255),
        file=clean(fated.file, 1024),
        line=fated.line,
        severity=fated.severity,
        # What is shown has its title there.
        title=clean(fated.title, 160) if fated.fate in {Fate.REFUTED, Fate.DROPPED, Fate.SUPPRESSED} else "",
    )


def _save_fates(outcome: ReviewOutcome, rows: Mapping[RawId, FindingFate]) -> None:
    """Insert the ledger: those that others were merged into first."""
    into = {fated.raw: fated.into for fated in outcome.fates if fated.into is not None}
    FindingFate.objects.bulk_create(row for raw, row in rows.items() if raw not in into)
    for raw, other in into.items():
        rows[raw].merged_into = rows[other]
    FindingFate.objects.bulk_create(rows[raw] for raw in into)


def _banner(claim: StageClaim, outcome: ReviewOutcome) -> str:
    return " ".join(
        filter(
            None,
            [
                _missing(claim, outcome),
                unread_banner(outcome.review.coverage),
            ],
        )
    )


def _missing(claim: StageClaim, outcome: ReviewOutcome) -> str:
    if outcome.stopped in (None, Stopped.UNANSWERED) and not outcome.limit:
        return outcome.review.banner
    if outcome.limit and outcome.stopped is not Stopped.ENDED:
        return (
            f"{limit_banner(outcome.limit, outcome.reviewed, outcome.parts)} {outcome.review.banner}".rstrip()
        )
    why = str(outcome.stopped)
    if outcome.stopped is Stopped.ENDED:
        # Only the transaction that stores it knows how the job has ended.
        why = ReviewJob.objects.values_list("status", flat=True).get(pk=claim.job_id)
    said = stopped_banner(why, outcome.reviewed, outcome.parts)
    return f"{said} {outcome.review.banner}".rstrip()


def _log_partial(claim: StageClaim, outcome: ReviewOutcome) -> None:
    """Log what was reviewed of a partial review, once it is stored."""
    created_at = ReviewJob.objects.values_list("created_at", flat=True).get(pk=claim.job_id)
    over = outcome.stopped is Stopped.OVER_LIMIT
    error_class = ErrorClass.POLICY_REJECTED if over else ErrorClass.DEADLINE_EXCEEDED
    facts = {
        "code": kind_of(error_class, Component.INTERNAL).code,
        "stopped": str(outcome.stopped),
        "interrupted_stage": claim.stage.value,
        "parts_completed": outcome.reviewed,
        "parts_remaining": outcome.parts - outcome.reviewed,
        "elapsed_ms": round((timezone.now() - created_at).total_seconds() * 1000),
    }
    transaction.on_commit(lambda: log.warning("review_partial", job=claim.job_id, **facts))


def _raise_alerts(claim: StageClaim, outcome: ReviewOutcome) -> None:
    """Write what operators learn of cut requests, failed parts and refutations, with the review."""
    if cut := outcome.review.usage.cut:
        alerts.tell(
            "requests_cut",
            key=f"requests_cut:{timezone.now():%Y-%m-%d}",
            job=claim.job_id,
            requests=plural_count(cut, "request"),
            model=outcome.review.model,
        )
    failed = sum(outcome.failed.values())
    asked = outcome.reviewed + failed
    if asked and failed / asked > ALERT_ABOVE:
        counts = {"failed": failed, "parts": asked, "rate": round(failed / asked, 4)}
        facts = {**counts, "classes": dict(outcome.failed)}
        _raise_alert(claim, "chunks_failed_threshold", alert_text(failed, asked), facts)
    if outcome.failing_documents is not None:
        failed, asked = outcome.failing_documents
        facts = {"failed": failed, "sections": asked, "rate": round(failed / asked, 4)}
        text = f"the model's answers about {failed} of {asked} sections of documents were unusable"
        _raise_alert(claim, "document_answers_unusable", text, facts)
    if outcome.refuted_of is not None:
        claims, findings = outcome.refuted_of
        text = refuted_text(claims, findings)
        _raise_alert(claim, "verifier_refutes_all", text, {"refuted": claims, "findings": findings})


def _raise_alert(claim: StageClaim, event: str, reason: str, facts: dict[str, Any]) -> None:
    kind = JobEvent.Kind.ALERT
    JobEvent.objects.create(job_id=claim.job_id, kind=kind, actor="criticizer", reason=reason, context=facts)
    transaction.on_commit(lambda: log.error(event, job=claim.job_id, **facts))
