"""The lines of a pull request's diff that findings stand at, as its host would show them."""

from __future__ import annotations

import pytest

from notifications.rendering.report import DiffPlace
from reviews.diff_places import place_of, replacement_in
from reviews.reviewers.prepared_codec import DiffLine, FileDiffText
from tests.notifications.samples import finding

PREFIX, PATH = "//github/acme/web/", "//github/acme/web/src/a%2540b.py"


def diff(*kinds: str, path: str = PATH) -> FileDiffText:
    """Return a diff whose hunks have these kinds of lines, from line 10, 110, ... of both sides."""
    hunks = []
    for number, text in enumerate(kinds):
        old = new = 10 + 100 * number
        lines = []
        for kind in text:
            lines.append(DiffLine(old if kind == "-" else new, kind, f"line {len(lines)}"))
            old, new = old + (kind != "+"), new + (kind != "-")
        hunks.append(tuple(lines))
    return FileDiffText(path, None, "edit", tuple(hunks), is_whole=True)


@pytest.mark.parametrize(
    ("hunk", "line", "end", "side", "expected"),
    [
        ("   +   ", 13, None, "new", (13, 13)),
        ("   +   ", 10, None, "new", (10, 10)),  # context is part of the hunk
        ("     +   ", 11, None, "new", None),  # ours reaches further up than the host's
        ("   +      ", 17, None, "new", None),
        ("   +      ", 13, 30, "new", (13, 16)),
        ("   +   ", 9, None, "new", None),
        ("   +   ", None, None, "new", None),
        ("   --+   ", 14, None, "old", (14, 14)),
        ("   --+   ", 10, None, "old", None),
        ("   +       +   ", 17, None, "new", None),  # between two hunks of the host
        ("   +      +   ", 17, None, "new", (17, 17)),
        ("   +       +   ", 13, 21, "new", (13, 16)),  # in one hunk only
    ],
)
def test_a_finding_stands_at_lines_that_the_host_shows(
    hunk: str, line: int | None, end: int | None, side: str, expected: tuple[int, int] | None
) -> None:
    place = place_of(finding(line=line, end_line=end, side=side, file=PATH), diff(hunk), PREFIX)
    assert (place and (place.start_line, place.line)) == expected
    if place:
        assert (place.path, place.side) == ("src/a%40b.py", side)


def test_the_second_hunk_is_searched_too() -> None:
    place = place_of(finding(line=113, end_line=113, suggestion=""), diff(" + ", "   +   "), PREFIX)
    assert place == DiffPlace("src/a%40b.py", 113, 113)


@pytest.mark.parametrize("path", ["//github/acme/other/a.py", PREFIX + "<REDACTED:token:1>.py"])
def test_a_file_that_the_repository_does_not_have_by_that_name_has_no_place(path: str) -> None:
    assert place_of(finding(line=13, end_line=13), diff("   +   ", path=path), PREFIX) is None


def test_only_what_a_depot_path_encodes_is_decoded() -> None:
    path = PREFIX + "a%20b%40c.py"  # the repository's a%20b@c.py
    place = place_of(finding(line=13, end_line=13, file=path), diff("   +   ", path=path), PREFIX)
    assert place
    assert place.path == "a%20b@c.py"


def fenced(text: str, fence: str = "```", language: str = "python") -> str:
    return f"{fence}{language}\n{text}\n{fence}"


QUOTED = ["    with lock:", "        read(path)"]
BETTER = "    with lock:\n        return read(path)"


def replaced(suggestion: str, quoted: list[str] = QUOTED) -> str:
    """Return the replacement of these lines, which stand between two others."""
    texts = ["def first():", *quoted, "    return None"]
    return replacement_in(suggestion, texts, 1, 1 + len(quoted))


def test_a_fenced_replacement_of_the_lines_is_taken() -> None:
    assert replaced(fenced(BETTER)) == BETTER
    assert replaced(fenced(BETTER, "````", "")) == BETTER


@pytest.mark.parametrize(
    ("suggestion", "quoted"),
    [
        ("", QUOTED),
        (BETTER, QUOTED),  # not said to be code
        (f"Do this:\n{fenced(BETTER)}", QUOTED),
        (f"{fenced(BETTER)}\n{fenced(BETTER)}", QUOTED),
        (fenced("with lock:\n    return read(path)"), QUOTED),  # of another indentation
        (fenced("    something_else = entirely(1)"), QUOTED),
        (fenced("\n".join(QUOTED)), QUOTED),  # changes nothing
        (fenced(BETTER.replace("path", "<REDACTED:token:1>")), QUOTED),
        (fenced(BETTER), [QUOTED[0], "        read('<REDACTED:token:1>')"]),
        (fenced(BETTER.replace("path", "'https[:]//x[.]example'")), QUOTED),
        (fenced(BETTER.replace("path", "pa\u202eth")), QUOTED),
        (fenced(BETTER), ["    with lock:\r", "        read(path)\r"]),
        (fenced(BETTER), []),
        (fenced("x = [1, 2]" + " " * 1990), ["x = [1, 2, 3]" + " " * 1987]),  # may have lost its end
        (fenced(BETTER), [QUOTED[0], "        read(\ufffd, path)"]),
        (fenced(BETTER.replace("path", "'\u2400'")), QUOTED),
        (fenced("-x = read(a)\n+x = read(b)", language="diff"), ["x = read(a)"]),
        (fenced(BETTER.replace("path", "path, [a] (b)")), QUOTED),
        (fenced(BETTER.replace("path)", "path")), QUOTED),  # an open bracket
        (fenced(f"{BETTER}\n    return None"), QUOTED),  # repeats the line after them
    ],
)
def test_what_may_not_fit_is_no_replacement(suggestion: str, quoted: list[str]) -> None:
    assert replaced(suggestion, quoted) == ""


def test_a_part_of_the_lines_gets_no_replacement() -> None:
    better = fenced("line 3 better")
    whole = place_of(finding(line=13, end_line=13, suggestion=better, file=PATH), diff("   +   "), PREFIX)
    assert whole is not None
    assert whole.replacement == "line 3 better"
    part = place_of(finding(line=13, end_line=30, suggestion=better, file=PATH), diff("   +   "), PREFIX)
    assert part is not None
    assert part.replacement == ""
