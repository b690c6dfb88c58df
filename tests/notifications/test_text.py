"""The plain text: made for a terminal of 80 columns."""

from __future__ import annotations

from uuid import UUID

import pytest

from notifications.rendering import (
    Comparison,
    EarlierFinding,
    Ending,
    ExcerptLine,
    Report,
    ReportFinding,
    render,
)
from notifications.rendering.prose import blocks
from notifications.rendering.wrapping import WIDTH, width, wrapped
from tests.notifications.samples import finding, report

LONG = "The value that the caller passes is written before it was checked, so " * 6
WIDE = "この変更はロックを解放しないため他の処理が待ち続けることになります。" * 4


def text_of(of: Report, **options: str) -> str:
    return render(of, "mail:ann@example.com", UUID(int=7, version=5), **options).text  # type: ignore[arg-type]


def long_everywhere(text: str) -> Report:
    long = finding(title=text, message=text, suggestion=text, category=text, anchor="finding-1", is_new=True)
    return report(
        title=text,
        banner=text,
        status_lines=(text,),
        findings=(long,) * 60,
        since=Comparison(1, (EarlierFinding(finding(title=text), Ending.FIXED),)),
    )


def test_it_reads_well() -> None:
    found = finding(anchor="finding-3", category="bug", is_new=True)
    earlier = EarlierFinding(finding(title="A credential was added", line=7, end_line=7), Ending.FIXED)
    whole = report(findings=(found,), since=Comparison(1, (earlier,)), banner="No model.")
    assert text_of(whole, unsubscribe_url="https://reviews.test/unsubscribe/x/") == (
        "1 finding (1 high), 1 of 2 files read\n"
        "Read the file under a lock\n"
        "\n"
        "Changelist  12345, version 1\n"
        "Author      bob\n"
        "Review      https://reviews.test/reviews/7/\n"
        "\n"
        "NOTE: No model.\n"
        "\n"
        "SINCE VERSION 1\n"
        "---------------\n"
        "1 new, 0 still there, 1 fixed.\n"
        "\n"
        "HIGH (1)\n"
        "--------\n"
        "\n"
        "The lock is not released\n"
        "//depot/main/app.py:12-14\n"
        "new · bug · found by the language model\n"
        "https://reviews.test/reviews/7/#finding-3\n"
        "\n"
        "  When read() raises, the lock stays taken.\n"
        "\n"
        "  > 12 + lock.acquire()\n"
        "  > 13   read()\n"
        "\n"
        "  Suggestion:\n"
        "      with lock:\n"
        "          read()\n"
        "\n"
        "NO LONGER REPORTED SINCE VERSION 1\n"
        "----------------------------------\n"
        "\n"
        "- fixed: A credential was added (high)\n"
        "  //depot/main/app.py:7\n"
        "\n"
        "WHAT WAS READ\n"
        "-------------\n"
        "1 of 2 files read.\n"
        "- //depot/main/logo.png\n"
        "  skipped: binary\n"
        "\n"
        "-- \n"
        "Sent by Criticizer.\n"
        "Unsubscribe: https://reviews.test/unsubscribe/x/\n"
    )  # fmt: skip


@pytest.mark.parametrize("text", [LONG, WIDE, "a" * 30 + " " + LONG], ids=["words", "wide", "mixed"])
def test_prose_fits_80_columns_whatever_its_script(text: str) -> None:
    lines = text_of(long_everywhere(text)).splitlines()
    assert max(width(line) for line in lines) <= WIDTH < 80


def test_code_paths_and_addresses_are_never_wrapped() -> None:
    code = "value = " + " + ".join(f"part_{n}" for n in range(18))
    path = "//depot/main/" + "/".join(["generated"] * 12) + "/file.py"
    found = finding(
        file=path,
        anchor="finding-1",
        excerpt=(ExcerptLine(code, "+", 12),),
        message=f"Before.\n\n```python\n{code}\n```\nAfter.",
    )
    made = text_of(report(findings=(found,)), unsubscribe_url="https://reviews.test/" + "x" * 90)
    for whole in (f"12 + {code}\n", f"\n    {code}\n", f"\n{path}:12-14\n", "x" * 90 + "\n"):
        assert whole in made
    assert "```" not in made


def test_lines_of_the_finding_are_marked_and_those_around_it_are_not() -> None:
    rows = tuple(ExcerptLine(f"line{n}", "+" if n == 99 else " ", n) for n in (98, 99, 100, 101))
    made = text_of(report(findings=(finding(line=99, end_line=100, excerpt=rows),)))
    assert "     98   line98\n  >  99 + line99\n  > 100   line100\n    101   line101\n" in made


def test_a_common_indent_of_the_code_is_taken_away_and_the_rest_of_it_stays() -> None:
    rows = (ExcerptLine("\t\tif x:", " ", 1), ExcerptLine("", " ", 2), ExcerptLine("\t\t\ty()", "+", 3))
    made = text_of(report(findings=(finding(line=3, end_line=3, excerpt=rows),)))
    assert "    1   if x:\n    2\n  > 3 +     y()\n" in made


def test_an_excerpt_of_an_older_line_marks_the_old_side() -> None:
    rows = (ExcerptLine("gone", "-", 5), ExcerptLine("come", "+", 5))
    found: ReportFinding = finding(line=5, end_line=5, side="old", excerpt=rows)
    assert [found.covers(row) for row in rows] == [True, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo", [("one\ntwo", False)]),
        ("one\n\ntwo", [("one", False), ("two", False)]),
        ("say\n```py\nx = 1\n\ny = 2\n```\nend", [("say", False), ("x = 1\n\ny = 2", True), ("end", False)]),
        ("```\nunfinished", [("unfinished", True)]),
        ("with lock:\n    read()", [("with lock:\n    read()", True)]),
        ("if x:\n    y()\n\n    z()", [("if x:\n    y()\n\n    z()", True)]),
        ("- a list\n  goes on", [("- a list\n  goes on", False)]),
        ("", []),
    ],
)
def test_code_is_told_from_prose(text: str, expected: list[tuple[str, bool]]) -> None:
    assert [(block.text, block.is_code) for block in blocks(text)] == expected


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("", 0), ("\N{HAMMER}", 2)]
)
def test_width_is_what_a_terminal_shows(text: str, columns: int) -> None:
    assert width(text) == columns


def test_wrapping_keeps_words_whole_and_the_texts_own_lines() -> None:
    address = "https://reviews.test/" + "a" * 100
    assert wrapped(f"see {address} there\nend", "  ") == f"  see\n  {address}\n  there\n  end"
