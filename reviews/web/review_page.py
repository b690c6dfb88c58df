"""Contents of the review page. Every query here is bounded."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Case, Count, Max, QuerySet, Value, When
from django.urls import reverse

from criticizer.models import OutboxMessage
from criticizer.resilience.failures import PLACE_NAMES, Component, kind_with_code
from deadletters.models import DeadLetter
from deadletters.states import OPEN_LETTER
from notifications.config import host
from notifications.models import Delivery
from notifications.providers.payload import linkable
from notifications.rendering.report import ExcerptLine, ReportFinding
from notifications.rendering.summary import ReadFiles
from notifications.states import DeliveryStatus
from reviews import fixes
from reviews.models import (
    Attempt,
    CoverageRow,
    FindingEvent,
    FindingFate,
    FindingRow,
    HostChange,
    HostVersion,
    ReviewJob,
    StageRun,
)
from reviews.pipeline import AGGREGATE, why_not_acceptable
from reviews.recipients.scopes import EVERYTHING, Scope
from reviews.reports import banner_within, limited_to
from reviews.reviewers.base import SEVERITY_ORDER, CoverageStatus, Fate, FindingSeverity, Side
from reviews.sources import pull
from reviews.states import AttemptOutcome, JobStatus, Stage, StageStatus
from reviews.verdicts import DISMISSED, NOTHING_SAID, Said, said_about, severity_or_dismissed
from reviews.web.budget import Budget
from reviews.web.changed_words import MAX_COMPARED
from reviews.web.highlight import CodeRow, excerpt_rows
from reviews.web.labels import took
from reviews.web.outcomes import Outcome
from reviews.web.rerun import newer_than
from reviews.web.review_list import hidden_files, in_stage_order, worst_first

MAX_FINDINGS = 200
MAX_FILES = 1000
MAX_ATTEMPTS = 25
MAX_VERSIONS = 20
MAX_DELIVERIES = 100

_WORST_FIRST = Case(*(When(severity=name, then=rank) for name, rank in SEVERITY_ORDER.items()), default=9)
_UNMERGED = {HostChange.State.OPEN, HostChange.State.DRAFT}
_LEAST_COVERED_FIRST = Case(
    When(status=CoverageStatus.SKIPPED, then=0),
    When(status=CoverageStatus.PARTIAL, then=1),
    When(status=CoverageStatus.CHECKED, then=2),
    default=3,
)


@dataclass(frozen=True, slots=True)
class Notice:
    """A banner above the review. `kind` is info, warn or danger."""

    kind: str
    text: str
    hint: str = ""
    url: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class PullView:
    """The pull request of a review, as its host reported it last. `newer_head`: "" unless there is one."""

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
        f"{change.full_name}#{change.number}",
        change.get_state_display(),
        version.head_sha,
        change.head_sha if is_newer else "",
        mergeable,
    )


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage with its newest attempts and the reason of its last failure."""

    run: StageRun
    attempts: Sequence[Attempt]
    trouble: str
    has_ended: bool  # its review: nothing is pending any more
    waits_for: str = ""  # display name of a dependency that may not be called now

    @property
    def number(self) -> int:
        return in_stage_order(self.run) + 1

    @property
    def word(self) -> str:
        is_left = self.has_ended and self.run.status == StageStatus.PENDING
        return "Not run" if is_left else self.run.get_status_display()

    @property
    def is_running(self) -> bool:
        return self.run.status == StageStatus.RUNNING


