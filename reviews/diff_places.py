"""Places of findings for inline comments: in a pull request's diff, or at their own lines.

A host takes comments at changed lines and a few around them, in its own diff of the head. Ours is the stored
redacted change; a finding elsewhere is in the summary only (guarantee G311).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import structlog
from django.db.models import Exists, OuterRef, Q

from criticizer.resilience.failures import PermanentFailure
from notifications.models import Delivery
from notifications.recipients import host_of, inline_recipient, is_required
from notifications.rendering import Ending, Report, ReportFinding
from notifications.rendering.report import DiffPlace
from notifications.states import DeliveryStatus
from reviews.artifacts import redactor
from reviews.models import FindingRow, ReviewJob
from reviews.reviewers.prepared_change_codec import DiffLine, FileDiffText
from reviews.sources.paths import decode_path
from reviews.sources.pull import depot_prefix

log = structlog.get_logger(__name__)

CONTEXT_LINES = 3  # around a change, in the diffs of every host
SWARM = "swarm:"
CONTENT_LINES = 5  # that P4 Code Review keeps with a comment: its line and those before
MAX_CLOSED = 500  # comments of a series; more are closed with the next versions


def with_places(job: ReviewJob, reports: Mapping[str, Report]) -> dict[str, Report]:
    """Return the reports; those for pull requests or P4 Code Review with places of findings.

    Left out is the recipient of inline comments where there are none to make. A finding that stands there
    from the version before has no place. Raises RetryableFailure while the stored change cannot be read.
    """
    fixed = _fixed(job) if any(recipient.startswith(SWARM) for recipient in reports) else ()
    reports = {
        recipient: _at_lines(report, fixed) if recipient.startswith(SWARM) else report
        for recipient, report in reports.items()
    }
    if not any(map(host_of, reports)):
        return reports
    diffs = _diffs(job.pk)
    done = _has_inline_comments(job)
    placed = {}
    for recipient, report in reports.items():
        found = _placed(report, diffs, done) if host_of(recipient) else report
        if is_required(recipient) or any(finding.in_diff for finding in found.findings):
            placed[recipient] = found
    return placed


def _diffs(job_id: int) -> Mapping[str, FileDiffText]:
    try:
        return {diff.path: diff for diff in redactor.diffs(job_id)}
    except (PermanentFailure, ValueError) as error:
        log.warning("findings_without_places", job=job_id, why=str(error))
        return {}


def _has_inline_comments(job: ReviewJob) -> bool:
    """Return whether the version that this one was compared with has its inline comments."""
    if job.compared_with is None:
        return False
    return Delivery.objects.filter(
        changelist_id=job.changelist_id, series=job.series, status=DeliveryStatus.SENT,
        recipient=inline_recipient(job.changelist_id), review_version=job.compared_with,
    ).exists()  # fmt: skip


def _fixed(job: ReviewJob) -> tuple[str, ...]:
    """Return the identities of fixed findings that no version reported since, newest first.

    Of all versions: a message about one of them may never have been sent.
    """
    versions = job.versions().filter(review_version__lte=job.review_version)
    since = Q(job__review_version__gte=OuterRef("ended_in__review_version"))
    again = FindingRow.objects.filter(since, identity=OuterRef("identity"), job__in=versions)
    fixed = FindingRow.objects.filter(~Exists(again), ended_in__in=versions, ending=Ending.FIXED)
    found = fixed.exclude(line=None).order_by("-pk").values_list("identity", flat=True)
    return tuple(map(str, dict.fromkeys(found[:MAX_CLOSED])))


def _at_lines(report: Report, fixed: Sequence[str]) -> Report:
    """Return the report with its findings at their own lines, for P4 Code Review.

    It takes comments on any line. Comments on what is `fixed` or dismissed are closed there.
    """

    def placed(finding: ReportFinding) -> ReportFinding:
        if finding.line is None or finding.is_dismissed or finding.is_folded or "<REDACTED" in finding.file:
            return finding
        last = max(finding.line, finding.end_line or 0)
        rows = [row for row in finding.excerpt if row.line is not None and row.line <= finding.line]
        content = tuple(row.text for row in rows[-CONTENT_LINES:])
        return replace(
            finding, in_diff=DiffPlace(finding.file, last, finding.line, finding.side, "", content)
        )

    dismissed = (finding.identity for finding in report.findings if finding.is_dismissed)
    return replace(report, findings=tuple(map(placed, report.findings)), closed=(*fixed, *dismissed))


def _placed(report: Report, diffs: Mapping[str, FileDiffText], done: bool) -> Report:
    prefix = depot_prefix(report.changelist_id)

    def placed(finding: ReportFinding) -> ReportFinding:
        diff = diffs.get(finding.file)
        if prefix is None or diff is None or finding.is_dismissed or (done and finding.is_new is False):
            return finding
        return replace(finding, in_diff=place_of(finding, diff, prefix))

    return replace(report, findings=tuple(map(placed, report.findings)))


def place_of(finding: ReportFinding, diff: FileDiffText, prefix: str) -> DiffPlace | None:
    """Return the finding's lines as far as one hunk of the diff has them.

    None where no line of the finding is in the diff.
    """
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
            text = finding.replacement if is_whole else ""
            old_path = decode_path(diff.old_path.removeprefix(prefix)) if diff.old_path else ""
            old_line = _old_number(diff, end) if lines[found[-1]].kind == " " else 0
            return DiffPlace(path, end, start, finding.side, text, old_path=old_path, old_line=old_line)
    return None


def _old_number(diff: FileDiffText, number: int) -> int:
    """Return the number of an unchanged line on the old side.

    0 where a hunk before it may be missing.
    """
    shift = 0
    for line in (line for hunk in diff.hunks for line in hunk):
        if line.kind == " " and line.number == number:
            break
        shift += {"-": 1, "+": -1}.get(line.kind, 0)
    return number + shift if diff.is_whole else 0


def _windows(hunks: Iterable[Sequence[DiffLine]], *, with_context: bool) -> Iterator[list[DiffLine]]:
    """Yield the runs of lines that a host shows together.

    Our hunks are cut to them: they may reach up to the head of a definition.
    """
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
