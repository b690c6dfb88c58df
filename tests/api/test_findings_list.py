"""`GET /api/v1/findings/`: the findings of all reviews, narrowed and within the key's scope."""

from __future__ import annotations

from typing import Any

import pytest

from reviews import verdicts
from reviews.intake import api_keys
from reviews.models import FindingRow
from tests import factories
from tests.api.conftest import ApiClient

pytestmark = pytest.mark.django_db

LIST = "/api/v1/findings/"
MAIN, WEBSITE = "//app/src/term.py", "//github/acme/website/index.js"


@pytest.fixture
def rows() -> list[FindingRow]:
    """A finding in two versions, and one of another repository that is dismissed."""
    older, newer = (
        factories.job_with_stages(
            status="succeeded", changelist_id=f"git:app@{'0' * 40}", review_version=version, author="ann"
        )
        for version in (1, 2)
    )
    other = factories.job_with_stages(status="succeeded", changelist_id="github:acme/website#7", author="bob")
    first = factories.FindingRowFactory(job=older, file=MAIN, severity="high", title="Leak")
    again = factories.FindingRowFactory(
        job=newer, file=MAIN, severity="high", title="Leak", identity=first.identity
    )
    loop = factories.FindingRowFactory(job=other, file=WEBSITE, severity="low", title="Endless loop")
    verdicts.give(loop, "wrong", "ann")
    return [again, loop]


def titles(client: ApiClient, query: str = "") -> list[str]:
    answer = client.get(f"{LIST}{query}")
    assert answer.status_code == 200, answer.json()
    return [one["title"] for one in answer.json()["results"]]


def test_each_finding_stands_once_with_its_newest_review(reviewer: ApiClient, rows: list[FindingRow]) -> None:
    answer = reviewer.get(LIST).json()
    assert (answer["count"], answer["next"]) == (2, None)
    loop, leak = answer["results"]
    assert (loop["title"], loop["verdict"], loop["review"]) == ("Endless loop", "wrong", rows[1].job_id)
    assert (leak["id"], leak["review"], leak["review_version"]) == (rows[0].pk, rows[0].job_id, 2)
    assert leak["changelist_id"] == rows[0].job.changelist_id


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?severity=high", ["Leak"]),
        ("?path=//app/src/", ["Leak"]),
        ("?author=bob", ["Endless loop"]),
        ("?repository=git:app", ["Leak"]),
        ("?repository=github:acme/website", ["Endless loop"]),
        ("?repository=github:acme/website&path=//app/", []),
        ("?verdict=wrong", ["Endless loop"]),
        ("?verdict=open", ["Leak"]),
        ("?since=2999-01-01", []),
        ("?page=1", ["Endless loop", "Leak"]),
    ],
)
@pytest.mark.usefixtures("rows")
def test_filters_narrow_the_list(reviewer: ApiClient, query: str, expected: list[str]) -> None:
    assert titles(reviewer, query) == expected


@pytest.mark.parametrize(
    "query", ["severity=worst", "since=soon", "verdict=fine", "repository=app", "page=x", "text=leak"]
)
def test_what_cannot_be_read_is_refused_by_name(reviewer: ApiClient, query: str) -> None:
    answer = reviewer.get(f"{LIST}?{query}")
    assert answer.status_code == 400
    assert list(answer.json()["details"]) == [query.partition("=")[0]]


@pytest.mark.usefixtures("rows")
def test_a_key_with_prefixes_lists_nothing_else(client_with_role: Any) -> None:
    key = api_keys.create("website", "reviewer", ["//github/acme/website/..."])
    client = ApiClient(key)
    assert titles(client) == ["Endless loop"]
    assert titles(client, "?repository=git:app") == []


def test_pages_follow_one_another(reviewer: ApiClient) -> None:
    job = factories.job_with_stages(status="succeeded")
    for n in range(51):
        factories.FindingRowFactory(job=job, file=MAIN, title=f"T{n}")
    first = reviewer.get(LIST).json()
    assert len(first["results"]) == 50
    assert titles(reviewer, first["next"].partition(LIST)[2]) == ["T0"]