@dataclass(frozen=True)
class FindingView:
    """A finding with its excerpt; without one beside the diff that has its lines."""

    row: FindingRow
    said: Said
    address: str  # of its own page
    words: Budget  # of all findings in the page
    is_in_diff: bool = False
    is_brief: bool = False  # of a folded file: it is whole when the file is opened, and on its own page

    @property
    def is_dismissed(self) -> bool:
        return self.said.verdict is not None and self.said.verdict.is_dismissal

    @property
    def where(self) -> str:
        """Return such as `//depot/a.c:12 (before the change)`."""
        row = self.row
        if row.line is None:
            return row.file
        end = f"\N{EN DASH}{row.end_line}" if row.end_line and row.end_line != row.line else ""
        return f"{row.file}:{row.line}{end}{' (before the change)' if row.side == Side.OLD else ''}"

    @property
    def found_by(self) -> str:
        return "the language model" if self.row.source == "llm" else self.row.source

    @cached_property
    def code(self) -> Sequence[CodeRow]:
        """Return the excerpt, made when it is shown: it costs most of a page."""
        return () if self.is_in_diff else _code(self.row, self.words)

    @cached_property
    def suggestion(self) -> Sequence[fixes.Part]:
        return fixes.parts(self.row.suggestion)

    @cached_property
    def fix(self) -> str:
        return fixes.to_paste(self.suggestion)

    @cached_property
    def has_patch(self) -> bool:
        return bool(fixes.patch_of(self.row, self.suggestion))


@dataclass(frozen=True, slots=True)
class FindingGroup:
    severity: str
    findings: Sequence[FindingView]


_FATES = {
    Fate.SHOWN: "shown",
    Fate.CARRIED: "taken over",
    Fate.DEMOTED: "shown without a line",
    Fate.FOLDED: "folded",
    Fate.MERGED: "merged",
    Fate.REFUTED: "refuted",
}


@dataclass(frozen=True, slots=True)
class Ledger:
    """How the raw findings of the review ended; `refuted` is for those who see every file."""

    counts: Sequence[tuple[str, str, int]] = ()  # (fate, reason of a dropped one, number)
    refuted: Sequence[FindingFate] = ()

    @property
    def found(self) -> int:
        return sum(count for *_, count in self.counts)

    @property
    def sentence(self) -> str:
        """Return such as `13 found: 5 shown, 3 merged, 4 refuted, 1 not near a change`."""
        known = {fate: sum(n for name, _, n in self.counts if name == fate) for fate in _FATES}
        said = [f"{count} {_FATES[fate]}" for fate, count in known.items() if count]
        said += [f"{n} {reason.replace('_', ' ')}" for name, reason, n in self.counts if name == Fate.DROPPED]
        return f"{self.found} found: {', '.join(said)}"


@dataclass(frozen=True, slots=True)
class Results:
    """Findings, coverage and deliveries of a review. Dismissed findings are counted apart."""

    findings: Sequence[FindingView]  # those that are shown, worst first, in three parts:
    groups: Sequence[FindingGroup]  # findings with a line
    about_files: Sequence[FindingView]  # findings without one
    dismissed: Sequence[FindingView]
    dismissed_count: int
    severities: Sequence[tuple[str, int]]  # of those not dismissed
    finding_count: int
    files: ReadFiles
    coverage: Sequence[CoverageRow]
    deliveries: Sequence[Delivery]
    ended: Sequence[FindingRow]  # of the version before, which this one does not report

    @property
    def hidden_findings(self) -> int:
        return max(0, self.finding_count - MAX_FINDINGS)

    @property
    def hidden_files(self) -> int:
        return max(0, self.files.total - MAX_FILES)


def stages_of(job: ReviewJob, scope: Scope = EVERYTHING) -> list[StageView]:
    """Return the three stages in their order, each with its newest attempts.

    Details of attempts may name files, so only users who see every file get them.
    """
    views = []
    runs = sorted(job.stages.all(), key=in_stage_order)
    waiting = dict(
        OutboxMessage.objects.filter(aggregate_type=AGGREGATE, aggregate_id__in=[run.pk for run in runs])
        .exclude(waiting_for="")
        .values_list("aggregate_id", "waiting_for")
    )
    for run in runs:
        attempts = list(run.attempt_rows.order_by("-id")[:MAX_ATTEMPTS])
        for attempt in attempts if not scope.everything else ():
            attempt.detail = ""
        waits_for = _in_words(waiting[run.pk]) if run.pk in waiting else ""
        views.append(StageView(run, attempts, _trouble(run, attempts), not job.is_active, waits_for))
    return views


def _in_words(dependency: str) -> str:
    """Return the display name of a dependency such as `llm:openai`."""
    kind = dependency.partition(":")[0]
    places = {"p4": Component.SOURCE, "llm": Component.REVIEWER, "provider": Component.PROVIDER}
    return f"{PLACE_NAMES[places[kind]]} ({dependency})" if kind in places else dependency


