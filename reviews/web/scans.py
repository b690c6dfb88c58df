"""Pages of documentation scans: the scanned paths, what was found, history and trend."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db.models import Count, Max, Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404, render
from django.template.loader import render_to_string
from django.urls import reverse

from criticizer import texts
from criticizer.admin_site import charts
from criticizer.admin_site.charts import Chart, Series
from criticizer.live_pages import BUSY_SECONDS, with_live_headers
from criticizer.resilience.failures import Failure
from reviews import scans
from reviews.drift import wording
from reviews.drift.claims import Verdict
from reviews.intake import review_requests
from reviews.intake import scans as intake
from reviews.models import Scan, ScanDocument, ScanTarget
from reviews.recipients.viewing_scopes import Scope, scope_of
from reviews.roles import READ, REQUEST
from reviews.states import ACTIVE_JOB, JobStatus
from reviews.web.actions import too_many
from reviews.web.reader_page import POST, page_for, reader_page
from reviews.web.scan_claims import ClaimRow, finding_about, findings_of

PAGE_DOCUMENTS = 25
PAGE_TARGETS = 200
COMPARED = 10  # scans, in which the time is looked up since when a claim has its verdict

_NONE = "nothing verifiable"
_WORDS = {"holds": "hold", "refuted": "refuted", "ambiguous": "ambiguous", "uncheckable": "not checkable"}
_CLAIMS_THAT = {
    "holds": "hold", "refuted": "are refuted", "ambiguous": "are ambiguous",
    "uncheckable": "are not checkable",
}  # fmt: skip
# Conclusion -> its words: "failure" would be read as a failed scan.
_CONCLUSIONS = {"success": "up to date", "failure": "out of date", "neutral": "undecided", "": "running"}
# Verdict or conclusion -> CSS state with the same meaning (states.css).
_LOOKS = {
    "holds": "verified", "refuted": "failed", "ambiguous": "ambiguous", "uncheckable": "skipped",
    "success": "verified", "failure": "failed", "neutral": "partial",
}  # fmt: skip
_SERIES = {"refuted": "s-danger", "holds": "s-ok", "ambiguous": "s-warn", "uncheckable": "s-muted"}


@dataclass(frozen=True, slots=True)
class ScanRow:
    """A scan in a list. `look` is the state that its conclusion is drawn as."""

    scan: Scan
    result: scans.ScanResult
    conclusion: str
    look: str

    @property
    def health(self) -> str:
        return health_in_words(self.result)

    @property
    def label(self) -> str:
        return _CONCLUSIONS[self.conclusion]

    @property
    def meaning(self) -> str:
        """Return in a sentence why it ended so, or "" while it runs."""
        if not self.conclusion:
            return ""
        refuted = self.result.counts[Verdict.REFUTED]
        if self.conclusion != "neutral":
            return (
                f"Every claim was verified, and {refuted or 'none'} {'are' if refuted > 1 else 'is'} refuted."
            )
        if self.scan.job.status != JobStatus.SUCCEEDED:
            return "It neither passed nor failed: the scan did not finish."
        if self.is_empty:
            return "It neither passed nor failed: no document was read."
        if self.result.is_partial:
            return "It neither passed nor failed: not every claim was verified."
        if not self.result.is_whole:
            return "It neither passed nor failed: not every document and statement was read."
        return "It neither passed nor failed: no claim could be decided."

    @property
    def is_empty(self) -> bool:
        """Return whether the scan ended without having read any document."""
        return bool(self.conclusion) and self.result.documents == self.result.unread

    @property
    def note(self) -> str:
        """Return what an ended scan lacks, or "": the job may have ended before it stored this."""
        if not self.conclusion:
            return ""
        if self.result.is_partial:
            return texts.SCAN_PARTIAL.of(verified=self.result.verified, total=self.result.total)
        missing = wording.left_out(
            {"unread": self.result.unread, "left_out": self.result.left_out, "cut": self.result.cut}
        )
        return " ".join(filter(None, (wording.scan_note(self.scan.job.documents), missing)))


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A scanned path with its newest scan, if there is one."""

    target: ScanTarget
    newest: ScanRow | None


@dataclass(frozen=True, slots=True)
class DocumentRow:
    document: ScanDocument
    claims: Sequence[ClaimRow]


def health_in_words(result: scans.ScanResult) -> str:
    """Return the health for people."""
    return _NONE if result.health is None else f"{result.health}%"


@reader_page
def scan_targets(request: HttpRequest) -> HttpResponse:
    """List the scanned paths of which the reader may see every file.

    The page begins after the path `after`.
    """
    after = request.GET.get("after", "")[:1024]
    seen = scans.targets_in(scope_of(request.user)).filter(path__gt=after).order_by("path")
    found = list(seen.annotate(newest=Max("scans__job"))[: PAGE_TARGETS + 1])
    targets = found[:PAGE_TARGETS]
    rows = {row.scan.pk: row for row in _rows([target.newest for target in targets if target.newest])}
    context = {
        "rows": [TargetRow(target, rows.get(target.newest)) for target in targets],
        "more": targets[-1].path if len(found) > PAGE_TARGETS else None,
        "is_first": not after,
    }
    return render(request, "reviews/scans.html", context)


