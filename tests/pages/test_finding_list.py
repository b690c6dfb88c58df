"""The findings list and the filters that it shares with the reviews list."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.db.models import BooleanField, Q
from django.db.models.expressions import RawSQL
from django.test import Client
from django.test.utils import CaptureQueriesContext

from reviews import search, verdicts
from reviews.models import FindingRow, ReviewJob
from reviews.web import finding_list
from tests import emptying, factories
from tests.pages.test_verdicts import client_of, reviewer
from tests.security.unrendered import unread

pytestmark = pytest.mark.django_db

MAIN, SECRET = "//depot/main/shop/term_ui.py", "//depot/secret/lib.py"


@pytest.fixture
def bob() -> Client:
    return client_of(reviewer("bob"))


def found(title: str, file: str = MAIN, changelist: str = "", **fields: Any) -> FindingRow:
    """Return a finding of a review of its own; `author` and `created_at` are the review's."""
    of_job = {name: fields.pop(name) for name in ("author", "created_at", "review_version") if name in fields}
    job = factories.job_with_stages(
        status="succeeded",
        title=f"Change of {title}",
        **({"changelist_id": changelist} if changelist else {}),
        **of_job,
    )
    factories.CoverageRowFactory(job=job, file=file)
    row: FindingRow = factories.FindingRowFactory(job=job, file=file, title=title, **fields)
    return row


def titles(client: Client, query: str = "") -> set[str]:
    with unread():
        answer = client.get(f"/findings/{query}")
    assert answer.status_code == 200
    return {row.title for row in answer.context["page"].rows}


def changes(client: Client, query: str = "") -> set[str]:
    with unread():
        page = client.get(f"/{query}").context["page"]
    return {row.job.title.removeprefix("Change of ") for row in page.rows}


FILTERS: list[tuple[str, set[str]]] = [
    ("author=carol", {"A"}),
    ("mine=on", {"B"}),
    ("path=//depot/main/shop/", {"A"}),
    ("path=//depot/secret", {"B", "C"}),
    ("path=%25", set()),
    ("severity=critical", {"A"}),
    ("category=leak", {"B"}),
    ("source=check", {"C"}),
    ("source=llm", {"A", "B"}),
    ("verdict=useful", {"A"}),
    ("verdict=wrong", {"B"}),
    ("verdict=open", {"A", "C"}),
    ("verdict=none", {"C"}),
    ("since=2026-02-01", {"B", "C"}),
    ("until=2026-01-31", {"A"}),
    ("since=2026-02-01&severity=high", {"B", "C"}),
    ("until=9999-12-31&since=0001-01-01", {"A", "B", "C"}),
    ("severity=nonsense", {"A", "B", "C"}),  # said in the form
]


def test_each_filter_narrows_both_lists(bob: Client) -> None:
    january = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
    a = found("A", author="carol", severity="critical", created_at=january)
    b = found("B", SECRET, author="bob", category="leak")
    found("C", SECRET, source="check:secrets")
    verdicts.give(a, "useful", "bob")
    verdicts.give(b, "useful", "bob")
    verdicts.give(b, "wrong", "bob")
    shown = [(query, titles(bob, f"?{query}"), changes(bob, f"?{query}")) for query, _ in FILTERS]
    assert shown == [(query, expected, expected) for query, expected in FILTERS]


def test_words_are_those_of_title_message_and_path(bob: Client) -> None:
    found("Division by zero", message="It is empty.")
    found("Leak", SECRET, message="Of a new account.")
    expected: dict[str, set[str]] = {
        "divis": {"Division by zero"},
        "term_ui.py": {"Division by zero"},
        "account secret": {"Leak"},
        "lib by": set(),
        "'; DROP": set(),
        "...": set(),
    }
    assert {words: titles(bob, f"?text={words}") for words in expected} == expected


