"""The page that compares two versions of a change: its files, and its findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from criticizer.security.client_ip import client_ip
from notifications.rendering import Ending
from notifications.rendering.summary import status_in_words
from reviews.artifacts import reader
from reviews.models import Artifact, FindingRow, ReviewJob
from reviews.recipients.viewing_scopes import Scope, scope_of
from reviews.reviewers.prepared_change_codec import FileDiffText
from reviews.sources.base import Action
from reviews.states import FindingStatus, Stage, StageStatus
from reviews.verdicts import Verdict, verdicts_of
from reviews.web.budget import Budget
from reviews.web.changed_words import MAX_COMPARED
from reviews.web.files_tab import first_lines, visible_diffs
from reviews.web.highlight import CodeRow, code_rows
from reviews.web.interdiff import MAX_STEPS, Row, interdiff
from reviews.web.reader_page import reader_page
from reviews.web.review_list import PAGE_SIZE, hidden_files
from reviews.web.review_results import versions_of, worst_first_rows
from reviews.web.within_review import ListPart, start_of

MAX_LINES = 500  # of all files in a page; a longer file has a page of its own
MAX_FILE_LINES = 1_500
MAX_LEFT_OUT = 100  # files that are named

_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_WHERE = {(True, False): "no longer part of the change", (False, True): "new in this version"}


@dataclass(frozen=True, slots=True)
class ComparedFile:
    """A file that differs; `code` are the lines that the page shows.

    `is_whole`: each version that has the file has stored all its lines. `is_matched`: the comparison finished
    within the page's step limit; if False, equal lines may appear as removed and added.
    """

    path: str
    note: str
    hunks: Sequence[Sequence[Row]]
    is_whole: bool
    is_matched: bool
    code: Sequence[Sequence[CodeRow]] = ()

    @property
    def lines(self) -> int:
        return sum(map(len, self.hunks))

    @property
    def hidden_lines(self) -> int:
        return self.lines - sum(map(len, self.code))

    @property
    def added(self) -> int:
        return self._count("+")

    @property
    def removed(self) -> int:
        return self._count("-")

    def _count(self, wanted: str) -> int:
        return sum(kind == wanted for hunk in self.hunks for _, kind, _ in hunk)


class LeftOut(NamedTuple):
    """A file that is not compared, and what the coverage of its newest version says of it."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class ComparedFiles:
    """The files that differ, how many do not, and those of which not all lines are stored."""

    different: ListPart[ComparedFile]
    same: int
    not_compared: Sequence[LeftOut]

    @property
    def why_not_compared(self) -> str:
        """Return the reason common to all files that are not compared, or that each has its own."""
        reasons = {file.reason for file in self.not_compared}
        return (reasons.pop() or "its diff has no lines") if len(reasons) == 1 else "each with its reason"

    @property
    def first_left_out(self) -> Sequence[LeftOut]:
        return self.not_compared[:MAX_LEFT_OUT]


@dataclass(frozen=True, slots=True)
class ComparedFinding:
    """A finding and what became of it between the versions; `status` is a `FindingStatus`."""

    row: FindingRow
    status: str
    word: str


@reader_page
def compare(request: HttpRequest, job_id: int) -> HttpResponse:
    """Show what differs between a version and another one.

    The other one is named by `?with=`; by default it is the version before. `?findings=` and `?files=`: how
    many of the list to leave out, as links to its further pages do.
    """
    scope = scope_of(request.user)
    job = get_object_or_404(scope.jobs(), pk=job_id)
    other = _other(job, scope, request.GET.get("with", ""))
    older, newer = sorted((job, other), key=lambda version: version.review_version)
    unreviewed = [version for version in (older, newer) if not _was_reviewed(version)]
    files = compared_files(older, newer, scope, start_of(request.GET, "files"))
    for version in (older, newer) if files is not None else ():
        reader.record_shown(version, request.user, client_ip(request))
    context = {
        "job": job,
        "other": other,
        "older": older,
        "newer": newer,
        "versions": versions_of(job, scope),
        "unreviewed": unreviewed,
        "findings": (
            None if unreviewed else compared_findings(older, newer, scope, start_of(request.GET, "findings"))
        ),
        "files": files,
        "without_diff": list(filter(None, map(_why_no_diff, (older, newer)))) if files is None else (),
        "hidden": max(hidden_files([older.pk, newer.pk], scope).values(), default=0),
    }
    return render(request, "reviews/compare.html", context)


def _other(job: ReviewJob, scope: Scope, wanted: str) -> ReviewJob:
    """Return the version to compare with. Raises Http404."""
    others = job.versions().filter(scope.of_jobs()).exclude(pk=job.pk)
    if _NUMBER.fullmatch(wanted):
        return get_object_or_404(others, review_version=int(wanted))
    earlier = others.filter(review_version__lt=job.review_version).order_by("-review_version").first()
    if wanted or (found := earlier or others.order_by("review_version").first()) is None:
        raise Http404
    return found


def _was_reviewed(job: ReviewJob) -> bool:
    return job.stages.filter(stage=Stage.LLM, status=StageStatus.SUCCEEDED).exists()


def _why_no_diff(job: ReviewJob) -> str:
    """Return why a version has no lines to compare, or "" when it has."""
    stored = job.artifacts.filter(kind=Artifact.Kind.REDACTED).values_list("deleted_at", flat=True)
    if None in stored:
        return ""
    if stored:
        return f"The diff of version {job.review_version} is no longer stored."
    if job.is_active:
        return f"The files of version {job.review_version} are not read yet."
    return f"Version {job.review_version} ended before its files were read, so it has no diff."


