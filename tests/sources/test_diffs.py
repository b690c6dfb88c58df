from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.sources.base import Action, FileChange, SkipReason
from reviews.sources.diffs import (
    MAX_BYTES_PER_SIDE,
    MAX_LINES_PER_SIDE,
    FileDiff,
    diff_file,
    render,
    split_lines,
)
from tests import skips
from tests.reviewers.build import added, deleted, edited, renamed

LINES = st.lists(
    st.sampled_from(["a", "b", "c", "}", "", "  x", "déjà", "form\x0cfeed", "sep\u2028"]), max_size=30
)


def text_of(lines: list[str], *, ends: bool) -> str:
    text = "\n".join(lines)
    return text + "\n" if lines and ends else text


def rebuilt(diff: FileDiff, old: str, side: str) -> str:
    """Return one side of the diff, rebuilt from the old text and the hunks.

    For the old side the text itself must come out.
    """
    old_lines = split_lines(old)
    out: list[str] = []
    at = 0
    for hunk in diff.hunks:
        start = hunk.old_start - 1 if hunk.old_count else hunk.old_start
        out += old_lines[at:start]
        kinds = " +" if side == "new" else " -"
        out += [line.text + ("\n" if line.ends else "") for line in hunk.lines if line.kind in kinds]
        at = start + hunk.old_count
    return "".join(out + old_lines[at:])


@settings(max_examples=skips.examples(300), deadline=None)
@given(LINES, LINES, st.booleans(), st.booleans())
def test_hunks_rebuild_both_sides_exactly(a: list[str], b: list[str], a_ends: bool, b_ends: bool) -> None:
    old, new = text_of(a, ends=a_ends), text_of(b, ends=b_ends)

    diff = diff_file(edited("//depot/f.py", old, new))

    assert rebuilt(diff, old, "new") == new
    assert rebuilt(diff, old, "old") == old
    assert bool(diff.hunks) == (old != new)


@settings(max_examples=skips.examples(200), deadline=None)
@given(LINES, LINES)
def test_line_numbers_name_the_line_they_stand_at(a: list[str], b: list[str]) -> None:
    old, new = text_of(a, ends=True), text_of(b, ends=True)
    old_lines, new_lines = split_lines(old), split_lines(new)

    for hunk in diff_file(edited("//depot/f.py", old, new)).hunks:
        for line in hunk.lines:
            if line.old_no is not None:
                assert old_lines[line.old_no - 1] == line.text + "\n"
            if line.new_no is not None:
                assert new_lines[line.new_no - 1] == line.text + "\n"
            assert (line.old_no is None) == (line.kind == "+")
            assert (line.new_no is None) == (line.kind == "-")