@pytest.mark.long
def test_what_a_page_shows_is_found_when_pasted(bob: Client) -> None:
    for n in range(6):  # so that words are common among the newest reviews
        found(f"Leak {n} of 4711 things", SECRET)
    row = found("Division by zero", changelist="4711", line=12)
    ReviewJob.objects.filter(pk=row.job_id).update(title="Rework")
    for pasted in (MAIN, f"{MAIN}:12", f"{MAIN}:12\u201314", "//depot/main/", "Division by zero", "4711",
                   "Division " * 20):  # fmt: skip
        query = f"?text={quote(pasted)}"
        findings, reviews = titles(bob, query), changes(bob, query)
        assert row.title in findings, pasted
        if "Division" in pasted:  # the list of reviews leads to the findings that say so
            page = bob.get(f"/{query}").content.decode()
            assert f"/findings/?text={quote(pasted.strip())}" in page, pasted
        else:
            assert "Rework" in reviews, pasted
        if pasted.startswith("//"):
            assert (findings, reviews) == ({row.title}, {"Rework"}), pasted


@pytest.mark.parametrize("field", ["title", pytest.param("message", marks=pytest.mark.long)])
def test_words_are_found_by_the_parts_that_marks_join(bob: Client, field: str) -> None:
    emptying.make_as_new("findings")
    found("Other")
    fields = {"title": "T", "message": "M", field: "user.get_name sends Cache-Control in a/b to List<String>"}
    row = found(**fields)
    asked = ("get_name", "name", "user.get_name", "control", "cache-control", "string", "List<String>", "b")
    missed = [words for words in asked if titles(bob, f"?text={quote(words)}") != {row.title}]
    assert missed == []
    queries = {}
    for words in asked:
        with CaptureQueriesContext(connection) as captured:
            list(FindingRow.objects.filter(search.words_of_findings(words.split())))
        queries[words] = captured[-1]["sql"]
    with connection.cursor() as cursor:
        # Over a few rows the planner prefers to read them all, by the primary key as well.
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off")
        for words, query in queries.items():
            cursor.execute(f"EXPLAIN {query}")
            assert "findings_by_words" in "\n".join(line for (line,) in cursor.fetchall()), words


def test_a_finding_stands_once_at_its_newest_version(bob: Client) -> None:
    first = found("Old words", changelist="7")
    found("New words", changelist="7", review_version=2, identity=first.identity)
    assert titles(bob) == {"New words"}


def test_a_reader_of_some_files_finds_nothing_else() -> None:
    found("Open", author="carol")
    found("Hidden", SECRET, author="carol")
    found("Resting", evidence=[SECRET], author="carol")
    found("Whole change", SECRET).job.findings.update(file="description")
    dave = client_of(reviewer("dave", "//depot/main/..."))
    for query in (
        "",
        "?author=carol",
        "?text=hidden",
        "?path=//depot/secret/",
        "?verdict=none",
        "?severity=high",
    ):
        assert titles(dave, query) <= {"Open"}
        assert changes(dave, query) <= {"Open", "Resting"}
    assert titles(dave) == {"Open"}


def test_pages_follow_one_another(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding_list, "PAGE_SIZE", 2)
    for number in range(3):
        found(f"F{number}")
    answer = bob.get("/findings/?severity=high")
    assert {row.title for row in answer.context["page"].rows} == {"F2", "F1"}
    older = answer.context["page"].older
    assert re.fullmatch(r"[0-9]+-[0-9]+-[0-9]+", older)
    assert f"severity=high&amp;after={older}" in answer.content.decode()
    assert titles(bob, f"?severity=high&after={older}") == {"F0"}
    assert titles(bob, "?after=nonsense") == {"F2", "F1"}


