"""The lines of a pull request's diff that findings stand at, as its host would show them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from notifications.rendering.report import DiffPlace, ExcerptLine
from reviews.diff_places import place_of, with_places
from reviews.reviewers.prepared_change_codec import DiffLine, FileDiffText
from tests.factories import ReviewJobFactory
from tests.notifications.samples import finding, report

EXCERPT = tuple(ExcerptLine(f"line {number}", "+", number) for number in range(8, 17))
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


def test_only_the_whole_of_the_lines_gets_the_proven_replacement() -> None:
    better = "line 3 better"
    whole = place_of(finding(line=13, end_line=13, replacement=better, file=PATH), diff("   +   "), PREFIX)
    assert whole is not None
    assert whole.replacement == better
    part = place_of(finding(line=13, end_line=30, replacement=better, file=PATH), diff("   +   "), PREFIX)
    assert part is not None
    assert part.replacement == ""


@pytest.mark.django_db
def test_p4_code_review_gets_each_shown_finding_at_its_line_with_the_lines_before() -> None:
    shown = finding(line=13, end_line=14, side="new", excerpt=EXCERPT)
    folded, dismissed = finding(is_folded=True), finding(verdict="wrong")
    found = with_places(ReviewJobFactory(), {"swarm:review-1": report(findings=(shown, folded, dismissed))})
    first, *others = found["swarm:review-1"].findings
    expected = DiffPlace(
        shown.file, 14, 13, "new", "", ("line 9", "line 10", "line 11", "line 12", "line 13")
    )
    assert first.in_diff == expected
    assert [other.in_diff for other in others] == [None, None]


@pytest.mark.parametrize(
    ("hunks", "line", "expected"),
    [(("   ++   ",), 12, 12), (("   ++   ",), 15, 13), (("   ++   ",), 13, 0), (("  --+  ",), 13, 14),
     ((" ++ ", "   +   "), 114, 111)],
)  # fmt: skip
def test_an_unchanged_line_has_its_number_on_the_old_side(
    hunks: tuple[str, ...], line: int, expected: int
) -> None:
    found = diff(*hunks)
    place = place_of(finding(line=line, end_line=line, file=PATH), found, PREFIX)
    assert place
    assert place.old_line == expected
    unknown = place_of(finding(line=line, end_line=line, file=PATH), replace(found, is_whole=False), PREFIX)
    assert unknown
    assert unknown.old_line == 0


def test_a_renamed_file_has_its_old_name() -> None:
    found = replace(diff("   +   "), old_path=f"{PREFIX}src/old%2540.py")
    place = place_of(finding(line=13, end_line=13, file=PATH), found, PREFIX)
    assert place
    assert place.old_path == "src/old%40.py"
