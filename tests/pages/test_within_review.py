"""The filter inside one review, on both tabs, and the marks that lead through it."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from reviews.models import ReviewJob
from reviews.web import files_tab
from tests import factories
from tests.changes import store_diff
from tests.pages.test_actions import reader_of_some_files
from tests.pages.test_verdicts import client_of, reviewer
from tests.reviewers.build import added

pytestmark = pytest.mark.django_db

A, B, C = "//depot/main/a.py", "//depot/main/b.py", "//depot/secret/c.py"
FOUND = [
    (A, "critical", "bug", "llm", "Lost"),
    (A, "low", "style", "check:secrets", "Long"),
    (B, "high", "bug", "llm", "Slow"),
    (C, "critical", "security", "llm", "Open"),
]


@pytest.fixture
def bob() -> Client:
    return client_of(reviewer())


@pytest.fixture
def job() -> ReviewJob:
    job: ReviewJob = factories.ReviewJobFactory(status="succeeded", review_version=2, compared_with=1)
    store_diff(job, *(added(file, "x\n") for file in (A, B, C)))
    for file, status in ((A, "reviewed"), (B, "partial"), (C, "checked")):
        factories.CoverageRowFactory(job=job, file=file, status=status)
    for number, (file, severity, category, source, title) in enumerate(FOUND):
        factories.FindingRowFactory(
            job=job,
            file=file,
            severity=severity,
            category=category,
            source=source,
            title=title,
            is_new=number == 0,
        )
    return job


def page(client: Client, job: ReviewJob, query: str = "") -> str:
    answer = client.get(f"/reviews/{job.pk}/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def titles(text: str) -> set[str]:
    return set(re.findall(r"<h4>(\w+)</h4>", text))


@pytest.mark.parametrize("view", ["files", "findings"])
@pytest.mark.parametrize(
    ("query", "wanted", "files"),
    [
        ("severity=critical", {"Lost", "Open"}, {A, C}),
        ("category=bug", {"Lost", "Slow"}, {A, B}),
        ("source=check", {"Long"}, {A}),
        (f"file={A}", {"Lost", "Long"}, {A}),
        (f"file={A}&severity=low", {"Long"}, {A}),
        ("severity=medium", set(), set()),
        ("severity=fatal", {"Lost", "Long", "Slow", "Open"}, {A, B, C}),  # no such severity: no filter
    ],
)
def test_a_review_is_filtered_on_both_tabs(
    bob: Client, job: ReviewJob, view: str, query: str, wanted: set[str], files: set[str]
) -> None:
    """Guarantee G450."""
    text = page(bob, job, f"?view={view}&{query}")
    assert titles(text) == wanted
    assert "2 critical" in text  # the marks count all findings
    if view == "files":
        assert set(re.findall(r'data-path="([^"]+)"', text)) == files


def test_a_live_update_and_a_folded_file_keep_the_filter(
    bob: Client, job: ReviewJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = re.search(r'data-live="([^"]+)"', page(bob, job, "?view=findings&severity=high&noise=1"))
    assert live is not None
    text = bob.get(f"{live[1].replace('&amp;', '&')}&have=nothing").content.decode()
    assert titles(text) == {"Slow"}
    assert "have=" not in text
    assert "noise" not in text
    monkeypatch.setattr(files_tab, "MAX_OPEN_LINES", 0)
    fold = re.search(r'data-src="([^"]+)"', page(bob, job, "?view=files&severity=low"))
    assert fold is not None
    assert titles(bob.get(fold[1].replace("&amp;", "&")).content.decode()) == {"Long"}


def test_a_verdict_returns_to_the_filtered_tab(bob: Client, job: ReviewJob) -> None:
    row = job.findings.get(title="Lost")
    text = page(bob, job, "?view=findings&severity=critical")
    sent = re.search(r'name="filter" value="([^"]+)"', text)
    assert sent is not None
    fields = {
        "verdict": "wrong",
        "view": "findings",
        "filter": sent[1].replace("&amp;", "&") + "&next=//evil",
    }
    answer = bob.post(f"/reviews/{job.pk}/findings/{row.pk}/verdict/", fields)
    assert answer["Location"] == f"/reviews/{job.pk}/?view=findings&severity=critical#finding-{row.pk}"


def test_the_filter_offers_what_the_reader_may_see_only(job: ReviewJob) -> None:
    dave = reader_of_some_files()
    text = page(dave, job)
    assert "security" not in text
    assert C not in text
    assert titles(page(dave, job, f"?file={C}")) == set()


def test_the_tree_counts_by_severity_and_marks_the_coverage(bob: Client, job: ReviewJob) -> None:
    text = page(bob, job)
    tree = text[text.index('class="tree') : text.index('class="diffs"')]
    rows = re.findall(r"<li>(.*?)</li>", tree)
    assert [re.findall(r'data-state="(\w+)"', row) for row in rows] == [
        ["reviewed"],
        ["partial"],
        ["checked"],
    ]
    counts = [re.findall(r'data-severity="(\w+)">(\d)<', row) for row in rows]
    assert counts == [[("critical", "1"), ("low", "1")], [("high", "1")], [("critical", "1")]]


@pytest.mark.parametrize("view", ["files", "findings"])
def test_each_card_says_whether_the_version_before_had_it(bob: Client, job: ReviewJob, view: str) -> None:
    text = page(bob, job, f"?view={view}")
    cards = re.findall(r"<h4>(\w+)</h4>.*?data-status=\"(\w+)\">([\w ]+)<", text, re.DOTALL)
    assert {title: word for title, _, word in cards} == {
        "Lost": "New",
        "Long": "Still there",
        "Slow": "Still there",
        "Open": "Still there",
    }
