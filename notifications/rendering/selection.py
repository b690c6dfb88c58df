"""Chooses what a message shows in full, in one line, or only counts.

Gmail truncates a message's HTML after 102 KB. So the HTML stays below that and says what is left out;
the plain text shows the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from django.utils.html import escape

from notifications.rendering.report import SEVERITIES, EarlierFinding, Report, ReportFile, ReportFinding
from notifications.rendering.summary import in_order, notable, severities_of

MAX_FINDINGS = 50  # in full
MAX_BRIEF = 50  # in one line
MAX_EARLIER = 20
MAX_FILES = 50

# Bytes of HTML. With the frame (6 KB) and its texts they stay below what Gmail shows.
FINDINGS_BYTES = 56_000
BRIEF_BYTES = 10_000
EARLIER_BYTES = 8_000
FILES_BYTES = 10_000
_ROW_BYTES = 190  # of markup around one line of a list

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts of a report that fit, the worst findings first.

    `groups` holds (severity, findings in full), `counts` how many each severity has in all,
    `left_out` how many of each are neither in full nor in `brief`.
    """

    groups: tuple[tuple[str, tuple[ReportFinding, ...]], ...]
    counts: Mapping[str, int]
    brief: tuple[ReportFinding, ...]
    left_out: Mapping[str, int]
    earlier: tuple[EarlierFinding, ...]
    earlier_left_out: int
    files: tuple[ReportFile, ...]
    files_left_out: int


def choose(report: Report, size: Callable[[ReportFinding], int]) -> Shown:
    """Return what fits. `size` gives the bytes of a finding's HTML; the first is always shown."""
    worth, others = _within_budget(report)
    full = fitting(worth[:MAX_FINDINGS], size, FINDINGS_BYTES) or worth[:1]
    rest = in_order([*worth[len(full) :], *others])
    brief = fitting(rest[:MAX_BRIEF], lambda f: _row(f.title, f.place, f.severity, *f.notes), BRIEF_BYTES)
    earlier = list(report.since.earlier) if report.since else []
    shown_earlier = fitting(
        earlier[:MAX_EARLIER], lambda e: _row(e.finding.title, e.finding.place), EARLIER_BYTES
    )
    files = notable(report)
    shown_files = fitting(files[:MAX_FILES], lambda f: _row(f.file, f.reason), FILES_BYTES)
    return Shown(
        groups=tuple((name, tuple(group)) for name, group in groupby(full, key=lambda f: f.severity)),
        counts=severities_of(finding for finding in report.findings if not finding.is_dismissed),
        brief=tuple(brief),
        left_out=severities_of(rest[len(brief) :]),
        earlier=tuple(shown_earlier),
        earlier_left_out=len(earlier) - len(shown_earlier),
        files=tuple(shown_files),
        files_left_out=len(files) - len(shown_files),
    )


def _within_budget(report: Report) -> tuple[list[ReportFinding], list[ReportFinding]]:
    """Return the findings to show in full, and the rest.

    In full are the first ones of the report, and the critical. Dismissed ones are among the rest, which has
    no order.
    """
    room = report.budget
    shown: list[ReportFinding] = []
    rest: list[ReportFinding] = []
    for finding in report.findings:
        is_worth = finding.severity == SEVERITIES[0] or (not finding.is_folded and room > 0)
        is_shown = is_worth and not finding.is_dismissed
        room -= is_shown
        (shown if is_shown else rest).append(finding)
    return in_order(shown), rest


def fitting(items: Iterable[T], size: Callable[[T], int], budget: int) -> list[T]:
    """Return the first items, as many as the budget holds."""
    shown: list[T] = []
    for item in items:
        budget -= size(item)
        if budget < 0:
            break
        shown.append(item)
    return shown


def _row(*texts: str) -> int:
    return _ROW_BYTES + sum(len(escape(text).encode()) for text in texts)