def _trouble(run: StageRun, attempts: Iterable[Attempt]) -> str:
    if run.status not in {StageStatus.RETRY_WAIT, StageStatus.FAILED}:
        return ""
    code = next((attempt.code for attempt in attempts if attempt.code), "")
    kind = kind_with_code(code)
    return kind.message if kind else ""


def progress_sentence(job: ReviewJob, stages: Sequence[StageView], outcome: Outcome) -> str:
    """Return the progress as one sentence, for screen readers."""
    run = next((view.run for view in stages if view.run.status != StageStatus.SUCCEEDED), None)
    if not job.is_active or run is None:
        return f"This review has ended: {outcome.word}."
    attempt = f"attempt {run.attempts} of {run.max_attempts}"
    if run.status == StageStatus.RUNNING:
        return f"{run.get_stage_display()} is running, {attempt}."
    if run.status == StageStatus.RETRY_WAIT:
        return f"{run.get_stage_display()} failed in {attempt} and is tried again."
    if waits_for := next((view.waits_for for view in stages if view.waits_for), ""):
        return f"{run.get_stage_display()} waits for {waits_for}."
    return f"{run.get_stage_display()} waits for a worker."


def progress_line(job: ReviewJob, outcome: Outcome) -> str:
    """Return the progress in a few words: `Reviewed in 6.7 s · 3 notified`."""
    if job.is_active or job.finished_at is None:
        return "Progress"
    taken = took(job.created_at, job.finished_at)
    if job.status != JobStatus.SUCCEEDED:
        return f"{outcome.word} after {taken}"
    notified = job.deliveries.filter(status=DeliveryStatus.SENT).count()
    return f"Reviewed in {taken}" + (f" \N{MIDDLE DOT} {notified} notified" if notified else "")


def versions_of(job: ReviewJob, scope: Scope = EVERYTHING) -> list[ReviewJob]:
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


def results_of(job: ReviewJob, scope: Scope = EVERYTHING) -> Results:
    """Return findings, coverage and deliveries, worst and least covered first; only files of `scope`."""
    findings, coverage = job.findings.filter(scope.findings()), job.coverage.filter(scope.files())
    by_status = dict(coverage.order_by().values_list("status").annotate(n=Count("id")))
    views = finding_views(worst_findings(job, scope), scope)
    is_open = [view for view in views if not view.is_dismissed]
    by_severity = dict(Counter(DISMISSED if view.is_dismissed else view.row.severity for view in views))
    if len(views) == MAX_FINDINGS:  # there may be more
        counted = findings.order_by().annotate(counted=severity_or_dismissed())
        by_severity = dict(counted.values_list("counted").annotate(n=Count("id")))
    return Results(
        findings=views,
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
        coverage=list(coverage.order_by(_LEAST_COVERED_FIRST, "file")[:MAX_FILES]),
        ended=_ended(job, scope) if job.compared_with else (),
        deliveries=list(job.deliveries.order_by("recipient").defer("payload")[:MAX_DELIVERIES]),
    )


def finding_views(rows: Iterable[FindingRow], scope: Scope) -> list[FindingView]:
    """Return findings of one review with what people say about them."""
    rows = list(rows)
    said = said_about((row.identity for row in rows), scope) if rows else {}
    review, words = reverse("reviews:detail", args=[rows[0].job_id]) if rows else "", Budget(MAX_COMPARED)
    return [
        FindingView(row, said.get(row.identity, NOTHING_SAID), f"{review}findings/{row.pk}/", words)
        for row in rows
    ]


def worst_findings(job: ReviewJob, scope: Scope) -> QuerySet[FindingRow]:
    """Return the findings that a page shows."""
    return worst_first_rows(job.findings.filter(scope.findings()))[:MAX_FINDINGS]


def worst_first_rows(rows: QuerySet[FindingRow]) -> QuerySet[FindingRow]:
    return rows.order_by(_WORST_FIRST, "file", "line", "id")


