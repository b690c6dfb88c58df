"""Code excerpts: stable line numbers, and untrusted text that is shown as text."""

from __future__ import annotations

import html
import re
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criticizer.invisible_characters import name_invisible
from reviews.templatetags.review_tags import changelist, masked, prose
from reviews.web import changed_words
from reviews.web.budget import Budget
from reviews.web.highlight import MAX_LINE_CHARS, MAX_ROWS, excerpt_rows


def plain(row_html: str) -> str:
    """Return the text that a reader sees of highlighted code."""
    return html.unescape(re.sub(r"<span class=\"[a-z0-9]+\">|</span>", "", row_html))


def test_excerpt_rows_keep_numbers_kinds_and_text() -> None:
    rows = excerpt_rows("//depot/a.py", [[7, " ", "def f():"], [None, "-", "  a"], [8, "+", "  return 1"]])
    assert [(row.number, row.kind, plain(row.html)) for row in rows] == [
        (7, "context", "def f():"),
        (None, "removed", "  a"),
        (8, "added", "  return 1"),
    ]
    assert '<span class="k">def</span>' in rows[0].html


@pytest.mark.parametrize("name", ["a.py", "a.html", "a.md", "a.c", "a.yaml", "Makefile", "a.unknown", ""])
@given(lines=st.lists(st.text(st.characters(exclude_characters="\r\n"), max_size=60), max_size=8))
def test_highlighting_preserves_the_visible_text(name: str, lines: list[str]) -> None:
    rows = excerpt_rows(f"//depot/{name}", [[n, "+", line] for n, line in enumerate(lines, 1)])
    assert [plain(row.html) for row in rows] == [name_invisible(line) for line in lines]
    assert [row.number for row in rows] == list(range(1, len(lines) + 1))


def test_excerpt_escapes_markup() -> None:
    (row,) = excerpt_rows("//depot/a.html", [[1, "+", "<script>alert(1)</script>"]])
    assert "<script" not in row.html


def test_multi_line_string_keeps_one_row_per_line() -> None:
    rows = excerpt_rows("//depot/a.py", [[1, "+", 'x = """'], [2, "+", "two"], [3, "+", '"""']])
    assert [plain(row.html) for row in rows] == ['x = """', "two", '"""']


@pytest.mark.parametrize("stored", [None, {}, "text", [1], [[1, "+"]], [[1, "+", None]], [["a", "+", 5]]])
def test_malformed_excerpt_rows_are_left_out(stored: object) -> None:
    assert excerpt_rows("//depot/a.py", stored) == []


def test_excerpt_rows_and_lines_are_bounded() -> None:
    rows = excerpt_rows("//depot/a.txt", [[n, "+", "x" * 10_000] for n in range(1000)])
    assert len(rows) == MAX_ROWS
    assert len(plain(rows[0].html)) == MAX_LINE_CHARS + 1


def test_prose_filter_marks_code_and_escapes() -> None:
    assert prose("use `a < b` here & `") == "use <code>a &lt; b</code> here &amp; `"


@pytest.mark.parametrize(
    ("recipient", "shown"),
    [
        ("mail:carol@example.com", "mail:c\u2026@example.com"),
        ("webhook:https://ci.example.com/hooks/t0ken", "webhook:https://ci.example.com/\u2026"),
        ("webhook:https://user:pw@ci.example.com/x", "webhook:https://ci.example.com/\u2026"),
        ("odd", "odd:\u2026"),
    ],
)
def test_masked_filter_hides_addresses(recipient: str, shown: str) -> None:
    assert masked(recipient) == shown


def test_words_of_hostile_lines_are_compared_within_a_bound() -> None:
    line = " ".join("ab" for _ in range(58))
    rows = [(n, kind, f"{n} {line}") for _ in range(9) for kind in "-+" for n in range(40)]
    with (
        patch.object(changed_words, "_differing", wraps=changed_words._differing) as compared,
    ):
        changed_words.changed_words(rows, Budget(100_000))
    assert 0 < compared.call_count < 10


@pytest.mark.parametrize("before", ["git:web@", "github:acme/web@", "gitea:acme/web@"])
def test_a_commit_is_shown_by_its_first_twelve_digits(before: str) -> None:
    assert changelist(before + "0123456789abcdef0123456789abcdef01234567") == before + "0123456789ab"
    assert changelist("github:acme/web#12") == "github:acme/web#12"
