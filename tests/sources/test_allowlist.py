from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.sources.allowlist import AllowList, effective, validate_line

KEYS = ("//depot/main/...", "-//depot/main/keys/...", "//depot/main/keys/public/...")


@pytest.mark.parametrize(
    ("lines", "path", "allowed"),
    [
        (KEYS, "//depot/main/a", True),
        (KEYS, "//depot/main/keys/id", False),
        (KEYS, "//depot/main/keys/public/x", True),
        (KEYS, "//depot/mainline/a", False),
        (KEYS, "//depot/main", False),
        (KEYS, "//Depot/main/a", False),
        (("//depot/main/...", "-//depot/main/sec..."), "//depot/main/sec/x", False),
        (("//depot/main/...", "-//depot/main/sec..."), "//depot/main/secret", False),
        (("//depot/main/...", "-//depot/main/sec..."), "//depot/main/second.c", False),
        (("//depot/main/...", "-//depot/main/sec..."), "//depot/main/se", True),
        (("//d/a*",), "//d/abc", True),
        (("//d/a*",), "//d/a", True),
        (("//d/a*",), "//d/abc/d", False),
        (("//d/*/x*y*z",), "//d/q/x1y2z", True),
        (("//d/*/x*y*z",), "//d/q/xzy", False),
        (("//d/*/x*y*z",), "//d/q/r/xyz", False),
        (("//d/a*a",), "//d/a", False),
        (("//d/f.c",), "//d/f.c", True),
        (("//d/f.c",), "//d/f.c/x", False),
        (("//d/C%23/...",), "//d/C%23/x", True),
        (("//d/a%2ab/...",), "//d/a%2Ab/x", True),
        # An exclusion before the include that it should limit has no effect.
        (("-//d/s/...", "//d/..."), "//d/s/a", True),
        (("//depot/...",), "//depot/any/where", True),
        (("//depot/...",), "//other/any", False),
    ],
)
def test_the_last_matching_line_decides(lines: tuple[str, ...], path: str, allowed: bool) -> None:
    decision = AllowList(lines).decide(path)
    assert decision.allowed is allowed
    assert decision.reason


def test_a_decision_names_its_line() -> None:
    assert AllowList(KEYS).decide("//depot/main/keys/id").line == "-//depot/main/keys/..."
    assert AllowList(KEYS).decide("//other/x").line is None


@pytest.mark.parametrize(
    "path",
    [
        None,
        7,
        "",
        "//depot/main/../secret/x",
        "//depot/main//x",
        "//depot/main/.../x",
        "//depot/main/./x",
        "//depot/main/x@5",
        "//depot/main/x#1",
        "//depot/main/*",
        "//depot/main/%%1",
        "//depot/main/%2e%2e/secret",
        "//depot/main/x\n//depot/main/y",
        "//depot/main/x\0",
        "//depot/main/",
        "/depot/main/x",
        "-//depot/main/x",
        "//depot/main/" + "x" * 2000,
        "//depot/main/\u202ex",
    ],
)
def test_hostile_paths_are_denied_although_a_line_would_match(path: object) -> None:
    decision = AllowList(["//depot/main/..."]).decide(path)
    assert not decision.allowed
    assert decision.line is None


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("", "//depot"),
        ("   ", "//depot"),
        ("depot/main/...", "//depot/directory/..."),
        ("/depot/main/...", "//depot/directory/..."),
        ("...", "//depot/directory/..."),
        ("//...", "canonical"),
        ("//*/main/...", "name each depot"),
        ("//dep*/main/...", "name each depot"),
        ("//depot", "canonical"),
        ("//depot/main...", "write //depot/main/... instead"),
        ("//depot/.../x", "at the end"),
        ("//depot/.../x/...", "at the end"),
        ("-//depot/.../x/...", "at the end"),
        ("//depot/main/", "canonical"),
        ("//depot//main/...", "canonical"),
        ("//depot/../main/...", "canonical"),
        ("//depot/./...", "canonical"),
        ("//depot/a@b/...", "%40"),
        ("//depot/a#b/...", "%23"),
        ("//depot/100%/...", "%25"),
        ("//depot/%%1/...", "positional"),
        ("+//depot/main/...", "//depot/directory/..."),
        ("&//depot/main/...", "//depot/directory/..."),
        ('"//depot/a b/..."', "//depot/directory/..."),
        ("--//depot/main/...", "//depot/directory/..."),
        ("//depot/a\nb/...", "canonical"),
        ("//depot/" + "a" * 1100, "1024"),
    ],
)
def test_lines_that_are_not_canonical_or_too_broad_are_refused_with_a_hint(line: str, hint: str) -> None:
    with pytest.raises(ValueError) as caught:
        AllowList(["//depot/main/...", line])
    assert hint in str(caught.value)
    with pytest.raises(ValueError):
        validate_line(line)


@pytest.mark.parametrize("lines", [[], ["-//depot/main/..."]])
def test_a_list_that_includes_nothing_is_refused(lines: list[str]) -> None:
    with pytest.raises(ValueError, match="//depot/projectA"):
        AllowList(lines)


def test_case_is_ignored_only_where_the_server_ignores_it() -> None:
    sensitive = AllowList(KEYS)
    insensitive = sensitive.with_case(False)
    assert insensitive.decide("//Depot/MAIN/a").allowed
    assert not insensitive.decide("//depot/main/KEYS/id").allowed
    assert sensitive.decide("//depot/main/KEYS/id").allowed
    assert insensitive.with_case(True).decide("//Depot/main/a").allowed is False


