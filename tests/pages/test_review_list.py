"""The reviews list: order, pagination, filters and rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models import BooleanField, Q
from django.db.models.expressions import RawSQL
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from reviews import search
from reviews.models import CoverageRow, ReviewJob
from reviews.recipients.viewing_scopes import EVERYTHING, Scope
from reviews.web import review_list
from reviews.web.review_list import Cursor, ListPage, matching
from tests import factories
from tests.pages.test_verdicts import client_of, reviewer

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture
def bob(client: Client) -> Client:
    client.force_login(factories.UserFactory())
    return client


@pytest.fixture
def _pages_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review_list, "PAGE_SIZE", 3)


def list_page(scope: Scope = EVERYTHING, after: str = "", before: str = "", **wanted: str) -> ListPage:
    return matching(wanted, None, scope, after, before)


def walk(step: str) -> Iterator[list[int]]:
    """Turn the pages from the newest with `after`, or back from the oldest with `before`."""
    oldest = ReviewJob.objects.order_by("created_at", "id").first()
    start = "" if step == "after" else str(Cursor(oldest.created_at - timedelta(1), 0))
    while True:
        page = list_page(**{step: start})
        yield [row.job.pk for row in page.rows]
        cursor = page.older if step == "after" else page.newer
        if cursor is None:
            return
        start = str(cursor)


@pytest.mark.usefixtures("_pages_of_three")
def test_pagination_shows_each_job_once_with_equal_times() -> None:
    for n in range(8):
        factories.ReviewJobFactory(created_at=NOON + timedelta(seconds=n // 4))
    wanted = list(ReviewJob.objects.order_by("-created_at", "-id").values_list("pk", flat=True))
    forward = list(walk("after"))
    assert [pk for page in forward for pk in page] == wanted
    assert [len(page) for page in forward] == [3, 3, 2]
    backward = list(walk("before"))
    assert [pk for page in reversed(backward) for pk in page] == wanted


@pytest.mark.usefixtures("_pages_of_three")
def test_new_job_does_not_shift_the_older_page() -> None:
    jobs = [factories.ReviewJobFactory(created_at=NOON + timedelta(seconds=n)) for n in range(6)]
    older = list_page().older
    factories.ReviewJobFactory(created_at=NOON + timedelta(days=1))
    page = list_page(after=str(older))
    assert [row.job.pk for row in page.rows] == [jobs[2].pk, jobs[1].pk, jobs[0].pk]
    assert page.older is None


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1-2-3", "\u0661-1", "9" * 30 + "-1", "1-" + "9" * 30])
def test_invalid_cursor_is_ignored(bob: Client, text: str) -> None:
    assert Cursor.parse(text) is None
    assert bob.get("/", {"after": text}).status_code == 200


def test_cursor_round_trip() -> None:
    cursor = Cursor(NOON + timedelta(microseconds=7), 12)
    assert Cursor.parse(str(cursor)) == cursor


def test_list_filters_by_changelist_status_and_text() -> None:
    factories.ReviewJobFactory(changelist_id="77", title="Tiles", status="succeeded")
    factories.ReviewJobFactory(changelist_id="770", author="Carol", status="queued")
    found = {
        name: [row.job.changelist_id for row in list_page(**{name: value}).rows]
        for name, value in {"changelist": "77", "status": "queued", "text": "caROL"}.items()
    }
    assert found == {"changelist": ["77"], "status": ["770"], "text": ["770"]}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("crash", True),
        ("CRASH gal", True),  # each word begins a word
        ("ann crash", True),  # of the title or the author
        ("rash", False),
        ("crash bob", False),
        ("'", False),  # no word at all
        ("O'Hara", True),
        ("a & !b | (c", False),
        ("\\", False),
        ("word " * 19, False),
    ],
)
def test_text_filter_searches_title_and_author(bob: Client, text: str, is_found: bool) -> None:
    factories.ReviewJobFactory(title="Fix the crash in the gallery (O'Hara's)", author="ann")
    assert bool(list_page(text=text.strip()).rows) is is_found
    assert bob.get("/", {"text": text}).status_code == 200


@pytest.mark.parametrize(
    "text",
    [
        "git:shop@0123456789ab",
        "shop@0123456789AB",
        "0123456",
        "01234",
        "0123456789abcdef0123456789abcdef01234567",
    ],
)
def test_a_commit_is_found_by_what_pages_show_of_it(bob: Client, settings: Any, text: str) -> None:
    settings.GIT_REPOSITORIES = {"app": "/srv/app", "shop": "/srv/shop"}
    job = factories.ReviewJobFactory(changelist_id="git:shop@0123456789abcdef0123456789abcdef01234567")
    factories.ReviewJobFactory(changelist_id="git:shop@1123456789abcdef0123456789abcdef01234567")
    assert [row.job.pk for row in list_page(text=text).rows] == [job.pk]
    assert [row.job.pk for row in list_page(changelist=text).rows] == [job.pk]


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("termui.py", True),
        ("TermUI.py", True),
        ("termui.p", True),
        ("click/termui.py", True),
        ("src/termui.py", False),
        ("Makefile", True),
        ("Make", False),  # without an ending, the whole name
        ("ui.py", False),
        ("secret.py", False),  # of files that may not be seen
        ("100%.py", False),
    ],
)
def test_a_review_is_found_by_the_name_of_a_file_that_may_be_seen(text: str, is_found: bool) -> None:
    job = factories.ReviewJobFactory(title="Ask again")
    for file in ("//app/click/termui.py", "//app/Makefile", "//other/secret.py"):
        factories.CoverageRowFactory(job=job, file=file)
    factories.CoverageRowFactory(job=factories.ReviewJobFactory(title="Another"), file="//app/term.py")
    page = list_page(text=text, scope=Scope(prefixes=("//app/",)))
    assert [row.job.pk for row in page.rows] == ([job.pk] if is_found else [])


def test_versions_of_a_change_are_one_row_and_all_of_them_where_it_is_asked_for(bob: Client) -> None:
    older, newer = (
        factories.ReviewJobFactory(changelist_id="77", review_version=n, status="succeeded") for n in (1, 2)
    )
    factories.CoverageRowFactory(job=older, file="//depot/main/a.c")
    factories.CoverageRowFactory(job=newer, file="//depot/secret/b.c")
    assert [row.job.pk for row in list_page().rows] == [newer.pk]
    assert [row.job.pk for row in list_page(changelist="77").rows] == [newer.pk, older.pk]
    # Whoever may not see the newest version sees the newest of the others.
    assert [row.job.pk for row in list_page(scope=Scope(prefixes=("//depot/main/",))).rows] == [older.pk]


@pytest.mark.long
def test_words_of_reviews_at_work_are_looked_up_in_an_index(db: None) -> None:
    """Reading the titles of a backlog takes seconds."""
    job = factories.ReviewJobFactory(title="Resize the texture", author="ann")
    others = [factories.ReviewJobFactory.build(title=f"Rename the shader {n}") for n in range(1000)]
    ReviewJob.objects.bulk_create(others)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs")
    with CaptureQueriesContext(connection) as asked:
        assert [row.job.pk for row in list_page(text="resize ann").rows] == [job.pk]
    (of_active,) = [
        query["sql"]
        for query in asked
        if query["sql"].startswith("SELECT") and "to_tsquery" in query["sql"] and "IS NULL" in query["sql"]
    ]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off")
        cursor.execute(f"EXPLAIN {of_active}")
        assert "jobs_words_unfinished" in str(cursor.fetchall())


def test_words_are_known_as_common_behind_a_backlog_that_is_not_fetched(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_LOOKED_AT", 10)
    factories.ReviewJobFactory.create_batch(10, title="Fix the parser", status="succeeded")
    factories.ReviewJobFactory.create_batch(10)
    assert search._is_common(Q(search.match(("title", "author"), ["fix"])))
    assert not search._is_common(Q(search.match(("title", "author"), ["rename"])))


def test_slow_list_query_is_cancelled_and_reported(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    factories.ReviewJobFactory(title="Tiles")
    slow = Q(RawSQL("pg_sleep(5) IS NOT NULL", [], output_field=BooleanField()))
    monkeypatch.setattr(review_list, "words_of_jobs", lambda words, also: slow)
    monkeypatch.setattr(review_list, "PAGE_MILLISECONDS", 50)
    text = bob.get("/", {"text": "tiles"}).content.decode()
    assert "The search took too long" in text
    assert "Tiles" in bob.get("/").content.decode()  # nothing stays limited


def test_list_row_shows_findings_and_coverage(bob: Client) -> None:
    job = factories.ReviewJobFactory(status="succeeded")
    for severity in ("low", "critical", "low"):
        factories.FindingRowFactory(job=job, severity=severity)
    for status in ("reviewed", "checked", "partial", "skipped"):
        factories.CoverageRowFactory(job=job, status=status)
    (row,) = list_page().rows
    assert row.severities == [("critical", 1), ("low", 2)]
    assert "2 of 4 files read (1 by checks only), 1 in part" in bob.get("/").content.decode()


def test_list_row_of_an_active_job_shows_its_stage(bob: Client) -> None:
    job = factories.ReviewJobFactory(status="in_progress")
    for stage, status in [("notify", "pending"), ("fetch", "succeeded"), ("llm", "running")]:
        factories.StageRunFactory(job=job, stage=stage, status=status)
    (row,) = list_page().rows
    assert row.stage is not None
    assert row.stage.stage == "llm"
    assert "Review" in bob.get("/").content.decode()


def test_the_number_of_queries_does_not_grow_with_the_rows(
    bob: Client, django_assert_max_num_queries: Any
) -> None:
    for _ in range(12):
        job = factories.job_with_stages()
        factories.FindingRowFactory(job=job)
        factories.CoverageRowFactory(job=job)
    # Session, user, rights, jobs, findings, coverage, stages, views, feed key, workers, circuits.
    with django_assert_max_num_queries(12):
        bob.get("/")


def test_empty_list_explains_the_first_steps(bob: Client) -> None:
    text = bob.get("/").content.decode()
    assert "make demo" in text
    assert "curl -X POST" in text
    assert "No review matches" in bob.get("/", {"text": "tiles"}).content.decode()


def test_invalid_filter_shows_an_error_at_its_field(bob: Client) -> None:
    answer = bob.get("/", {"status": "no-such-status"})
    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode()


@pytest.mark.parametrize(
    "name", ["reviews:list", "reviews:list-live", "reviews:detail", "reviews:detail-live"]
)
def test_review_pages_require_login(client: Client, name: str) -> None:
    args = [factories.ReviewJobFactory().pk] if "detail" in name else []
    answer = client.get(reverse(name, args=args))
    assert answer.status_code == 302
    assert answer["Location"].startswith("/login/?next=")


def test_live_list_is_sent_only_when_it_changed(bob: Client) -> None:
    job = factories.ReviewJobFactory(created_at=NOON)
    first = bob.get("/reviews/live/")
    assert first["X-Live-Next"] == "2"
    have = first["X-Live-Have"]
    ReviewJob.objects.filter(pk=job.pk).update(title="changed")
    assert "changed" in bob.get("/reviews/live/", {"have": have}).content.decode()


def test_unchanged_live_list_is_answered_with_204(bob: Client) -> None:
    have = bob.get("/reviews/live/")["X-Live-Have"]
    again = bob.get("/reviews/live/", {"have": have})
    assert (again.status_code, again.content, again["X-Live-Next"]) == (204, b"", "10")


def test_the_first_steps_name_a_changelist_that_a_source_has(settings: Any) -> None:
    client = client_of(reviewer("bob"))
    settings.P4PORT = ""
    settings.GIT_REPOSITORIES = {"app": Path("/srv/git/app.git")}
    assert '"git:app@&lt;40 digits of the commit&gt;"' in client.get("/").content.decode()


def test_a_name_that_no_file_has_is_looked_up_in_the_index_of_names(db: None) -> None:
    """PostgreSQL takes names for common, and would read all files in the order of reviews."""
    job = factories.ReviewJobFactory()
    rows = [factories.CoverageRowFactory.build(job=job, file=f"//app/{n}/{n % 5}.c") for n in range(2000)]
    CoverageRow.objects.bulk_create(rows)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE coverage; SET LOCAL enable_sort = off")
    with CaptureQueriesContext(connection) as asked:
        assert search.jobs_with_file(["nowhere"], Q()) == []
    [limits, *_] = [query["sql"] for query in asked if "statement_timeout = " in query["sql"]]
    [looked_up] = [query["sql"] for query in asked if "nowhere" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {looked_up}")
        assert "coverage_of_name" not in str(cursor.fetchall())
        cursor.execute(limits)
        cursor.execute(f"EXPLAIN {looked_up}")
        assert "coverage_of_name" in str(cursor.fetchall())
