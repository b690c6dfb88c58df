"""Output lines of the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reviews.demo import report as demo_report

FINDING = {
    "file": "//demo/a.py", "line": 9, "end_line": 10, "side": "new", "severity": "critical",
    "title": "Secret added: github token",
}  # fmt: skip


def job(**changes: Any) -> dict[str, Any]:
    return {
        "changelist_id": "git:demo@" + "a" * 40,
        "status": "succeeded",
        "findings": [],
        "coverage": [{"file": "//demo/a.py", "status": "checked"}],
        **changes,
    }


def test_report_shows_location_severity_and_lines_of_a_finding() -> None:
    excerpt = [
        (8, " ", "import x"),
        (9, "-", "old"),
        (9, "+", "<REDACTED>"),
        (10, "+", "y\t= 1"),
        (11, " ", ""),
    ]
    lines = list(demo_report.lines("[1/1] A change", job(findings=[FINDING]), [excerpt], ["/mail/1"]))
    assert lines == [
        "",
        "[1/1] A change",
        "      git:demo@" + "a" * 40,
        "      succeeded, 1 finding, 1 of 1 file read, by checks only",
        "",
        "   !! critical //demo/a.py:9",
        "      Secret added: github token",
        "         8   import x",
        "         9 - old",
        "      >  9 + <REDACTED>",
        "      > 10 + y   = 1",
        "",
        "      mail: /mail/1",
    ]


def test_report_marks_removed_lines_of_an_old_side_finding() -> None:
    finding = {**FINDING, "side": "old", "end_line": None}
    excerpt = [(9, "-", "gone"), (9, "+", "came")]
    lines = list(demo_report.lines("x", job(findings=[finding]), [excerpt], []))
    assert "      > 9 - gone" in lines
    assert "        9 + came" in lines


def test_report_lines_fit_the_terminal_and_hold_no_control_characters() -> None:
    excerpt = [(9, "+", "\x1b[2J" + "wide " * 40)]
    finding = {**FINDING, "title": "long " * 40}
    found = job(findings=[finding] * 20, coverage=[{"file": f"//demo/{'d/' * 60}{n}", "status": "skipped"}
                                                   for n in range(9)])  # fmt: skip
    lines = list(demo_report.lines("subject " * 20, found, [excerpt] * 20, []))
    assert max(map(len, lines)) <= demo_report.WIDTH
    assert all(line.isprintable() for line in lines)
    assert "      and 8 more" in lines  # findings
    assert "      and 6 more" in lines  # files
    assert "0 of 9 files read" in lines[3]


def test_closing_names_the_mail_directory_and_the_life_of_links() -> None:
    stopped = demo_report.closing(Path("/data/mail/new"), keep=False)
    assert "/data/mail/new/" in stopped
    assert "make demo KEEP=1" in " ".join(stopped.split())
    assert "until you press Ctrl-C" in demo_report.closing(Path("/data/mail/new"), keep=True)
