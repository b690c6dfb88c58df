"""Contents of the review page. Every query here is bounded."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import Case, Count, Max, QuerySet, When
from django.urls import reverse

from notifications.config import host
from notifications.models import Delivery
from notifications.providers.payload import linkable
from notifications.rendering import Ending
from notifications.rendering.report import ExcerptLine, ReportFinding
from notifications.rendering.summary import ReadFiles
from reviews import fixes, linter_results
from reviews.filters import of_findings
from reviews.models import (
    CoverageRow,
    FindingEvent,
    FindingRow,
    HostChange,
    HostVersion,
    LinterResultRow,
    ReviewJob,
    RuleUse,
)
from reviews.recipients.viewing_scopes import Scope
from reviews.reviewers.base import SEVERITY_ORDER, CoverageStatus, FindingSeverity, Side
from reviews.reviewers.suggestions import Part, parts
from reviews.sources import pull
from reviews.verdicts import DISMISSED, NOTHING_SAID, Said, said_about, severity_or_dismissed
from reviews.web.budget import Budget
from reviews.web.changed_words import MAX_COMPARED
from reviews.web.highlight import CodeRow, code_rows, excerpt_rows
from reviews.web.review_list import hidden_files, worst_first
from reviews.web.within_review import ListPart, start_of, wanted_within

MAX_FINDINGS = 200
MAX_FILES = 1000  # of the tab Files
MAX_COVERED = 100
MAX_VERSIONS = 20
MAX_DELIVERIES = 100
MAX_LINTER_RESULTS = 200

_WORST_FIRST = Case(*(When(severity=name, then=rank) for name, rank in SEVERITY_ORDER.items()), default=9)
_UNMERGED = {HostChange.State.OPEN, HostChange.State.DRAFT}
_LEAST_COVERED_FIRST = Case(
    When(status=CoverageStatus.SKIPPED, then=0),
    When(status=CoverageStatus.PARTIAL, then=1),
    When(status=CoverageStatus.CHECKED, then=2),
    default=3,
)


@dataclass(frozen=True, slots=True)
class PullView:
    """The pull request of a review, as its host reported it last.

    `newer_head` is "" unless there is one.
    """

    url: str
    name: str
    state: str
    head: str
    newer_head: str
    mergeable: str


def pull_of(job: ReviewJob) -> PullView | None:
    """Return the pull request that a job reviews; None for other changes."""
    if pull.depot_prefix(job.changelist_id) is None:
        return None
    version = HostVersion.objects.select_related("change").filter(job=job).first()
    if version is None:
        return None
    change = version.change
    is_newer = change.head_sha != version.head_sha
    can_be_merged = change.is_mergeable if change.state in _UNMERGED else None
    mergeable = {True: "can be merged", False: "has conflicts", None: ""}[can_be_merged]
    return PullView(
        linkable(host(change.host).pull_url(change.full_name, change.number)),
        str(change),
        change.get_state_display(),
        version.head_sha,
        change.head_sha if is_newer else "",
        mergeable,
    )


@dataclass(frozen=True)
class FindingView:
    """A finding with its excerpt; without one beside the diff that has its lines."""

    row: FindingRow
    said: Said
    address: str  # of its own page
    words: Budget  # of all findings in the page
    rule_text: str = ""  # of the team's rule that it cites
    is_in_diff: bool = False
    is_brief: bool = False  # of a folded file: it is whole when the file is opened, and on its own page

    @property
    def is_dismissed(self) -> bool:
        return self.said.verdict is not None and self.said.verdict.is_dismissal

    @property
    def where(self) -> str:
        """Return a text such as `//depot/a.c:12 (before the change)`."""
        row = self.row
        if row.line is None:
            return row.file
        end = f"\N{EN DASH}{row.end_line}" if row.end_line and row.end_line != row.line else ""
        return f"{row.file}:{row.line}{end}{' (before the change)' if row.side == Side.OLD else ''}"

    @cached_property
    def code(self) -> Sequence[CodeRow]:
        """Return the excerpt, made when it is shown: it costs most of a page."""
        return () if self.is_in_diff else _code(self.row, self.words)

    @cached_property
    def suggestion(self) -> Sequence[Part]:
        """Return the suggestion without the code that `fix` shows."""
        found = parts(self.row.suggestion)
        return [part for part in found if not part.is_code] if self.row.edit else found

    @cached_property
    def fix(self) -> Sequence[CodeRow]:
        """Return a proven suggestion as a diff of the reviewed side."""
        edit = self.row.proven_edit
        return code_rows(self.row.file, fixes.diff_rows(edit), budget=self.words) if edit else ()

    @property
    def new_lines(self) -> str:
        edit = self.row.proven_edit
        return "\n".join(edit.new) if edit else ""


@dataclass(frozen=True, slots=True)
class FindingGroup:
    severity: str
    findings: Sequence[FindingView]


@dataclass(frozen=True, slots=True)
class Results:
    """Findings, coverage and deliveries of a review. Dismissed findings are counted apart."""

    findings: ListPart[FindingView]  # a page of those that match, worst first, in three parts:
    groups: Sequence[FindingGroup]  # findings with a line
    about_files: Sequence[FindingView]  # findings without one
    dismissed: Sequence[FindingView]
    dismissed_count: int
    severities: Sequence[tuple[str, int]]  # of those not dismissed
    finding_count: int
    files: ReadFiles
    coverage: ListPart[CoverageRow]
    deliveries: Sequence[Delivery]
    ended: Sequence[FindingRow]  # of the version before, which this one does not report
    ended_unread: int  # of these, in files that this version did not read
    rules: Sequence[RuleUse]
    linter_results: Sequence[LinterResultRow]
    linter_count: int

    @property
    def all_rows(self) -> list[FindingRow] | None:
        """Return the findings, if the page has them all."""
        is_whole = len(self.findings.rows) == self.finding_count
        return [view.row for view in self.findings.rows] if is_whole else None


def versions_of(job: ReviewJob, scope: Scope) -> list[ReviewJob]:
    """Return the newest versions of the job's changelist, newest first."""
    same = job.versions().filter(scope.of_jobs()).only("id", "review_version", "status")
    return list(same.order_by("-review_version")[:MAX_VERSIONS])


