"""Comparison with the previous version: matches although lines move and models reword."""

from __future__ import annotations

import pytest

from notifications.rendering import ExcerptLine, FindingStatus, Report, ReportFile, ReportFinding
from notifications.rendering.comparison import compared
from tests.notifications.samples import finding, report

FILE = "//depot/main/app.py"


def remark(**changes: object) -> ReportFinding:
    """A model's finding about one line of code."""
    line = changes.get("line", 12)
    code = changes.pop("code", "lock.acquire(timeout=3)")
    fields: dict[str, object] = {
        "category": "bug",
        "line": line,
        "end_line": line,
        "excerpt": (ExcerptLine(str(code), "+", line),) if line else (),  # type: ignore[arg-type]
    }
    return finding(**{**fields, **changes})


def newness(now: list[ReportFinding], before: list[ReportFinding]) -> list[bool | None]:
    return [found.is_new for found in compared(report(findings=tuple(now)), 1, before).findings]


def fates(before: ReportFinding, *coverage: ReportFile) -> list[FindingStatus]:
    found: Report = compared(report(findings=(), coverage=coverage), 1, [before])
    assert found.since is not None
    return [entry.status for entry in found.since.earlier]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"line": 80},  # lines moved
        {"title": "lock is NOT released!"},
        {"severity": "low"},
        {"title": "Acquire without release", "line": 60},  # reworded, the code is the same
        {"code": "lock.acquire(timeout=9)", "line": 60},  # the code changed, the title is the same
        {"title": "Still no release", "code": "lock.acquire(timeout=9)", "line": 14},  # both, but near
    ],
)
def test_a_finding_is_recognised(changes: dict[str, object]) -> None:
    assert newness([remark(**changes)], [remark()]) == [False]


@pytest.mark.parametrize(
    "changes",
    [
        {"file": "//depot/main/other.py"},
        {"title": "The name misleads", "code": "other = 1", "line": 60},
        {"title": "The name misleads", "code": "other = 1", "category": "style"},
        {"title": "The name misleads", "code": "other = 1", "source": "check:secrets"},
    ],
)
def test_another_finding_is_new(changes: dict[str, object]) -> None:
    assert newness([remark(**changes)], [remark()]) == [True]


def test_short_code_such_as_a_brace_matches_nothing() -> None:
    assert newness([remark(title="One", code="}", line=90)], [remark(title="Other", code="}")]) == [True]


def test_numbers_in_a_title_do_not_make_it_another_one() -> None:
    before = finding(title="A file of 4.2 MB was added", line=None, excerpt=(), source="check:large_file")
    now = finding(title="A file of 4.3 MB was added", line=None, excerpt=(), source="check:large_file")
    assert newness([now], [before]) == [False]


def test_each_finding_has_one_partner_and_the_strongest_criterion_wins() -> None:
    near = remark(title="Something else", code="unrelated(code, here)", line=13)
    same = remark(line=300)
    assert newness([near, same], [remark()]) == [True, False]
    assert newness([remark(), remark(line=200)], [remark()]) == [False, True]


@pytest.mark.parametrize(
    ("status", "source", "fate"),
    [
        ("reviewed", "llm", FindingStatus.FIXED),
        ("checked", "llm", FindingStatus.NOT_READ),  # the model did not read it
        ("partial", "llm", FindingStatus.NOT_READ),
        ("skipped", "llm", FindingStatus.NOT_READ),
        ("reviewed", "check:secrets", FindingStatus.FIXED),
        ("checked", "check:secrets", FindingStatus.FIXED),
        ("partial", "check:secrets", FindingStatus.FIXED),
        ("skipped", "check:secrets", FindingStatus.NOT_READ),
    ],
)
def test_a_finding_is_fixed_only_if_its_reviewer_read_the_file_again(
    status: str, source: str, fate: FindingStatus
) -> None:
    assert fates(remark(source=source), ReportFile(FILE, status)) == [fate]


def test_a_finding_goes_with_its_file() -> None:
    assert fates(remark(), ReportFile("//depot/main/other.py", "reviewed")) == [FindingStatus.GONE]


def test_fixed_findings_are_listed_first_worst_first() -> None:
    before = [
        remark(title="a", severity="low"),
        remark(title="b", severity="critical"),
        remark(title="c", file="//depot/main/gone.py", severity="critical"),
    ]
    found = compared(report(findings=(), coverage=(ReportFile(FILE, "reviewed"),)), 4, before)
    assert found.since is not None
    assert found.since.version == 4
    assert [entry.finding.title for entry in found.since.earlier] == ["b", "a", "c"]


def test_the_order_of_rows_does_not_matter() -> None:
    now = (remark(), remark(line=90, title="Other"), remark(line=91, title="Third", code="another.line()"))
    before = [remark(line=12), remark(line=92, title="Third one"), remark(line=5, title="Gone")]
    one = compared(report(findings=now), 1, before)
    other = compared(report(findings=now), 1, list(reversed(before)))
    assert one == other
