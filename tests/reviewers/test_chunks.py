from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from criticizer.redaction import RedactedText, Redactor
from reviews.reviewers.base import Side
from reviews.reviewers.chunks import MAX_LINE_CHARS, Chunk, pack, review_order, tokens
from reviews.sources.base import FileChange
from reviews.sources.diffs import diff_file, render
from tests.reviewers.build import added, edited, fake_pem, fake_token

D = "//depot/p/"


def packed(files: Sequence[FileChange], budget: int = 2000, naming: int = 20) -> list[Chunk]:
    diffs = [diff_file(file) for file in files]
    rendered = [render(diff) for diff in diffs]
    redacted: list[RedactedText | None] = list(Redactor().redact_all([r.text for r in rendered]))
    return list(pack(diffs, rendered, redacted, [naming] * len(files), budget))


def numbered(count: int, word: str = "line") -> str:
    return "".join(f"{word} {n}\n" for n in range(1, count + 1))


def test_code_comes_before_tests_before_documents_and_directories_stay_together() -> None:
    paths = [
        "//d/docs/a.md",
        "//d/b/x.py",
        "//d/tests/test_x.py",
        "//d/a/y.py",
        "//d/b/a.py",
        "//d/README.md",
    ]
    assert [paths[i] for i in review_order(paths)] == [
        "//d/a/y.py",
        "//d/b/a.py",
        "//d/b/x.py",
        "//d/tests/test_x.py",
        "//d/README.md",
        "//d/docs/a.md",
    ]


def test_the_same_change_is_packed_the_same_way() -> None:
    files = [added(D + f"{name}.py", numbered(60, name)) for name in "cab"]
    assert packed(files, 400) == packed(files, 400)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 120), min_size=1, max_size=6),
    width=st.integers(1, 120),
    budget=st.integers(200, 1500),
)
def test_no_chunk_is_over_its_budget_and_no_line_is_shown_twice(
    sizes: list[int], width: int, budget: int
) -> None:
    files = [added(D + f"f{i}.py", (("x" * width) + "\n") * size) for i, size in enumerate(sizes)]

    chunks = packed(files, budget, naming=15)

    names = [hunk.name for chunk in chunks for hunk in chunk.hunks]
    assert len(names) == len(set(names))
    for chunk in chunks:
        assert sum(tokens(hunk.text) for hunk in chunk.hunks) + 15 * len(chunk.files) <= budget
    shown = {hunk.file: len(hunk.lines) for chunk in chunks for hunk in chunk.hunks}
    clipped = {hunk.file for chunk in chunks for hunk in chunk.hunks if hunk.is_clipped}
    for i, size in enumerate(sizes):
        assert shown.get(i, 0) == size or i in clipped


def test_a_file_over_the_budget_is_split_between_hunks() -> None:
    old = numbered(400)
    new = re.sub(r"line (\d*)50\n", r"changed \g<1>50\n", old)
    chunks = packed([edited(D + "a.py", old, new)], 200)
    assert len(chunks) > 1
    assert [h.name for c in chunks for h in c.hunks] == ["F1H1", "F1H2", "F1H3", "F1H4"]
    assert not any(h.is_clipped for c in chunks for h in c.hunks)


def test_a_hunk_over_the_budget_is_clipped_with_a_mark() -> None:
    (chunk,) = packed([added(D + "a.py", numbered(2000))], 500)
    (hunk,) = chunk.hunks
    assert hunk.is_clipped
    assert f"[... clipped here: {2000 - len(hunk.lines)} more lines are not shown]" in hunk.text.text


def test_an_endless_line_is_clipped_with_a_mark() -> None:
    (chunk,) = packed([added(D + "a.js", "var x;\n" + "y" * 50_000 + "\nvar z;\n")], 5000)
    (hunk,) = chunk.hunks
    assert hunk.is_clipped
    assert [len(line.text) for line in hunk.lines] == [6, MAX_LINE_CHARS - 1, 6]
    assert "y [... line clipped]" in hunk.text.text


def test_new_lines_carry_their_numbers_and_old_ones_stand_apart() -> None:
    old = "def run():\n    a()\n    b()\n    c()\n"
    (chunk,) = packed([edited(D + "a.py", old, old.replace("b()", "bb()"))])
    assert chunk.hunks[0].text.text.split("\n") == [
        "[F1H1] @@ -1,4 +1,4 @@",
        "new:",
        "    1  def run():",
        "    2      a()",
        "    3 +    bb()",
        "    4      c()",
        "old, removed or replaced:",
        "     a()",
        "-    b()",
        "     c()",
    ]


def test_shown_lines_are_what_quotes_are_looked_up_in() -> None:
    (chunk,) = packed([edited(D + "a.py", "a\nb\n", "a\nB\n")])
    lines = [(line.side, line.number, line.kind, line.text) for line in chunk.hunks[0].lines]
    assert lines == [
        (Side.NEW, 1, " ", "a"),
        (Side.NEW, 2, "+", "B"),
        (Side.OLD, 1, " ", "a"),
        (Side.OLD, 2, "-", "b"),
    ]


def test_only_lines_close_to_a_change_count_as_changed() -> None:
    old = "def run():\n" + "".join(f"    step({n})\n" for n in range(12))
    (chunk,) = packed([edited(D + "a.py", old, old.replace("step(8)", "step(88)"))])
    far = [line.text for line in chunk.hunks[0].lines if not line.is_near_change]
    assert far == ["def run():", *(f"    step({n})" for n in range(5))]


def test_a_hunk_that_only_deletes_keeps_what_it_deletes() -> None:
    old = "a\nif not allowed:\n    raise Denied\nb\n"
    (chunk,) = packed([edited(D + "a.py", old, "a\nb\n")])
    assert "-if not allowed:\n-    raise Denied" in chunk.hunks[0].text.text


@pytest.mark.parametrize("budget", range(130, 400, 30))
def test_clipping_never_lets_a_part_of_a_secret_through(budget: int) -> None:
    pem, token = fake_pem(30), fake_token()
    text = numbered(5) + pem + f'token = "{token}"\n' + numbered(5)
    shown = "\n".join(h.text.text for c in packed([added(D + "a.txt", text)], budget) for h in c.hunks)
    for line in pem.split("\n")[1:-2]:
        assert line[:20] not in shown
    assert token[:14] not in shown


def test_braces_in_code_are_shown_as_they_are() -> None:
    (chunk,) = packed([added(D + "a.py", "x = f'{y!r}' + '{0}' + '}{'\n")])
    assert "x = f'{y!r}' + '{0}' + '}{'" in chunk.hunks[0].text.text


def test_a_far_definition_is_named_at_the_head_of_its_hunk_and_redacted() -> None:
    token = fake_token()
    old = f'def run(key="{token}"):\n' + "".join(f"    step({n})\n" for n in range(50))
    (chunk,) = packed([edited(D + "a.py", old, old.replace("step(40)", "step(41)"))])
    head = chunk.hunks[0].text.text.split("\n")[0]
    assert head.startswith('[F1H1] @@ -39,7 +39,7 @@ def run(key="')
    assert token[:16] not in chunk.hunks[0].text.text
