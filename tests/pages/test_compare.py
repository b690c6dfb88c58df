"""The page that compares two versions: lines and findings that differ, for each reader."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import unquote

import pytest
from django.test import Client

from notifications.rendering import Ending
from reviews import verdicts
from reviews.models import Artifact, CoverageRow, ReviewJob, ViewerScope
from reviews.reviewers.prepared_change_codec import DiffLine
from reviews.sources.base import SkipReason
from reviews.web import changed_words, comparison
from reviews.web.budget import Budget
from reviews.web.interdiff import interdiff
from tests import factories
from tests.changes import store_diff
from tests.pages.test_verdicts import client_of, reviewer
from tests.reviewers.build import added, deleted, edited, fake_token, renamed

pytestmark = pytest.mark.django_db

APP, LIB = "//depot/main/app.py", "//depot/secret/lib.py"
BASE = "".join(f"line {number}\n" for number in range(1, 61))


@pytest.fixture
def bob() -> Client:
    return client_of(reviewer("bob"))


def version(number: int, *files: Any, **fields: Any) -> ReviewJob:
    """Return a reviewed version of one changelist whose diff is stored."""
    fields = {"changelist_id": "48213", "review_version": number, "status": "succeeded", **fields}
    job: ReviewJob = factories.ReviewJobFactory(**fields)
    factories.StageRunFactory(job=job, stage="llm", status="succeeded")
    if files:
        store_diff(job, *files)
    for file in files:
        factories.CoverageRowFactory(job=job, file=file.path)
    return job


def page(client: Client, job: ReviewJob, query: str = "") -> str:
    answer = client.get(f"/reviews/{job.pk}/compare/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def lines(text: str) -> list[str]:
    """Return the lines of the diff as `-text` and `+text`."""
    rows = re.findall(r'class="row (\w+)".*?>(.*?)\n</span>', text, re.DOTALL)
    signs = {"added": "+", "removed": "-"}
    return [signs[kind] + unquote(re.sub("<[^>]+>", "", html)) for kind, html in rows if kind in signs]


def replaced(old: str, new: str, file: str = APP) -> Any:
    return edited(file, BASE, BASE.replace(old, new))


def test_only_what_differs_between_the_versions_is_shown(bob: Client) -> None:
    version(1, replaced("line 12\n", "one\n"), replaced("line 3\n", "same\n", LIB))
    later = version(2, replaced("line 12\n", "two <b>\n"), replaced("line 3\n", "same\n", LIB))
    text = page(bob, later)
    assert lines(text) == ["-one", "+two &lt;b&gt;"]
    assert "1 differs, 1 the same in both versions" in text
    assert "secret" not in text


@pytest.mark.parametrize("query", ["", "?with=1"])
def test_the_order_is_that_of_the_versions_whichever_is_asked(bob: Client, query: str) -> None:
    first = version(1, replaced("line 12\n", "one\n"))
    later = version(2, replaced("line 12\n", "two\n"))
    assert lines(page(bob, later, query)) == lines(page(bob, first, "?with=2")) == ["-one", "+two"]


def test_an_edit_that_was_taken_back_and_one_that_came_later(bob: Client) -> None:
    version(1, replaced("line 12\n", "one\n"))
    later = version(2, replaced("line 50\n", "fifty\n"))
    assert lines(page(bob, later)) == ["-one", "+line 12", "-line 50", "+fifty"]


def test_files_that_came_and_went(bob: Client) -> None:
    version(1, added("//depot/main/a.py", "a\n"))
    later = version(2, added("//depot/main/b.py", "b\n"))
    text = page(bob, later)
    assert lines(text) == ["-a", "+b"]
    assert "No longer part of the change" in text
    assert "New in this version" in text


def test_a_moved_edit_of_a_rebased_change_is_no_difference(bob: Client) -> None:
    version(1, replaced("line 12\n", "one\n"))
    rebased = "new head\n" * 9 + BASE
    later = version(2, edited(APP, rebased, rebased.replace("line 12\n", "one\n")))
    assert "Both versions change the same lines" in page(bob, later)


def test_two_heads_of_a_pull_request_are_compared(bob: Client) -> None:
    """A head that was forced on a newer base: what both make of the file is no difference."""
    pull, file = {"changelist_id": "github:shop/app#7"}, "//github/shop/app/app.py"
    version(1, replaced("line 12\n", "one\n", file), **pull)
    rebased = "new head\n" * 9 + BASE
    forced = rebased.replace("line 12\n", "one\n").replace("line 40\n", "forty\n")
    later = version(2, edited(file, rebased, forced), **pull)
    text = page(bob, later)
    assert lines(text) == ["-line 40", "+forty"]
    assert "github:shop/app#7" in text


def test_secrets_stay_redacted(bob: Client) -> None:
    version(1, replaced("line 12\n", "one\n"))
    later = version(2, replaced("line 12\n", f"key = '{fake_token()}'\n"))
    text = page(bob, later)
    assert fake_token() not in text
    assert len(lines(text)) == 2


def test_a_reader_of_some_files_sees_nothing_of_the_others() -> None:
    version(1, replaced("line 12\n", "one\n"), replaced("line 3\n", "three\n", LIB))
    later = version(
        2,
        replaced("line 12\n", "two\n"),
        replaced("line 3\n", "four\n", LIB),
        renamed("//depot/secret/x.py", "//depot/main/x.py", "hidden\n", "shown\n"),
    )
    for job in ReviewJob.objects.all():
        factories.FindingRowFactory(job=job, file=LIB, title=f"Hidden {job.review_version}")
    dora = client_of(reviewer("dora", "//depot/main/..."))
    text = page(dora, later)
    assert lines(text) == ["-one", "+two", "+shown"]
    assert "; 1 more is not visible to you, so it is neither named nor compared" in text
    assert "secret" not in text
    assert "Hidden" not in text
    ViewerScope.objects.all().delete()
    assert dora.get(f"/reviews/{later.pk}/compare/").status_code == 404


def test_a_version_outside_the_scope_is_not_there() -> None:
    version(1, replaced("line 12\n", "one\n", LIB))
    later = version(2, replaced("line 12\n", "two\n"))
    dora = client_of(reviewer("dora", "//depot/main/..."))
    assert dora.get(f"/reviews/{later.pk}/compare/").status_code == 404
    assert dora.get(f"/reviews/{later.pk}/compare/?with=1").status_code == 404


@pytest.mark.parametrize("wanted", ["2", "3", "999999999999", "-1", "x", "1 "])
def test_a_version_that_does_not_exist_is_not_found(bob: Client, wanted: str) -> None:
    version(1, replaced("line 12\n", "one\n"))
    later = version(2, replaced("line 12\n", "two\n"))
    assert bob.get(f"/reviews/{later.pk}/compare/", {"with": wanted}).status_code == 404


def test_a_version_of_another_series_is_not_compared(bob: Client) -> None:
    version(1, replaced("line 12\n", "one\n"), series="key-7")
    later = version(2, replaced("line 12\n", "two\n"))
    assert bob.get(f"/reviews/{later.pk}/compare/?with=1").status_code == 404


def test_findings_are_new_still_there_not_reported_again_or_fixed(bob: Client) -> None:
    first, middle, last = (version(number, replaced("line 12\n", f"{number}\n")) for number in (1, 2, 3))
    still = factories.FindingRowFactory(job=first, title="Kept")
    kept = factories.FindingRowFactory(job=last, title="Kept", identity=still.identity)
    factories.FindingRowFactory(job=last, title="Fresh")
    factories.FindingRowFactory(job=first, title="Silent", ending=Ending.NOT_REPORTED, ended_in=middle)
    # Fixed between the last two only: the first version's row says nothing of it.
    repaired = factories.FindingRowFactory(job=first, title="Mended")
    factories.FindingRowFactory(
        job=middle, title="Mended", identity=repaired.identity, ending=Ending.FIXED, ended_in=last
    )
    answer = bob.get(f"/reviews/{last.pk}/compare/?with=1")
    assert [(one.row.title, one.word) for one in answer.context["findings"].rows] == [
        ("Fresh", "New"),
        ("Kept", "Still there"),
        ("Silent", "Not reported again"),
        ("Mended", "Fixed"),
    ]
    assert f"/reviews/{last.pk}/?view=findings#finding-{kept.pk}" in answer.content.decode()


def test_a_dismissed_finding_says_so(bob: Client) -> None:
    older, newer = (version(number, replaced("line 12\n", f"{number}\n")) for number in (1, 2))
    before = factories.FindingRowFactory(job=older)
    after = factories.FindingRowFactory(job=newer, identity=before.identity)
    verdicts.give(after, "wrong", "bob")
    answer = bob.get(f"/reviews/{newer.pk}/compare/")
    assert [one.word for one in answer.context["findings"].rows] == ["Still there, dismissed as wrong"]


def test_of_a_version_that_was_not_reviewed_nothing_is_claimed(bob: Client) -> None:
    first = version(1, replaced("line 12\n", "one\n"))
    factories.FindingRowFactory(job=first, title="Division by zero")
    later = version(2, replaced("line 12\n", "two\n"))
    later.stages.filter(stage="llm").delete()
    text = page(bob, later)
    assert "Version 2 was not reviewed" in text
    assert "Division by zero" not in text
    assert lines(text) == ["-one", "+two"]


def test_findings_are_compared_when_the_diffs_have_expired(bob: Client) -> None:
    first = version(1, replaced("line 12\n", "one\n"))
    factories.FindingRowFactory(job=first, title="Division by zero")
    later = version(2, replaced("line 12\n", "two\n"))
    Artifact.objects.filter(job=first).update(deleted_at="2026-01-01T00:00:00Z")
    text = page(bob, later)
    assert "The diff of version 1 is no longer stored. Each finding keeps the lines" in text
    assert "Division by zero" in text
    assert lines(text) == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("in_progress", ["Version 2 is not reviewed yet (", "The files of version 2 are not read yet."]),
        (
            "superseded",
            [
                "Version 2 was not reviewed (",
                "Version 2 ended before its files were read, so it has",
            ],
        ),
    ],
)
def test_of_a_version_that_never_ran_no_diff_is_said_to_have_expired(
    bob: Client, status: str, said: list[str]
) -> None:
    version(1, replaced("line 12\n", "one\n"))
    later = version(2, status=status)
    later.stages.all().delete()
    text = page(bob, later)
    assert all(sentence in text for sentence in said)
    assert "stored" not in text.split('id="files-title"')[1].split("</section>")[0]
    assert "keeps the lines" not in text


def test_files_left_out_are_named_up_to_a_bound(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "MAX_LEFT_OUT", 2)
    files = [added(f"//depot/main/{name}.png", None, skipped=SkipReason.BINARY) for name in "abc"]
    version(1, *files)
    later = version(2, *files)
    text = page(bob, later)
    assert "Not compared (3)" in text
    assert "b.png" in text
    assert "c.png" not in text
    assert "These are the first 2;" in text


def followed(client: Client, job: ReviewJob, title: str) -> list[str]:
    """Return the pages of a list of the comparison, as its links lead to them."""
    texts = [page(client, job, "?with=1")]
    while link := re.search(rf'rel="next" href="([^"]+#{title})"', texts[-1]):
        texts.append(page(client, job, unescape(link[1]).partition("#")[0]))
    return texts


def test_each_file_that_differs_is_on_one_of_the_pages(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "PAGE_SIZE", 3)
    monkeypatch.setattr(comparison, "MAX_LINES", 4)
    paths = [f"//depot/main/{name}.py" for name in "abcdefgh"]
    version(1, *(added(path, "x\n") for path in paths))
    later = version(2, *(added(path, f"{path[-4]}\n" * (9 if path[-4] in "af" else 1)) for path in paths))
    texts = followed(bob, later, "files-title")
    # As many lines as a page has room for, and as many files.
    assert [re.findall(r'<h3 class="path">//depot/main/(.).py<', text) for text in texts] == [
        ["a"], ["b", "c"], ["d", "e"], ["f"], ["g", "h"]
    ]  # fmt: skip
    assert "1 to 1 of 8 files" in texts[0]
    assert ">7 more</a>" in texts[0]
    assert "7 to 8 of 8 files" in texts[-1]
    assert all("8 differ, 0 the same in both versions" in text for text in texts)
    assert "First files" not in texts[0]
    assert 'href="?with=1#files-title">First files</a>' in texts[-1]
    for wanted in ("8", "x", "-1", "9" * 12):
        assert "1 to 1 of 8 files" in page(bob, later, f"?files={wanted}")


def test_lines_of_a_file_beyond_the_bound_are_counted(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "MAX_FILE_LINES", 3)
    version(1, added("//depot/main/a.py", "a\n"))
    later = version(2, added("//depot/main/a.py", "a\n" * 9))
    text = page(bob, later)
    assert lines(text) == ["+a", "+a"]
    assert "8 lines added, 0 removed" in text
    assert "6 more lines of this file are not shown" in text


@pytest.mark.long
def test_each_finding_is_on_one_of_the_pages(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "PAGE_SIZE", 2)
    first = version(1, replaced("line 12\n", "one\n"))
    later = version(2, replaced("line 12\n", "two\n"))
    for name in "ABC":
        factories.FindingRowFactory(job=first, title=f"Gone {name}")
        factories.FindingRowFactory(job=later, title=f"New {name}")
    texts = followed(bob, later, "findings-title")
    assert [re.findall(r">((?:New|Gone) .)</a>", text) for text in texts] == [
        ["New A", "New B"], ["New C", "Gone A"], ["Gone B", "Gone C"]
    ]  # fmt: skip
    assert "1 to 2 of 6 findings" in texts[0]
    assert ">4 more</a>" in texts[0]
    assert 'rel="next"' not in texts[-1]


def test_files_without_stored_lines_are_not_called_the_same(bob: Client) -> None:
    binary = added("//depot/main/logo.png", None, skipped=SkipReason.BINARY)
    generated = replaced("line 3\n", "three\n", "//depot/main/lock.py")
    files = (binary, replace(generated, generated="a lock file"), deleted("//depot/main/old.py"))
    version(1, *files, replaced("line 12\n", "one\n"))
    later = version(2, *files, replaced("line 12\n", "two\n"))
    CoverageRow.objects.filter(file__endswith=".png").update(status="skipped", reason="binary file")
    text = page(bob, later)
    assert "1 differs, 2 the same in both versions, 1 not compared" in text
    named = text.split('id="not-compared"')[1].split("</details>")[0]
    assert "Not compared (1): binary file" in named
    assert re.findall(r'class="path">(.*?)</th><td role="cell">(.*?)</td>', named) == [
        ("//depot/main/logo.png", "binary file")
    ]
    version(3, binary)
    version(4, binary)
    text = page(bob, ReviewJob.objects.get(review_version=4))
    assert "No file that is visible to you could be compared" in text
    assert "0 the same in both versions, 1 not compared" in text


def test_a_file_that_got_lines_is_not_called_whole(bob: Client) -> None:
    version(1, added("//depot/main/a.py", None, skipped=SkipReason.BINARY))
    later = version(2, added("//depot/main/a.py", "a\n"))
    text = page(bob, later)
    assert lines(text) == ["+a"]
    assert "Not every line of this file was stored" in text


def test_a_page_says_where_the_steps_of_matching_were_not_enough(
    bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ["//depot/main/a.py", "//depot/main/b.py"]
    version(1, added(files[0], "a\nb\nc\n"), added(files[1], "a\n"))
    later = version(2, added(files[0], "c\nb\na\n"), added(files[1], "a\nb\n"))
    said = "Lines that did not change may appear here as removed and added"
    assert said not in page(bob, later)
    monkeypatch.setattr(comparison, "MAX_STEPS", 3)
    text = page(bob, later)
    assert text.count(said) == 1
    assert text.index(f">{files[0]}<") < text.index(said) < text.index(f">{files[1]}<")


@pytest.mark.long
def test_words_of_hostile_lines_cost_a_page_no_more_than_its_budget(
    bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many files and hunks have them, and also in the tab Files of a version."""
    monkeypatch.setattr(comparison, "MAX_LINES", 1_500)
    old, new = "a " * 50, "a b " * 25
    hostile = "".join(f"{n} {old}\n" + "".join(f"{n}.{at}\n" for at in range(12)) for n in range(30))
    paths = [f"//depot/main/{n}.py" for n in range(3)]
    version(1, *(edited(path, hostile, hostile.replace(old, f"{old}c")) for path in paths))
    later = version(2, *(edited(path, hostile, hostile.replace(old, f"{new}c")) for path in paths))
    spent = []
    differing = changed_words._differing
    monkeypatch.setattr(
        changed_words, "_differing", lambda a, b: (spent.append(len(a) * len(b)), differing(a, b))[1]
    )
    assert len(lines(page(bob, later))) == 180
    assert 0 < sum(spent) <= 400_000
    spent.clear()
    factories.FindingRowFactory(job=later, file=paths[0])
    bob.get(f"/reviews/{later.pk}/?view=files")
    assert 0 < sum(spent) <= 400_000


