"""What recipients read: a review as subject, plain text, HTML and JSON.

The reviews room fills a `Report`; nothing here knows its models. All text is untrusted: HTML
is escaped by the templates, control characters are replaced, sizes are bounded and what is
left out is counted in words. A message never says "no findings" without saying how much of
the change was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.template.loader import render_to_string

from notifications.providers.base import Message
from notifications.recipients import split

MAX_FINDINGS = 50
MAX_FILES = 50  # of the coverage's notable files
MAX_EXCERPT_LINES = 12
MAX_LINE = 200
MAX_TEXT = 2000
MAX_SUBJECT = 200

SEVERITIES = ("critical", "high", "medium", "low")
# What ends or redirects a line somewhere: control characters, Unicode line ends and
# bidirectional overrides, surrogates that no encoder takes.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    """One line of code around a finding. `kind` is `+`, `-` or a space."""

    text: str
    kind: str = " "
    line: int | None = None


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """One remark. `severity` is one of SEVERITIES; a `line` of None means the whole file."""

    file: str
    severity: str
    title: str
    message: str
    category: str = ""
    line: int | None = None
    end_line: int | None = None
    side: str = "new"
    suggestion: str = ""
    source: str = ""
    excerpt: tuple[ExcerptLine, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportFile:
    """What became of one file: `status` is reviewed, checked, partial or skipped."""

    file: str
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A finished review, as recipients are told about it. All text is redacted.

    `banner` says plainly what did not run; `status_lines` are further facts, one line each.
    `reviewed_at` is aware; it becomes the mail's Date, so it must not change between attempts.
    """

    changelist_id: str
    review_version: int
    title: str
    author: str
    url: str
    reviewed_at: datetime
    banner: str = ""
    findings: tuple[ReportFinding, ...] = ()
    coverage: tuple[ReportFile, ...] = ()
    status_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Group:
    severity: str
    findings: list[ReportFinding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Summary:
    """The numbers of a report, and the sentences made of them."""

    findings: int
    files: int
    read: int
    partial: int
    severities: dict[str, int]
    checks_only: bool

    @property
    def headline(self) -> str:
        """Return such as `3 findings (1 critical), 4 of 6 files read`."""
        found = f"{self.findings or 'no'} {'finding' if self.findings == 1 else 'findings'}"
        worst = [f"{self.severities[name]} {name}" for name in SEVERITIES[:2] if self.severities.get(name)]
        if worst:
            found += f" ({', '.join(worst)})"
        read = f"{self.read} of {self.files} {'file' if self.files == 1 else 'files'} read"
        if self.partial:
            read += f", {self.partial} in part"
        if self.checks_only:
            read += ", by checks only"
        return f"{found}, {read}"


def render(report: Report, recipient: str, token: UUID) -> Message:
    """Return the message to one recipient: the same bytes for the same arguments.

    Raises ValueError when the recipient is not a normalised one.
    """
    _, address = split(recipient)
    report = _clean(report)
    summary = _summarise(report)
    ordered = sorted(report.findings, key=lambda finding: (_rank(finding), finding.file, finding.line or 0))
    shown = ordered[:MAX_FINDINGS]
    # Files that were read completely need no line; every other one is named with its reason.
    notable = [file for file in report.coverage if file.status not in {"reviewed", "checked"}]
    context = {
        "report": report,
        "headline": summary.headline,
        "groups": _grouped(shown),
        "findings_left_out": len(ordered) - len(shown),
        "notable_files": notable[:MAX_FILES],
        "files_left_out": max(len(notable) - MAX_FILES, 0),
        "summary": summary,
    }
    return Message(
        token=token,
        address=address,
        subject=_subject(report, summary),
        text=_tidy(render_to_string("notifications/review.txt", context)),
        html=render_to_string("notifications/review.html", context),
        payload=_payload(report, summary, shown, len(ordered) - len(shown)),
        thread=f"changelist:{report.changelist_id}",
        created_at_epoch=int(report.reviewed_at.timestamp()),
    )


def _subject(report: Report, summary: _Summary) -> str:
    name = report.changelist_id
    source, _, sha = name.rpartition("@")
    if source and len(sha) == 40:
        name = f"{source}@{sha[:12]}"
    version = f" v{report.review_version}" if report.review_version > 1 else ""
    subject = f"Review of {name}{version}: {summary.headline}"
    if report.title:
        subject += f" - {report.title}"
    return _line(subject, MAX_SUBJECT)


def _summarise(report: Report) -> _Summary:
    statuses = [file.status for file in report.coverage]
    severities: dict[str, int] = {}
    for finding in report.findings:
        severities[finding.severity] = severities.get(finding.severity, 0) + 1
    checked = statuses.count("checked")
    reviewed = statuses.count("reviewed")
    return _Summary(
        findings=len(report.findings),
        files=len(statuses),
        read=reviewed + checked,
        partial=statuses.count("partial"),
        severities=severities,
        checks_only=bool(checked) and not reviewed and "partial" not in statuses,
    )


def _payload(
    report: Report, summary: _Summary, shown: list[ReportFinding], left_out: int
) -> dict[str, object]:
    """Return the webhook's body: Standard Webhooks' type, timestamp, data."""
    return {
        "type": "review.completed",
        "timestamp": report.reviewed_at.isoformat(),
        "data": {
            "changelist_id": report.changelist_id,
            "review_version": report.review_version,
            "title": report.title,
            "author": report.author,
            "url": report.url,
            "headline": summary.headline,
            "banner": report.banner,
            "status_lines": list(report.status_lines),
            "findings": [
                {
                    "file": finding.file,
                    "line": finding.line,
                    "end_line": finding.end_line,
                    "side": finding.side,
                    "severity": finding.severity,
                    "category": finding.category,
                    "title": finding.title,
                    "message": finding.message,
                    "suggestion": finding.suggestion,
                    "source": finding.source,
                }
                for finding in shown
            ],
            "findings_total": summary.findings,
            "findings_left_out": left_out,
            "coverage": [
                {"file": file.file, "status": file.status, "reason": file.reason}
                for file in report.coverage[: MAX_FILES * 4]
            ],
            "coverage_left_out": max(len(report.coverage) - MAX_FILES * 4, 0),
            "files_total": summary.files,
            "files_read": summary.read,
            "files_read_in_part": summary.partial,
        },
    }


def _grouped(findings: Iterable[ReportFinding]) -> list[_Group]:
    groups: list[_Group] = []
    for finding in findings:
        if not groups or groups[-1].severity != finding.severity:
            groups.append(_Group(finding.severity))
        groups[-1].findings.append(finding)
    return groups


def _rank(finding: ReportFinding) -> int:
    return SEVERITIES.index(finding.severity) if finding.severity in SEVERITIES else len(SEVERITIES)


def _clean(report: Report) -> Report:
    """Return the report with every text bounded and free of characters that act."""
    return Report(
        changelist_id=_line(report.changelist_id),
        review_version=report.review_version,
        title=_line(report.title),
        author=_line(report.author),
        url=_line(report.url, MAX_TEXT),
        reviewed_at=report.reviewed_at,
        banner=_line(report.banner, 512),
        findings=tuple(
            ReportFinding(
                file=_line(finding.file, 1024),
                severity=_line(finding.severity),
                title=_line(finding.title),
                message=_block(finding.message),
                category=_line(finding.category),
                line=finding.line,
                end_line=finding.end_line,
                side=_line(finding.side),
                suggestion=_block(finding.suggestion),
                source=_line(finding.source),
                excerpt=tuple(
                    ExcerptLine(_line(row.text, strip=False), _line(row.kind, 1, strip=False), row.line)
                    for row in finding.excerpt[:MAX_EXCERPT_LINES]
                ),
            )
            for finding in report.findings
        ),
        coverage=tuple(
            ReportFile(_line(file.file, 1024), _line(file.status), _line(file.reason))
            for file in report.coverage
        ),
        status_lines=tuple(_line(text) for text in report.status_lines[:20]),
    )


def _line(text: str, limit: int = MAX_LINE, *, strip: bool = True) -> str:
    text = _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", re.sub(r"[\r\n]+", " ", text[: limit * 4])).replace(
        "\t", "    "
    )
    return _cut(text.strip() if strip else text, limit)


def _block(text: str, limit: int = MAX_TEXT) -> str:
    text = text[: limit * 4].replace("\r\n", "\n").replace("\r", "\n")
    return _cut(_UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text).strip(), limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _tidy(text: str) -> str:
    """Return the text without the blank lines and spaces that template tags leave."""
    lines = [line.rstrip() for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
