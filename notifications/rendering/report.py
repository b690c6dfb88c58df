"""The report: a review as recipients read it, the input of every message.

The `reviews` app fills it; nothing here knows its models. All text is redacted and untrusted all the
same: `clean` bounds it and shows invisible characters by their code points.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from criticizer.inert_links import web_link
from criticizer.invisible_characters import name_invisible
from criticizer.wording import plural_count

MAX_EXCERPT_LINES = 17  # ten lines of a finding, and three before and after them
MAX_LINE = 200
MAX_TEXT = 2000
MAX_PATH = 1024
MAX_STATUS_LINES = 10
MAX_CONFIGURATION_LINES = 10
MAX_SUBJECT = 200
MAX_RULE_NOTE = 300

SEVERITIES = ("critical", "high", "medium", "low")

DISMISSALS = ("wrong", "intended", "wont_fix")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

SHORTENED = "… (shortened)"


class Ending(StrEnum):
    """The status of an earlier version's finding that this version does not have."""

    FIXED = "fixed"  # the lines that it quoted are no longer in the change
    NOT_REPORTED = "not_reported_again"  # its file was read again without it, the lines are as they were
    GONE = "gone"  # its file is no longer part of the change
    NOT_READ = "not_read"  # its file was not read completely again


def evidence_note(demoted: bool, confidence: int | None) -> str:
    """Return the note on a finding whose quote is not in the change, or "" (guarantee G387).

    Every channel shows it.
    """
    if not demoted:
        return ""
    sure = "" if confidence is None else f" (confidence {confidence} of 100)"
    return (
        f"Insufficient evidence{sure}: the text that it quotes is not in the change. Check it before acting."
    )


def rule_note(name: str, text: str) -> str:
    """Return the note on the rule that a finding cites, "" without one (guarantee G452).

    Messages and files show it. `text`: what a team rule says; "" of a file of rules, whose `name` is its
    path. A text too long for MAX_RULE_NOTE is on the page alone: half a rule may say something else.
    """
    if not name:
        return ""
    whole = f"Rule {name}: {' '.join(text.split())}"
    return whole if text and len(whole) <= MAX_RULE_NOTE else f"Rule {name}"


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    """One line of code. `kind` is `+`, `-` or a space; `line` counts on its side."""

    text: str
    kind: str = " "
    line: int | None = None


@dataclass(frozen=True, slots=True)
class DiffPlace:
    """Lines of a pull request's diff, `start_line` to `line` on one side.

    `path` is as the repository has it. `replacement` replaces exactly these lines; empty where no such
    text is known. `old_path`: the file's name before, where it was renamed. `old_line`: the number that an
    unchanged `line` has on the old side; 0 for a changed one, and where it is not known.
    """

    path: str
    line: int
    start_line: int
    side: str = "new"
    replacement: str = ""
    content: tuple[str, ...] = ()  # the line, and a few before it: for hosts that keep them with a comment
    old_path: str = ""
    old_line: int = 0


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """One finding. `severity` is one of SEVERITIES; a `line` of None means the whole file.

    `anchor` is the finding's id on the review page; `is_new` says whether the version before
    lacked it, None where nothing was compared. People's verdict holds for every version (G260).
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
    replacement: str = ""  # proven new text of exactly its lines
    source: str = ""
    evidence: tuple[str, ...] = ()  # paths of other files it rests on
    excerpt: tuple[ExcerptLine, ...] = ()
    anchor: str = ""
    confidence: int | None = None
    demoted: bool = False  # what it quotes is not in the change
    is_folded: bool = False
    is_new: bool | None = None
    verdict: str = ""  # useful, or one of DISMISSALS
    verdict_note: str = ""  # such as `Dismissed as wrong by ann on 2026-11-22`
    verdict_url: str = ""  # the recipient's own link to give one
    in_diff: DiffPlace | None = None  # where an inline comment can stand
    identity: str = ""  # the same in every version that reports it
    rule: str = ""  # what it cites: a team rule by name, a file of rules by path
    rule_note: str = ""  # such as `Rule no-floats: Money is never a float.`

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes to read before the message: on its evidence, and people's verdict."""
        return tuple(filter(None, (evidence_note(self.demoted, self.confidence), self.verdict_note)))

    @property
    def is_dismissed(self) -> bool:
        return self.verdict in DISMISSALS

    @property
    def location(self) -> str:
        """Return `path`, `path:12` or `path:12-14`."""
        if self.line is None:
            return self.file
        end = f"-{self.end_line}" if self.end_line and self.end_line > self.line else ""
        return f"{self.file}:{self.line}{end}"

    @property
    def place(self) -> str:
        """Return the location, with a note where its lines count on the old side."""
        is_old = self.side == "old" and self.line is not None
        return f"{self.location} (before the change)" if is_old else self.location

    def covers(self, row: ExcerptLine) -> bool:
        """Return whether a line of the excerpt is one the finding is about, not one around it."""
        if row.line is None or self.line is None:
            return False
        other_side = "+" if self.side == "old" else "-"
        return row.kind != other_side and self.line <= row.line <= (self.end_line or self.line)


@dataclass(frozen=True, slots=True)
class ConfigurationLine:
    """Note for readers about the repository's configuration `file`."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class ReportFile:
    """The coverage of one file: `status` is reviewed, checked, partial or skipped."""

    file: str
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EarlierFinding:
    """A finding of the previous version that this one does not have."""

    finding: ReportFinding
    status: Ending


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes since `version`, the newest earlier one that was reviewed.

    Code that hides findings from a recipient must hide those of `earlier` by the same rule.
    """

    version: int
    earlier: tuple[EarlierFinding, ...] = ()


