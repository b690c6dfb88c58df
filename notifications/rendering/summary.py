"""The counts of a report and the phrases made of them.

A message never says "no findings" without saying how much of the change was read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from criticizer.wording import plural_count
from notifications.rendering.report import SEVERITIES, Ending, Report, ReportFile, ReportFinding

_STATUSES = {
    Ending.FIXED: "fixed",
    Ending.NOT_REPORTED: "not reported again",
    Ending.GONE: "no longer in the change",
    Ending.NOT_READ: "not read again",
}


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Counts of the files of a change that a reader may see.

    `hidden` counts the others.
    """

    read: int = 0  # completely
    partial: int = 0
    total: int = 0
    hidden: int = 0
    checked: int = 0  # of those read: by the checks alone

    @property
    def checks_only(self) -> bool:
        return bool(self.checked) and self.checked == self.read and not self.partial

    @classmethod
    def count(cls, by_status: Mapping[str, int], hidden: int = 0) -> ReadFiles:
        """Count files by the status of their coverage."""
        reviewed, checked = by_status.get("reviewed", 0), by_status.get("checked", 0)
        partial = by_status.get("partial", 0)
        return cls(
            read=reviewed + checked,
            partial=partial,
            total=sum(by_status.values()),
            hidden=hidden,
            checked=checked,
        )

    def __str__(self) -> str:
        """Return a text such as `4 of 6 files read (1 by checks only), 1 in part`."""
        if self.hidden and not self.total:
            return "none of its files are visible to you"
        read = f"{self.read} of {plural_count(self.total, 'file')} read"
        if self.checked:
            read += ", by checks only" if self.checks_only else f" ({self.checked} by checks only)"
        if self.partial:
            read += f", {self.partial} in part"
        if self.hidden:
            read += f"; {self.total} of {self.total + self.hidden} files are visible to you"
        return read


@dataclass(frozen=True, slots=True)
class Summary:
    """The counts behind headline and sections. `severities` has those that occur, worst first.

    Dismissed findings are counted apart.
    """

    findings: int
    dismissed: int
    files: ReadFiles
    severities: Mapping[str, int]
    changes: str  # such as `1 new, 2 still there, 1 fixed`; empty without an earlier version

    @property
    def headline(self) -> str:
        """Return a text such as `3 findings (1 critical), 4 of 6 files read`."""
        if self.files.hidden and not self.files.total and not self.findings + self.dismissed:
            return "nothing in it that you may read"
        found = plural_count(self.findings, "finding", zero="no")
        worst = [f"{self.severities[name]} {name}" for name in SEVERITIES[:2] if self.severities.get(name)]
        if worst:
            found += f" ({', '.join(worst)})"
        if self.dismissed:
            found += f", {self.dismissed} dismissed"
        return f"{found}, {self.files}"


def summarise(report: Report) -> Summary:
    """Count what a report holds."""
    findings = [finding for finding in report.findings if not finding.is_dismissed]
    return Summary(
        findings=len(findings),
        dismissed=len(report.findings) - len(findings),
        files=ReadFiles.count(Counter(file.status for file in report.coverage), report.hidden_files),
        severities=severities_of(findings),
        changes=_changes(report),
    )


def severities_of(findings: Iterable[ReportFinding]) -> dict[str, int]:
    """Return severity -> count, the worst first."""
    return dict(Counter(finding.severity for finding in sorted(findings, key=rank)))


def in_words(severities: Mapping[str, int]) -> str:
    """Return a text such as `2 medium, 5 low`."""
    return ", ".join(f"{count} {severity}" for severity, count in severities.items())


def rank(finding: ReportFinding) -> int:
    """Return the rank of a finding's severity; unknown ones come last."""
    return SEVERITIES.index(finding.severity) if finding.severity in SEVERITIES else len(SEVERITIES)


def in_order(findings: Iterable[ReportFinding]) -> list[ReportFinding]:
    """Return findings in the order of messages: the worst first, dismissed ones last.

    Of one severity, new ones come before old ones.
    """
    return sorted(
        findings,
        key=lambda f: (f.is_dismissed, rank(f), f.is_new is False, f.file, f.line or 0, f.title),
    )


def notable(report: Report) -> list[ReportFile]:
    """Return the files that were not read completely."""
    return [file for file in report.coverage if file.status not in {"reviewed", "checked"}]


def source_in_words(source: str) -> str:
    """Return who found a finding, such as `found by the check for hidden text`."""
    kind, _, name = source.partition(":")
    if kind == "llm":
        return "found by the language model"
    return f"found by the check for {name.replace('_', ' ')}" if kind == "check" else source.replace("_", " ")


def newness(finding: ReportFinding) -> str:
    """Return `new` or `still there`, or nothing where no version was compared."""
    return {True: "new", False: "still there", None: ""}[finding.is_new]


def tags(finding: ReportFinding) -> list[str]:
    """Return the short facts beside a finding: new or not, category, who found it."""
    return [text for text in (newness(finding), finding.category, source_in_words(finding.source)) if text]


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def status_in_words(status: Ending) -> str:
    return _STATUSES[status]


def _changes(report: Report) -> str:
    if report.since is None:
        return ""
    new = sum(finding.is_new is True for finding in report.findings)
    still = sum(finding.is_new is False for finding in report.findings)
    statuses = [earlier.status for earlier in report.since.earlier]
    parts = [f"{new} new", f"{still} still there"]
    parts += [f"{statuses.count(s)} {words}" for s, words in _STATUSES.items() if s in statuses]
    return ", ".join(parts)