def test_one_version_alone_has_nothing_to_compare(bob: Client) -> None:
    job = version(1, replaced("line 12\n", "one\n"))
    assert bob.get(f"/reviews/{job.pk}/compare/").status_code == 404
    assert "compare/" not in bob.get(f"/reviews/{job.pk}/").content.decode()
    version(2, replaced("line 12\n", "two\n"))
    assert f"/reviews/{job.pk}/compare/" in bob.get(f"/reviews/{job.pk}/").content.decode()


def hunk(*rows: str) -> list[list[DiffLine]]:
    return [[DiffLine(number, row[0], row[1:]) for number, row in enumerate(rows, 1)]]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ([f"+{number % 2}" for number in range(6_000)], [f"+{number % 3}" for number in range(6_000)]),
        ([f"+{number}" for number in range(6_000)], [f"+{number}" for number in reversed(range(6_000))]),
        (["+x"] * 6_000, ["+x"] * 5_999),
    ],
)
def test_hostile_lines_cost_no_more_steps_than_a_page_has(older: list[str], newer: list[str]) -> None:
    """Lines left without steps count as replaced: none is lost, and the result is still true."""
    for steps in (0, 10_000, 2_000_000):
        budget = Budget(steps)
        rows = [row for part in interdiff(hunk(*older), hunk(*newer), budget) for row in part]
        assert budget.left >= -100_000
        kept = (
            [text for _, kind, text in rows if kind == "-"],
            [text for _, kind, text in rows if kind == "+"],
        )
        assert len(older) - len(kept[0]) == len(newer) - len(kept[1])
