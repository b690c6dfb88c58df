"""The tab Files of a review: its redacted diff, with each finding below its line."""

from __future__ import annotations

import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar

import structlog

from criticizer.resilience.failures import Failure
from notifications.rendering.report import ExcerptLine
from reviews.artifacts import redactor
from reviews.models import Artifact, CoverageRow, ReviewJob
from reviews.recipients.viewing_scopes import Scope
from reviews.reports import as_reported
from reviews.reviewers.base import CoverageStatus
from reviews.reviewers.prepared_change_codec import DiffLine, FileDiffText
from reviews.web.budget import Budget
from reviews.web.changed_words import MAX_COMPARED
from reviews.web.highlight import CodeRow, code_rows
from reviews.web.review_list import worst_first
from reviews.web.review_results import MAX_FILES, FindingView, finding_views, worst_findings

log = structlog.get_logger(__name__)
_Line = TypeVar("_Line")

# Lines of diffs in a page; the other files are folded, and their lines fetched when they are opened.
MAX_OPEN_LINES = 500
MAX_FILE_LINES = 6_000


@dataclass(frozen=True, slots=True)
class Segment:
    """Lines of a hunk, and the findings that stand below the last of them."""

    rows: Sequence[CodeRow]
    findings: Sequence[FindingView] = ()


@dataclass(frozen=True, slots=True)
class FileView:
    """One file of the tab. `number` counts from 1 and names it in addresses.

    `above` are findings without a line in the diff. `hunks` is None where the lines are not in this page,
    `lines` how many there are, `content` a digest of them, `missing` why there are none or not all;
    `has_more`: lines around the hunks are stored.
    """

    number: int
    path: str
    old_path: str | None
    action: str
    status: str
    severities: Sequence[tuple[str, int]]
    above: Sequence[FindingView]
    hunks: Sequence[Sequence[Segment]] | None
    lines: int
    content: str
    missing: str
    has_more: bool

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)


@dataclass(frozen=True, slots=True)
class FilesTab:
    """The files by directory and name, and the findings about none of them."""

    files: Sequence[FileView]
    about_change: Sequence[FindingView]

    @property
    def tree(self) -> list[tuple[str, list[FileView]]]:
        """Return the files by their directory."""
        by_directory = groupby(self.files, key=lambda file: posixpath.dirname(file.path))
        return [(directory, list(files)) for directory, files in by_directory]


def has_diff(job: ReviewJob) -> bool:
    """Return whether the diff of a review is still stored, without opening it."""
    return job.artifacts.filter(kind=Artifact.Kind.REDACTED, deleted_at=None).exists()


def files_tab(
    job: ReviewJob, scope: Scope, findings: Iterable[FindingView], wanted: Mapping[str, Any] = {}
) -> FilesTab | None:
    """Return the files that may be seen, or None when the diff is no longer stored.

    `findings`: those that the page shows, worst first. Files with findings are open first, up to
    MAX_OPEN_LINES in all; findings of the others are brief. Where a filter is `wanted`, only files with
    findings are shown, and the file that it names.
    """
    diffs = visible_diffs(job, scope)
    if diffs is None:
        return None
    found = defaultdict(list)
    for view in findings:
        found[view.row.file].append(view)
    coverage = visible_coverage(job, scope)
    kept = coverage.keys() & {*found, wanted.get("file")} if wanted else coverage.keys()
    shown = [(number, diff) for number, diff in enumerate(diffs, start=1) if diff.path in kept][:MAX_FILES]
    files = {number: _folded(number, diff, coverage[diff.path], found[diff.path]) for number, diff in shown}
    left, words = MAX_OPEN_LINES, Budget(MAX_COMPARED)
    for number, diff in sorted(shown, key=lambda one: not found[one[1].path]):
        if files[number].lines <= left:
            files[number] = _opened(files[number], diff, found[diff.path], words)
            left -= files[number].lines
    paths = {diff.path for _, diff in shown}
    others = [view for file, views in found.items() if file not in paths for view in views]
    in_order = sorted(files.values(), key=lambda file: posixpath.split(file.path))
    return FilesTab(in_order, others)


def one_file(
    job: ReviewJob, scope: Scope, number: int, wanted: Mapping[str, Any] = {}, *, with_context: bool = False
) -> FileView | None:
    """Return a file with its lines and its findings that match.

    None when the file may not be seen or is no longer stored. `with_context`: with the lines around its
    hunks.
    """
    diffs = visible_diffs(job, scope) or ()
    if not 1 <= number <= len(diffs):
        return None
    diff = diffs[number - 1]
    covered = job.coverage.filter(scope.files(), file=diff.path).order_by("pk").last()
    if covered is None:
        return None
    found = finding_views(worst_findings(job, scope, {**wanted, "file": diff.path}), scope)
    file = _folded(number, diff, covered, found)
    if with_context:
        file, diff = replace(file, has_more=False), diff.with_context()
    return _opened(file, diff, found, Budget(MAX_COMPARED))


