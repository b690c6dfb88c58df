"""The page that compares two versions of a change: its files, and its findings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from notifications.rendering import Ending
from notifications.rendering.summary import status_in_words
from reviews.models import FindingRow, ReviewJob
from reviews.recipients.scopes import Scope, scope_of
from reviews.reviewers.prepared_codec import FileDiffText
from reviews.states import FindingStatus, Stage, StageStatus
from reviews.web.budget import Budget
from reviews.web.changed_words import MAX_COMPARED
from reviews.web.files_tab import visible_coverage, visible_diffs
from reviews.web.highlight import CodeRow, code_rows
from reviews.web.interdiff import MAX_STEPS, interdiff
from reviews.web.reader_page import reader_page
from reviews.web.review_list import hidden_files
from reviews.web.review_page import MAX_FILES, MAX_FINDINGS, versions_of, worst_first_rows

MAX_LINES = 1_500  # of all files in a page; the others are named with the number of their lines

_VERSION = re.compile(r"[0-9]{1,9}")
_WHERE = {(True, False): "no longer part of the change", (False, True): "new in this version"}


@dataclass(frozen=True, slots=True)
class ComparedFile:
    """A file that differs. `hunks` is None where its lines are not in this page."""

    number: int
    path: str
    note: str
    added: int
    removed: int
    hunks: Sequence[Sequence[CodeRow]] | None
    is_whole: bool


@dataclass(frozen=True, slots=True)
class ComparedFiles:
    """The files that differ, and how many do not."""

    different: Sequence[ComparedFile]
    same: int


@dataclass(frozen=True, slots=True)
class ComparedFinding:
    """A finding and what became of it between the versions; `status` is a `FindingStatus`."""

    row: FindingRow
    status: str
    word: str


@reader_page
def compare(request: HttpRequest, job_id: int) -> HttpResponse:
    """Show what differs between a version and the one of `?with=`, by default the version before."""
    scope = scope_of(request.user)
    job = get_object_or_404(scope.jobs(), pk=job_id)
    other = _other(job, scope, request.GET.get("with", ""))
    older, newer = sorted((job, other), key=lambda version: version.review_version)
    unreviewed = [version for version in (older, newer) if not _was_reviewed(version)]
    context = {
        "job": job,
        "other": other,
        "older": older,
        "newer": newer,
        "versions": versions_of(job, scope),
        "unreviewed": unreviewed,
        "findings": () if unreviewed else compared_findings(older, newer, scope),
        "files": compared_files(older, newer, scope),
        "hidden": max(hidden_files([older.pk, newer.pk], scope).values(), default=0),
    }
    return render(request, "reviews/compare.html", context)


def _other(job: ReviewJob, scope: Scope, wanted: str) -> ReviewJob:
    """Return the version to compare with. Raises Http404."""
    others = job.versions().filter(scope.of_jobs()).exclude(pk=job.pk)
    if _VERSION.fullmatch(wanted):
        return get_object_or_404(others, review_version=int(wanted))
    earlier = others.filter(review_version__lt=job.review_version).order_by("-review_version").first()
    if wanted or (found := earlier or others.order_by("review_version").first()) is None:
        raise Http404
    return found


def _was_reviewed(job: ReviewJob) -> bool:
    return job.stages.filter(stage=Stage.LLM, status=StageStatus.SUCCEEDED).exists()


def compared_files(older: ReviewJob, newer: ReviewJob, scope: Scope) -> ComparedFiles | None:
    """Return the files that differ between two versions; None when a diff is no longer stored."""
    before, after = _by_path(older, scope), _by_path(newer, scope)
    if before is None or after is None:
        return None
    budget, words, left = Budget(MAX_STEPS), Budget(MAX_COMPARED), MAX_LINES
    different: list[ComparedFile] = []
    paths = sorted(before.keys() | after.keys())
    for path in paths:
        old, new = before.get(path), after.get(path)
        rows = interdiff(old.hunks if old else (), new.hunks if new else (), budget)
        note = _WHERE.get((old is not None, new is not None), "")
        if not rows and not note:
            continue
        lines = sum(map(len, rows))
        is_open = lines <= left and len(different) < MAX_FILES
        left -= lines if is_open else 0
        kinds = [kind for hunk in rows for _, kind, _ in hunk]
        different.append(
            ComparedFile(
                len(different) + 1,
                path,
                note,
                kinds.count("+"),
                kinds.count("-"),
                [code_rows(path, hunk, budget=words) for hunk in rows] if is_open else None,
                all(side is None or side.is_whole for side in (old, new)),
            )
        )
    return ComparedFiles(different, len(paths) - len(different))


def _by_path(job: ReviewJob, scope: Scope) -> dict[str, FileDiffText] | None:
    diffs = visible_diffs(job, scope)
    if diffs is None:
        return None
    coverage = visible_coverage(job, scope)
    return {diff.path: diff for diff in diffs if diff.path in coverage}


def compared_findings(older: ReviewJob, newer: ReviewJob, scope: Scope) -> list[ComparedFinding]:
    """Return the findings of both versions: new, still there, not reported again, fixed.

    A finding of the older version counts as fixed only if the version that ended it found its lines
    changed (guarantee G220); the versions in between are asked.
    """
    before, after = (version.findings.filter(scope.findings()) for version in (older, newer))
    new = after.exclude(identity__in=before.values("identity"))
    kept = after.filter(identity__in=before.values("identity"))
    gone = list(_first(before.exclude(identity__in=after.values("identity"))))
    endings = _endings(gone, older, newer)
    ended = [_ended(row, endings.get(row.identity, "")) for row in gone]
    return [
        *(ComparedFinding(row, FindingStatus.NEW, "New") for row in _first(new)),
        *(ComparedFinding(row, FindingStatus.STILL_THERE, "Still there") for row in _first(kept)),
        *sorted(ended, key=lambda one: one.status == FindingStatus.FIXED),
    ]


def _first(rows: QuerySet[FindingRow]) -> QuerySet[FindingRow]:
    return worst_first_rows(rows.defer("excerpt"))[:MAX_FINDINGS]


def _endings(rows: Sequence[FindingRow], older: ReviewJob, newer: ReviewJob) -> dict[Any, str]:
    """Return how each finding ended before `newer`, by its identity: as its last version there says."""
    found = FindingRow.objects.filter(
        identity__in=[row.identity for row in rows],
        job__in=newer.versions().filter(
            review_version__gte=older.review_version, review_version__lt=newer.review_version
        ),
    )
    return dict(found.order_by("job__review_version", "pk").values_list("identity", "ending"))


def _ended(row: FindingRow, ending: str) -> ComparedFinding:
    word = Ending(ending or Ending.NOT_REPORTED)
    status = FindingStatus.FIXED if word is Ending.FIXED else FindingStatus.NOT_REPORTED_AGAIN
    return ComparedFinding(row, status, status_in_words(word).capitalize())