def fates_of(job: ReviewJob) -> QuerySet[FindingFate]:
    """Return the fates of the raw findings of the newest run that succeeded; none where it had none."""
    newest = job.fates.order_by("-attempt_id").values_list("attempt_id", flat=True).first()
    later = Attempt.objects.filter(
        stage_run__job=job, stage_run__stage=Stage.LLM, outcome=AttemptOutcome.SUCCEEDED, pk__gt=newest or 0
    )
    return job.fates.none() if newest is None or later.exists() else job.fates.filter(attempt=newest)


def ledger_of(job: ReviewJob, scope: Scope) -> Ledger:
    """Return the ledger of the newest run."""
    fates = fates_of(job).filter(scope.files())
    word = Case(When(fate=Fate.DROPPED, then="reason"), default=Value(""))
    counts = fates.order_by().annotate(word=word).values_list("fate", "word").annotate(n=Count("id"))
    refuted = fates.filter(fate=Fate.REFUTED)[:MAX_FINDINGS] if scope.everything else ()
    return Ledger(sorted(counts), list(refuted))


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


def notices_of(job: ReviewJob, scope: Scope = EVERYTHING, *, for_operator: bool) -> list[Notice]:
    """Return the banners above the findings: what did not run, what ended the job.

    The job's own banner counts files of the whole change, so others than users who see every file only learn
    that the review is partial.
    """
    notices = []
    if job.status == JobStatus.SUPERSEDED:
        notices.append(_superseded(job, scope))
    if job.status == JobStatus.DEAD_LETTERED:
        notices += _dead_letters(job, for_operator=for_operator)
    if job.status == JobStatus.TIMED_OUT:
        notices.append(_timed_out(job, for_operator=for_operator))
    if job.status == JobStatus.CANCELLED:
        notices.append(Notice("info", "This review was cancelled.", job.status_reason))
    if job.is_late and job.status != JobStatus.TIMED_OUT:
        notices.append(Notice("warn", "This review finished after its deadline."))
    if banner := banner_within(job.banner, job.stopped, scope):
        notices.append(Notice("warn" if job.stopped else "info", banner))
    if job.series:
        notices.append(Notice("info", limited_to(job)))
    return notices


def _timed_out(job: ReviewJob, *, for_operator: bool) -> Notice:
    """Return the notice of a missed deadline, and of a late result if there is one."""
    if why_not_acceptable(job.pk):
        return Notice("danger", "This review was not finished before its deadline.", job.status_reason)
    text = "Late result: this review missed its deadline, and no recipient was notified."
    if not for_operator:
        return Notice("warn", text, "An operator can have it delivered.")
    address = reverse("admin:reviews_reviewjob_accept_late", args=[job.pk])
    return Notice(
        "warn", text, "It is for viewing only until you accept it.", address, "Accept the late result"
    )


def _superseded(job: ReviewJob, scope: Scope) -> Notice:
    newest = newer_than(job)
    text = "A newer version of this changelist was requested, so this review was stopped."
    if newest is None or not scope.jobs().filter(pk=newest.pk).exists():
        return Notice("info", text)
    address = reverse("reviews:detail", args=[newest.pk])
    return Notice("info", text, url=address, link=f"Open version {newest.review_version}")


def _dead_letters(job: ReviewJob, *, for_operator: bool) -> list[Notice]:
    """Return why the job stopped; only operators get the hint and the link to the dead letter."""
    letters = (
        job.dead_letters.filter(status__in=OPEN_LETTER)
        .order_by("-id")
        .only("id", "code", "error_class", "stage")
    )
    return [_dead_letter(letter, for_operator=for_operator) for letter in letters] or [
        Notice("danger", "This review stopped, and an operator discarded its dead letter.", job.status_reason)
    ]


def _dead_letter(letter: DeadLetter, *, for_operator: bool) -> Notice:
    kind = kind_with_code(letter.code)
    text = kind.message if kind else "This review stopped."
    if not for_operator:
        if letter.stage == Stage.NOTIFY:
            return Notice("warn", text, "The review is complete; an operator sees to its messages.")
        return Notice("danger", text, "An operator must resolve it before the review can continue.")
    return Notice(
        "danger",
        text,
        f"{kind.hint if kind else letter.error_class} ({letter.code})",
        url=reverse("admin:deadletters_deadletter_change", args=[letter.pk]),
        link="Open the dead letter",
    )