def test_pages_follow_the_time_of_the_reviews(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding that was stored late, as by a replay, is listed with its review.

    The findings of a review may span two pages.
    """
    monkeypatch.setattr(finding_list, "PAGE_SIZE", 2)
    newest = found("New A")
    factories.FindingRowFactory(job=newest.job, title="New B")
    factories.FindingRowFactory(job=newest.job, title="New C")
    old = datetime(2026, 1, 1, tzinfo=UTC)
    found("Old", created_at=old)
    found("Older", created_at=old - timedelta(seconds=1))
    seen, after = [], ""
    while after is not None:
        page = bob.get(f"/findings/?after={after}").context["page"]
        seen += [row.title for row in page.rows]
        after = page.older
    assert seen == ["New C", "New B", "New A", "Old", "Older"]


@pytest.mark.parametrize(
    "query", ["text=divis", "severity=critical&category=leak", "text=divis by&source=llm"]
)
def test_rare_findings_are_found_through_the_index(
    bob: Client, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Four findings that are not of the newest one in the list, so that the window does not do."""
    monkeypatch.setattr(finding_list, "_STEP", 1)
    monkeypatch.setattr(finding_list, "_MOST_READ", 1)
    emptying.make_as_new("findings")
    first = found("Division by zero", severity="critical", category="leak")
    found("Division by one", severity="critical", category="leak", identity=first.identity)
    found("Division by zero", severity="critical", category="leak")
    for word in ("Divided", "Multiplication by zero"):
        found(word, severity="critical", source="check:leaks")
    with CaptureQueriesContext(connection) as captured:
        assert titles(bob, f"?{query}") == {"Division by one", "Division by zero"}
    (sql,) = [one["sql"] for one in captured if "@" in one["sql"] and "CASE" not in one["sql"]]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("DROP INDEX findings_job_id_7dc93574")  # in so small a table it is as good
        cursor.execute(f"EXPLAIN {sql}")
        assert "findings_by_words" in "\n".join(line for (line,) in cursor.fetchall())


def test_many_old_findings_are_read_in_order(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many for the index, and none among the newest."""
    monkeypatch.setattr(finding_list, "_STEP", 1)
    monkeypatch.setattr(finding_list, "_MOST_READ", 1)
    monkeypatch.setattr(search, "_MOST_RARE_FINDINGS", 1)
    for number in range(3):
        found(f"Old {number}", category="leak")
    found("New")
    assert titles(bob, "?category=leak") == {"Old 0", "Old 1", "Old 2"}


def test_a_window_grows_until_the_page_is_full(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding_list, "_STEP", 2)
    monkeypatch.setattr(finding_list, "PAGE_SIZE", 2)
    monkeypatch.setattr(finding_list, "ids_through_index", None)  # is not called
    for number in range(4):
        found(f"Even {number}", category="leak")
        found(f"Odd {number}")
    assert titles(bob, "?category=leak") == {"Even 3", "Even 2"}


def test_the_index_is_asked_for_the_newest_reviews_before_all(
    bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of the newest reviews is in order; if they do not fill it, older ones follow."""
    monkeypatch.setattr(finding_list, "_STEP", 1)
    monkeypatch.setattr(finding_list, "_MOST_READ", 1)
    monkeypatch.setattr(finding_list, "_NEWEST_JOBS", 3)
    monkeypatch.setattr(finding_list, "PAGE_SIZE", 1)
    for number in range(5):
        found(f"Leak {number}", category="leak")
    asked: list[Any] = []
    through_index = finding_list.ids_through_index
    monkeypatch.setattr(
        finding_list, "ids_through_index", lambda rows: asked.append(ids := through_index(rows)) or ids
    )
    seen, after = [], ""
    while after is not None:
        page = bob.get(f"/findings/?category=leak&after={after}").context["page"]
        seen += [row.title for row in page.rows]
        after = page.older
    assert seen == [f"Leak {number}" for number in (4, 3, 2, 1, 0)]
    assert len(asked[0]) == 3, "of the newest three reviews alone"


@pytest.mark.long
def test_findings_with_a_verdict_come_page_by_page_in_the_order_of_their_reviews(
    bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest reviews are searched first, then all.

    Of very many verdicts, the findings are read in their order.
    """
    monkeypatch.setattr(finding_list, "PAGE_SIZE", 2)
    now = datetime.now(UTC)
    # Ids and times are not in the same order, the fourth is of a newer version, the last is something else.
    for number, age in enumerate((5, 1, 4, 2, 3)):
        row = found(f"Leak {age}", category="leak", severity="high", created_at=now - timedelta(days=age))
        if age == 4:
            again = found("Leak 0", category="leak", severity="high", identity=row.identity)
            assert again.job.created_at > now
        verdicts.give(row, "wrong" if number else "intended", "bob")
    verdicts.give(found("Other", severity="low"), "wrong", "bob")
    found("Leak without a verdict", category="leak", severity="high")
    limits = [((2, 3), 100), ((100,), 100), ((2,), 2)]
    for (newest, most), narrowed in product(
        limits, ("", "&text=leak", "&category=leak", "&text=leak&severity=high")
    ):
        monkeypatch.setattr(finding_list, "_NEWEST_JUDGED", newest)
        monkeypatch.setattr(finding_list, "_MOST_JUDGED", most)
        seen, after = [], ""
        while after is not None:
            page = bob.get(f"/findings/?verdict=wrong{narrowed}&after={after}").context["page"]
            seen += [row.title for row in page.rows]
            after = page.older
        case = (newest, most, narrowed)
        leaks = [title for title in seen if title != "Other"]
        assert leaks == ["Leak 0", "Leak 1", "Leak 2", "Leak 3"], case
        assert seen.count("Other") == (not narrowed), case


def test_what_is_too_common_for_the_index_is_read_in_order_after_the_newest_reviews(
    bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding_list, "_STEP", 1)
    monkeypatch.setattr(finding_list, "_MOST_READ", 1)
    monkeypatch.setattr(finding_list, "_NEWEST_JOBS", 2)
    monkeypatch.setattr(search, "_MOST_RARE_FINDINGS", 2)
    for number in range(4):
        found(f"Leak {number}", category="leak")
    assert titles(bob, "?category=leak") == {f"Leak {number}" for number in range(4)}


def test_a_search_that_takes_too_long_says_so(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_: object) -> Any:
        raise finding_list.StatementTimeout

    monkeypatch.setattr(finding_list, "words_of_findings", slow)
    assert "The search took too long" in bob.get("/findings/?text=any").content.decode()


@pytest.mark.parametrize("path", ["/", "/findings/", "/quality/"])
def test_the_help_of_a_filter_is_on_the_page_that_refers_to_it(bob: Client, path: str) -> None:
    text = bob.get(path).content.decode()
    described = re.findall(r'aria-describedby="(\w+)"', text)
    assert "id_path_helptext" in described
    assert [name for name in described if f'id="{name}"' not in text] == []
    assert "Such as //depot/main/" in text


def test_each_query_before_the_list_has_a_time_limit(bob: Client) -> None:
    found("A")
    setting = "current_setting('statement_timeout')"
    is_limited = Q(RawSQL(f"1 / ({setting} <> '0')::int = 1", [], output_field=BooleanField()))
    assert ReviewJob.objects.filter(search.jobs_with_findings(is_limited)).query  # or: division by zero


def test_words_whose_commonness_takes_too_long_to_tell_count_as_rare(
    bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found("A")
    monkeypatch.setattr(search, "_MILLISECONDS", 50)
    slow = Q(RawSQL("pg_sleep(2) IS NOT NULL", [], output_field=BooleanField()))
    monkeypatch.setattr(search, "ids_through_index", lambda rows, field: [])
    assert not ReviewJob.objects.filter(search.jobs_with_findings(slow)).exists()


def test_the_review_links_to_the_lists_of_its_author_and_file(bob: Client) -> None:
    row = found("A", author="Ann & Co")
    assert 'href="/?author=Ann%20%26%20Co"' in bob.get(f"/reviews/{row.job_id}/").content.decode()
    text = bob.get(f"/reviews/{row.job_id}/findings/{row.pk}/").content.decode()
    assert re.findall(r'href="/findings/([^"]*)">Findings in this file', text) == [
        f"?file={quote(MAIN, safe='')}"
    ]
    assert ReviewJob.objects.count() == 1
