"""Globs of `.criticizer.yml`."""

from __future__ import annotations

import pytest

from reviews.configuration.globs import Globs, fault_of
from reviews.configuration.kinds import compiled
from tests.effort import calls_of

TABLE = [
    ("**", "a.py", True),
    ("**", "a/b/c.py", True),
    ("**/x", "x", True),
    ("**/x", "a/x", True),
    ("**/x", "a/b/x", True),
    ("**/x", "ax", False),
    ("**/x", "x/y", False),
    ("a/**", "a/b", True),
    ("a/**", "a/b/c", True),
    ("a/**", "a", False),
    ("a/**", "ab/c", False),
    ("a/**/b", "a/b", True),
    ("a/**/b", "a/x/b", True),
    ("a/**/b", "a/x/y/b", True),
    ("a/**/b", "a/xb", False),
    ("docs/", "docs/a.md", True),
    ("docs/", "docs/a/b.md", True),
    ("docs/", "docs", False),
    ("docs/", "x/docs/a.md", False),
    ("**/docs/", "x/docs/a.md", True),
    ("*.py", "a.py", True),
    ("*.py", "a/b.py", False),
    ("**/*.py", "a/b.py", True),
    ("**/*.py", "b.py", True),
    ("*", ".env", True),
    ("*", "a/.env", False),
    (".github/**", ".github/workflows/a.yml", True),
    ("?.c", "a.c", True),
    ("?.c", "ab.c", False),
    ("?", "/", False),
    ("[a-c].py", "b.py", True),
    ("[a-c].py", "d.py", False),
    ("[!a-c].py", "d.py", True),
    ("[!a-c].py", "b.py", False),
    ("x[!a]y", "x/y", False),
    ("[]]", "]", True),
    ("caf\u00e9.py", "caf\u00e9.py", True),
    ("caf\u00e9.py", "cafe\u0301.py", False),
    ("a b.py", "a b.py", True),
    ("a@b.py", "a@b.py", True),
    ("A.py", "a.py", False),
    ("a.py", "aXpy", False),
    ("a+(b)|c$.py", "a+(b)|c$.py", True),
    ("**/a/**/b/**", "x/a/y/b/z", True),
    ("**/a/**/b/**", "a/b/z", True),
    ("src/**", "src/\udcff.py", True),
    ("a\u2028*", "a\u2028b", True),
    ("*", "a\nb", True),
    ("x/**", "x/a\nb", True),
]


@pytest.mark.parametrize(("glob", "path", "expected"), TABLE)
def test_globs(glob: str, path: str, expected: bool) -> None:
    assert fault_of(glob) == ""
    assert Globs([glob]).match(path) is expected


def test_case_counts_where_the_source_says_so() -> None:
    assert not Globs(["Src/**"]).match("src/a")
    assert Globs(["Src/**"], case_sensitive=False).match("sRC/a")


@pytest.mark.parametrize(
    "glob",
    [
        "",
        "/a",
        "a//b",
        "../a",
        "a/./b",
        "a{b,c}",
        "a\\b",
        "a**",
        "**a/b",
        "[a",
        "[z-a]",
        "[!]",
        "[+-9]",
        "a\tb",
        "x" * 201,
        "/",
    ],
)
def test_globs_that_are_refused(glob: str) -> None:
    assert fault_of(glob)


def test_a_pattern_takes_linear_time() -> None:
    """A backtracking matcher would not end.

    `benchmarks.repository_configuration` measures the time of both.
    """
    pattern = compiled("(a+)+$")
    text = "a" * 100_000 + "b"
    assert pattern.search(text) is None
    globs = Globs(["**/a*a*a*a*a*a*a*a*b/**/x"] * 20)
    assert globs.match("a" * 1000) is False
    assert calls_of(lambda: globs.match("a" * 10_000)) == calls_of(lambda: globs.match("a" * 100))