@pytest.mark.parametrize(
    ("rows", "path", "allowed"),
    [
        ([], "//depot/main/a", True),
        (["//depot/main/web/..."], "//depot/main/web/a", True),
        (["//depot/main/web/..."], "//depot/main/core/a", False),
        (["//depot/main/web/...", "//secret/..."], "//secret/a", False),
        (["//depot/main/keys/..."], "//depot/main/keys/id", False),
        (["-//depot/main/legal/..."], "//depot/main/a", True),
        (["-//depot/main/legal/..."], "//depot/main/legal/a", False),
        (["-//depot/main/legal/..."], "//secret/a", False),
    ],
)
def test_rows_narrow_the_ceiling_and_never_widen_it(rows: list[str], path: str, allowed: bool) -> None:
    ceiling = AllowList(KEYS)
    assert effective(ceiling, rows).decide(path).allowed is allowed


def test_the_ceiling_says_that_it_decided() -> None:
    narrowed = AllowList(["//secret/..."]).within(AllowList(KEYS))
    assert "ceiling" in narrowed.decide("//secret/a").reason
    assert not narrowed.may_touch("//secret/")


def test_the_ceiling_follows_the_case_of_the_server() -> None:
    narrowed = effective(AllowList(KEYS), ["//depot/main/web/..."]).with_case(False)
    assert narrowed.decide("//DEPOT/main/Web/a").allowed
    assert not narrowed.decide("//depot/main/Keys/id").allowed


@pytest.mark.parametrize(
    ("lines", "prefix", "possible"),
    [
        (["//app/..."], "//app/", True),
        (["//app/..."], "//app", True),
        (["//app/..."], "//application/", False),
        (["//app/src/..."], "//app/", True),
        (["//app/src/..."], "//app/src/deep", True),
        (["//app/src/..."], "//app/docs", False),
        (["//app/f.c"], "//app/", True),
        (["//app/f.c"], "//app/f.c", False),
        (["//app/*/x/..."], "//app/any", True),
        (["//app/...", "-//app/..."], "//app/", False),
        (["//app/...", "-//app/keys/..."], "//app/keys/old", False),
        (["//app/...", "-//app/keys/...", "//app/keys/public/..."], "//app/keys", True),
        (["//app/...", "-//app/ke..."], "//app/keys", False),
        (["//app/..."], "//app/../x", False),
        (["//app/..."], "", False),
    ],
)
def test_a_prefix_says_whether_anything_below_it_could_be_allowed(
    lines: list[str], prefix: str, possible: bool
) -> None:
    assert AllowList(lines).may_touch(prefix) is possible


_SEGMENT = st.text(alphabet="ab*", min_size=1, max_size=6)


@given(
    st.lists(_SEGMENT, min_size=1, max_size=3),
    st.lists(st.text(alphabet="ab", min_size=1, max_size=8), min_size=1),
)
def test_stars_match_as_a_plain_reading_of_them_would(pattern: list[str], segments: list[str]) -> None:
    def matches(glob: str, name: str) -> bool:
        if not glob:
            return not name
        if glob[0] == "*":
            return any(matches(glob[1:], name[cut:]) for cut in range(len(name) + 1))
        return bool(name) and glob[0] == name[0] and matches(glob[1:], name[1:])

    expected = len(pattern) == len(segments) and all(map(matches, pattern, segments))
    assert AllowList(["//d/" + "/".join(pattern)]).decide("//d/" + "/".join(segments)).allowed is expected


@given(
    st.lists(
        st.sampled_from(
            ["//d/a/...", "-//d/a/b/...", "//d/a/b/c/...", "-//d/a*/...", "//d/*/b", "-//d/a/b..."]
        )
    ),
    st.lists(st.sampled_from(["a", "ab", "b", "c"]), min_size=1, max_size=4),
)
def test_an_allowed_path_always_passes_the_check_of_its_directories(
    lines: list[str], segments: list[str]
) -> None:
    allow_list = AllowList(["//d/a/x", *lines])
    if allow_list.decide("//d/" + "/".join(segments)).allowed:
        for depth in range(len(segments)):
            assert allow_list.may_touch("//d/" + "/".join(segments[:depth]))


def test_many_stars_cost_no_backtracking() -> None:
    allow_list = AllowList(["//d/" + "*a" * 400 + "*b"])
    before = time.process_time()
    assert not allow_list.decide("//d/" + "a" * 1000).allowed
    assert time.process_time() - before < 5  # a backtracking matcher would not end at all


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("//depot/strasse/...", "//depot/straße/a"),
        ("//depot/straße/...", "//depot/strasse/a"),
        ("//depot/src/...", "//depot/\u017frc/a"),
        ("//depot/kernel/...", "//depot/\u212aernel/a"),
        ("//depot/istanbul/...", "//depot/İstanbul/a"),
        ("//depot/istanbul/...", "//depot/\u0131stanbul/a"),
        ("//depot/ärger/...", "//depot/Ärger/a"),
        ("//depot/file/...", "//depot/ﬁle/a"),
    ],
)
def test_only_a_to_z_fold_where_a_line_includes_and_all_letters_where_it_excludes(
    line: str, path: str
) -> None:
    included = AllowList([line], case_sensitive=False)
    assert included.decide(line.replace("...", "a").replace("depot", "DEPOT")).allowed
    assert not included.decide(path).allowed
    for one, other in ((line, path), (path.replace("/a", "/..."), line.replace("...", "a"))):
        excluding = AllowList(["//depot/...", f"-{one}"], case_sensitive=False)
        assert not excluding.decide(other).allowed
        assert not excluding.may_touch(other.removesuffix("/a"))
        assert AllowList(["//depot/...", f"-{one}"]).decide(other).allowed  # as git compares
