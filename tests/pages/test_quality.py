"""The page Quality: each number counts the rows behind its link, of what its reader may see."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from reviews import verdicts
from reviews.models import FindingRow, ReviewJob
from reviews.templatetags.review_tags import repository_tree
from reviews.web import quality
from tests import factories, skips
from tests.pages.test_finding_list import MAIN, SECRET, found
from tests.pages.test_verdicts import client_of, reviewer
from tests.security.unrendered import unread

pytestmark = pytest.mark.django_db


@pytest.fixture
def bob() -> Client:
    return client_of(reviewer("bob"))


def shown(client: Client, query: str = "") -> quality.Quality:
    with unread():
        answer = client.get(f"/quality/{query}")
    assert answer.status_code == 200
    page: quality.Quality = answer.context["quality"]
    return page


def tiles(client: Client, query: str = "") -> dict[str, str]:
    return {tile.title: tile.number for tile in shown(client, query).tiles}


def rows(client: Client, link: str) -> list[Any]:
    """Return the rows of the list that a link leads to."""
    with unread():
        answer = client.get(link)
    assert answer.status_code == 200
    assert answer.context["form"].is_valid()
    return list(answer.context["page"].rows)


def of_age(days: int, title: str = "A", file: str = MAIN, **fields: Any) -> FindingRow:
    return found(title, file, created_at=timezone.now() - timedelta(days=days), **fields)


def test_every_number_leads_to_as_many_rows(bob: Client) -> None:
    for number, severity in enumerate(("critical", "high", "high", "medium")):
        row = of_age(number * 7, f"F{number}", severity=severity, category=("bug", "leak")[number % 2])
        if number < 3:
            verdicts.give(row, ("useful", "wrong", "wrong")[number], "bob")
    page = shown(bob, "" if skips.is_all() else "?weeks=4")  # else three times as many numbers
    severities, categories, *_ = page.charts
    assert [(one.name, one.total) for one in categories.series] == [("bug", 2), ("leak", 2)]
    assert [(one.name, one.total, len(rows(bob, one.href))) for one in severities.series] == [
        ("critical", 1, 1),
        ("high", 2, 2),
        ("medium", 1, 1),
        ("low", 0, 0),
    ]
    for series in (*severities.series, *categories.series):
        for value, link in zip(series.values, series.links, strict=True):
            assert len(rows(bob, link)) == value
    assert {line.name for line in page.categories} == {"bug", "leak"}
    for line in (*page.categories, *page.paths):
        for number in line.numbers:
            count = int(number.text.split()[0])
            assert bool(number.href) == bool(count)
            assert not count or len(rows(bob, number.href)) == count
    by_title = {tile.title: tile for tile in page.tiles}
    assert (by_title["Useful"].number, by_title["Wrong"].number) == ("33%", "67%")
    assert len(rows(bob, by_title["Wrong"].href)) == 2
    assert len(rows(bob, by_title["Findings"].href)) == 4
    assert len(rows(bob, by_title["Tokens a review"].href)) == 4


@pytest.mark.long
def test_numbers_of_a_file_lead_to_its_findings_and_not_to_those_of_longer_names(bob: Client) -> None:
    for name in ("//depot/main/b", "//depot/main/bc", "//depot/main/b/c", "//depot/main/b "):
        of_age(0, name, name)
    for line in shown(bob).paths:
        _, high, *_ = line.numbers
        assert [row.file for row in rows(bob, high.href)] == [line.name]
    assert len(shown(bob).paths) == 4
    # The file narrows the reviews and the figures too.
    assert [row.job.title for row in rows(bob, "/?file=//depot/main/b")] == ["Change of //depot/main/b"]
    assert tiles(bob, "?file=//depot/main/b")["Findings"] == "1"
    assert (
        'class="subject">in the file //depot/main/b<'
        in bob.get("/findings/?file=//depot/main/b").content.decode()
    )


@pytest.mark.long
def test_the_categories_that_are_summed_lead_nowhere(bob: Client) -> None:
    for number in range(6):
        of_age(0, f"F{number}", category=f"kind-{number}")
    *named, others = shown(bob).charts[1].series
    assert (others.name, others.total, others.href, others.links) == ("other categories", 2, "", ())
    assert [len(rows(bob, series.href)) for series in named] == [1, 1, 1, 1]
    assert ">other categories</a>" not in bob.get("/quality/").content.decode()


@pytest.mark.long
def test_each_link_of_the_page_opens(bob: Client) -> None:
    of_age(0)
    text = bob.get("/quality/").content.decode()
    links = {unescape(link) for link in re.findall(r'href="(/(?:findings/)?\?[^"]+)"', text)}
    assert len(links) > 10
    for link in links:
        assert bob.get(link).status_code == 200


def test_time_and_tokens_are_those_of_reviews_that_succeeded(bob: Client) -> None:
    now = timezone.now()
    for seconds, tokens in ((10, 100), (20, 300), (90, 800)):
        factories.ReviewJobFactory(
            status="succeeded",
            created_at=now - timedelta(seconds=seconds),
            finished_at=now,
            usage={"input_tokens": tokens - 50, "output_tokens": 50},
        )
    factories.ReviewJobFactory(status="cancelled", usage={"input_tokens": 10**9})
    factories.ReviewJobFactory(status="succeeded", created_at=now - timedelta(days=300), usage={})
    found_tiles = tiles(bob)
    assert found_tiles["Time to result"] == "20 s"
    assert found_tiles["Tokens a review"] == "400"
    *_, times, tokens = shown(bob).charts
    assert [series.values[-1] for series in times.series] == pytest.approx([20, 83])
    assert tokens.series[0].values[-1] == 400


def test_a_finding_counts_once_in_the_week_of_its_newest_version(bob: Client) -> None:
    old = of_age(14, changelist="7")
    new = of_age(0, changelist="7", review_version=2)
    FindingRow.objects.filter(pk=new.pk).update(identity=old.identity)
    severities = shown(bob).charts[0]
    assert [series.values[-3:] for series in severities.series if series.name == "high"] == [[0, 0, 1]]


def test_filters_narrow_the_figures(bob: Client) -> None:
    of_age(1)
    of_age(8, "B", SECRET, author="carol")
    of_age(50, "C", severity="low", source="check:secrets")
    of_age(150, "D")
    counts = {
        "": "3",
        "?weeks=4": "2",
        "?weeks=26": "4",
        "?weeks=99": "3",
        f"?path={SECRET}": "1",
        "?author=carol": "1",
        "?severity=low&source=check": "1",
        "?since=2020-01-01&until=2020-02-01&text=nothing": "3",
    }
    assert {query: tiles(bob, query)["Findings"] for query in counts} == counts


def test_figures_are_those_of_files_that_a_reader_may_see(bob: Client) -> None:
    of_age(0, "A", category="bug")
    hidden = of_age(0, "B", SECRET, category="hush", severity="critical")
    verdicts.give(hidden, "wrong", "bob")
    ReviewJob.objects.filter(pk=hidden.job_id).update(usage={"input_tokens": 5000})
    dora = client_of(reviewer("dora", "//depot/main/..."))
    assert tiles(bob)["Findings"] == "2"
    assert tiles(dora) == {
        **tiles(dora),
        "Findings": "1",
        "Wrong": "\N{EN DASH}",
        "Tokens a review": "0",
    }
    text = dora.get("/quality/").content.decode()
    assert "hush" not in text
    assert "secret" not in text
    assert shown(client_of(reviewer("eve", "//depot/none/..."))).categories == []


def test_counting_that_takes_too_long_is_cancelled_and_said(
    bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forever(self: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(30)")

    monkeypatch.setattr(quality, "MILLISECONDS", 50)
    monkeypatch.setattr("reviews.web.quality.Figures.all", forever)
    assert "Counting took too long" in bob.get("/quality/").content.decode()


@pytest.mark.parametrize("slow", ["matching_findings", "of_reviews"])
def test_the_time_of_counting_begins_with_its_conditions(
    bob: Client, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    def sleep(*_: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(5)")
        raise AssertionError("not cancelled")

    monkeypatch.setattr(quality, "MILLISECONDS", 50)
    monkeypatch.setattr(quality, slow, sleep)
    assert "Counting took too long" in bob.get("/quality/").content.decode()


def test_statements_share_the_time_of_counting(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two would end within the limit; both together do not."""

    def sleep(self: Any) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(0.3)")
        return []

    monkeypatch.setattr(quality, "MILLISECONDS", 500)
    monkeypatch.setattr("reviews.web.quality.Figures._paths", sleep)
    monkeypatch.setattr("reviews.web.quality.Figures._of_jobs", sleep)
    assert "Counting took too long" in bob.get("/quality/").content.decode()


