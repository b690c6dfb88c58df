"""The diff for people: whole hunks, lines around them, and files that no model is sent."""

from __future__ import annotations

import json

import pytest

from criticizer.redaction import Redactor
from reviews.reviewers import people_diff, prepared_change_codec
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.reviewers.prepared_change_codec import FileDiffText, diffs_of
from reviews.sources.base import FileChange
from tests.reviewers.build import added, change, deleted, edited, fake_pem, fake_token

OLD = "".join(f"a{number}\n" for number in range(1, 3001))
NEW = "".join(f"b{number}\n" for number in range(1, 3001))
SMALL = ReviewLimits(max_input_tokens=9_000)


def stored(*files: FileChange, limits: ReviewLimits = SMALL) -> bytes:
    return prepared_change_codec.to_json(prepare(change(*files), Redactor(), limits), "r")


def sides(diff: FileDiffText) -> tuple[str, str]:
    """Return what is removed and what is added."""
    old, new = (
        "".join(f"{line.text}\n" for hunk in diff.hunks for line in hunk if line.kind == kind)
        for kind in "-+"
    )
    return old, new


def test_a_file_of_3000_lines_is_whole_where_the_model_sees_a_part() -> None:
    """Guarantee G451."""
    data = stored(edited("//d/a.py", OLD, NEW), added("//d/b.py", NEW))
    rewritten, new = diffs_of(data)
    assert sides(rewritten) == (OLD, NEW)
    assert sides(new) == ("", NEW)
    assert rewritten.is_whole
    assert new.is_whole
    opened = prepared_change_codec.from_json(data, "r", {})
    assert opened is not None
    assert opened.people == ()  # not for the model's stage
    assert "a2999" not in "".join(hunk.text.text for chunk in opened.chunks for hunk in chunk.hunks)


def test_files_that_no_model_is_sent_have_their_lines() -> None:
    files = [edited("//d/uv.lock", "x\n", "y\n"), added("//d/g.py", "made\n", generated="by a tool")]
    found = diffs_of(stored(*files, deleted("//d/old.py", "gone\n")))
    assert [sides(diff) for diff in found] == [("x\n", "y\n"), ("", "made\n"), ("gone\n", "")]


def test_lines_around_a_hunk_are_redacted_and_numbered() -> None:
    base = [f"line {number}\n" for number in range(1, 201)]
    base[84] = f"key = '{fake_token()}'\n"
    text = "".join(base)
    (diff,) = diffs_of(stored(edited("//d/a.txt", text, text.replace("line 100\n", "hundred\n"))))
    assert len(diff.hunks) == 1
    wide = diff.with_context().hunks
    assert [line.number for line in wide[0] if line.kind != "-"] == list(range(wide[0][0].number, 124))
    assert wide[0][0].number <= 77
    assert fake_token() not in "".join(line.text for line in wide[0])
    assert {line.number: line.text for line in wide[0]}[85].startswith("key = ")
    assert [line.text for line in wide[0] if line.number == 100] == ["line 100", "hundred"]


def test_hunks_whose_context_meets_are_shown_as_one() -> None:
    base = "".join(f"line {number}\n" for number in range(1, 201))
    text = (
        base.replace("line 50\n", "fifty\n").replace("line 80\n", "eighty\n").replace("line 180\n", "new\n")
    )
    (diff,) = diffs_of(stored(edited("//d/a.txt", base, text)))
    assert len(diff.hunks) == 3
    first, second = diff.with_context().hunks
    assert [line.number for line in first if line.kind != "-"] == list(range(first[0].number, 104))
    assert second[-1].number == 200


def test_no_secret_of_what_only_people_see_is_stored() -> None:
    secret = f"token = '{fake_token()}'\n"
    base = "".join(f"line {number}\n" for number in range(1, 41))
    pem = fake_pem()
    data = stored(
        edited("//d/a.txt", pem + base, pem + base.replace("line 15\n", "fifteen\n")),
        edited("//d/uv.lock", "x\n", secret),
        deleted("//d/old.py", secret),
    ).decode()
    assert fake_token() not in data
    assert pem.split("\n")[3] not in data


def test_what_is_above_the_bounds_is_shown_as_the_model_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people_diff, "MAX_CHARS", 1_000)
    monkeypatch.setattr(people_diff, "MAX_UNSENT_CHARS", 10)
    large, lock = diffs_of(stored(edited("//d/a.py", OLD, NEW), edited("//d/uv.lock", "x\n" * 9, "y\n" * 9)))
    assert not large.is_whole
    assert large.hunks
    assert not lock.hunks


def test_a_change_that_an_earlier_release_stored_is_shown() -> None:
    old = json.loads(stored(edited("//d/a.py", "x\n", "y\n")))
    del old["people"]
    (diff,) = diffs_of(json.dumps({**old, "format": 5}).encode())
    assert sides(diff) == ("x\n", "y\n")
    assert diff.is_whole
    assert diff.with_context().hunks == diff.hunks
