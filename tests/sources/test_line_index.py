"""Matching many lines in one pass gives the same result as one by one."""

from __future__ import annotations

import itertools
import random

import pytest

from reviews.sources.allowlist import AllowList
from reviews.sources.line_index import LineIndex

LINES = [
    "//depot/main/...",
    "//depot/main/keys/...",
    "//depot/main/*.c",
    "//depot/main/a*b*c.c",
    "//depot/*/src/...",
    "//depot/main/a.c",
    "//depot/libs/*/*/x.h",
    "//demo/...",
]


def matching(lines: list[str], *paths: str, case_sensitive: bool = True) -> set[str]:
    return LineIndex(lines, case_sensitive=case_sensitive).matching(paths)


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("//depot/main/a.c", {LINES[0], LINES[2], LINES[5]}),
        ("//depot/main/axbyc.c", {LINES[0], LINES[2], LINES[3]}),
        ("//depot/main/keys/id", {LINES[0], LINES[1]}),
        ("//depot/main/keys", {LINES[0]}),  # a file of that name, not what lies below it
        ("//depot/mainline/a.c", set()),
        ("//depot/main", set()),
        ("//depot/dev/src/a/b", {LINES[4]}),
        ("//depot/dev/src", set()),
        ("//depot/libs/a/b/x.h", {LINES[6]}),
        ("//depot/libs/a/x.h", set()),
        ("//demo/README", {LINES[7]}),
        ("//Depot/main/a.c", set()),
        ("no path", set()),
    ],
)
def test_a_path_is_matched_by_its_lines(path: str, lines: set[str]) -> None:
    assert matching(LINES, path) == lines


def test_the_answers_are_those_of_the_allow_list_line_by_line() -> None:
    chance = random.Random(7)
    names = ["a", "ab", "b.c", "main", "src", "x%40y", "a*"]
    lines = []
    for _ in range(200):
        levels = ["depot", *(chance.choice(names) for _ in range(chance.randint(1, 4)))]
        lines.append("//" + "/".join(levels) + chance.choice(["", "/...", "/*", "/*.c"]))
    lines = list(dict.fromkeys(lines))
    paths = [
        "//depot/" + "/".join(chance.choice(["a", "ab", "b.c", "main", "src", "x%40y"]) for _ in range(depth))
        for depth in (1, 2, 3, 4)
        for _ in range(30)
    ]
    lists = {line: AllowList([line]) for line in lines}
    expected = {line for line in lines if any(lists[line].decide(path).allowed for path in paths)}
    assert matching(lines, *paths) == expected
    assert 20 < len(expected) < len(lines)


def test_a_server_that_ignores_case_is_matched_ignoring_it() -> None:
    lines = ["//depot/Main/...", "//DEPOT/main/...", "//depot/other/..."]
    assert matching(lines, "//Depot/MAIN/a.c", case_sensitive=False) == set(lines[:2])
    assert matching(lines, "//depot/Main/a.c") == {lines[0]}


@pytest.mark.parametrize(
    "line", ["", "depot/...", "-//depot/main/...", "//depot/../x/...", "//...", "//depot/ma...", "//d/.../x"]
)
def test_a_line_that_is_not_valid_or_excludes_matches_nothing(line: str) -> None:
    index = LineIndex([line, "//depot/main/a.c"])
    assert index.matching(["//depot/main/a.c", "//depot/other"]) == {"//depot/main/a.c"}
    assert index.rejected == [line]


def test_thousands_of_lines_cost_no_more_than_a_few_steps_a_path() -> None:
    paths = [f"//depot/main/part{n % 50}/dir{n % 7}/file{n}.c" for n in range(2000)]
    steps = {}
    for count in (10, 10_000):
        lines = [f"//depot/main/part{n % 97}/dir{n}/..." for n in range(count)]
        lines += [f"//depot/main/part{n}/..." for n in range(50)] + ["//depot/main/part1/dir1/*.c"]
        index = LineIndex(lines)
        assert len(index.matching(paths)) >= 50
        steps[count] = index.steps
    # A pass over the levels of each path: a thousand times the lines, the same work.
    depth = 7
    assert steps[10_000] <= len(paths) * depth + 500
    assert steps[10_000] <= steps[10] + 500


@pytest.mark.parametrize(
    "name",
    [
        "*x{}.c",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("part{}*.c", "a*b*file{}.c", "{}*")),
    ],
)
def test_thousands_of_names_with_a_star_in_one_directory_are_not_tried_one_by_one(name: str) -> None:
    paths = [f"//depot/main/part{n % 50}/file{n}.c" for n in range(500)]
    index = LineIndex([f"//depot/main/*/{name.format(n)}" for n in range(5000)])
    index.matching(paths)
    assert index.steps <= len(paths) * 10


def test_equal_lines_of_many_people_are_compared_once() -> None:
    paths = [f"//depot/main/{name}.c" for name in map("".join, itertools.product("abc", repeat=3))]
    index = LineIndex(["//depot/main/*.c"] * 5000)
    assert index.matching(paths) == {"//depot/main/*.c"}
    assert index.steps <= len(paths) * 5