@pytest.mark.long
def test_pages_name_the_path_or_the_author_that_they_are_about(bob: Client) -> None:
    of_age(0, author="carol")
    for page in ("/", "/findings/", "/quality/"):
        text = bob.get(f"{page}?path=//depot/main/&author=carol").content.decode()
        assert 'class="subject">in //depot/main/ by carol<' in text
        for other in ("/", "/findings/", "/quality/"):
            assert f'href="{other}?path=%2F%2Fdepot%2Fmain%2F&amp;author=carol"' in text
        assert 'class="subject"' not in bob.get(page).content.decode()


@pytest.mark.parametrize(
    ("changelist", "tree"),
    [
        (f"git:click@{'a' * 40}", "//click/"),
        ("github:pallets/click#7", "//github/pallets/click/"),
        ("gitea:acme/web#7", "//gitea/acme/web/"),
        ("gitlab:acme/tools/web!7", "//gitlab/acme/tools/web/"),
        ("12345", ""),
        ("swarm:change-7", ""),
    ],
)
def test_a_review_leads_to_the_reviews_of_its_repository(changelist: str, tree: str) -> None:
    assert repository_tree(changelist) == tree


def test_every_version_is_listed_where_asked_for(bob: Client) -> None:
    for version in (1, 2):
        found(f"V{version}", changelist="7", review_version=version, created_at=datetime.now(UTC))
    assert len(rows(bob, "/")) == 1
    assert len(rows(bob, "/?every=on")) == 2