def visible_diffs(job: ReviewJob, scope: Scope) -> Sequence[FileDiffText] | None:
    """Return the diffs of all files, or None when they are not stored any more.

    They have no old sides that may not be seen. Only those of the files in `visible_coverage` may be shown.
    """
    try:
        return [_within(scope, diff) for diff in redactor.diffs(job.pk)]
    except Failure as failure:
        log.warning("diff_not_shown", job=job.pk, **failure.facts)
    except ValueError as error:
        log.info("diff_not_shown", job=job.pk, why=str(error))
    return None


def _within(scope: Scope, diff: FileDiffText) -> FileDiffText:
    """Return a diff without the old side of a file that came from where the reader may not look."""
    if diff.old_path is None or scope.allows(diff.old_path):
        return diff
    hunks = tuple(tuple(line for line in hunk if line.kind != "-") for hunk in diff.hunks)
    return replace(diff, old_path=None, hunks=hunks, is_whole=False)


def visible_coverage(job: ReviewJob, scope: Scope) -> Mapping[str, CoverageRow]:
    """Return the coverage of the files that may be seen, by path."""
    return {row.file: row for row in job.coverage.filter(scope.files()).order_by("pk")}


def _folded(number: int, diff: FileDiffText, covered: CoverageRow, found: Sequence[FindingView]) -> FileView:
    lines = sum(map(len, diff.hunks))
    return FileView(
        number,
        diff.path,
        diff.old_path,
        diff.action,
        covered.status,
        severities=worst_first(Counter(view.row.severity for view in found if not view.is_dismissed)),
        above=[replace(view, is_in_diff=True, is_brief=True) for view in found],
        hunks=None if lines else (),
        lines=lines,
        content=diff.content,
        missing=_missing(diff, covered, lines),
        has_more=any(before or after for (_, before), (_, after) in diff.around),
    )


def _missing(diff: FileDiffText, covered: CoverageRow, lines: int) -> str:
    if lines > MAX_FILE_LINES:
        return f"Only the first {MAX_FILE_LINES:,} of {lines:,} lines are shown."
    if not diff.is_whole:
        return "Not every line is shown" + (f": {covered.reason}" if covered.reason else ".")
    return covered.reason if not lines or covered.status != CoverageStatus.REVIEWED else ""


def _opened(file: FileView, diff: FileDiffText, found: Iterable[FindingView], words: Budget) -> FileView:
    shown = list(first_lines(diff.hunks, MAX_FILE_LINES))
    places = [
        ((h, n), ExcerptLine("", line.kind, line.number))
        for h, hunk in enumerate(shown)
        for n, line in enumerate(hunk)
    ]
    below: dict[tuple[int, int], list[FindingView]] = defaultdict(list)
    above = []
    meant = set()
    for view in found:
        finding = as_reported(view.row)
        lines = [place for place, line in places if finding.covers(line)]
        meant.update(lines)
        if lines:
            below[lines[-1]].append(replace(view, is_in_diff=True))
        else:
            above.append(view)
    return replace(
        file,
        above=above,
        hunks=[
            _segments(diff.path, hunk, {n for at, n in meant if at == h}, h, below, words)
            for h, hunk in enumerate(shown)
        ],
    )


def first_lines(hunks: Iterable[Sequence[_Line]], left: int) -> Iterator[Sequence[_Line]]:
    """Yield hunks up to a number of lines."""
    for hunk in hunks:
        if left > 0:
            yield hunk[:left]
            left -= len(hunk)


def _segments(
    path: str,
    hunk: Sequence[DiffLine],
    meant: set[int],
    index: int,
    below: Mapping[tuple[int, int], Sequence[FindingView]],
    words: Budget,
) -> list[Segment]:
    rows = code_rows(path, [(line.number, line.kind, line.text) for line in hunk], budget=words)
    for n in meant:
        rows[n] = replace(rows[n], is_meant=True)
    segments = []
    start = 0
    for n in range(len(rows)):
        if findings := below.get((index, n)):
            segments.append(Segment(rows[start : n + 1], findings))
            start = n + 1
    return [*segments, Segment(rows[start:])] if start < len(rows) else segments