def compared_files(older: ReviewJob, newer: ReviewJob, scope: Scope, start: int = 0) -> ComparedFiles | None:
    """Return the differences between the files of two versions.

    None when a diff is no longer stored.
    """
    of_older, of_newer = _reasons(older, scope), _reasons(newer, scope)
    before, after = _by_path(older, of_older, scope), _by_path(newer, of_newer, scope)
    if before is None or after is None:
        return None
    budget = Budget(MAX_STEPS)
    reasons = {**of_older, **of_newer}
    different: list[ComparedFile] = []
    not_compared: list[LeftOut] = []
    same = 0
    for path in sorted(reasons):
        old, new = before.get(path), after.get(path)
        if old is None and new is None:
            not_compared.append(LeftOut(path, reasons[path]))
            continue
        file = _compared(path, old, new, budget)
        if file.hunks or file.note:
            different.append(file)
        elif file.is_whole:
            same += 1
        else:
            not_compared.append(LeftOut(path, reasons[path]))
    start = start if start < len(different) else 0
    shown = list(_with_code(different[start : start + PAGE_SIZE]))
    return ComparedFiles(ListPart(shown, start, len(different)), same, not_compared)


def _compared(path: str, old: FileDiffText | None, new: FileDiffText | None, budget: Budget) -> ComparedFile:
    refused, where = budget.refused, _WHERE.get((old is not None, new is not None), "")
    sides = [side for side in (old, new) if side is not None]
    if all(side.action == Action.DELETE for side in sides):
        old = new = None
    hunks = interdiff(old.hunks if old else (), new.hunks if new else (), budget)
    return ComparedFile(
        path,
        where,
        hunks,
        # Of a deleted file its name says all. Binary and skipped files have no lines.
        all(side.action == Action.DELETE for side in sides)
        or all(side.is_whole and side.hunks for side in sides),
        budget.refused == refused,
    )


def _with_code(files: Iterable[ComparedFile]) -> Iterator[ComparedFile]:
    """Yield as many files as a page has room for, with their lines: at least one."""
    left, words = MAX_LINES, Budget(MAX_COMPARED)
    for file in files:
        if file.lines > left < MAX_LINES:
            return
        left -= file.lines
        shown = first_lines(file.hunks, MAX_FILE_LINES)
        yield replace(file, code=[code_rows(file.path, hunk, budget=words) for hunk in shown])


def _by_path(job: ReviewJob, seen: Mapping[str, str], scope: Scope) -> dict[str, FileDiffText] | None:
    """Return the diffs of the files in `seen`, by path; None when they are not stored."""
    diffs = visible_diffs(job, scope)
    return None if diffs is None else {diff.path: diff for diff in diffs if diff.path in seen}


def _reasons(job: ReviewJob, scope: Scope) -> dict[str, str]:
    """Return the files of a version that may be seen, with what its coverage says of them."""
    return dict(job.coverage.filter(scope.files()).order_by("pk").values_list("file", "reason"))


def compared_findings(
    older: ReviewJob, newer: ReviewJob, scope: Scope, start: int = 0
) -> ListPart[ComparedFinding]:
    """Return the findings of both versions: new, still there, not reported again, fixed.

    A finding of the older version counts as fixed only if the version in which it disappeared found its lines
    changed (guarantee G220); versions in between are included.
    """
    before, after = _worst_first(older, scope), _worst_first(newer, scope)
    gone = [identity for identity in before if identity not in after]
    endings = _endings(gone, older, newer)
    ended = [(before[identity], *_ended(endings.get(identity, ""))) for identity in gone]
    found = [
        *((pk, FindingStatus.NEW, "New") for identity, pk in after.items() if identity not in before),
        *((pk, FindingStatus.STILL_THERE, "Still there") for one, pk in after.items() if one in before),
        *sorted(ended, key=lambda one: one[1] == FindingStatus.FIXED),
    ]
    start = start if start < len(found) else 0
    shown = found[start : start + PAGE_SIZE]
    fields = ("job_id", "identity", "file", "line", "severity", "title")
    rows = FindingRow.objects.only(*fields).in_bulk([pk for pk, *_ in shown])
    verdicts = verdicts_of((row.identity for row in rows.values()), scope)
    compared = [
        ComparedFinding(rows[pk], status, _with_verdict(word, verdicts.get(rows[pk].identity)))
        for pk, status, word in shown
        if pk in rows
    ]
    return ListPart(compared, start, len(found))


def _with_verdict(word: str, verdict: Verdict | None) -> str:
    """Return a text such as `Still there, dismissed as wrong`."""
    return f"{word}, {verdict.label.lower()}" if verdict is not None and verdict.is_dismissal else word


def _worst_first(job: ReviewJob, scope: Scope) -> dict[UUID, int]:
    """Return the ids of a version's findings by their identity."""
    found = worst_first_rows(job.findings.filter(scope.findings()))
    return dict(found.values_list("identity", "pk"))


def _endings(gone: Sequence[UUID], older: ReviewJob, newer: ReviewJob) -> dict[UUID, str]:
    """Return, by identity, how each finding ended before `newer`.

    The last version there that has the finding says so.
    """
    if not gone:
        return {}
    found = FindingRow.objects.filter(
        identity__in=gone,
        job__in=newer.versions().filter(
            review_version__gte=older.review_version, review_version__lt=newer.review_version
        ),
    )
    return dict(found.order_by("job__review_version", "pk").values_list("identity", "ending"))


def _ended(ending: str) -> tuple[FindingStatus, str]:
    word = Ending(ending or Ending.NOT_REPORTED)
    status = FindingStatus.FIXED if word is Ending.FIXED else FindingStatus.NOT_REPORTED_AGAIN
    return status, status_in_words(word).capitalize()
