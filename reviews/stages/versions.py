"""Relates the findings of a review to those of the version before.

The relation is stored in the commit that stores the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

from reviews import scans
from reviews.dismissals import hold_verdicts
from reviews.models import CoverageRow, FindingRow, ReviewJob
from reviews.pipeline import StageClaim
from reviews.reports import as_reported
from reviews.reviewers.base import FindingSeverity
from reviews.reviewers.prepared_change import Prepared
from reviews.states import VERDICTS, FindingEventKind, Stage, StageStatus
from reviews.verdicts import has_verdict, verdicts_of
from reviews.version_comparison import compared, lines_of

MAX_RECOGNISED = 5_000  # findings with a verdict, in all versions of a change


def compare(
    claim: StageClaim, findings: Sequence[FindingRow], coverage: Sequence[CoverageRow], prepared: Prepared
) -> Callable[[], None]:
    """Mark the unsaved `findings` of a review as new or still there (guarantee G220).

    Return the function that stores how the other earlier findings ended, in the commit of the review.
    """
    if scans.is_scan(claim.job_id):
        return scans.relate(claim.job_id, findings)
    earlier = _reviewed_before(claim) if claim.review_version > 1 else None
    if earlier is None:
        _recognise(claim, findings, [])
        return lambda: None
    before = list(earlier.findings.order_by("pk"))
    verdicts = verdicts_of(row.identity for row in before)
    dismissed = [
        index
        for index, row in enumerate(before)
        if row.identity in verdicts and verdicts[row.identity].is_dismissal
    ]
    result = compared(
        [as_reported(row) for row in findings],
        [as_reported(row) for row in before],
        {row.file: row.status for row in coverage},
        lines_of(prepared),
        frozenset(dismissed),
    )
    for index, row in enumerate(findings):
        partner = result.partners.get(index)
        row.is_new = partner is None
        if partner is not None:
            row.identity = before[partner].identity
    _recognise(claim, [row for row in findings if row.is_new], [row.identity for row in findings])
    version = earlier.review_version

    def write() -> None:
        ReviewJob.objects.filter(pk=claim.job_id).update(compared_with=version)
        # A restart of this review compares again; a version that was reviewed later keeps its word.
        FindingRow.objects.filter(ended_in=claim.job_id).update(ending="", ended_in=None)
        for status in set(result.endings.values()):
            ended = [before[index].pk for index, one in result.endings.items() if one is status]
            FindingRow.objects.filter(pk__in=ended, ended_in=None).update(
                ending=status, ended_in=claim.job_id
            )

    return write


def _recognise(claim: StageClaim, findings: Sequence[FindingRow], taken: Sequence[UUID]) -> None:
    """Give `findings` the identity of earlier ones of the same text that people have judged.

    A version in between may not have reported them, and a restart of this review stores new rows.
    """
    if not findings:
        return
    versions = ReviewJob.objects.get(pk=claim.job_id).versions()
    judged = FindingRow.objects.filter(
        has_verdict((*VERDICTS, FindingEventKind.UNDONE)),
        job__in=versions.filter(review_version__lte=claim.review_version),
    ).exclude(identity__in=taken)
    newest = {row.identity: row for row in judged.order_by("pk")[:MAX_RECOGNISED]}
    known = list(newest.values())
    result = compared(
        [as_reported(row) for row in findings],
        [as_reported(row) for row in known],
        {},
        {},
        range(len(known)),
    )
    for index, partner in result.partners.items():
        findings[index].identity = known[partner].identity


def keep_critical_shown(findings: Sequence[FindingRow]) -> None:
    """Separate findings that have become critical from a dismissal by one person (G411).

    Runs in the commit that stores them, so a dismissal of an earlier version meanwhile waits for it.
    """
    critical = [row for row in findings if row.severity == FindingSeverity.CRITICAL]
    hold_verdicts(row.identity for row in critical)
    verdicts = verdicts_of(row.identity for row in critical) if critical else {}
    for row in critical:
        verdict = verdicts.get(row.identity)
        if verdict is not None and verdict.is_dismissal and not verdict.is_by_two:
            row.identity = uuid4()


def _reviewed_before(claim: StageClaim) -> ReviewJob | None:
    """Return the newest earlier version that was reviewed."""
    versions = ReviewJob.objects.get(pk=claim.job_id).versions()
    earlier = versions.filter(
        review_version__lt=claim.review_version,
        stages__stage=Stage.LLM,
        stages__status=StageStatus.SUCCEEDED,
    )
    return earlier.order_by("-review_version").first()
