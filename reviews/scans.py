"""Results of scans of documentation, from their documents' rows, and who may see them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

from django.db.models import Count, Q, QuerySet, Sum

from notifications.rendering import Ending
from reviews.drift.claims import Verdict
from reviews.models import FindingRow, ReviewJob, Scan, ScanDocument, ScanTarget
from reviews.models.jobs import SCAN
from reviews.recipients.viewing_scopes import Scope
from reviews.states import ACTIVE_JOB, JobStatus

_IDENTITIES = UUID("0d5a0f1c-6d0e-4c0e-9a53-6a0c1f7f5b51")
KEPT_SCANS = 30  # of a path, whose claims are kept one by one; of older ones the counts
CONCLUSIONS = ("success", "neutral", "failure")


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Counts of what a scan found.

    `total` claims, of which `verified` have a verdict; `counts` are by verdict; `unread` documents. Claims
    of a document that could not be verified are in no count. `documents` and `unread` include those beyond
    the limit of a scan, which have no rows. `left_out` are statements beyond other limits, `cut` long
    sentences of which the beginning was read. `unfetched` are revisions of files that a depot was not asked
    for, or did not give.
    """

    total: int = 0
    verified: int = 0
    documents: int = 0
    unread: int = 0
    left_out: int = 0
    cut: int = 0
    unfetched: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((each.value for each in Verdict), 0))

    @property
    def is_partial(self) -> bool:
        return self.verified < self.total

    @property
    def is_whole(self) -> bool:
        """Return whether every claim that was found, in every document, was verified."""
        return not (self.is_partial or self.unread or self.left_out or self.unfetched)

    @property
    def health(self) -> int | None:
        """Return how many percent of the decided claims hold, rounded down; None where none is."""
        told = self.counts[Verdict.HOLDS] + self.counts[Verdict.REFUTED]
        return 100 * self.counts[Verdict.HOLDS] // told if told else None


def is_scan(job_id: int) -> bool:
    """Return whether a job is a scan, not the review of a change."""
    return ReviewJob.objects.filter(pk=job_id, kind=SCAN).exists()


def relate(job_id: int, findings: Sequence[FindingRow]) -> Callable[[], None]:
    """Give the findings of a scan the identities that they have in every scan of the path.

    The findings are not saved yet. So each is listed once, and a verdict on it holds for later scans. Return
    the function that ends those that are not reported any more, within the commit of the scan; of documents
    that it did not verify, none.
    """
    job = ReviewJob.objects.only("series", "documents").get(pk=job_id)
    for row in findings:
        row.identity = uuid5(_IDENTITIES, "\0".join((job.series, row.file, row.title)))
    reported = [row.identity for row in findings]
    earlier = FindingRow.objects.filter(job__series=job.series, job__lt=job_id)
    known = set(earlier.filter(identity__in=reported, ended_in=None).values_list("identity", flat=True))
    is_first = not ReviewJob.objects.filter(series=job.series, pk__lt=job_id).exists()
    for row in findings:
        row.is_new = None if is_first else row.identity not in known

    def write() -> None:
        # The lock: a deletion of the path either sees these findings, or has gone before them.
        if not Scan.objects.select_for_update(no_key=True).filter(pk=job_id).values_list("pk", flat=True):
            FindingRow.objects.filter(job=job_id).update(ending=Ending.GONE)  # no later scan can end them
            return
        FindingRow.objects.filter(ended_in=job_id).update(ending="", ended_in=None)  # of a run before this
        if not job.documents.get("unreported") and not job.documents.get("unlisted"):
            unverified = ScanDocument.objects.filter(scan=job_id, verified_at=None).values("path")
            gone = earlier.filter(ended_in=None).exclude(identity__in=reported).exclude(file__in=unverified)
            if job.documents.get("beyond"):  # which of the others are there still is not known
                verified = ScanDocument.objects.filter(scan=job_id).exclude(verified_at=None)
                gone = gone.filter(file__in=verified.values("path"))
            if job.documents.get("unfetched"):  # what cannot be told any more may still be untrue
                unclear = ScanDocument.objects.filter(scan=job_id, uncheckable__gt=0)
                gone = gone.exclude(file__in=unclear.values("path"))
            gone.update(ending=Ending.NOT_REPORTED, ended_in=job_id)

    return write


def targets_in(scope: Scope) -> QuerySet[ScanTarget]:
    """Return the scanned paths of which a reader may see every file.

    A verdict can rest on any of the files.
    """
    return ScanTarget.objects.filter(scope.within("path"))


def scans_in(scope: Scope) -> QuerySet[Scan]:
    """Return the scans of these paths, newest first."""
    scans = Scan.objects.select_related("job", "target").order_by("-job_id")
    return scans if scope.everything else scans.filter(target__in=targets_in(scope))


def results_of(scans: Collection[int]) -> dict[int, ScanResult]:
    """Return what scans found, by their job."""
    named = {f"in_{verdict}": Sum(verdict.value) for verdict in Verdict}
    rows = ScanDocument.objects.filter(scan__in=scans).order_by().values("scan")
    limited = dict(ReviewJob.objects.filter(pk__in=scans).values_list("pk", "documents"))
    found: dict[int, ScanResult] = {scan: ScanResult() for scan in scans}
    counted: Any = rows.annotate(
        of_documents=Count("pk"),
        of_unread=Count("pk", filter=~Q(unread="")),
        of_claims=Sum("total", filter=Q(unread=""), default=0),
        of_verified=Sum("total", filter=~Q(verified_at=None), default=0),
        **named,
    )
    for row in counted:
        counts = {verdict.value: row[f"in_{verdict}"] for verdict in Verdict}
        beyond, left_out, cut, unfetched = (
            limited[row["scan"]].get(name, 0) for name in ("beyond", "left_out", "cut", "unfetched")
        )
        documents, unread = row["of_documents"] + beyond, row["of_unread"] + beyond
        found[row["scan"]] = ScanResult(
            row["of_claims"], row["of_verified"], documents, unread, left_out, cut, unfetched, counts
        )
    return found


def conclusion_of(job: ReviewJob, result: ScanResult) -> str | None:
    """Return one of CONCLUSIONS, None while the scan is active.

    Neutral: not all was verified, or nothing was decided.
    """
    if job.status in ACTIVE_JOB:
        return None
    if job.status != JobStatus.SUCCEEDED or not result.is_whole or result.health is None:
        return "neutral"
    return "failure" if result.counts[Verdict.REFUTED] else "success"


def drop_old_claims(job_id: int) -> int:
    """Drop the claims of all but the newest scans of the path; return of how many documents."""
    target = Scan.objects.values_list("target", flat=True).get(pk=job_id)
    newest = Scan.objects.filter(target=target).order_by("-job_id").values_list("pk", flat=True)[:KEPT_SCANS]
    older: Any = ScanDocument.objects.filter(scan__target=target, scan__lt=min(newest)).exclude(claims=[])
    return int(older.update(claims=[]))
