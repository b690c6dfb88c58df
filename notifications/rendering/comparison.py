"""Compares findings with the previous version's: new, still there, fixed, or not read again.

Lines move and a model words the same finding differently each time, so findings are matched by file,
then code and title, then place. A finding is fixed only if its reviewer has read the file again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from notifications.rendering.report import (
    Comparison,
    EarlierFinding,
    FindingStatus,
    Report,
    ReportFile,
    ReportFinding,
)
from notifications.rendering.summary import in_order

MIN_CODE = 12  # characters; shorter code, such as a brace, matches anything
NEARBY_LINES = 3
_STATUSES = tuple(FindingStatus)  # in the order in which messages list them

_Same = Callable[[ReportFinding, ReportFinding], bool]


def compared(report: Report, version: int, earlier: Iterable[ReportFinding]) -> Report:
    """Return the report with its findings marked and `since` filled.

    `earlier` are the findings of `version`, the newest earlier one that was reviewed, without those
    that the recipient may not see.
    """
    still, unmatched = _matched(report.findings, list(earlier))
    files = {file.file: file for file in report.coverage}
    return replace(
        report,
        findings=tuple(
            replace(finding, is_new=index not in still) for index, finding in enumerate(report.findings)
        ),
        since=Comparison(
            version,
            tuple(
                sorted(
                    (EarlierFinding(f, _status(f, files.get(f.file))) for f in in_order(unmatched)),
                    key=lambda entry: _STATUSES.index(entry.status),
                )
            ),
        ),
    )


def _matched(
    findings: Sequence[ReportFinding], earlier: list[ReportFinding]
) -> tuple[set[int], list[ReportFinding]]:
    """Return the indexes of findings with an earlier partner, and earlier ones without one.

    The strongest criteria come first and each finding has one partner, so that a weak match cannot
    take the partner of a strong one.
    """
    still: set[int] = set()
    order = sorted(range(len(findings)), key=lambda index: _place(findings[index]))
    for is_same in _CRITERIA:
        for index in order:
            finding = findings[index]
            partners = [e for e in earlier if e.file == finding.file and is_same(finding, e)]
            if index in still or not partners:
                continue
            still.add(index)
            earlier.remove(min(partners, key=lambda e: (_distance(finding, e), _place(e))))
    return still, earlier


def _place(finding: ReportFinding) -> tuple[str, int, str]:
    return finding.file, finding.line or 0, finding.title


def _distance(one: ReportFinding, other: ReportFinding) -> int:
    return abs((one.line or 0) - (other.line or 0))


def _same_title(one: ReportFinding, other: ReportFinding) -> bool:
    return _words(one.title) == _words(other.title)


def _same_code(one: ReportFinding, other: ReportFinding) -> bool:
    code = _code(one)
    return len(code) >= MIN_CODE and code == _code(other)


def _same_kind(one: ReportFinding, other: ReportFinding) -> bool:
    return (one.source, one.category, one.side) == (other.source, other.category, other.side)


def _same_place(one: ReportFinding, other: ReportFinding) -> bool:
    if one.line is None or other.line is None:
        return one.line == other.line
    return abs(one.line - other.line) <= NEARBY_LINES


_CRITERIA: tuple[_Same, ...] = (
    lambda one, other: _same_title(one, other) and _same_code(one, other),
    lambda one, other: _same_title(one, other) and _same_place(one, other),
    lambda one, other: _same_code(one, other) and _same_kind(one, other),
    lambda one, other: _same_title(one, other) and _same_kind(one, other),
    lambda one, other: _same_place(one, other) and _same_kind(one, other),
)


def _words(title: str) -> tuple[str, ...]:
    # Numbers in a title are measures: "A file of 4.2 MB" is the same finding at 4.3 MB.
    return tuple(re.findall(r"[^\W\d_]+", title.casefold()))


def _code(finding: ReportFinding) -> str:
    return " ".join(word for row in finding.excerpt if finding.covers(row) for word in row.text.split())


def _status(finding: ReportFinding, file: ReportFile | None) -> FindingStatus:
    if file is None:
        return FindingStatus.GONE
    # Checks read every file that is not skipped; the model reads only reviewed files completely.
    readers = {"reviewed", "checked", "partial"} if finding.source.startswith("check:") else {"reviewed"}
    return FindingStatus.FIXED if file.status in readers else FindingStatus.NOT_READ
