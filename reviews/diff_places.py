"""Where findings stand in a pull request's diff: the lines at which a host takes inline comments.

A host takes comments at changed lines and a few around them, in its own diff of the head. Ours is the stored
redacted change; a finding elsewhere is in the summary only (guarantee G311).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import structlog

from criticizer.resilience.failures import PermanentFailure
from notifications.models import Delivery
from notifications.rendering import Report, ReportFinding
from notifications.rendering.report import DiffPlace
from notifications.states import DeliveryStatus
from reviews import fixes
from reviews.artifacts import redactor
from reviews.models import ReviewJob
from reviews.reviewers.chunks import MAX_LINE_CHARS
from reviews.reviewers.prepared_codec import DiffLine, FileDiffText
from reviews.sources.paths import decode_path
from reviews.sources.pull import depot_prefix

log = structlog.get_logger(__name__)

CONTEXT_LINES = 3  # around a change, in the diffs of every host
SUMMARY, INLINE = "github:", "github-review:"


def with_places(job: ReviewJob, reports: Mapping[str, Report]) -> dict[str, Report]:
    """Return the reports, those for a pull request with the places of their findings.

    Left out is the recipient of inline comments where there are none to make. A finding that stands there
    from the version before has no place. Raises RetryableFailure while the stored change cannot be read.
    """
    if not any(recipient.startswith((SUMMARY, INLINE)) for recipient in reports):
        return dict(reports)
    diffs = _diffs(job.pk)
    done = _has_inline_comments(job)
    placed = {}
    for recipient, report in reports.items():
        found = _placed(report, diffs, done) if recipient.startswith((SUMMARY, INLINE)) else report
        if not recipient.startswith(INLINE) or any(finding.in_diff for finding in found.findings):
            placed[recipient] = found
    return placed


def _diffs(job_id: int) -> Mapping[str, FileDiffText]:
    try:
        return {diff.path: diff for diff in redactor.diffs(job_id)}
    except (PermanentFailure, ValueError) as error:
        log.warning("findings_without_places", job=job_id, why=str(error))
        return {}


def _has_inline_comments(job: ReviewJob) -> bool:
    """Say whether the version that this one was compared with has its inline comments."""
    if job.compared_with is None:
        return False
    return Delivery.objects.filter(
        changelist_id=job.changelist_id, series=job.series, status=DeliveryStatus.SENT,
        recipient__startswith=INLINE, review_version=job.compared_with,
    ).exists()  # fmt: skip


def _placed(report: Report, diffs: Mapping[str, FileDiffText], done: bool) -> Report:
    prefix = depot_prefix(report.changelist_id)

    def placed(finding: ReportFinding) -> ReportFinding:
        diff = diffs.get(finding.file)
        if prefix is None or diff is None or finding.is_dismissed or (done and finding.is_new is False):
            return finding
        return replace(finding, in_diff=place_of(finding, diff, prefix))

    return replace(report, findings=tuple(map(placed, report.findings)))


def place_of(finding: ReportFinding, diff: FileDiffText, prefix: str) -> DiffPlace | None:
    """Return the finding's lines as far as one hunk of the diff has them; None where no line is in it."""
    path = decode_path(diff.path.removeprefix(prefix))
    if finding.line is None or not diff.path.startswith(prefix) or "<REDACTED" in path:
        return None
    first, last = finding.line, max(finding.line, finding.end_line or 0)
    other = "+" if finding.side == "old" else "-"
    for window in _windows(diff.hunks, with_context=finding.side != "old"):
        lines = [line for line in window if line.kind != other]
        found = [at for at, line in enumerate(lines) if first <= line.number <= last]
        if found:
            start, end = lines[found[0]].number, lines[found[-1]].number
            is_whole = (start, end) == (first, last) and len(found) == last - first + 1
            text = ""
            if is_whole and finding.side != "old":
                texts = [line.text for line in lines]
                text = replacement_in(finding.suggestion, texts, found[0], found[-1] + 1)
            return DiffPlace(path, end, start, finding.side, text)
    return None


def _windows(hunks: Iterable[Sequence[DiffLine]], *, with_context: bool) -> Iterator[list[DiffLine]]:
    """Yield runs of lines that a host shows together: ours may reach up to the head of a definition."""
    for hunk in hunks:
        changed = [at for at, line in enumerate(hunk) if line.kind != " "]
        around = range(-CONTEXT_LINES, CONTEXT_LINES + 1) if with_context else (0,)
        near = sorted({at + more for at in changed for more in around if 0 <= at + more < len(hunk)})
        run: list[int] = []
        for at in near:
            if run and at != run[-1] + 1:
                yield [hunk[one] for one in run]
                run = []
            run.append(at)
        if run:
            yield [hunk[one] for one in run]


def replacement_in(suggestion: str, texts: Sequence[str], first: int, end: int) -> str:
    """Return what a suggestion puts in the place of exactly the lines `first:end` of `texts`, or "".

    It must be one fenced block and nothing else, and fit as the edit of a patch does (`fixes.of_lines`):
    advice, a diff and fragments are no replacement. A line as long as MAX_LINE_CHARS may have lost its end.
    """
    found = fixes.parts(suggestion)
    code, old = fixes.to_paste(found), texts[first:end]
    if len(found) != 1 or not code or code == "\n".join(old):
        return ""
    if any(len(text) >= MAX_LINE_CHARS or fixes.has_changed(text) for text in old):
        return ""
    return code if fixes.of_lines(code, texts, first, end) else ""