def suppressed_line(count: int) -> str:
    """Return how many findings the repository's configuration hides."""
    return f"{plural_count(count, 'finding')} suppressed by `.criticizer.yml`."


@dataclass(frozen=True, slots=True)
class PullRequest:
    """The pull request that was reviewed: the number of its repository, and the commit.

    `is_partial`: only the files were read to which an API key is limited.
    """

    repository_id: int
    head_sha: str
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A finished review. All text is redacted.

    `banner` names what did not run; `status_lines` are further facts, one line each.
    `reviewed_at` is aware; it becomes the mail's Date, so it must not change between attempts.
    """

    changelist_id: str
    review_version: int
    title: str
    author: str
    url: str
    reviewed_at: datetime
    banner: str = ""
    part_banner: str = ""  # in its place where not all files may be read: it counts nothing
    is_partial: bool = False  # parts of the change are not reviewed: the banner says why
    findings: tuple[ReportFinding, ...] = ()
    coverage: tuple[ReportFile, ...] = ()
    status_lines: tuple[str, ...] = ()
    footer: str = ""  # what is missing where it is little; one more status line, for who may read all files
    configuration: tuple[ConfigurationLine, ...] = ()
    suppressed: int = 0  # findings that it hides
    documents: str = ""  # what verifying documents counted
    since: Comparison | None = None
    budget: int = 50  # findings shown in full, besides critical ones
    pull_request: PullRequest | None = None
    hidden_files: int = 0  # left out of `coverage`: the recipient may not read them
    closed: tuple[str, ...] = ()  # findings whose comments at lines P4 Code Review is to close

    @property
    def facts(self) -> tuple[str, ...]:
        """Return the further facts that every channel says."""
        return (*self.status_lines, *filter(None, [self.documents]))

    @property
    def configuration_lines(self) -> tuple[str, ...]:
        """Return what every channel says of the configuration, at its top."""
        texts = list(dict.fromkeys(each.text for each in self.configuration))
        rest = len(texts) - MAX_CONFIGURATION_LINES
        more = (f"and {rest} more configuration warnings: see the review's page.",) if rest > 0 else ()
        counted = (suppressed_line(self.suppressed),) if self.suppressed else ()
        return (*texts[:MAX_CONFIGURATION_LINES], *more, *counted)


def short_name(changelist_id: str) -> str:
    """Return a changelist's name for a subject: a commit by the beginning of its id."""
    source, _, sha = changelist_id.rpartition("@")
    return f"{source}@{sha[:12]}" if source and len(sha) == 40 else changelist_id


def link_to(report: Report, finding: ReportFinding) -> str:
    """Return the finding's address on the review page, or ""."""
    if not web_link(report.url):
        return ""
    return f"{report.url}#{finding.anchor}" if finding.anchor else report.url


def clean(report: Report) -> Report:
    """Return the report with every text bounded and without invisible characters."""
    since = report.since
    return replace(
        report,
        changelist_id=line(report.changelist_id),
        title=line(report.title),
        author=line(report.author),
        url=line(report.url, MAX_TEXT),
        banner=line(report.banner, 512),
        findings=tuple(_finding(finding) for finding in report.findings),
        coverage=tuple(
            ReportFile(line(file.file, MAX_PATH), line(file.status), line(file.reason))
            for file in report.coverage
        ),
        status_lines=tuple(
            line(text) for text in (*report.status_lines[:MAX_STATUS_LINES], report.footer) if text
        ),
        footer="",
        documents=line(report.documents, MAX_TEXT),
        configuration=tuple(replace(each, text=line(each.text, MAX_TEXT)) for each in report.configuration),
        since=since
        and replace(
            since,
            earlier=tuple(EarlierFinding(_finding(e.finding), Ending(e.status)) for e in since.earlier),
        ),
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
    return replace(
        finding,
        file=line(finding.file, MAX_PATH),
        severity=line(finding.severity),
        title=line(finding.title),
        message=_block(finding.message),
        category=line(finding.category),
        side=line(finding.side),
        suggestion=_block(finding.suggestion),
        source=line(finding.source),
        excerpt=_without_common_indent(finding.excerpt[:MAX_EXCERPT_LINES]),
        verdict=line(finding.verdict),
        verdict_note=line(finding.verdict_note),
        rule=line(finding.rule, MAX_PATH),
        rule_note=line(finding.rule_note, MAX_RULE_NOTE),
        verdict_url=line(web_link(finding.verdict_url), MAX_TEXT),
        anchor=finding.anchor if _NAME.fullmatch(finding.anchor) else "",
        identity=finding.identity if _NAME.fullmatch(finding.identity) else "",
    )


def _without_common_indent(rows: tuple[ExcerptLine, ...]) -> tuple[ExcerptLine, ...]:
    """Return the rows cleaned and dedented together: phones and terminals are narrow."""
    texts = textwrap.dedent("\n".join(line(row.text, MAX_LINE * 2, strip=False) for row in rows)).split("\n")
    return tuple(
        ExcerptLine(line(text, strip=False), line(row.kind, 1, strip=False), row.line)
        for row, text in zip(rows, texts, strict=False)
    )
