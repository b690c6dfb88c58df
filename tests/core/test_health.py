"""Health endpoints and metrics work whatever else is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.http import Http404
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from prometheus_client.parser import text_string_to_metric_families

from criticizer.db import availability
from criticizer.models import WorkerCluster
from criticizer.observability import health, metrics
from criticizer.observability.metrics import GAUGES, Gauge
from criticizer.queue import outbox
from reviews.intake import api_keys
from reviews.models import StageRun
from reviews.states import JobStatus
from tests import emptying
from tests.factories import (
    AttemptFactory,
    DeadLetterFactory,
    DeliveryFactory,
    OutboxMessageFactory,
    ReviewJobFactory,
    WorkerClusterFactory,
)


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


@pytest.fixture
def workers(db: None) -> None:
    """One live cluster per queue."""
    WorkerClusterFactory(queue="stages", workers=2)
    WorkerClusterFactory(queue="llm", workers=1)
    WorkerClusterFactory(queue="notify", workers=2)


@pytest.fixture
def outage(transactional_db: None, tmp_path: Path) -> Iterator[None]:
    """No database for the length of the test."""
    host = connection.settings_dict["HOST"]
    connection.close()
    connection.settings_dict["HOST"] = str(tmp_path)
    yield
    connection.close()
    connection.settings_dict["HOST"] = host


# -- /livez and /readyz -----------------------------------------------------------------------


def test_a_process_that_serves_is_alive_without_a_database(client: Client) -> None:
    response = client.get(
        "/livez", headers={"Host": "anything.example.com"}
    )  # no database mark: it would fail
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert response["Cache-Control"] == "no-store"


def test_a_service_with_workers_on_every_queue_is_ready(client: Client, workers: None) -> None:
    response = client.get("/readyz", headers={"Host": "anything.example.com"})
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    "change",
    [{"beat_at": timezone.now() - timedelta(seconds=16)}, {"draining": True}, {"workers": 0}],
    ids=["silent", "draining", "none left"],
)
@pytest.mark.parametrize("queue", outbox.queues())
def test_a_queue_without_live_workers_is_not_ready(
    client: Client, workers: None, queue: str, change: dict[str, Any]
) -> None:
    WorkerCluster.objects.filter(queue=queue).update(**change)
    response = client.get("/readyz")
    assert (response.status_code, response.json()) == (
        503,
        {"status": "degraded", "reason": "workers_missing"},
    )
    assert "Retry-After" in response
    assert client.get("/health").json() == response.json()
    WorkerClusterFactory(queue=queue)
    assert {client.get(path).status_code for path in ("/readyz", "/health")} == {200}


def test_slower_clocks_allow_longer_silence(client: Client, workers: None, settings: Any) -> None:
    WorkerCluster.objects.update(beat_at=timezone.now() - timedelta(seconds=25))
    assert client.get("/readyz").status_code == 503
    settings.RETRY_TIME_SCALE = 2
    assert client.get("/readyz").status_code == 200
    settings.RETRY_TIME_SCALE = 0.01  # a faster one never shortens it
    WorkerCluster.objects.update(beat_at=timezone.now() - timedelta(seconds=10))
    assert client.get("/readyz").status_code == 200


def test_workers_are_counted_per_queue(workers: None) -> None:
    WorkerClusterFactory(queue="stages", workers=4)
    WorkerClusterFactory(queue="elsewhere", workers=9)
    assert health.workers_alive() == {"llm": 1, "notify": 2, "stages": 6}


@pytest.mark.django_db
def test_a_queue_that_was_never_served_counts_zero() -> None:
    assert health.workers_alive() == {"llm": 0, "notify": 0, "stages": 0}


def test_without_the_database_the_service_is_not_ready(client: Client, outage: None) -> None:
    for path in ("/readyz", "/health"):
        response = client.get(path)
        assert (response.status_code, response.json()) == (
            503, {"status": "degraded", "reason": "database_unavailable"}
        )  # fmt: skip
    assert client.get("/livez").status_code == 200


def test_a_wrong_address_is_503_where_the_database_goes_before_its_page(rf: Any, outage: None) -> None:
    """The page of a wrong address names its reader, which reads the session."""
    request = rf.get("/nothing/")
    request.user = SimpleLazyObject(lambda: get_user_model().objects.get(pk=1))
    answer = availability.not_found(request, Http404())
    assert answer.status_code == 503
    assert answer["Retry-After"]


@pytest.mark.django_db(transaction=True)
def test_unapplied_migrations_are_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for queue in outbox.queues():
        WorkerClusterFactory(queue=queue)
    monkeypatch.setattr(health, "_migrated", False)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'reviews' RETURNING app, name, applied")
        gone = cursor.fetchall()
    try:
        assert client.get("/readyz").json() == {"status": "degraded", "reason": "migrations_missing"}
    finally:
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, %s)", gone)
    assert client.get("/readyz").json() == {"status": "ok"}


def test_readiness_names_what_hangs_in_the_maintenance_and_stays_ready(client: Client, workers: None) -> None:
    """Restarting the web does not end it; a cluster that is gone has nothing that hangs."""
    WorkerCluster.objects.filter(queue="llm").update(hanging=["reviews.audit.hash_chain.seal_all"])
    response = client.get("/readyz")
    assert (response.status_code, response.json()["hanging"]) == (200, ["reviews.audit.hash_chain.seal_all"])
    assert samples(client)["criticizer_maintenance_hanging", "reviews.audit.hash_chain.seal_all"] == 1
    WorkerCluster.objects.filter(queue="llm").update(beat_at=timezone.now() - timedelta(minutes=1))
    assert "hanging" not in client.get("/readyz").json()


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_health_endpoints_accept_only_reads(client: Client, workers: None, path: str) -> None:
    response = client.post(path)
    assert (response.status_code, response["Allow"]) == (405, "GET, HEAD")
    assert client.head(path).status_code == 200


# -- /metrics ---------------------------------------------------------------------------------


def samples(client: Client, **extra: Any) -> dict[tuple[str, ...], float]:
    """Return the samples by name and label values, in the order of the labels' names."""
    response = client.get("/metrics", **extra)
    assert response.status_code == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.content.decode())
        for sample in family.samples
    }


