"""Stores a review: its artifacts, findings, coverage, banner and fates, and raises alerts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone
from psycopg.types.json import Jsonb

from criticizer.db import prepared as sql
from criticizer.redaction import clean
from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    kind_of,
)
from criticizer.wording import plural_count
from deadletters import alerts
from reviews import fixes
from reviews.artifacts import store
from reviews.dismissals import fold_dismissed
from reviews.job_configuration import hidden_by_configuration
from reviews.models import Artifact, CoverageRow, FindingFate, FindingRow, JobEvent, ReviewJob, RuleUse
from reviews.pipeline import StageClaim
from reviews.pipeline.executor import Written, with_reconnect
from reviews.reviewers.base import CoverageStatus, Fate, Fated, RawId, Stopped
from reviews.reviewers.coverage_texts import (
    ALERT_ABOVE,
    alert_text,
    limit_banner,
    refuted_text,
    stopped_banner,
    unread_banner,
)
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.review import ReviewOutcome
from reviews.stages import units, versions

log = structlog.get_logger(__name__)

# A restart reviews again: the findings of the run before it go.
_SUMMARISE = """
WITH old_findings AS (DELETE FROM findings WHERE job_id = %(job)s),
old_coverage AS (DELETE FROM coverage WHERE job_id = %(job)s),
old_rules AS (DELETE FROM rule_uses WHERE job_id = %(job)s)
UPDATE jobs SET banner = %(banner)s, footer = %(footer)s, stopped = %(stopped)s, model_name = %(model)s,
       usage = %(usage)s, documents = (documents - 'meaning') || %(documents)s
 WHERE id = %(job)s"""


def stored(
    claim: StageClaim, outcome: ReviewOutcome, prepared: Prepared, progress: Mapping[str, str]
) -> Written:
    """Write the redacted artifacts; return the function that inserts the rows.

    The function runs in the transaction that completes the stage, and raises the alerts too. `progress` holds
    answers by request.
    """
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
                "usage": Jsonb({**asdict(review.usage), "asked": review.sole_model}),
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
    """Insert the fates of raw findings; those into which others were merged come first."""
    into = {fated.raw: fated.into for fated in outcome.fates if fated.into is not None}
    FindingFate.objects.bulk_create(row for raw, row in rows.items() if raw not in into)
    for raw, other in into.items():
        rows[raw].merged_into = rows[other]
    FindingFate.objects.bulk_create(rows[raw] for raw in into)


def _banner(claim: StageClaim, outcome: ReviewOutcome) -> str:
    said = (_missing(claim, outcome), unread_banner(outcome.review.coverage))
    return " ".join(filter(None, said))


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
    banner = stopped_banner(why, outcome.reviewed, outcome.parts)
    return f"{banner} {outcome.review.banner}".rstrip()


def _log_partial(claim: StageClaim, outcome: ReviewOutcome) -> None:
    """Log how much of a partial review was reviewed, once it is stored."""
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
    """Alert operators to cut requests, failed parts and refutations, in the review's commit."""
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