@reader_page
def scan_target(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one scan of a path by document: the newest, or the one that `scan` names."""
    target = _target_or_404(request, pk)
    revision = _revision(target)  # read first: a change in between is fetched again rather than missed
    context = _target_context(request, target)
    live = {"live_seconds": BUSY_SECONDS if context["is_active"] else 0, "live_have": revision}
    return render(request, "reviews/scan.html", {**context, **live, "kept": _kept(request.GET).urlencode()})


@reader_page
def scan_target_live(request: HttpRequest, pk: int) -> HttpResponse:
    """Return what the page of a path shows now, or 204 when the reader has it already."""
    target = _target_or_404(request, pk)
    revision = _revision(target)
    shown = copy(request)
    shown.GET = _kept(request.GET)  # type: ignore[assignment]  # links are those of the page
    if request.GET.get("have") == revision:
        is_active = target.scans.filter(job__status__in=ACTIVE_JOB).exists()
        response = HttpResponse(status=204)
    else:
        context = _target_context(shown, target)
        is_active = context["is_active"]
        html = render_to_string("_workers.html", {}, shown)
        response = HttpResponse(html + render_to_string("reviews/_scan.html", context, shown))
    return with_live_headers(response, revision, BUSY_SECONDS if is_active else 0)


def _revision(target: ScanTarget) -> str:
    """Return a digest of what the page of a path reads; cheap enough for every second."""
    scans_now = list(target.scans.order_by("-job_id").values_list("pk", "job__status")[: scans.KEPT_SCANS])
    documents = ScanDocument.objects.filter(scan__in=[pk for pk, _ in scans_now])
    seen = documents.aggregate(
        stored=Count("pk"),
        verified=Count("verified_at"),
        unread=Count("pk", filter=~Q(unread="")),
        last=Max("verified_at"),
    )
    return hashlib.sha256(repr((scans_now, seen, target.problem)).encode()).hexdigest()[:16]


def _kept(query: Mapping[str, str]) -> QueryDict:
    """Return what an address says of the scan, the verdict and the page of documents."""
    kept = QueryDict(mutable=True)
    kept.update({name: query[name] for name in ("scan", "verdict", "after") if query.get(name)})
    return kept


def _target_context(request: HttpRequest, target: ScanTarget) -> dict[str, Any]:
    ids = list(target.scans.order_by("-job_id").values_list("pk", flat=True)[: scans.KEPT_SCANS])
    history = _rows(ids)
    chosen = _chosen(request.GET.get("scan", ""), history)
    verdict = request.GET.get("verdict", "")
    verdict = verdict if verdict in _WORDS else ""
    context: dict[str, Any] = {
        "target": target,
        "history": history,
        "chosen": chosen,
        "empty_newest": _empty_newest(request.GET.get("scan", ""), history, chosen),
        "verdict": verdict,
        "claims_that": _CLAIMS_THAT.get(verdict, ""),
        "may_scan": request.user.has_perm(REQUEST),
        "is_active": any(row.scan.job.status in ACTIVE_JOB for row in history),
    }
    if chosen is not None:
        context |= {
            "verdicts": [(name, _WORDS[name], chosen.result.counts[name]) for name in _WORDS],
            "part": _documents(
                chosen.scan, verdict, request.GET.get("after", ""), ids, scope_of(request.user)
            ),
            "charts": _trend(history, reverse("reviews:scan-target", args=[target.pk])),
        }
    return context


@page_for(READ, REQUEST, methods=POST)
def scan_now(request: HttpRequest, pk: int) -> HttpResponse:
    """Request a scan of a path; a form that is sent twice requests one."""
    target = _target_or_404(request, pk)
    there = HttpResponseRedirect(reverse("reviews:scan-target", args=[pk]))
    if problem := too_many(request.user):
        messages.warning(request, f"Nothing was requested. {problem}")
        return there
    newest = target.scans.aggregate(newest=Max("job_id"))["newest"] or 0
    try:
        key = review_requests.signed(f"page:{target.pk}:after {newest}")
        answer = intake.request(target, key, request.user.get_username())
    except ScanTarget.DoesNotExist as error:
        raise Http404 from error
    except Failure as failure:
        messages.error(request, f"Nothing was requested: {failure.detail}.")
        return there
    if answer.is_new:
        messages.success(request, "The scan is requested. Its documents appear here as they are verified.")
    else:
        messages.warning(request, "Nothing was requested: this path is being scanned already.")
    return there


def _target_or_404(request: HttpRequest, pk: int) -> ScanTarget:
    return get_object_or_404(scans.targets_in(scope_of(request.user)), pk=pk)


def _rows(ids: Sequence[int]) -> list[ScanRow]:
    """Return scans, the newest first."""
    results = scans.results_of(ids)
    found = []
    for scan in Scan.objects.filter(pk__in=ids).select_related("job").order_by("-job_id"):
        conclusion = scans.conclusion_of(scan.job, results[scan.pk]) or ""
        found.append(ScanRow(scan, results[scan.pk], conclusion, _LOOKS.get(conclusion, "running")))
    return found


def _chosen(wanted: str, history: Sequence[ScanRow]) -> ScanRow | None:
    """Return the scan that is asked for, by default the newest that has documents.

    Where none has documents, the newest.
    """
    if wanted:
        named = [row for row in history if str(row.scan.pk) == wanted]
        if not named:
            raise Http404
        return named[0]
    with_documents = (row for row in history if row.result.documents)
    return next(with_documents, history[0] if history else None)


def _empty_newest(wanted: str, history: Sequence[ScanRow], chosen: ScanRow | None) -> ScanRow | None:
    """Return the newest scan that ended, if it read nothing and an older one is shown."""
    ended = next((row for row in history if row.conclusion), None)
    is_before = ended is not None and chosen is not None and chosen.scan.pk < ended.scan.pk
    return ended if is_before and not wanted else None


def _documents(scan: Scan, verdict: str, after: str, ids: Sequence[int], scope: Scope) -> dict[str, Any]:
    """Return a page of a scan's documents: those with a claim of the verdict, or all."""
    place = int(after) if after.isdecimal() and len(after) <= 18 else 0
    rows = scan.documents.filter(pk__gt=place).order_by("pk")
    if verdict:
        rows = rows.filter(**{f"{verdict}__gt": 0})
    found = list(rows[: PAGE_DOCUMENTS + 1])
    shown = found[:PAGE_DOCUMENTS]
    since, reported = _since(scan, shown, ids), findings_of(scan, shown, scope)
    return {
        "rows": [
            DocumentRow(
                row,
                [
                    ClaimRow(
                        claim,
                        _LOOKS[claim["verdict"]],
                        since[row.digest, claim["id"]],
                        finding_about(claim, row, reported),
                    )
                    for claim in row.claims
                    if verdict in ("", claim["verdict"])
                ],
            )
            for row in shown
        ],
        "more": shown[-1].pk if len(found) > PAGE_DOCUMENTS else None,
        "is_first": not place,
    }


def _since(scan: Scan, rows: Sequence[ScanDocument], ids: Sequence[int]) -> dict[tuple[str, str], datetime]:
    """Return the time since which each claim has its verdict.

    Keys are the digest of the claim's document and the claim's id.
    """
    older = [pk for pk in ids if pk < scan.pk][:COMPARED]
    at = dict(Scan.objects.filter(pk__in=[scan.pk, *older]).values_list("pk", "job__created_at"))
    verdicts: dict[tuple[str, str], str] = {
        (row.digest, claim["id"]): claim["verdict"] for row in rows for claim in row.claims
    }
    found: dict[tuple[str, str], datetime] = dict.fromkeys(verdicts, at[scan.pk])
    open_ones = set(verdicts)
    before = ScanDocument.objects.filter(
        scan__in=older, digest__in=[row.digest for row in rows], verified_at__isnull=False
    )
    for row in before.order_by("-scan_id"):
        told = {(row.digest, claim["id"]): claim["verdict"] for claim in row.claims}
        for key in [key for key in open_ones if key[0] == row.digest]:
            if told.get(key) == verdicts[key]:
                found[key] = at[row.scan_id]
            else:
                open_ones.discard(key)
    return found


def _trend(history: Sequence[ScanRow], path: str) -> list[Chart]:
    """Return the health and the verdicts of the scans that ended, the oldest first."""
    ended = [row for row in reversed(history) if row.conclusion]
    slots = _labels([row.scan.job.created_at for row in ended])
    links = [f"{path}?scan={row.scan.pk}" for row in ended]
    health = Series("health", "s-1", [row.result.health for row in ended], links=links)
    counted = [
        Series(_WORDS[name], look, [row.result.counts[name] for row in ended], links=links)
        for name, look in _SERIES.items()
    ]
    sentence = "Share of held and refuted claims that hold, by scan"
    return [
        charts.lines(
            "health",
            "Documentation health",
            slots,
            [health],
            lambda value: f"{value:.0f}%",
            sentence,
            top=100,
        ),
        charts.stacked_bars("verdicts", "Claims by verdict", slots, counted),
    ]


def _labels(times: Sequence[datetime]) -> list[str]:
    """Return the labels of scans on an axis: days, with the time of day where a day has several."""
    days = [f"{at:%d %b}" for at in times]
    if len(set(days)) == len(days):
        return days
    return [f"{at:%H:%M}" if len(set(days)) == 1 else f"{at:%d %b %H:%M}" for at in times]
