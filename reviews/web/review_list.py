"""The reviews list: pages of jobs, newest first, with their findings and coverage counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from django import forms
from django.db.models import Count, Exists, OuterRef, QuerySet

from criticizer.db.query_limits import NO_PARALLEL_WORKERS, StatementTimeout, statement_timeout
from notifications.rendering.summary import ReadFiles
from reviews.filters import MAX_TEXT, FindingFilter, of_reviews
from reviews.models import CoverageRow, FindingRow, ReviewJob, StageRun
from reviews.recipients.viewing_scopes import Scope
from reviews.reviewers.base import FindingSeverity
from reviews.search import in_states, jobs_with_file, named, words_of_jobs
from reviews.states import STAGE_ORDER, Stage, StageStatus
from reviews.verdicts import DISMISSED, severity_or_dismissed
from reviews.web.labels import STATES_FOR_READERS
from reviews.web.outcomes import Outcome, outcomes

log = structlog.get_logger(__name__)

PAGE_SIZE = 50
PAGE_MILLISECONDS = 3_000  # a slower query is cancelled, and the page says so
MAX_WORDS = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class ReviewFilter(FindingFilter):
    """Filter of the reviews list."""

    changelist = forms.CharField(max_length=128, required=False)
    status = forms.ChoiceField(choices=[("", "Any status"), *STATES_FOR_READERS], required=False)
    text = forms.CharField(
        max_length=MAX_TEXT,
        required=False,
        label="Words",
        help_text="Of the title, the author, a path or a commit's hash.",
    )
    every = forms.BooleanField(required=False, label="Every version")
    field_order = ("changelist", "status", "text")
    IN_SIGHT = field_order


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the list: a job's `(created_at, id)`, written `<microseconds>-<id>`."""

    created_at: datetime
    job_id: int

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """Read a cursor from an address; None for anything that is not one."""
        micros, _, job_id = text.partition("-")
        if not (micros.isascii() and micros.isdigit() and job_id.isascii() and job_id.isdigit()):
            return None
        if len(micros) > 17 or len(job_id) > 18:
            return None
        return cls(_EPOCH + int(micros) * _MICROSECOND, int(job_id))

    @classmethod
    def of(cls, job: ReviewJob) -> Cursor:
        return cls(job.created_at, job.pk)

    def __str__(self) -> str:
        return f"{(self.created_at - _EPOCH) // _MICROSECOND}-{self.job_id}"


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A row of the list.

    `severities` holds those that occur, worst first, without `dismissed` ones.
    """

    job: ReviewJob
    severities: Sequence[tuple[str, int]]
    dismissed: int
    files: ReadFiles
    stage: StageRun | None  # the current one, of an active job
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page. `newer` and `older` are cursors, or None at the ends."""

    rows: list[ListedJob] = field(default_factory=list)
    newer: Cursor | None = None
    older: Cursor | None = None
    is_first: bool = True
    is_cancelled: bool = False  # the query took too long

    @property
    def has_active(self) -> bool:
        return any(row.job.is_active for row in self.rows)


def matching(
    wanted: Mapping[str, Any], user: Any, scope: Scope, after: str = "", before: str = ""
) -> ListPage:
    """Return a page of the reviews, as `ReviewFilter` narrows them.

    They are older than the cursor `after`, or newer than the cursor `before`. Of each changelist the newest
    version is found, or every version where all or one changelist are asked for. Each word of `text` begins a
    word of the title or the author; a single one may be the name of a file instead. Only jobs and files of
    `scope` are found, shown and counted.
    """
    changelist, status, text = (wanted.get(name, "") for name in ("changelist", "status", "text"))
    narrowed = of_reviews(wanted, user, scope)
    jobs = scope.jobs().defer("recipients", "usage")
    if changelist:
        jobs = jobs.filter(named(changelist))
    elif "every" not in wanted:
        newer = scope.jobs().filter(
            changelist_id=OuterRef("changelist_id"),
            series=OuterRef("series"),
            review_version__gt=OuterRef("review_version"),
        )
        jobs = jobs.filter(~Exists(newer))
    if status:
        jobs = jobs.filter(in_states([status]))
    if text:
        words = text.split()[:MAX_WORDS]
        jobs = jobs.filter(words_of_jobs(words, jobs_with_file(words, scope.files())))
    jobs = jobs.filter(narrowed)
    is_narrowed = changelist or status or text or narrowed or not scope.everything
    try:
        with statement_timeout(PAGE_MILLISECONDS, NO_PARALLEL_WORKERS) if is_narrowed else nullcontext():
            return _page(jobs, scope, after, before)
    except StatementTimeout:
        log.warning("reviews_list_took_too_long", text=bool(text), status=status)
        return ListPage(is_first=False, is_cancelled=True)