def results_revision(job: ReviewJob) -> str:
    """Return a digest of all that the results and the head read; cheap enough for every second."""
    deliveries = job.deliveries.order_by("id").values_list("id", "status", "attempts", "error_class")
    facts = (
        *(job.status, job.status_reason, job.banner, job.title, job.author, job.is_late),
        job.findings.order_by().aggregate(n=Count("id"), last=Max("id")),
        job.coverage.order_by().aggregate(n=Count("id"), last=Max("id")),
        FindingEvent.objects.filter(identity__in=job.findings.values("identity")).aggregate(last=Max("id")),
        list(deliveries[:MAX_DELIVERIES]),
        list(job.dead_letters.order_by("id").values_list("id", "status")),
        job.versions().aggregate(newest=Max("review_version")),
        pull_of(job),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def results_of(job: ReviewJob, scope: Scope, query: Mapping[str, str] = {}) -> Results:
    """Return findings, coverage and deliveries of a review, only for files of `scope`.

    The worst findings and the least covered files come first. `query`: the filter and the page of the address
    (guarantee G450).
    """
    findings, coverage = job.findings.filter(scope.findings()), job.coverage.filter(scope.files())
    wanted, start = wanted_within(query), start_of(query, "findings")
    views = finding_views(worst_findings(job, scope, wanted, start), scope)
    is_open = [view for view in views if not view.is_dismissed]
    by_severity = dict(Counter(DISMISSED if view.is_dismissed else view.row.severity for view in views))
    matching = len(views)
    if wanted or start or matching == MAX_FINDINGS:  # there may be more
        counted = findings.order_by().annotate(counted=severity_or_dismissed())
        by_severity = dict(counted.values_list("counted").annotate(n=Count("id")))
        matching = findings.filter(of_findings(wanted)).count() if wanted else sum(by_severity.values())
    reported = list(linter_results.visible(job.pk, scope).order_by("file", "line", "pk"))  # bounded by intake
    first_file = start_of(query, "coverage")
    covered = list(coverage.order_by(_LEAST_COVERED_FIRST, "file")[first_file : first_file + MAX_COVERED])
    by_status: dict[str, int] = Counter(row.status for row in covered)
    if first_file or len(covered) == MAX_COVERED:  # there may be more
        by_status = dict(coverage.order_by().values_list("status").annotate(n=Count("id")))
    ended = _ended(job, scope) if job.compared_with else ()
    return Results(
        findings=ListPart(views, start, matching),
        groups=[
            FindingGroup(severity, found)
            for severity in FindingSeverity
            if (found := [v for v in is_open if v.row.severity == severity and v.row.line is not None])
        ],
        about_files=[view for view in is_open if view.row.line is None],
        dismissed=[view for view in views if view.is_dismissed],
        dismissed_count=by_severity.get(DISMISSED, 0),
        severities=worst_first(by_severity),
        finding_count=sum(by_severity.values()),
        files=ReadFiles.count(by_status, hidden_files([job.pk], scope).get(job.pk, 0)),
        coverage=ListPart(covered, first_file, sum(by_status.values())),
        ended=ended,
        ended_unread=sum(row.ending == Ending.NOT_READ for row in ended),
        deliveries=list(job.deliveries.order_by("recipient").defer("payload")[:MAX_DELIVERIES]),
        linter_results=reported[:MAX_LINTER_RESULTS],
        linter_count=len(reported),
        rules=[use for use in _uses(job.pk) if not use.name.startswith("//") or scope.allows(use.name)],
    )


def _uses(job_id: int) -> QuerySet[RuleUse]:
    return RuleUse.objects.filter(job=job_id).order_by("pk")


def finding_views(rows: Iterable[FindingRow], scope: Scope) -> list[FindingView]:
    """Return findings of one review with what people say about them."""
    rows = list(rows)
    cited = {row.rule for row in rows if row.rule}
    texts = dict(_uses(rows[0].job_id).filter(name__in=cited).values_list("name", "text")) if cited else {}
    states = said_about((row.identity for row in rows), scope) if rows else {}
    review, words = reverse("reviews:detail", args=[rows[0].job_id]) if rows else "", Budget(MAX_COMPARED)
    return [
        FindingView(
            row,
            states.get(row.identity, NOTHING_SAID),
            f"{review}findings/{row.pk}/",
            words,
            texts.get(row.rule, ""),
        )
        for row in rows
    ]


def worst_findings(
    job: ReviewJob, scope: Scope, wanted: Mapping[str, Any] = {}, start: int = 0
) -> QuerySet[FindingRow]:
    """Return the findings that a page shows after the first `start`.

    `wanted` is as in `wanted_within`.
    """
    rows = worst_first_rows(job.findings.filter(scope.findings(), of_findings(wanted)))
    return rows[start : start + MAX_FINDINGS]


def worst_first_rows(rows: QuerySet[FindingRow]) -> QuerySet[FindingRow]:
    return rows.order_by(_WORST_FIRST, "file", "line", "id")


def _ended(job: ReviewJob, scope: Scope) -> Sequence[FindingRow]:
    rows = job.ended_findings.filter(scope.findings()).defer("excerpt")
    return list(rows.order_by("ending", _WORST_FIRST, "file", "line", "id")[:MAX_FINDINGS])


def _code(row: FindingRow, words: Budget) -> Sequence[CodeRow]:
    """Return the finding's excerpt with its own lines marked, by the rule of the messages."""
    finding = ReportFinding(
        row.file, row.severity, row.title, row.message, line=row.line, end_line=row.end_line, side=row.side
    )
    return excerpt_rows(
        row.file, row.excerpt, lambda number, kind: finding.covers(ExcerptLine("", kind, number)), words
    )
