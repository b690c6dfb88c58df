"""Stage notify: tell each recipient exactly once (specification 004)."""

from __future__ import annotations

import json
from functools import partial

import structlog
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.urls import reverse

from notifications import config, sending
from notifications.messages import ExcerptLine, Report, ReportFile, ReportFinding, render
from notifications.models import Delivery
from reviews import artifacts, pipeline
from reviews.executor import Written
from reviews.models import Artifact, FindingRow, ReviewJob
from reviews.pipeline import LostLease, StageClaim
from reviews.states import Stage

log = structlog.get_logger(__name__)

_LATE = "Late result: this review was finished after its deadline."


def run(claim: StageClaim) -> Written:
    """Freeze one message per recipient, then send what is not sent yet.

    Raises LostLease as soon as the job is no longer ours to tell about, and the failures of
    `sending.deliver`.
    """
    job = ReviewJob.objects.get(pk=claim.job_id)
    if job.recipients:
        report = report_of(job)
        messages = {
            recipient: render(
                report, recipient, sending.token_for(job.changelist_id, recipient, job.review_version)
            )
            for recipient in job.recipients
        }
        sending.prepare(job.pk, job.changelist_id, job.review_version, messages)
        providers = config.providers()
        # A row that says sent without evidence would end the job untold (004, 8.2 second row).
        sending.audit_sent(providers, job_id=job.pk)
        sending.deliver(job.pk, providers, may_continue=partial(pipeline.still_ours, claim))
        if not pipeline.still_ours(claim):
            raise LostLease
        return _mail_kept(claim)
    return None


def _mail_kept(claim: StageClaim) -> Written:
    """Keep the metadata of what was sent, encrypted (001, 9.4); return what inserts its row."""
    sent = (
        Delivery.objects.filter(job_id=claim.job_id)
        .order_by("id")
        .values("recipient", "token", "subject", "payload_sha256", "status", "notification_id", "notified_at")
    )
    try:
        data = json.dumps(list(sent), cls=DjangoJSONEncoder, ensure_ascii=False, indent=1).encode()
        return artifacts.store(claim, Artifact.Kind.MAIL, data).save
    except OSError as error:
        # Everybody has been told: a full disk must not end the job as a failure.
        log.error("mail_metadata_not_kept", job=claim.job_id, error=type(error).__name__)
        return None


def report_of(job: ReviewJob) -> Report:
    """Return what recipients are told about a reviewed job, the same on every attempt."""
    llm = job.stages.get(stage=Stage.LLM)
    path = reverse("reviews:detail", args=[job.pk])
    return Report(
        changelist_id=job.changelist_id,
        review_version=job.review_version,
        title=job.title,
        author=job.author,
        url=settings.BASE_URL.rstrip("/") + path,
        reviewed_at=llm.finished_at or job.created_at,
        banner=" ".join(filter(None, [_LATE if job.is_late else "", job.banner])),
        findings=tuple(_finding(row) for row in job.findings.all()),
        coverage=tuple(ReportFile(row.file, row.status, row.reason) for row in job.coverage.all()),
    )


def _finding(row: FindingRow) -> ReportFinding:
    return ReportFinding(
        file=row.file,
        severity=row.severity,
        title=row.title,
        message=row.message,
        category=row.category,
        line=row.line,
        end_line=row.end_line,
        side=row.side,
        suggestion=row.suggestion,
        source=row.source,
        excerpt=tuple(ExcerptLine(text, kind, line) for line, kind, text in row.excerpt),
    )