def _page(jobs: QuerySet[ReviewJob], scope: Scope, after: str, before: str) -> ListPage:
    if (start := Cursor.parse(before)) is not None:
        # Each bound is given twice: the filter can use the index, the exclusion is exact.
        newer = jobs.filter(created_at__gte=start.created_at).exclude(
            created_at=start.created_at, id__lte=start.job_id
        )
        found = list(newer.order_by("created_at", "id")[: PAGE_SIZE + 1])
        has_newer, has_older = len(found) > PAGE_SIZE, True
        found = found[:PAGE_SIZE][::-1]
    else:
        if (start := Cursor.parse(after)) is not None:
            jobs = jobs.filter(created_at__lte=start.created_at).exclude(
                created_at=start.created_at, id__gte=start.job_id
            )
        found = list(jobs.order_by("-created_at", "-id")[: PAGE_SIZE + 1])
        has_newer, has_older = start is not None, len(found) > PAGE_SIZE
        found = found[:PAGE_SIZE]
    return ListPage(
        rows=listed(found, scope),
        newer=Cursor.of(found[0]) if found and has_newer else None,
        older=Cursor.of(found[-1]) if found and has_older else None,
        is_first=start is None,
    )


def listed(jobs: Sequence[ReviewJob], scope: Scope) -> list[ListedJob]:
    """Add to each job what its row shows, in a few queries whatever their number."""
    ids = [job.pk for job in jobs]
    found = FindingRow.objects.filter(scope.findings(), job__in=ids)
    findings = _counts(found.annotate(counted=severity_or_dismissed()), "counted")
    coverage = _counts(CoverageRow.objects.filter(scope.files(), job__in=ids), "status")
    hidden = hidden_files(ids, scope)
    ended = outcomes(jobs)
    stages = _current_stages([job.pk for job in jobs if job.is_active])
    return [
        ListedJob(
            job,
            severities=worst_first(findings[job.pk]),
            dismissed=findings[job.pk].get(DISMISSED, 0),
            files=ReadFiles.count(coverage[job.pk], hidden.get(job.pk, 0)),
            stage=stages.get(job.pk),
            outcome=ended[job.pk],
        )
        for job in jobs
    ]


def _counts(rows: QuerySet[Any], field: str) -> defaultdict[int, dict[str, int]]:
    """Count rows by job and value of a field."""
    counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for job_id, value, number in rows.order_by().values_list("job", field).annotate(n=Count("id")):
        counts[job_id][value] = number
    return counts


def hidden_files(job_ids: Sequence[int], scope: Scope) -> dict[int, int]:
    """Return the number of each job's files outside a scope, where there are any."""
    if scope.everything:
        return {}
    others = CoverageRow.objects.filter(~scope.files(), job__in=job_ids)
    return dict(others.order_by().values_list("job").annotate(n=Count("id")))


def worst_first(by_severity: Mapping[str, int]) -> list[tuple[str, int]]:
    return [
        (severity.value, by_severity[severity]) for severity in FindingSeverity if by_severity.get(severity)
    ]


def _current_stages(job_ids: Iterable[int]) -> dict[int, StageRun]:
    """Return each job's earliest unfinished stage."""
    unfinished = StageRun.objects.filter(job__in=list(job_ids)).exclude(status=StageStatus.SUCCEEDED)
    # Last first, so that the earliest of a job stays.
    return {run.job_id: run for run in sorted(unfinished, key=in_stage_order, reverse=True)}


def in_stage_order(run: StageRun) -> int:
    return STAGE_ORDER.index(Stage(run.stage))
