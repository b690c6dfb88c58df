"""Comparison with the previous version: matches although lines move and models reword."""

from __future__ import annotations

import sys

import pytest

from notifications.rendering import Ending, ExcerptLine, ReportFinding
from reviews.version_comparison import compared
from tests.notifications.samples import finding

FILE = "//depot/main/app.py"


def remark(**changes: object) -> ReportFinding:
    """A model's finding about one line of code."""
    line = changes.get("line", 12)
    code = changes.pop("code", "lock.acquire(timeout=3)")
    fields: dict[str, object] = {
        "source": "llm",
        "category": "bug",
        "line": line,
        "end_line": line,
        "excerpt": (ExcerptLine(str(code), "+", line),) if line else (),  # type: ignore[arg-type]
    }
    return finding(**{**fields, **changes})


def newness(now: list[ReportFinding], before: list[ReportFinding]) -> list[bool]:
    partners = compared(now, before, {}, {}).partners
    return [index not in partners for index in range(len(now))]


def ending(before: ReportFinding, status: str | None, *lines: str, side: str = "new") -> Ending:
    """Return what became of a finding in a file of this coverage, that shows these lines now."""
    coverage = {} if status is None else {FILE: status}
    return compared([], [before], coverage, {(FILE, side): set(lines)}).endings[0]


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
    ("status", "source", "expected"),
    [
        ("reviewed", "llm", Ending.FIXED),
        ("checked", "llm", Ending.NOT_READ),  # the model did not read it
        ("partial", "llm", Ending.NOT_READ),
        ("skipped", "llm", Ending.NOT_READ),
        ("reviewed", "check:secrets", Ending.FIXED),
        ("checked", "check:secrets", Ending.FIXED),
        ("partial", "check:secrets", Ending.FIXED),
        ("skipped", "check:secrets", Ending.NOT_READ),
    ],
)
def test_a_finding_is_fixed_only_if_its_reviewer_read_the_file_again(
    status: str, source: str, expected: Ending
) -> None:
    assert ending(remark(source=source), status, "lock.acquire(timeout=9)") is expected


def test_a_finding_whose_lines_stand_there_unchanged_is_not_fixed() -> None:
    """A model that is silent the second time has fixed nothing."""
    assert ending(remark(), "reviewed", "lock.acquire(timeout=3)") is Ending.NOT_REPORTED


def test_a_finding_of_two_lines_is_fixed_when_one_of_them_changed() -> None:
    rows = tuple(ExcerptLine(text, "+", line) for line, text in ((12, "lock.acquire()"), (13, "work()")))
    both = remark(end_line=13, excerpt=rows)
    assert ending(both, "reviewed", "lock.acquire()", "work()") is Ending.NOT_REPORTED
    assert ending(both, "reviewed", "lock.acquire()") is Ending.FIXED


def test_lines_out_of_sight_prove_nothing() -> None:
    """An unchanged line may only be no longer near a change, which proves nothing.

    A file shown in part has no lines here.
    """
    unchanged = remark(excerpt=(ExcerptLine("lock.acquire(timeout=3)", " ", 12),))
    assert ending(unchanged, "reviewed") is Ending.NOT_REPORTED
    assert ending(remark(), "reviewed", side="old") is Ending.NOT_REPORTED


def test_findings_about_whole_files_are_fixed_for_checks_only() -> None:
    assert ending(remark(line=None), "reviewed") is Ending.NOT_REPORTED
    assert ending(remark(line=None, source="check:large_file"), "reviewed") is Ending.FIXED


def test_a_finding_goes_with_its_file() -> None:
    assert ending(remark(), None) is Ending.GONE


def test_the_order_of_rows_does_not_matter() -> None:
    now = [remark(), remark(line=90, title="Other"), remark(line=91, title="Third", code="another.line()")]
    before = [remark(line=12), remark(line=92, title="Third one"), remark(line=5, title="Gone")]
    last = len(before) - 1
    reverse = {
        index: last - partner for index, partner in compared(now, before[::-1], {}, {}).partners.items()
    }
    assert compared(now, before, {}, {}).partners == reverse


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        # The same defect in other words, and moved.
        ({"title": "No release of the lock", "message": "An error in read() keeps it.", "line": 15}, True),
        ({"title": "Lock leaks on errors", "message": "read() may raise: then the lock is taken."}, True),
        # Other defects of the same lines.
        ({"title": "Three seconds are too short", "message": "Slow disks need a minute."}, False),
        ({"title": "The timeout is ignored", "message": "False is returned, and nobody looks."}, False),
    ],
)
def test_another_defect_of_the_same_lines_is_no_dismissed_one(
    changes: dict[str, object], is_same: bool
) -> None:
    now, before = [remark(**changes)], [remark()]
    assert (0 in compared(now, before, {}, {}, {0}).partners) == is_same
    assert 0 in compared(now, before, {}, {}).partners  # others are still there


def test_thousands_of_findings_in_a_file_are_compared_in_little_time() -> None:
    """Each finding is read a few times, counted in calls, which a slow machine does not change."""
    before = [remark(line=number, code=f"statement number {number}") for number in range(1, 3_001)]
    now = [remark(line=number + 2, code=f"statement number {number}") for number in range(1, 3_001)]
    calls = 0

    def count(frame: object, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        partners = compared(now, before, {}, {}).partners
    finally:
        sys.setprofile(None)
    assert partners == {index: index for index in range(3_000)}
    assert calls < 100 * len(now)
