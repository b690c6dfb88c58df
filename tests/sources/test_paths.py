from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.sources.paths import decode_path, encode_path, path_fault, printable, storable


@pytest.mark.parametrize(
    ("raw", "encoded"),
    [
        ("a%40b", "a%2540b"),
        ("100%", "100%25"),
        ("C#/x", "C%23/x"),
        ("*", "%2A"),
        ("%2540", "%252540"),
        ("a@b#c*d%e", "a%40b%23c%2Ad%25e"),
        ("plain/name.c", "plain/name.c"),
    ],
)
def test_special_characters_are_encoded_once(raw: str, encoded: str) -> None:
    assert encode_path(raw) == encoded


@given(st.text(alphabet="a%@#*245036A/. é"))
def test_no_two_names_are_encoded_alike(raw: str) -> None:
    assert unquote(encode_path(raw)) == raw
    assert decode_path(encode_path(raw)) == raw


@given(st.text(alphabet="a%@#*245036A é", min_size=1))
def test_every_encoded_name_is_canonical(raw: str) -> None:
    assert path_fault(f"//depot/{encode_path(raw)}") is None


@pytest.mark.parametrize(
    "path",
    [
        None,
        b"//depot/a",
        "",
        "/depot/a",
        "depot/a",
        "//",
        "//depot",
        "//depot/",
        "///depot/a",
        "//depot//a",
        "//depot/a/",
        "//depot/./a",
        "//depot/a/../b",
        "//../a",
        "//de pot/a",
        "//dépôt/a",
        "//depot/a@5",
        "//depot/a#3",
        "//depot/*",
        "//depot/...",
        "//depot/main/.../x",
        "//depot/x...",
        "//depot/[...slug].ts",
        "//depot/%%1",
        "//depot/100%",
        "//depot/%2e%2e/x",
        "//depot/%2F",
        "//depot/a%4",
        "//depot/a\nb",
        "//depot/a\0b",
        "//depot/a\x7fb",
        "//depot/a\x85b",
        "//depot/a\u2028b",
        "//depot/\u202egnp.exe",
        "//depot/\ud800",
        "//depot/" + "a" * 1024,
    ],
)
def test_paths_that_are_not_one_canonical_file_have_a_fault(path: object) -> None:
    assert path_fault(path)


@pytest.mark.parametrize(
    "path",
    [
        "//depot/a",
        "//depot-1.x_y/a b/c",
        "//depot/a%40b/%23%2A%25",
        "//depot/a%2ab",
        "//depot/äöü/日本",
        "//depot/caf\udce9",
        "//depot/..a/b..",
        "//depot/-rf",
    ],
)
def test_ordinary_paths_have_none(path: str) -> None:
    assert path_fault(path) is None


def test_dots_are_a_name_only_for_sources_without_wildcards_and_never_a_whole_segment() -> None:
    assert path_fault("//web/pages/[...slug].tsx", literal_names=True) is None
    assert path_fault("//web/pages/.../x", literal_names=True)
    assert path_fault("//web/..../x", literal_names=True)


def test_shown_text_is_one_bounded_line() -> None:
    assert printable("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert printable("\udce9\u202e") == "\\udce9\\u202e"
    assert len(printable("x" * 5000, 100)) == 100


@given(st.text(alphabet=st.characters(codec=None, categories=("L", "Cs", "Cc"))))
def test_storable_text_can_be_stored(text: str) -> None:
    stored = storable(text)
    stored.encode("utf-8")
    assert "\0" not in stored
    assert len(stored) == len(text)


def test_raw_bytes_of_a_name_are_read_as_cp1252() -> None:
    assert storable("caf\udce9 日本") == "café 日本"
