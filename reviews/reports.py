"""The report of a review, and the message to each recipient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Coalesce
from django.urls import reverse

from notifications.delivery import snapshot
from notifications.models import Delivery
from notifications.preferences import unsubscribe
from notifications.providers.base import Message
from notifications.rendering import (
    Comparison,
    EarlierFinding,
    Ending,
    ExcerptLine,
    PullRequest,
    Report,
    ReportFile,
    ReportFinding,
    render,
)
from notifications.rendering.report import rule_note
from notifications.rendering.summary import in_order
from notifications.states import DeliveryStatus
from reviews import fixes, job_configuration
from reviews.drift.wording import summary
from reviews.models import FindingRow, HostVersion, ReviewJob
from reviews.models.jobs import SCAN
from reviews.models.rules import text_of_cited
from reviews.recipients import verdict_links
from reviews.recipients.viewing_scopes import Scope
from reviews.reviewers.coverage_texts import stopped_banner
from reviews.sources.pull import depot_prefix
from reviews.states import Stage
from reviews.verdicts import Verdict, verdicts_of

ANCHOR = "finding-"  # reviews/web/finding_html.py
_LATE = "Late result: this review was finished after its deadline."


def report_of(job: ReviewJob) -> Report:
    """Return the report of a reviewed job, compared with the version before; the same each time."""
    finished_at = job.stages.values_list("finished_at", flat=True).get(stage=Stage.LLM)
    path = reverse("reviews:detail", args=[job.pk])
    findings = list(job.findings.annotate(rule_text=text_of_cited()))
    verdicts = verdicts_of(row.identity for row in findings)
    late = _LATE if job.is_late else ""
    return Report(
        changelist_id=job.changelist_id,
        review_version=job.review_version,
        title=job.title,
        author=job.author,
        url=settings.BASE_URL.rstrip("/") + path,
        reviewed_at=finished_at or job.created_at,
        banner=" ".join(filter(None, [late, job.banner])),
        part_banner=" ".join(filter(None, [late, stopped_banner(job.stopped) if job.stopped else ""])),
        is_partial=bool(job.stopped),
        findings=tuple(as_reported(row, verdicts.get(row.identity), row.rule_text) for row in findings),
        status_lines=(limitation_note(job),) if job.series else (),
        documents=summary(job.documents),
        footer=job.footer,
        configuration=job_configuration.lines_of(job),
        suppressed=job_configuration.suppressed_in(job),
        budget=job_configuration.budget_of(job),
        coverage=tuple(ReportFile(row.file, row.status, row.reason) for row in job.coverage.all()),
        pull_request=_pull_request(job),
        since=None if job.compared_with is None else Comparison(job.compared_with, _ended(job)),
    )


def _pull_request(job: ReviewJob) -> PullRequest | None:
    if depot_prefix(job.changelist_id) is None:
        return None
    version = HostVersion.objects.filter(job=job).select_related("change").first()
    if version is None:
        return None
    return PullRequest(version.change.repository_id, version.head_sha, is_partial=bool(job.series))


def _ended(job: ReviewJob) -> tuple[EarlierFinding, ...]:
    """Return the earlier findings that this version does not repeat.

    Fixed ones come first, then the worst.
    """
    entries = [
        EarlierFinding(replace(as_reported(row), is_new=None), Ending(row.ending))
        for row in job.ended_findings.all()
    ]
    ranks = {id(finding): rank for rank, finding in enumerate(in_order(entry.finding for entry in entries))}
    statuses = tuple(Ending)
    return tuple(sorted(entries, key=lambda entry: (statuses.index(entry.status), ranks[id(entry.finding)])))


def banner_within(banner: str, stopped: str, scope: Scope) -> str:
    """Return a job's banner as a reader may see it.

    The banner counts files and parts of the whole change. A reader who may not see every file sees that the
    review is partial, without numbers.
    """
    return banner if scope.everything else stopped_banner(stopped) if stopped else ""


def limitation_note(job: ReviewJob) -> str:
    """Return the sentence that says to which files a job is limited.

    The job is a scan, or a review by a key with prefixes.
    """
    trees = ", ".join(f"{prefix}..." for prefix in job.scope_prefixes)
    if job.kind == SCAN:
        return f"This scan is limited to the documents of {trees}: no file elsewhere was looked at."
    return f"The API key that requested this review is limited to {trees}: no other file was read."


def messages_for(job: ReviewJob, reports: Mapping[str, Report]) -> dict[str, Message]:
    """Return the message to each recipient: `reports` holds what each of them may read."""
    answers = _messages_before(job, reports)
    judges = verdict_links.judges(name for name, report in reports.items() if report.findings)
    messages = {}
    for recipient, report in reports.items():
        token = snapshot.token_for(job.changelist_id, recipient, job.review_version, job.series)
        link = unsubscribe.link(recipient, token)
        shown = _with_verdict_links(report, token) if recipient in judges else report
        messages[recipient] = render(
            shown, recipient, token, unsubscribe_url=link, answers=answers.get(recipient)
        )
    return messages


def _with_verdict_links(report: Report, token: UUID) -> Report:
    """Return the report with a link at each finding by which the delivery's recipient judges it."""

    def linked(finding: ReportFinding) -> ReportFinding:
        finding_id = int(finding.anchor.removeprefix(ANCHOR))
        return replace(finding, verdict_url=verdict_links.link(finding_id, token, report.reviewed_at))

    return replace(report, findings=tuple(map(linked, report.findings)))


def _messages_before(job: ReviewJob, recipients: Mapping[str, Report]) -> dict[str, UUID]:
    """Return the token of each recipient's newest message about an earlier version.

    The token of its digest where it was sent in one: that is the message in the mailbox.
    """
    if job.review_version == 1:
        return {}
    sent = Delivery.objects.filter(
        changelist_id=job.changelist_id,
        series=job.series,
        review_version__lt=job.review_version,
        recipient__in=recipients,
        status=DeliveryStatus.SENT,
    )
    tokens = sent.annotate(mail=Coalesce("digest__token", "token"))
    return dict(tokens.order_by("review_version").values_list("recipient", "mail"))


def as_reported(row: FindingRow, verdict: Verdict | None = None, rule_text: str = "") -> ReportFinding:
    """Return a stored finding as messages show it. `rule_text`: what `text_of_cited` says."""
    return ReportFinding(
        **{name: getattr(row, name) for name in FindingRow.PUBLISHED if name != "evidence"},
        evidence=tuple(row.evidence),
        excerpt=tuple(ExcerptLine(text, kind, line) for line, kind, text in row.excerpt),
        confidence=row.confidence,
        replacement=fixes.replacement_of(row),
        demoted=row.demoted,
        anchor=f"{ANCHOR}{row.pk}",
        identity=str(row.identity),
        is_new=row.is_new,
        verdict=verdict.kind if verdict else "",
        verdict_note=verdict.sentence if verdict else "",
        is_folded=bool(row.folded),
        rule=row.rule,
        rule_note=rule_note(row.rule, rule_text),
    )