def test_metrics_tell_what_is_in_the_database(client: Client, workers: None) -> None:
    ReviewJobFactory()
    ReviewJobFactory(status=JobStatus.SUCCEEDED)
    ReviewJobFactory(status=JobStatus.SUCCEEDED, created_at=timezone.now() - timedelta(hours=1))
    OutboxMessageFactory(available_at=timezone.now() - timedelta(seconds=100))
    OutboxMessageFactory(available_at=timezone.now() + timedelta(hours=1))
    DeliveryFactory()
    DeliveryFactory(status="sent")
    DeadLetterFactory()
    DeadLetterFactory(status="resolved")
    AttemptFactory(outcome="failed", error_class="NETWORK_TIMEOUT")

    found = samples(client)

    assert found["criticizer_scrape_success",] == 1
    assert (
        found["criticizer_jobs_active", "queued"] == StageRun.objects.count() + 3
    )  # each factory its own job
    assert found["criticizer_jobs_recent", "succeeded"] == 1
    assert found["criticizer_queue_messages", "stages"] == 2
    assert found["criticizer_queue_due_messages", "stages"] == 1
    assert 90 <= found["criticizer_queue_oldest_due_seconds", "stages"] < 200
    assert found["criticizer_deliveries_open", "pending"] == 1
    assert found["criticizer_deliveries_recent", "sent"] == 1
    assert found["criticizer_dead_letters_open", "NOT_FOUND"] == 1
    assert found["criticizer_attempts_recent", "NETWORK_TIMEOUT", "failed"] == 1
    assert found["criticizer_workers_alive", "stages"] == 2
    assert found["criticizer_workers_alive", "llm"] == 1
    assert found["process_cpu_seconds_total",] > 0


def test_metrics_cost_a_fixed_number_of_statements(
    client: Client, workers: None, django_assert_max_num_queries: Any
) -> None:
    for _ in range(20):
        ReviewJobFactory()
    with django_assert_max_num_queries(len(GAUGES) + 6):
        samples(client)


