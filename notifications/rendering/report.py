"""What a message is made of: a review as recipients are told about it.

The reviews room fills a `MailReport`; nothing here knows its models. All text is redacted already
and untrusted all the same: `clean` bounds it and takes the force out of characters that act.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from criticizer.invisible_characters import name_invisible

MAX_EXCERPT_LINES = 17  # ten lines of a finding, and three before and after them
MAX_LINE = 200
MAX_TEXT = 2000
MAX_PATH = 1024
MAX_STATUS_LINES = 10
MAX_SUBJECT = 200

SEVERITIES = ("critical", "high", "medium", "low")

SHORTENED = "… (shortened)"


class FindingStatus(StrEnum):
    """What became of an earlier version's finding that this version does not have."""

    FIXED = "fixed"  # its file was read again, and it is not there any more
    GONE = "gone"  # its file is no longer part of the change
    NOT_READ = "not_read"  # who found it did not read the whole file again, so nobody can say


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    """One line of code around a finding. `kind` is `+`, `-` or a space; `line` counts on its side."""

    text: str
    kind: str = " "
    line: int | None = None


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """One remark. `severity` is one of SEVERITIES; a `line` of None means the whole file.

    `anchor` is the finding's id on the review page; `is_new` says whether the version before
    lacked it, None where nothing was compared (`changes.compared` sets it).
    """

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
    anchor: str = ""
    is_new: bool | None = None

    @property
    def place(self) -> str:
        """Return `path`, `path:12` or `path:12-14`, saying so where it is the old side."""
        if self.line is None:
            return self.file
        end = f"-{self.end_line}" if self.end_line and self.end_line > self.line else ""
        side = " (before the change)" if self.side == "old" else ""
        return f"{self.file}:{self.line}{end}{side}"

    def covers(self, row: ExcerptLine) -> bool:
        """Say whether a line of the excerpt is one the finding is about, not one around it."""
        if row.line is None or self.line is None:
            return False
        other_side = "+" if self.side == "old" else "-"
        return row.kind != other_side and self.line <= row.line <= (self.end_line or self.line)


@dataclass(frozen=True, slots=True)
class ReportFile:
    """What became of one file: `status` is reviewed, checked, partial or skipped."""

    file: str
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EarlierFinding:
    """A finding of the version before that this one does not have."""

    finding: ReportFinding
    fate: FindingStatus


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed since `version`, the newest earlier one that was reviewed.

    Whoever hides findings from a recipient must hide those of `earlier` by the same rule.
    """

    version: int
    earlier: tuple[EarlierFinding, ...] = ()


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
    since: Comparison | None = None
    is_part: bool = False  # the reader may not read all files: the others are left out


def is_web_link(url: str) -> bool:
    """Say whether a link may be made of it: nothing but http and https is one."""
    return url.startswith(("https://", "http://"))


def short_name(changelist_id: str) -> str:
    """Return how a changelist is called in a subject: a commit by the beginning of its id."""
    source, _, sha = changelist_id.rpartition("@")
    return f"{source}@{sha[:12]}" if source and len(sha) == 40 else changelist_id


def link_to(report: Report, finding: ReportFinding) -> str:
    """Return the finding's own address on the review page, or an empty text where it has none."""
    if not is_web_link(report.url):
        return ""
    return f"{report.url}#{finding.anchor}" if finding.anchor else report.url


def clean(report: Report) -> Report:
    """Return the report with every text bounded and free of characters that act."""
    since = report.since
    return Report(
        changelist_id=line(report.changelist_id),
        review_version=report.review_version,
        title=line(report.title),
        author=line(report.author),
        url=line(report.url, MAX_TEXT),
        reviewed_at=report.reviewed_at,
        banner=line(report.banner, 512),
        findings=tuple(_finding(finding) for finding in report.findings),
        coverage=tuple(
            ReportFile(line(file.file, MAX_PATH), line(file.status), line(file.reason))
            for file in report.coverage
        ),
        status_lines=tuple(line(text) for text in report.status_lines[:MAX_STATUS_LINES]),
        since=since
        and replace(
            since,
            earlier=tuple(EarlierFinding(_finding(e.finding), FindingStatus(e.fate)) for e in since.earlier),
        ),
        is_part=report.is_part,
    )


def line(text: str, limit: int = MAX_LINE, *, strip: bool = True) -> str:
    """Return the text as one line of at most `limit` characters."""
    text = re.sub(r"[\r\n]+", " ", text[: limit * 4]).replace("\t", "    ")
    text = name_invisible(text)
    text = text.strip() if strip else text
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _block(text: str, limit: int = MAX_TEXT) -> str:
    text = text[: limit * 4].replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    text = name_invisible(text).strip("\n").rstrip()
    return text if len(text) <= limit else text[: limit - len(SHORTENED) - 1] + " " + SHORTENED


def _finding(finding: ReportFinding) -> ReportFinding:
    rows = _without_common_indent(finding.excerpt[:MAX_EXCERPT_LINES])
    return ReportFinding(
        file=line(finding.file, MAX_PATH),
        severity=line(finding.severity),
        title=line(finding.title),
        message=_block(finding.message),
        category=line(finding.category),
        line=finding.line,
        end_line=finding.end_line,
        side=line(finding.side),
        suggestion=_block(finding.suggestion),
        source=line(finding.source),
        excerpt=rows,
        anchor=finding.anchor if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", finding.anchor) else "",
        is_new=finding.is_new,
    )


def _without_common_indent(rows: tuple[ExcerptLine, ...]) -> tuple[ExcerptLine, ...]:
    """Return the rows cleaned, and moved to the left together: telephones and terminals are narrow."""
    texts = textwrap.dedent("\n".join(line(row.text, MAX_LINE * 2, strip=False) for row in rows)).split("\n")
    return tuple(
        ExcerptLine(line(text, strip=False), line(row.kind, 1, strip=False), row.line)
        for row, text in zip(rows, texts, strict=False)
    )
