"""Lists by key: pages, orders, counts, search and views, through the real requests."""

from __future__ import annotations

import re
from copy import copy
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import label_for_field
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from criticizer.admin_site import keyset, newest_matches
from criticizer.admin_site.keyset import KeysetAdmin
from criticizer.admin_site.ordering import Ordering, cursor_of, read_cursor
from criticizer.db import query_limits
from criticizer.db.query_limits import BoundedCount, StatementTimeout, bounded_count, statement_timeout
from criticizer.models import Circuit, SavedView
from notifications.states import DeliveryStatus
from reviews import search
from reviews.models import ReviewJob, StageRun
from reviews.states import JobStatus
from tests import factories

pytestmark = pytest.mark.django_db
JOBS = "/admin/reviews/reviewjob/"
NEWEST = Ordering("Newest", ("-created_at", "-id"))


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(factories.UserFactory(is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeysetAdmin, "list_per_page", 3)
    monkeypatch.setattr(type(admin.site.get_model_admin(ReviewJob)), "list_per_page", 3, raising=False)


def ids(response: Any) -> list[int]:
    return [job.pk for job in response.context["cl"].result_list]


def jobs(number: int, **fields: Any) -> list[int]:
    """Make jobs, oldest first; every two of them at the same moment."""
    start = timezone.now() - timedelta(hours=1)
    made = [
        factories.ReviewJobFactory(created_at=start + timedelta(minutes=index // 2), **fields)
        for index in range(number)
    ]
    return [job.pk for job in made]


def test_pages_lead_to_every_row_once_and_back(root: Client, small_pages: None) -> None:
    newest_first = jobs(8)[::-1]
    seen, page = [], root.get(JOBS)
    pages = [ids(page)]
    while page.context["cl"].older_url:
        page = root.get(JOBS + page.context["cl"].older_url)
        pages.append(ids(page))
    seen = [pk for rows in pages for pk in rows]
    assert seen == newest_first
    assert [len(rows) for rows in pages] == [3, 3, 2]
    backwards = [ids(page)]
    while page.context["cl"].newer_url:
        page = root.get(JOBS + page.context["cl"].newer_url)
        backwards.append(ids(page))
    assert backwards == pages[::-1]
    assert page.context["cl"].older_url


def test_rows_that_come_meanwhile_move_no_page(root: Client, small_pages: None) -> None:
    first = jobs(6)
    older = root.get(JOBS).context["cl"].older_url
    factories.ReviewJobFactory()
    assert ids(root.get(JOBS + older)) == first[2::-1]


def test_the_other_order_runs_the_other_way(root: Client, small_pages: None) -> None:
    first = jobs(5)
    page = root.get(JOBS, {"by": "oldest"})
    assert ids(page) == first[:3]
    rest = root.get(JOBS + page.context["cl"].older_url)
    assert ids(rest) == first[3:]
    assert rest.context["cl"].ordering_name == "oldest"


def test_an_order_of_ended_jobs_shows_only_those(root: Client) -> None:
    jobs(2)
    done = factories.ReviewJobFactory(status=JobStatus.CANCELLED, finished_at=timezone.now())
    assert ids(root.get(JOBS, {"by": "finished"})) == [done.pk]


def test_a_place_that_is_none_shows_the_first_page(root: Client) -> None:
    made = jobs(2)
    for place in ("x", "1", "1,2,3", "1,x", ",", "9" * 30 + ",1", "1," + "9" * 30, "%00,1"):
        for name in ("after", "before"):
            assert (place, name, ids(root.get(JOBS, {name: place}))) == (place, name, made[::-1])


@pytest.mark.parametrize("number", ["0", "-1", "99", "x", "9" * 30])
def test_a_page_number_that_is_none_shows_the_list(root: Client, number: str) -> None:
    """Lists that are not paged by key have the numbers of Django's own admin."""
    factories.WorkerClusterFactory()
    answer = root.get("/admin/criticizer/workercluster/", {"p": number}, follow=True)
    assert answer.status_code == 200
    assert len(answer.context["cl"].result_list) == 1


def test_a_place_is_written_as_value_and_key() -> None:
    job = factories.ReviewJobFactory()
    job.refresh_from_db()
    place = cursor_of(job, NEWEST)
    assert place == f"{round(job.created_at.timestamp() * 1_000_000)},{job.pk}"
    assert read_cursor(place, ReviewJob, NEWEST) == [job.created_at, job.pk]


@pytest.mark.parametrize(
    "ordering",
    [
        Ordering("mixed", ("-created_at", "id")),
        Ordering("no key", ("-created_at",)),
        Ordering("null", ("-finished_at", "-id")),
    ],
)
def test_an_order_that_cannot_be_paged_is_refused_at_start(ordering: Ordering) -> None:
    with pytest.raises(ImproperlyConfigured):
        ordering.check(ReviewJob)


def test_searching_filtering_and_ordering_start_at_the_first_page(root: Client, small_pages: None) -> None:
    jobs(7)
    page = root.get(JOBS + root.get(JOBS).context["cl"].older_url)
    shown = page.content.decode()
    assert "after=" not in page.context["cl"].get_query_string({"status": "queued"})
    assert 'name="after"' not in shown
    assert all("after=" not in address for _, address, _ in page.context["cl"].orders)


# -- counts -----------------------------------------------------------------------------------


def test_rows_are_counted_up_to_a_bound(root: Client, small_pages: None, monkeypatch: Any) -> None:
    jobs(6)
    monkeypatch.setattr(query_limits, "MAX_COUNTED", 4)
    assert str(bounded_count(ReviewJob.objects.all())) == "4+"
    monkeypatch.setattr(query_limits, "MAX_COUNTED", 6)
    assert str(bounded_count(ReviewJob.objects.all())) == "6"
    assert str(BoundedCount(12345)) == "12\u2009345"
    assert "6 reviews" in root.get(JOBS).content.decode()


def test_a_count_that_takes_too_long_is_many(settings: Any) -> None:
    settings.COUNT_MILLISECONDS = 20
    factories.ReviewJobFactory()
    slow = ReviewJob.objects.extra(where=["pg_sleep(5) IS NOT NULL"])
    found = bounded_count(slow)
    assert (str(found), found.is_exact) == ("many", False)


def test_a_time_limit_ends_with_its_block() -> None:
    with pytest.raises(StatementTimeout), statement_timeout(20), connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(5)")
    with statement_timeout(10_000):
        pass
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)


def test_no_list_counts_without_a_bound(
    root: Client, small_pages: None, django_assert_max_num_queries: Any
) -> None:
    jobs(7)
    with django_assert_max_num_queries(20) as queries:
        root.get(JOBS)
    counts = [query["sql"] for query in queries.captured_queries if "COUNT(" in query["sql"].upper()]
    assert counts
    assert all("LIMIT 10001" in sql for sql in counts)
    assert not any("OFFSET" in query["sql"] for query in queries.captured_queries)
    # Neither the page nor its count fans out over the database's processors.
    alone = [q["sql"] for q in queries.captured_queries if "max_parallel_workers_per_gather = 0" in q["sql"]]
    assert len(alone) == 2


def test_a_page_that_takes_too_long_says_so(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    factories.ReviewJobFactory()
    monkeypatch.setattr(type(admin.site.get_model_admin(ReviewJob)), "page_milliseconds", 20)
    slow = ReviewJob.objects.extra(where=["pg_sleep(5) IS NOT NULL"])
    asked = keyset.KeysetChangeList.get_queryset
    monkeypatch.setattr(
        keyset.KeysetChangeList, "get_queryset", lambda *given: asked(*given).filter(pk__in=slow)
    )
    answer = root.get(JOBS)
    assert answer.status_code == 200
    assert "The search took too long." in answer.content.decode()
    assert ids(answer) == []


def test_a_search_that_takes_too_long_shows_what_is_near_and_leads_on(
    root: Client, small_pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the next rows in the order are searched.

    The page says how many these are, and the next page continues.
    """
    made = jobs(12)
    ReviewJob.objects.filter(pk__in=[made[11], *made[:6]]).update(title="wanted")
    monkeypatch.setattr(keyset, "LOOK_AHEAD", 4)
    monkeypatch.setattr(keyset, "LOOK_SECONDS", 0)  # four rows, and no more

    def too_long(*_: Any) -> Any:
        raise StatementTimeout

    monkeypatch.setattr(keyset.KeysetChangeList, "_page", too_long)
    pages, address = [], "?q=wanted"
    while address:
        answer = root.get(JOBS + address)
        text = answer.content.decode()
        pages.append((ids(answer), "only the next 4 rows of the list were searched" in text))
        assert ("at least" in text) == pages[-1][1]
        address = answer.context["cl"].older_url
    assert pages == [([made[11]], True), (made[5:3:-1], True), (made[3:0:-1], False), ([made[0]], False)]


def test_a_search_goes_on_until_its_time_is_over(
    root: Client, small_pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = jobs(40)
    ReviewJob.objects.filter(pk=made[0]).update(title="wanted")
    monkeypatch.setattr(keyset, "LOOK_AHEAD", 2)
    monkeypatch.setattr(keyset, "LOOK_SECONDS", 600)

    def too_long(*_: Any) -> Any:
        raise StatementTimeout

    monkeypatch.setattr(keyset.KeysetChangeList, "_page", too_long)
    with CaptureQueriesContext(connection) as asked:
        answer = root.get(JOBS, {"q": "wanted"})
    assert ids(answer) == [made[0]]
    assert "too long" not in answer.content.decode()
    assert not answer.context["cl"].older_url
    steps = [query["sql"] for query in asked if "OFFSET" in query["sql"]]
    assert len(steps) == 5  # 2, 4, 8, 16 and the rest of 40 rows


# -- search -----------------------------------------------------------------------------------


def found(client: Client, text: str) -> set[int]:
    return set(ids(client.get(JOBS, {"q": text})))


def test_jobs_are_found_by_their_keys(root: Client) -> None:
    job = factories.ReviewJobFactory(changelist_id="12345", title="Fix the reader", author="ann")
    other = factories.ReviewJobFactory(
        changelist_id="777", title="Prefix", author="bob", status=JobStatus.CANCELLED,
        finished_at=timezone.now(), created_at=timezone.now() - timedelta(days=3), is_late=True,
    )  # fmt: skip
    both = {job.pk, other.pk}
    assert found(root, "") == both
    for text, wanted in {
        "cl:12345": {job.pk},
        "state:cancelled": {other.pk},
        "-state:cancelled": {job.pk},
        "state:queued,cancelled": both,
        "age:>2d": {other.pk},
        "age:<2d": {job.pk},
        "finished:<1h": {other.pk},
        "is:late": {other.pk},
        "is:active": {job.pk},
        f"key:{job.idempotency_key}": {job.pk},
        "fix": {job.pk},
        "READ fix": {job.pk},
        "-fix": {other.pk},
        "prefix bob": {other.pk},
        "12345": {job.pk},
        "ann bob": set(),
        "stage:llm": set(),
        "error:RATE_LIMITED": set(),
    }.items():
        assert (text, found(root, text)) == (text, wanted)


def copied(row: Any, number: int | None = None, **fields: Any) -> Any:
    """Return an unsaved copy of a row, as a factory takes too long for thousands."""
    made = copy(row)
    if number is not None:
        keys = {name: f"{getattr(row, name)}-{number}" for name in ("idempotency_key", "changelist_id")}
        fields = {**keys, **fields}
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    "windows", [*(pytest.param(each, marks=pytest.mark.long) for each in ((60, 200), (25, 80))), (2,)]
)
def test_pages_by_keys_are_those_of_the_whole_search(
    root: Client, monkeypatch: pytest.MonkeyPatch, windows: tuple[int, ...]
) -> None:
    """The orders of times and of keys differ by some minutes; a window too small is not used."""
    monkeypatch.setattr(newest_matches, "WINDOWS", windows)
    monkeypatch.setattr(type(admin.site.get_model_admin(ReviewJob)), "list_per_page", 20, raising=False)
    start = timezone.now() - timedelta(days=1)
    dead = factories.ReviewJobFactory.build(status="dead_lettered", finished_at=start)
    times = [start + timedelta(minutes=n + n * 7 % 9) for n in range(150)]
    failed = ReviewJob.objects.bulk_create([copied(dead, n, created_at=at) for n, at in enumerate(times)])
    run = factories.StageRunFactory.build(job=dead, status="failed", error_class="RATE_LIMITED")
    StageRun.objects.bulk_create([copied(run, job=job) for job in failed])
    wanted = sorted(failed, key=lambda job: (job.created_at, job.pk), reverse=True)
    pages, address, sql = [], "?q=error:RATE_LIMITED+state:dead_lettered", ""
    while address:
        with CaptureQueriesContext(connection) as asked:
            answer = root.get(JOBS + address)
        sql += " ".join(query["sql"] for query in asked if "LIMIT 21" in query["sql"])
        pages += ids(answer)
        address = answer.context["cl"].older_url
    assert pages == [job.pk for job in wanted]
    assert ("RATE_LIMITED" in sql) == (windows == (2,))  # the whole search, once the window did not do


def test_a_search_without_an_index_reads_the_next_rows_and_says_so(
    root: Client, small_pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyset, "LOOK_AHEAD", 4)
    monkeypatch.setattr(keyset, "READ_SECONDS", 0)  # four rows, and no more
    monkeypatch.setattr(keyset.KeysetChangeList, "_page", None)  # which reads rows until there are enough
    start = timezone.now() - timedelta(hours=1)
    run, rare = factories.StageRunFactory(stage="fetch"), factories.StageRunFactory(stage="notify")
    made = [
        factories.AttemptFactory(
            stage_run=rare if n in {0, 3} else run, started_at=start + timedelta(minutes=n)
        )
        for n in range(10)
    ]
    pages, address = [], "?q=stage:notify"
    while address:
        answer = root.get("/admin/reviews/attempt/" + address)
        text = answer.content.decode()
        pages.append((ids(answer), "No index serves this search: only the next 4 rows" in text))
        address = answer.context["cl"].older_url
    assert pages == [([], True), ([made[3].pk], True), ([made[0].pk], False)]
    # The rows of an age end with it: only that of minute 3 is searched.
    minutes = int((timezone.now() - start).total_seconds() // 60)
    aged = root.get("/admin/reviews/attempt/", {"q": f"stage:notify age:>{minutes - 4}m age:<{minutes - 1}m"})
    assert ids(aged) == [made[3].pk]
    assert "only the next" not in aged.content.decode()
    full = root.get("/admin/reviews/attempt/?q=stage:fetch")
    assert ids(full) == [attempt.pk for attempt in made[:6:-1]]
    assert "only the next" not in full.content.decode()


def test_words_that_never_meet_are_not_looked_for_in_the_rows_of_each(db: None) -> None:
    """With little memory an index finds pages instead of rows, and each row on them is read."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs (idempotency_key, request_sha256, changelist_id, requested_by, status,"
            " created_at, finished_at, deadline_at, author, title, recipients) SELECT 'k' || i, '', i, '',"
            " 'succeeded', now(), now(), now(), '', CASE i % 2 WHEN 0 THEN 'rename' ELSE 'shader' END,"
            " to_jsonb(repeat('x', 1500)) FROM generate_series(1, 10000) i"  # four on a page
        )
        cursor.execute("SELECT gin_clean_pending_list('jobs_words'); SET LOCAL work_mem = '64kB'")
    with CaptureQueriesContext(connection) as asked:
        assert not ReviewJob.objects.filter(search.words_of_jobs(["rename", "shader"])).exists()
    (looked_up,) = [query["sql"] for query in asked if "10001" in query["sql"] and "NOT NULL" in query["sql"]]
    limits = [query["sql"] for query in asked if "work_mem =" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off")
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF) {looked_up}")
        assert "lossy" in str(cursor.fetchall())
        cursor.execute(limits[0])
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF) {looked_up}")
        plan = str(cursor.fetchall())
    assert "jobs_words" in plan
    assert "Removed by Index Recheck" not in plan


def test_no_text_breaks_the_search(root: Client) -> None:
    texts = ["'", "\\", "a'b", "&", "!", "a & | b", ":*", "<->", "\u202e", "(", "a:*'b"]
    asked = [f'"{text}"' if ":" in text else text for text in texts]
    assert [text for text in asked if root.get(JOBS, {"q": text}).status_code != 200] == []


def test_a_key_that_is_none_finds_nothing_and_names_those_that_are(root: Client) -> None:
    factories.ReviewJobFactory()
    answer = root.get(JOBS, {"q": "stat:queued"})
    assert ids(answer) == []
    assert "There is no key “stat:” in this list. Use one of: cl:, state:, stage:" in answer.content.decode()


# -- views ------------------------------------------------------------------------------------


def save(client: Client, **form: str) -> Any:
    return client.post(reverse("saved-views"), {"page": "reviews.reviewjob", **form})


def test_a_view_is_saved_offered_and_forgotten(root: Client) -> None:
    answer = save(root, name="Mine", query="q=state:queued&by=oldest&after=1,2")
    assert answer["Location"] == f"{JOBS}?by=oldest&q=state%3Aqueued"
    shown = root.get(answer["Location"])
    assert "View “Mine” saved." in shown.content.decode()
    (view,) = [view for view in shown.context["views"] if view.pk]
    assert (view.name, view.query, view.is_current) == ("Mine", "by=oldest&q=state%3Aqueued", True)
    save(root, name="Mine", query="q=is:late")
    assert SavedView.objects.get().query == "q=is%3Alate"
    save(root, forget=str(view.pk))
    assert not SavedView.objects.exists()


def test_nobody_sees_or_forgets_the_views_of_others(root: Client) -> None:
    view = SavedView.objects.create(
        user=factories.UserFactory(), page="reviews.reviewjob", name="Theirs", query="q=is%3Alate"
    )
    assert "Theirs" not in root.get(JOBS).content.decode()
    save(root, forget=str(view.pk))
    assert SavedView.objects.exists()


@pytest.mark.parametrize("page", ["", "x", "reviews.nothing", "sessions.session", "a.b.c"])
def test_a_view_of_no_list_is_not_found(root: Client, page: str) -> None:
    assert root.post(reverse("saved-views"), {"page": page, "name": "x"}).status_code == 404


def test_a_view_opens_no_list_to_those_who_may_not_see_it(client: Client) -> None:
    client.force_login(factories.UserFactory(is_staff=True, reads=False))
    assert save(client, name="x").status_code == 403


@pytest.mark.parametrize("form", [{"name": ""}, {"name": "x", "query": "q=" + "a" * 2000}, {"name": "a\x00"}])
def test_a_view_that_cannot_be_kept_is_not(root: Client, form: dict[str, str]) -> None:
    assert save(root, **form).status_code == 302
    assert not SavedView.objects.exists()


def test_the_names_of_views_are_escaped(root: Client) -> None:
    save(root, name="<b>x</b>", query="q=<i>")
    shown = root.get(JOBS).content.decode()
    assert "<b>x" not in shown
    assert "&lt;b&gt;x&lt;/b&gt;" in shown


# -- attempts and the queue -------------------------------------------------------------------


def test_attempts_and_messages_have_lists(root: Client) -> None:
    run = factories.StageRunFactory()
    factories.AttemptFactory(stage_run=run, error_class="RATE_LIMITED", outcome="failed")
    shown = root.get("/admin/reviews/attempt/", {"q": "error:RATE_LIMITED age:<1h"})
    assert len(shown.context["cl"].result_list) == 1
    assert root.get("/admin/criticizer/outboxmessage/", {"q": "is:due queue:llm"}).status_code == 200


# -- what every list of the admin keeps -----------------------------------------------------------


def headings(response: Any) -> list[str]:
    table = re.search(r'id="result_list".*?</thead>', response.content.decode(), re.DOTALL)
    assert table is not None
    return [text.strip() for text in re.findall(r"<(?:a|span)[^>]*>([^<]+)</(?:a|span)>", table[0])]


def test_headings_are_words_of_people() -> None:
    request = RequestFactory().get("/")
    raw = re.compile(r"\b(?:id|at|pgh)\b|^is |_", re.IGNORECASE)
    for model, shown in admin.site._registry.items():
        titles = [str(label_for_field(name, model, shown)) for name in shown.get_list_display(request)]
        assert [title for title in titles if raw.search(title)] == [], model


def test_late_is_said_of_late_reviews_only(root: Client) -> None:
    factories.ReviewJobFactory(changelist_id="1")
    answer = root.get(JOBS)
    assert headings(answer) == ["Changelist", "Version", "State", "Title", "Author", "Requested"]
    assert "late</span>" not in answer.content.decode()
    assert "icon-no" not in answer.content.decode()
    factories.ReviewJobFactory(changelist_id="2", is_late=True)
    assert root.get(JOBS).content.decode().count('<span class="quiet">late</span>') == 1


def test_times_say_how_long_ago_and_are_exact_in_the_tooltip(root: Client) -> None:
    at = timezone.now().replace(microsecond=0) - timedelta(days=3, hours=2)
    factories.ReviewJobFactory(created_at=at)
    shown = f'title="{at:%Y-%m-%d %H:%M:%S} UTC" data-relative>3 d ago</time>'
    assert shown in root.get(JOBS).content.decode()


# -- deliveries and circuits: a search instead of a column of filters -----------------------------


@pytest.mark.parametrize("address", ["/admin/notifications/delivery/", "/admin/criticizer/circuit/"])
def test_no_column_of_filters_takes_the_width(root: Client, address: str) -> None:
    answer = root.get(address)
    assert not answer.context["cl"].has_filters
    assert "changelist-filter" not in answer.content.decode()


@pytest.mark.long
def test_every_state_of_a_delivery_is_found_as_the_filter_found_it(root: Client) -> None:
    address = "/admin/notifications/delivery/"
    for status in DeliveryStatus:
        made = factories.DeliveryFactory(status=status, error_class="NETWORK_TIMEOUT")
        assert ids(root.get(address, {"q": f"state:{status.value}"})) == [made.pk]
        assert ids(root.get(address, {"status": status.value})) == [made.pk]  # views saved before
    assert "NETWORK_TIMEOUT" in root.get(address).content.decode()


def test_circuits_are_found_by_state_kind_and_name(root: Client) -> None:
    states = {
        "llm:openai": "half_open",
        "p4:ssl:perforce:1666": "closed",
        "provider:mail": "open",
        "provider:webhook:https://ci.example.com": "forced_open",
    }
    for name, state in states.items():
        Circuit.objects.create(name=name, state=state)
    every = sorted(states)
    for text, wanted in {
        "": every,
        "state:open,half_open": ["llm:openai", "provider:mail"],
        "-state:closed": [name for name in every if states[name] != "closed"],
        "llm:openai": ["llm:openai"],
        "llm:": [],
        "provider:webhook": ["provider:webhook:https://ci.example.com"],
        "p4:ssl:perforce:1666": ["p4:ssl:perforce:1666"],
        "mail": ["provider:mail"],
        "provider mail": ["provider:mail"],
        "changed:<1h": every,
        "changed:>1h": [],
    }.items():
        shown = root.get("/admin/criticizer/circuit/", {"q": text}).context["cl"].result_list
        assert (text, [circuit.pk for circuit in shown]) == (text, wanted)
    assert ids(root.get("/admin/criticizer/circuit/", {"state": "open"})) == ["provider:mail"]


def test_a_list_ordered_by_its_key_alone_has_pages(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(admin.site.get_model_admin(Circuit)), "list_per_page", 2, raising=False)
    for name in ("a,b", "b:1", "c/%2C", "d"):
        Circuit.objects.create(name=name)
    first = root.get("/admin/criticizer/circuit/")
    second = root.get("/admin/criticizer/circuit/" + first.context["cl"].older_url)
    back = root.get("/admin/criticizer/circuit/" + second.context["cl"].newer_url)
    assert [ids(page) for page in (first, second, back)] == [["a,b", "b:1"], ["c/%2C", "d"], ["a,b", "b:1"]]


def test_filters_stand_above_the_list_and_narrow_it(root: Client) -> None:
    address = "/admin/criticizer/workercluster/"
    for queue in ("stages", "llm"):
        factories.WorkerClusterFactory(queue=queue)
    text = root.get(address).content.decode()
    assert text.index('aria-label="Filter"') < text.index('id="result_list"')
    assert '<a href="?" aria-current="true">All</a>' in text
    assert '<a href="?queue=llm">llm</a>' in text
    narrowed = root.get(address, {"queue": "llm"})
    assert [row.queue for row in narrowed.context["cl"].result_list] == ["llm"]
    assert '<a href="?queue=llm" aria-current="true">llm</a>' in narrowed.content.decode()
