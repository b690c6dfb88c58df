"""The dashboard of the admin: counts, permissions, links and bounded queries."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from criticizer.admin_site import charts
from criticizer.models import Circuit
from criticizer.queue import advisory_locks
from criticizer.queue.advisory_locks import Lock
from criticizer.queue.broker import connect
from deadletters.models import LetterEdit, ReplayBatch
from deadletters.states import BatchStatus
from reviews.agents import expire
from reviews.dashboard import rollup
from reviews.dashboard.overview import dashboard
from reviews.dashboard.trends import WINDOWS, read
from reviews.intake import api_keys
from reviews.models import AgentTask, Rollup
from reviews.states import AttemptOutcome, JobStatus
from tests import factories
from tests.agents.conftest import CHUNK, add_tasks, waiting_job
from tests.api.conftest import ApiClient

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _short_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "BACKFILL", timedelta(hours=3))
    monkeypatch.setattr(rollup, "ENOUGH_SECONDS", 60)  # a run counts all of it, however slow the machine


@pytest.fixture
def operator() -> Client:
    return factories.staff_client("ola", "operator", reads=False)


def ended(status: str, minutes_ago: float, took: float = 30) -> Any:
    at = timezone.now() - timedelta(minutes=minutes_ago)
    return factories.ReviewJobFactory(
        status=status, finished_at=at, created_at=at - timedelta(seconds=took), deadline_at=at
    )


def attempted(error_class: str = "", seconds: float = 2, minutes_ago: float = 30) -> Any:
    at = timezone.now() - timedelta(minutes=minutes_ago)
    return factories.AttemptFactory(
        stage_run=factories.StageRunFactory(stage="llm"),
        started_at=at,
        finished_at=at + timedelta(seconds=seconds),
        outcome=AttemptOutcome.FAILED if error_class else AttemptOutcome.SUCCEEDED,
        error_class=error_class,
    )


def counted(kind: str, seconds: int = rollup.FINE) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in Rollup.objects.filter(kind=kind, seconds=seconds):
        found[row.label] = found.get(row.label, 0) + row.number
    return found


def test_repeated_rollups_count_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        ended(JobStatus.SUCCEEDED, 20)
    ended(JobStatus.DEAD_LETTERED, 90)
    attempted()
    attempted("RATE_LIMITED")
    factories.DeliveryFactory()
    factories.ReviewJobFactory()  # at work
    monkeypatch.setattr(rollup, "BACKFILL", timedelta(days=2))
    for _ in range(2):  # then nothing is new
        rollup.roll_up()
    for seconds in (rollup.FINE, rollup.COARSE):
        assert counted("jobs", seconds) == {"succeeded": 3, "dead_lettered": 1}
        assert counted("attempts", seconds) == {"llm:succeeded:": 1, "llm:failed:RATE_LIMITED": 1}
        assert counted("deliveries", seconds) == {"pending": 1}
    assert Rollup.objects.filter(kind="mark").count() == 1
    assert rollup.brought_up_to_date_at() is not None


def test_a_run_that_took_long_leaves_the_rest_of_a_gap_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    ended(JobStatus.SUCCEEDED, 20)
    monkeypatch.setattr(rollup, "ENOUGH_SECONDS", 0)
    done = []
    while not counted("jobs"):
        rollup.roll_up()
        done.append(Rollup.objects.get(kind="mark").started_at)
    assert [later - earlier for earlier, later in pairwise(done)][:-1] == [rollup.AT_ONCE] * (len(done) - 2)
    assert len(done) >= 3  # of the three hours


def test_attempts_that_end_late_are_recounted_within_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = attempted(minutes_ago=30)
    type(attempt).objects.filter(pk=attempt.pk).update(outcome=AttemptOutcome.STARTED, finished_at=None)
    rollup.roll_up()
    assert counted("attempts") == {"llm:started:": 1}
    type(attempt).objects.filter(pk=attempt.pk).update(outcome="succeeded", finished_at=timezone.now())
    later = timezone.now() + timedelta(minutes=6)
    monkeypatch.setattr(rollup.timezone, "now", lambda: later)
    rollup.roll_up()
    assert counted("attempts") == {"llm:succeeded:": 1}


def test_old_counts_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    for days, seconds in ((4, rollup.FINE), (4, rollup.COARSE), (101, rollup.COARSE)):
        at = timezone.now() - timedelta(days=days)
        Rollup.objects.create(seconds=seconds, started_at=at, kind="jobs", label="succeeded", number=1)
    monkeypatch.setattr(rollup, "BACKFILL", timedelta(hours=1))
    rollup.roll_up()
    assert [row.seconds for row in Rollup.objects.filter(kind="jobs")] == [rollup.COARSE]


def test_roll_up_survives_a_database_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise rollup.StatementTimeout

    monkeypatch.setattr(rollup, "_count_due", fail)
    rollup.roll_up()


def test_percentiles_of_counted_steps_are_within_a_tenth() -> None:
    for seconds in [0.5] * 50 + [8.0] * 45 + [100.0] * 5:
        attempted(seconds=seconds)
    rollup.roll_up()
    steps = {int(label.split(":")[1]): number for label, number in counted("latency").items()}
    for percent, wanted in ((50, 0.5), (95, 8.0), (99, 100.0)):
        assert rollup.percentile_of(steps, percent) == pytest.approx(wanted, rel=0.1)
    assert rollup.percentile_of({}, 50) is None


def test_dashboard_shows_tiles_and_failed_attempts(operator: Client) -> None:
    for _ in range(9):
        ended(JobStatus.SUCCEEDED, 20)
    letter = factories.DeadLetterFactory()
    ended(JobStatus.TIMED_OUT, 20)
    attempted("RATE_LIMITED")
    factories.OutboxMessageFactory(available_at=timezone.now() - timedelta(minutes=10))
    factories.WorkerClusterFactory(queue="stages", workers=2)
    rollup.roll_up()
    shown = dashboard("24h")
    tiles = {tile.title: tile for tile in shown["tiles"]}
    assert int(tiles["Reviews ended"].number) >= 10
    assert tiles["Due in the queue"].tone == "danger"
    assert (tiles["Workers"].number, tiles["Workers"].tone) == ("2", "danger")
    assert "no worker serves llm" in tiles["Workers"].note
    assert int(tiles["Open dead letters"].number) >= 1, letter
    assert [bar.name for bar in shown["attempts"]] == ["RATE_LIMITED"]
    page = operator.get("/admin/").content.decode()
    assert "Overview" in page
    assert "RATE_LIMITED" in page


def waits_for_approval() -> None:
    letter = factories.DeadLetterFactory()
    LetterEdit.objects.create(letter=letter, reason="gone", requested_by="ann", before={}, after={})
    ReplayBatch.objects.create(reason="again", requested_by="ann", item_count=1)
    ReplayBatch.objects.update(status=BatchStatus.AWAITING, needs_approval=True)


def test_approvals_have_a_tile_only_when_due(operator: Client) -> None:
    assert not [tile.title for tile in dashboard("24h")["tiles"] if "approve" in tile.title]
    waits_for_approval()
    tiles = [tile for tile in dashboard("24h")["tiles"] if "approve" in tile.title]
    assert [(tile.title, tile.number) for tile in tiles] == [
        ("Edits to approve", "1"),
        ("Batches to approve", "1"),
    ]
    for tile in tiles:
        assert len(operator.get(tile.href).context["cl"].result_list) == 1


def test_circuit_lines_show_the_label_and_link_to_the_circuit(operator: Client) -> None:
    Circuit.objects.create(name="provider:mail", state="half_open")
    page = operator.get("/admin/").content.decode()
    assert '<span class="state" data-state="running">Half-open</span>' in page
    assert "half_open" not in page
    [line] = dashboard("24h")["circuits"]
    assert operator.get(line.href).context["circuit"].name == "provider:mail"


def test_every_number_links_to_its_rows(operator: Client) -> None:
    waits_for_approval()
    good, late = ended(JobStatus.SUCCEEDED, 20), ended(JobStatus.TIMED_OUT, 20)
    attempt = attempted("RATE_LIMITED")
    rollup.roll_up()
    page = operator.get("/admin/").content.decode()
    inside = page[page.index('id="dashboard"') : page.index("</section>\n<script")]
    addresses = {unescape(found) for found in re.findall(r'href="([^"]+)"', inside)}
    assert len(addresses) > 10
    for address in addresses:
        answer = operator.get(address)
        assert (address, answer.status_code) == (address, 200)
        assert "There is no key" not in answer.content.decode()
        assert "is not one of" not in answer.content.decode()
    shown = dashboard("24h")
    by_name = {series.name: series.href for series in shown["throughput"].series}
    for name, job in (("succeeded", good), ("timed out", late)):
        assert [row.pk for row in operator.get(by_name[name]).context["cl"].result_list] == [job.pk]
    assert [row.pk for row in operator.get(shown["attempts"][0].href).context["cl"].result_list] == [
        attempt.pk
    ]
    timed = {line.name: line.href for line in shown["latencies"]}
    assert timed == {series.name: series.href for series in shown["latency"].series if series.name in timed}
    assert [
        row.pk for row in operator.get(timed["whole review, waits included"]).context["cl"].result_list
    ] == [good.pk]


@pytest.mark.parametrize("window", [*WINDOWS, "", "x", "24h' OR 1"])
def test_unknown_window_falls_back_to_the_default(operator: Client, window: str) -> None:
    answer = operator.get("/admin/", {"window": window})
    assert answer.status_code == 200
    assert dashboard(window)["window"].name == (window if window in WINDOWS else "24h")


def test_what_was_counted_is_told_apart_from_what_is_now(operator: Client) -> None:
    ended(JobStatus.DEAD_LETTERED, 20)
    tiles = {tile.title: tile for tile in dashboard("24h")["tiles"]}
    assert tiles["Success rate"].note == "none had ended at the last count"
    assert tiles["Reviews ended"].note.endswith(", as of the last count")
    attempted()
    rollup.roll_up()
    tiles = {tile.title: tile for tile in dashboard("24h")["tiles"]}
    assert tiles["Success rate"].note == "1 failed at the last count"
    page = operator.get("/admin/").content.decode()
    assert "Finished work was counted" in page
    assert "Open, waiting and running work is live." in page
    assert "hole review, waits included" in page


def test_empty_dashboard_explains_itself(operator: Client) -> None:
    page = operator.get("/admin/").content.decode()
    for text in ("No figures yet", "No review ended in this time.", "No attempt failed"):
        assert text in page


def test_stale_figures_are_marked(operator: Client) -> None:
    rollup.roll_up()
    Rollup.objects.filter(kind="mark").update(number=int(timezone.now().timestamp()) - 1000)
    assert "These figures are old." in operator.get("/admin/").content.decode()


def test_live_dashboard_is_sent_only_when_it_changed(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()  # the axes move on every five minutes
    monkeypatch.setattr("reviews.dashboard.overview.timezone", SimpleNamespace(now=lambda: now))
    first = operator.get(reverse("dashboard-live"), {"window": "1h"})
    assert first.headers["X-Live-Next"] == "15"
    assert b'id="dashboard"' in first.content
    again = operator.get(reverse("dashboard-live"), {"window": "1h", "have": first.headers["X-Live-Have"]})
    assert again.status_code == 204


def test_agents_have_a_panel_where_they_have_keys(operator: Client) -> None:
    assert 'aria-label="Agents"' not in operator.get("/admin/").content.decode()
    key = api_keys.create("app-agent", "agent", ["//depot/main/..."])
    api_keys.create("idle-agent", "agent", ["//depot/main/..."])
    agent = ApiClient(key)
    tasks = add_tasks(waiting_job(), 4)
    url = "/api/v1/agent-tasks/"
    for _ in range(3):
        claimed: Any = agent.post_json(f"{url}claim/", {})
    result = {"claim_token": claimed.json()["claim_token"], "success": True, "data": CHUNK}
    late = claimed.json()["id"]
    AgentTask.objects.filter(pk=late).update(expires_at=timezone.now())
    assert expire.sweep() == 1
    assert agent.post_json(f"{url}{late}/result/", result).status_code == 410
    assert agent.post_json(f"{url}{tasks[0].pk}/result/", result).status_code == 409
    html = operator.get("/admin/").content.decode()
    panel = html.partition('aria-label="Agents"')[2].partition("</section>")[0]
    seen = re.sub(r"\d+ s ago", "now", panel)
    assert re.findall(r'scope="row">([^<]+)</th><td>(?:<a[^>]*>)?(?:<time[^>]*>)?([^<]+)', seen) == [
        ("app-agent", "now"), ("idle-agent", "never"), ("Open", "1"), ("Claimed", "2"),
        ("Expired in a day", "1"), ("Late results in a day", "1"), ("Other refused results in a day", "1"),
    ]  # fmt: skip
    assert "/admin/reviews/agenttask/" in panel


def test_dashboard_requires_its_permissions(client: Client) -> None:
    bob = factories.UserFactory(is_staff=True)
    client.force_login(bob)
    assert "Overview" not in client.get("/admin/").content.decode()
    assert client.get(reverse("dashboard-live")).status_code == 403


def test_dashboard_counts_are_bounded(operator: Client, django_assert_max_num_queries: Any) -> None:
    ended(JobStatus.SUCCEEDED, 20)
    api_keys.create("agent", "agent", ["//depot/main/..."])
    with django_assert_max_num_queries(60) as queries:
        dashboard("7d")
    parts = [part for query in queries.captured_queries for part in query["sql"].upper().split("UNION ALL")]
    seen = set()
    for part in parts:
        tables = re.findall(r"FROM\W+(JOBS|DELIVERIES|OUTBOX_MESSAGES)\b", part)
        seen |= {*tables}
        if tables or "COUNT(" in part:
            assert "LIMIT 10001" in part, part
    assert seen == {"JOBS", "DELIVERIES", "OUTBOX_MESSAGES"}


def test_roll_up_runs_beside_every_other_lock() -> None:
    ended(JobStatus.SUCCEEDED, 20)
    with connect() as elsewhere:
        for lock in {*Lock} - {Lock.ROLL_UP}:
            elsewhere.execute(advisory_locks.TRY, {"lock": lock.value})
        rollup.roll_up()
    assert counted("jobs") == {"succeeded": 1}


def test_only_one_cluster_rolls_up_at_a_time() -> None:
    ended(JobStatus.SUCCEEDED, 20)
    with connect() as elsewhere:
        elsewhere.execute(advisory_locks.TRY, {"lock": Lock.ROLL_UP.value})
        rollup.roll_up()
        assert counted("jobs") == {}
        elsewhere.execute("SELECT pg_advisory_unlock_all()")  # a session that was closed lets go later
    rollup.roll_up()
    assert counted("jobs") == {"succeeded": 1}


def test_last_slot_contains_now() -> None:
    now = datetime(2026, 3, 1, 12, 17, tzinfo=UTC)
    Rollup.objects.create(
        seconds=rollup.FINE, started_at=datetime(2026, 3, 1, 12, 15, tzinfo=UTC), kind="jobs",
        label="succeeded", number=5,
    )  # fmt: skip
    figures = read(WINDOWS["24h"], now)
    assert len(figures.slots) == 48
    assert figures.slots[-1] == datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    assert figures.of("jobs", "succeeded") == [0] * 47 + [5]


# -- charts -----------------------------------------------------------------------------------


_PLACE = re.compile(r'<rect [^>]* y="([\d.]+)" [^>]*height="([\d.]+)"')


def test_stacked_bars_fit_their_box_and_small_values_are_visible() -> None:
    series = [charts.Series("good", "s-ok", [990, 0]), charts.Series("bad", "s-danger", [1, 0])]
    chart = charts.stacked_bars("t", "Title", ["a", "b"], series)
    bars = [(float(y), float(height)) for y, height in _PLACE.findall(chart.drawn)]
    (good_y, _), (bad_y, bad_height) = bars
    assert chart.top == "1\u2009000"
    assert good_y - bad_y == pytest.approx(1, abs=0.02)  # as far as its box goes
    assert bad_height >= 1.5
    assert all(0 <= y <= y + height <= 100.01 for y, height in bars)
    assert chart.rows == [("a", ["990", "1"])]
    assert chart.sentence == "990 good, 1 bad"


def test_line_breaks_at_missing_values() -> None:
    series = [charts.Series("p95", "s-1", [1.0, 2.0, None, 4.0])]
    drawn = charts.lines("t", "T", list("abcd"), series, charts.seconds, "x").drawn
    assert (drawn.count("<path"), drawn.count("M")) == (1, 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.05, "50 ms"),
        (3.44, "3.4 s"),
        (45, "45 s"),
        (119, "119 s"),
        (150, "2.5 min"),
        (600, "10 min"),
        (9_000, "2.5 h"),
        (86_400, "24 h"),
        (20 * 86_400, "20 d"),
    ],
)
def test_seconds_are_formatted_briefly(value: float, text: str) -> None:
    assert charts.seconds(value) == text


@pytest.mark.parametrize(("value", "top"), [(0.3, 0.5), (1, 1), (1.1, 2), (99, 100), (101, 200)])
def test_axis_tops_are_round_numbers(value: float, top: float) -> None:
    assert charts.nice_top(value) == pytest.approx(top)
