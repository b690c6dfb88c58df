"""A model's text is shown whole, and without links that act."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.reviewers.plaintext import plain

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# What acts somewhere: a scheme before an address, a Markdown link or image, www and mailto.
_ACTS = re.compile(
    r"[a-z0-9+.-]://|\]\(\s*<?(?:[a-z][a-z0-9+.-]*:|//|www\.)|!\[[^\]\n]{0,200}\]\(|(?<![a-z0-9])www\."
    r"|(?<![a-z0-9])mailto:\S|(?<![\w:/\\])[/\\]{2,}[a-z0-9]+\.[a-z0-9]|file:[/\\]{2,}[a-z0-9]+\.[a-z0-9]"
    r"|<[a-z][a-z0-9+.-]{1,31}:[^:\s<>][^\s<>]*>|^[ \t>]*\[[^\[\]\\]{1,200}\]:"
    r"|(?<![\w)\]])\[[^\[\]!]*\]\(",
    re.IGNORECASE | re.MULTILINE,
)
_PIECES = st.sampled_from(
    [
        "<",
        ">",
        "</td>",
        "<script>",
        "<!--",
        "-->",
        "a<b",
        "c>d",
        "List<Map<K, V>>",
        "[",
        "]",
        "(",
        ")",
        "![",
        "](",
        "http://",
        "HTTPS://evil.example/x?y=1",
        "www.",
        "mailto:",
        "javascript:",
        "<javascript:",
        "data:",
        "file:",
        "evil.example",
        "&#58;",
        "\\\\",
        "\\",
        "]:",
        "][1]",
        "\n[1]: //evil.example",
        ":",
        "//",
        ".",
        " ",
        "\n",
        "items[0](arg)",
        "`",
        "&lt;",
        "&",
        '"',
        "'",
        "x",
        "\u00e9",
        "\u4e2d",
        "_",
    ]
)
TEXTS = st.one_of(st.lists(_PIECES, max_size=30).map("".join), st.text(max_size=200)).filter(
    lambda text: not _UNSEEN.search(text)
)


@given(TEXTS)
def test_every_visible_character_is_kept_in_order(text: str) -> None:
    shown = plain(text)
    assert re.findall(r"\w+", shown) == re.findall(r"\w+", text)
    left = iter(shown)
    assert all(character in left for character in text.strip())


@given(st.one_of(TEXTS, st.lists(st.one_of(_PIECES, st.characters()), max_size=30).map("".join)))
def test_nothing_in_it_acts_and_saying_it_twice_changes_nothing(text: str) -> None:
    shown = plain(text)
    assert not _ACTS.search(shown)
    assert not _UNSEEN.search(shown)
    assert plain(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "if (a<b && c>d) crash",
        "foo<i + 1>bar",
        "the <script> tag must be closed, otherwise XSS",
        "Missing </td> in the row",
        "Use `List<String>` when a < b and c > d.",
        "<img src=x onerror=alert(1)>x",
        "a<!-- hidden -->b<!-- open",
        "std::map<b, i> m; table<p> t; x->y",
        "#include <string> and <a.h>",
        "call items[0](arg) then",
        "a[i](x) and f(a)[0](&x); b[i][j](k)",
        "x // comment",
        "C:\\\\dir and \\\\n and C:\\\\dir\\\\a.txt and \\\\d+\\\\.\\\\d+",
        "std::vector<std::string> v; d[key]: int = a[1:2]",
        "the [note] and a//b.c",
        "the data:field and file:line of // a comment",
        "//depot/main/a.c and C:\\x\\y",
        "keep\ttabs\nand lines",
    ],
)
def test_code_and_markup_stay_as_they_were_written(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("![pixel](http://evil.example/p.png) see", "![pixel] (http[:]//evil[.]example/p.png) see"),
        ("![pixel](p.png)", "![pixel] (p.png)"),
        ("[click here](https://evil.example/x)", "[click here] (https[:]//evil[.]example/x)"),
        ("[x](javascript:alert(1))", "[x] (javascript:alert(1))"),
        (
            "[![b](http://a.example/i.png)](//evil.example)",
            "[![b] (http[:]//a[.]example/i.png)] (//evil[.]example)",
        ),
        ("[x]: https://evil.example", "[x] : https[:]//evil[.]example"),
        (
            "go to https://ann:pw@evil.example/login.php?x=1 now",
            "go to https[:]//ann:pw@evil[.]example/login.php?x=1 now",
        ),
        ("_http://evil.example", "_http[:]//evil[.]example"),
        ("(www.evil.example)", "(www[.]evil[.]example)"),
        ("mailto:eve@evil.example", "mailto[:]eve@evil[.]example"),
        ("https:\u200b//evil.example", "https[:]//evil[.]example"),
        ("[fix](https&#58;//evil.example/x)", "[fix] (https&#58;//evil[.]example/x)"),
        ("see[fix](https&#58;//evil.example/x)", "see[fix] (https&#58;//evil[.]example/x)"),
        ("see[fix](https\\://evil.example)", "see[fix] (https\\://evil.example)"),
        ("![a [b]](https&#58;//evil.example/x.png)", "![a [b]] (https&#58;//evil[.]example/x.png)"),
        ("[a](javascript&colon;alert(1))", "[a] (javascript&colon;alert(1))"),
        ("<javascript:alert(1)>", "<javascript[:]alert(1)>"),
        ("[a][1]\n\n[1]: //evil.example/x", "[a][1]\n\n[1] : //evil[.]example/x"),
        ("> - [a\nb]: javascript&colon;alert(1)", "> - [a\nb] : javascript&colon;alert(1)"),
        ("<img src=//evil.example/x.png>", "<img src=//evil[.]example/x.png>"),
        ("<a href=//evil.example>", "<a href=//evil[.]example>"),
        ("<a href=/\\evil.example>", "<a href=/\\evil[.]example>"),
        ("file:\\\\evil.example\\x", "file[:]\\\\evil[.]example\\x"),
        ("\\\\evil.example\\share", "\\\\evil[.]example\\share"),
    ],
)
def test_links_images_and_addresses_are_broken_without_losing_text(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pass\u200bword \u202egnp.exe\u202c \x1b[31mred\x00", "password gnp.exe [31mred"),
        ("one\r\ntwo\rthree\u2028four\x0cfive", "one\ntwo\nthree\nfour\nfive"),
    ],
)
def test_invisible_characters_are_removed(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "![",
        "[](",
        "a:",
        "://",
        "www.",
        "mailto:",
        "](" + " " * 9,
        "\n![",
        "x[",
        pytest.param("x[](", marks=pytest.mark.long),
        "[x",
        "\n[1",
        "//",
        "\\\\a",
        "<aa:",
    ],
)
def test_hostile_text_takes_no_quadratic_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    assert len(plain(text)) >= len(text.strip())