def test_metrics_read_the_outbox_once_for_all_queues(client: Client, workers: None) -> None:
    with CaptureQueriesContext(connection) as asked:
        samples(client)
    whole = [query["sql"] for query in asked if "FROM outbox_messages" in query["sql"]]
    assert len([sql for sql in whole if "waiting_for" not in sql]) == 1


def test_active_jobs_are_counted_without_the_history(
    client: Client, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left alone, PostgreSQL reads all rows, of a large table and of a small one."""
    (gauge,) = [gauge for gauge in GAUGES if gauge.name == "criticizer_jobs_active"]
    emptying.make_as_new("jobs")
    answers: list[tuple[str, Any]] = []
    answer = metrics._answer

    def noted(query: str, parameters: Any = ()) -> Any:
        answers.append((query, answer(f"EXPLAIN {query}") if query == gauge.query else None))
        return answer(query, parameters)

    monkeypatch.setattr(metrics, "_answer", noted)
    samples(client)
    assert "jobs_unfinished_by_deadline" in str(dict(answers)[gauge.query])


def test_a_query_that_takes_too_long_hides_no_other_metric(
    client: Client, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "QUERY_SECONDS", 0.5)
    slow = Gauge("criticizer_slow", "Never counted in time.", (), "SELECT 1 FROM pg_sleep(60)")
    monkeypatch.setattr(metrics, "GAUGES", [GAUGES[0], slow, *GAUGES[1:]])
    OutboxMessageFactory()
    ReviewJobFactory()
    found = samples(client)
    assert found["criticizer_scrape_success",] == 0
    assert ("criticizer_slow",) not in found
    assert found["criticizer_queue_messages", "stages"] == 1
    assert ("criticizer_jobs_active", "queued") in found
    assert found["criticizer_workers_alive", "stages"] == 2


def test_metrics_say_that_the_database_is_away(client: Client, outage: None) -> None:
    found = samples(client)
    assert found["criticizer_scrape_success",] == 0
    assert ("criticizer_jobs_active", "queued") not in found
    assert found["process_cpu_seconds_total",] > 0


@pytest.mark.django_db
@pytest.mark.parametrize(
    "extra",
    [
        {"REMOTE_ADDR": "192.0.2.7"},
        {"REMOTE_ADDR": "::ffff:192.0.2.7"},
        {"REMOTE_ADDR": ""},
        {"REMOTE_ADDR": "192.0.2.7", "HTTP_X_FORWARDED_FOR": "127.0.0.1"},
        {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "127.0.0.1"},
        {"REMOTE_ADDR": "127.0.0.1", "HTTP_FORWARDED": "for=192.0.2.7"},
        {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_REAL_IP": "192.0.2.7"},
    ],
)
def test_metrics_are_not_for_strangers(client: Client, extra: dict[str, str]) -> None:
    refused = client.get("/metrics", **extra)
    assert (refused.status_code, refused.json()["error"]) == (401, "AUTH_DENIED")
    assert client.get("/metrics", **extra, HTTP_AUTHORIZATION="Bearer no").status_code == 401
    reader = {"HTTP_AUTHORIZATION": f"Bearer {api_keys.create('bob', 'reviewer')}"}
    refused = client.get("/metrics", **extra, **reader)
    assert (refused.status_code, refused.json()["error"]) == (403, "PERMISSION_DENIED")
    assert Client(enforce_csrf_checks=True).post("/metrics", **extra).status_code == 405
    operator = {"HTTP_AUTHORIZATION": f"Bearer {api_keys.create('ann', 'operator')}"}
    assert client.get("/metrics", **extra, **operator).status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["trigger", "reviewer"])
def test_metrics_need_the_operator_role(client: Client, role: str) -> None:
    stranger = {"REMOTE_ADDR": "192.0.2.7", "HTTP_AUTHORIZATION": f"Bearer {api_keys.create('bob', role)}"}
    assert client.get("/metrics", **stranger).status_code == 403
    assert client.get("/metrics", **{**stranger, "HTTP_AUTHORIZATION": "Bearer crz_x"}).status_code == 401


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_metrics_are_for_this_machine(client: Client, address: str) -> None:
    assert client.get("/metrics", REMOTE_ADDR=address).status_code == 200