def test_git_accepts_the_rendered_diff(tmp_path: Path) -> None:
    old = "\n".join(f"line {n}" for n in range(60))
    new = old.replace("line 5\n", "line five\n").replace("line 40", "line forty") + "\nlast without end"
    diff = diff_file(edited("f.txt", old + "\n", new))
    (tmp_path / "f.txt").write_text(old + "\n")
    patch = render(diff).text.replace("--- f.txt", "--- a/f.txt").replace("+++ f.txt", "+++ b/f.txt")

    done = subprocess.run(
        ["git", "apply", "-"], cwd=tmp_path, input=patch, text=True, capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f.txt").read_text() == new


def test_places_of_a_rendered_diff_find_every_line_again() -> None:
    diff = diff_file(edited("f.py", "a\nb\nc\nlast", "a\nB\nc\nlast2"))
    shown = render(diff)
    lines = shown.text.split("\n")

    for hunk, header, places in zip(diff.hunks, shown.headers, shown.places, strict=True):
        assert lines[header] == hunk.header
        assert [lines[at] for at in places] == [line.kind + line.text for line in hunk.lines]
    assert lines.count("\\ No newline at end of file") == 2


def test_an_added_file_is_one_hunk_and_a_deleted_one_too() -> None:
    (hunk,) = diff_file(added("f.py", "a\nb\n")).hunks
    assert (hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count) == (0, 0, 1, 2)
    (hunk,) = diff_file(deleted("f.py", "a\nb\n")).hunks
    assert (hunk.old_start, hunk.old_count, hunk.new_start, hunk.new_count) == (1, 2, 0, 0)


def test_an_empty_added_file_and_a_pure_rename_have_no_hunks() -> None:
    assert diff_file(added("f.py", "")).hunks == ()
    assert diff_file(renamed("a.py", "b.py")).hunks == ()


def test_a_skipped_file_keeps_its_reason() -> None:
    diff = diff_file(FileChange("f.bin", Action.ADD, skipped=SkipReason.BINARY))
    assert (diff.skipped, diff.hunks, diff.too_large) == (SkipReason.BINARY, (), False)


@pytest.mark.parametrize(
    "text",
    ["x\n" * (MAX_LINES_PER_SIDE + 1), "x" * (MAX_BYTES_PER_SIDE + 1), "é" * (MAX_BYTES_PER_SIDE // 2 + 1)],
)
@pytest.mark.parametrize("side", ["old", "new"])
def test_a_side_over_the_cap_is_too_large(text: str, side: str) -> None:
    old, new = (text, "a\n") if side == "old" else ("a\n", text)
    diff = diff_file(edited("f.py", old, new))
    assert diff.too_large
    assert diff.hunks == ()


def test_a_side_at_the_cap_is_compared() -> None:
    diff = diff_file(edited("f.py", "x\n" * MAX_LINES_PER_SIDE, "x\n" * (MAX_LINES_PER_SIDE - 1) + "y\n"))
    assert not diff.too_large
    assert [line.text for line in diff.added()] == ["y"]


@pytest.mark.parametrize(
    "kind",
    [
        "every other line changed",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("few distinct lines", "nothing in common")),
    ],
)
def test_hostile_large_files_are_compared_exactly(kind: str) -> None:
    shuffle = random.Random(7)
    if kind == "every other line changed":
        old = [f"line {n}" for n in range(20_000)]
        new = [line if n % 2 else f"changed {n}" for n, line in enumerate(old)]
    elif kind == "few distinct lines":
        old, new = (shuffle.choices([f"v{n}" for n in range(100)], k=20_000) for _ in range(2))
    else:
        old, new = [f"old {n}" for n in range(20_000)], [f"new {n}" for n in range(20_000)]
    before, after = text_of(old, ends=True), text_of(new, ends=True)

    diff = diff_file(edited("f.py", before, after))

    assert rebuilt(diff, before, "new") == after
    if kind == "every other line changed":
        assert sum(1 for _ in diff.added()) == 10_000


def test_a_hunk_reaches_up_to_the_definition_it_is_in() -> None:
    body = "".join(f"    step({n})\n" for n in range(8))
    old = "import x\n\n\ndef run():\n" + body
    diff = diff_file(edited("f.py", old, old.replace("step(6)", "step(66)")))
    assert diff.hunks[0].lines[0].text == "def run():"


def test_a_far_definition_is_named_in_the_header() -> None:
    body = "".join(f"    step({n})\n" for n in range(50))
    old = "def run():\n" + body
    diff = diff_file(edited("f.py", old, old.replace("step(40)", "step(66)")))
    assert diff.hunks[0].header == "@@ -39,7 +39,7 @@ def run():"


def test_hunks_that_grow_into_each_other_are_joined() -> None:
    old = "def a():\n" + "".join(f"    {n}\n" for n in range(30))
    new = old.replace("    2\n", "    two\n").replace("    9\n", "    nine\n")
    diff = diff_file(edited("f.py", old, new))
    numbers = [line.old_no for hunk in diff.hunks for line in hunk.lines if line.old_no]
    assert numbers == sorted(set(numbers))


def test_a_header_names_a_whole_line_or_none() -> None:
    body = "".join(f"    step({n})\n" for n in range(50))
    for length, is_named in [(200, True), (201, False)]:
        head = "d" * length
        old = head + "\n" + body
        (hunk,) = diff_file(edited("f.py", old, old.replace("step(40)", "step(66)"))).hunks
        assert hunk.section == (head if is_named else "")
