"""Characters that hide or reorder text: each of their five users handles every one of them."""

from __future__ import annotations

import html
import sys
import unicodedata
from datetime import UTC, datetime
from functools import cache
from xml.etree import ElementTree

import pytest

from criticizer.invisible_characters import find_misleading, name_invisible, remove_invisible
from criticizer.redaction import redact
from notifications.rendering.report import Report, clean
from reviews.reviewers.checks import MAX_FINDINGS_PER_CHECK
from reviews.reviewers.checks.hidden_text import invisible_characters
from reviews.reviewers.plaintext import plain
from reviews.templatetags.review_tags import visible
from reviews.web.highlight import excerpt_rows
from tests.reviewers.test_checks import D, added, found

# Format characters that a font shows, such as the Arabic sign of a number.
SHOWN_FORMATS = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
FILLERS = set("\u115f\u1160\u17b4\u17b5\u3164\uffa0\u034f\u180b\u180c\u180d\u180f")
SELECTORS = {chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))}
HIEROGLYPH_JOINERS = {chr(code) for code in range(0x13430, 0x13440)}


# Functions, not constants: the million characters are sorted by the process that tests them, not by
# every process that collects tests.
@cache
def characters() -> dict[str, str]:
    """Return the category of every character there is."""
    return {c: unicodedata.category(c) for c in map(chr, range(sys.maxunicode + 1))}


@cache
def invisible() -> list[str]:
    formats = {c for c, category in characters().items() if category == "Cf"}
    return sorted(formats - SHOWN_FORMATS - HIEROGLYPH_JOINERS | FILLERS | SELECTORS)


@cache
def controls() -> list[str]:
    found = [c for c, category in characters().items() if category in {"Cc", "Zl", "Zp", "Cs"}]
    return [c for c in found if c not in "\t\n\r"] + ["\ufffe", "\uffff"]  # XML has no such characters


def name(character: str) -> str:
    return f"\u27e8U+{ord(character):04X}\u27e9"


def test_the_review_page_names_each() -> None:
    for c in [*invisible(), *controls(), *SHOWN_FORMATS, "\ue000", "\U000f0000"]:
        assert visible(f"a{c}b") == f"a{name(c)}b"
    for c in invisible():
        (row,) = excerpt_rows("//depot/a.txt", [[1, "+", f"a{c}b"]])
        assert html.unescape(row.html) == f"a{name(c)}b", name(c)


def test_an_xml_parser_takes_what_is_named() -> None:
    text = name_invisible("".join(characters()))
    assert ElementTree.fromstring(f"<a>{html.escape(text)}</a>").text == text


def test_a_message_names_each() -> None:
    for c in [*invisible(), *controls()]:
        report = Report("12345", 1, f"a{c}b", "ann", "https://x.example", datetime(2030, 1, 1, tzinfo=UTC))
        assert clean(report).title == f"a{name(c)}b", name(c)


def test_a_models_text_loses_each() -> None:
    assert [name(c) for c in invisible() if plain(f"a{c}b") != "ab"] == []
    assert [name(c) for c in controls() if c in plain(f"a{c}b")] == []


def test_the_check_reports_each_inside_a_word() -> None:
    assert [name(c) for c in invisible() if find_misleading(f"pass{c}word") != c] == []
    for at in range(0, 100, MAX_FINDINGS_PER_CHECK):
        some = invisible()[at : at + MAX_FINDINGS_PER_CHECK]
        text = "".join(f"pass{c}word = 1\n" for c in some)
        assert len(found(invisible_characters, added(D + "a.py", text))) == len(some)


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[8mhidden = 1\x1b[0m",  # a terminal shows nothing of it
        "safe = 1\x08\x08\x08",
        "a\x9b2Kb",
        "# a comment\rimport os",  # Python, YAML and others end the comment there
        "// a comment\u2028evil()",
        "// a comment\x85evil()",
    ],
)
def test_the_check_reports_text_that_viewers_and_programs_read_differently(text: str) -> None:
    assert len(found(invisible_characters, added(D + "a.py", f"{text}\n"))) == 1


@pytest.mark.parametrize(
    "text",
    ["a\tb", "\f", "\f# next page", "last\r", "end\u2028", "a\x85 ", "caf\xe2\x80\x99s", "\u2764\ufe0f"],
)
def test_the_check_is_quiet_on_text_that_all_read_alike(text: str) -> None:
    assert find_misleading(text) == ""


def test_redaction_sees_a_secret_through_each() -> None:
    token = "gho_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    hidden = [c for c in invisible() if token[12:] in redact(f"token {token[:12]}{c}{token[12:]}\n").text]
    assert [name(c) for c in hidden] == []


@pytest.mark.parametrize(
    "text",
    ["Überblick 日本語 👍", "a\tb\n", "\u26a0\ufe0f careful", "1\ufe0f\u20e3 first", "\u2764\ufe0f"],
)
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert name_invisible(text) == text


def test_hidden_text_in_variation_selectors_is_named() -> None:
    assert name_invisible("\u2764\ufe0f\ufe0f\ufe01") == "\u2764\ufe0f\u27e8U+FE0F\u27e9\u27e8U+FE01\u27e9"
    assert name_invisible("x\ufe0f") == "x\u27e8U+FE0F\u27e9"


def test_nothing_visible_is_removed() -> None:
    kept = [c for c, category in characters().items() if category[0] in "LNPSZ" and c not in FILLERS]
    assert remove_invisible("".join(kept)) == "".join(kept)
