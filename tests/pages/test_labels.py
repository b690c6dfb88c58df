"""Labels for reviewers, and the lines of a finding that are marked."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from reviews.reviewers.checks import secrets
from reviews.states import JobStatus
from reviews.web.labels import STATES_FOR_READERS, state_for_readers
from tests import factories

pytestmark = pytest.mark.django_db
FAILED = "Stopped: needs an operator"


@pytest.fixture
def bob(client: Client) -> Client:
    client.force_login(factories.UserFactory())
    return client


def test_reader_labels_differ_for_dead_letters_only() -> None:
    said = dict(STATES_FOR_READERS)
    assert list(said) == JobStatus.values
    assert {key: word for key, word in said.items() if word != JobStatus(key).label} == {
        "dead_lettered": FAILED
    }
    assert state_for_readers("unknown") == "unknown"


def test_reviewer_pages_do_not_show_dead_lettered(bob: Client) -> None:
    job = factories.job_with_stages(status=JobStatus.DEAD_LETTERED)
    live = bob.get(f"/reviews/{job.pk}/live/").content.decode()
    for text in (bob.get("/").content.decode(), bob.get(f"/reviews/{job.pk}/").content.decode(), live):
        assert FAILED in text
        assert "Dead-lettered" not in text
    filtered = bob.get("/", {"status": "dead_lettered"}).content.decode()
    assert filtered.count(f">{FAILED}<") == 2  # in the list and in the filter


def test_admin_shows_the_status_names(client: Client) -> None:
    factories.job_with_stages(status=JobStatus.DEAD_LETTERED)
    client.force_login(factories.UserFactory(is_staff=True, is_superuser=True))
    assert "Dead-lettered" in client.get("/admin/reviews/reviewjob/").content.decode()


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("secret", "Possible secret added"),
        ("api-key", "Possible secret added: api key"),
        ("github-token", "Secret added: github token"),
    ],
)
def test_secret_finding_title_does_not_repeat_itself(kind: str, title: str) -> None:
    assert secrets._finding("//depot/a.py", kind, 1, 1).title == title


def marked(client: Client, **finding: object) -> list[tuple[str, str]]:
    """Return the number and sign of the lines that the page marks as the finding's own."""
    row = factories.FindingRowFactory(
        excerpt=[[6, " ", "before"], [7, "-", "old"], [7, "+", "new"], [8, "+", "newer"], [9, " ", "after"]],
        **finding,
    )
    text = client.get(f"/reviews/{row.job_id}/").content.decode()
    return re.findall(r'class="row \w+ meant" data-line="(\d*)" data-sign="(.)"', text)


def test_lines_of_a_finding_are_marked(bob: Client) -> None:
    assert marked(bob, line=7, end_line=8) == [("7", "+"), ("8", "+")]
    assert marked(bob, line=9, end_line=None) == [("9", " ")]
    assert marked(bob, line=7, end_line=7, side="old") == [("7", "\N{MINUS SIGN}")]
    assert marked(bob, line=None, end_line=None) == []
