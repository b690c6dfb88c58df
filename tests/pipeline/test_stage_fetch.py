"""The stage fetch under the circuit of its server, and health checks of sources and models."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from criticizer.db import prepared
from criticizer.http_client import Limits
from criticizer.models import Circuit, CircuitBucket, CircuitEvent
from criticizer.queue import outbox
from criticizer.resilience import gate, overrides
from criticizer.resilience import health_checks as harmless
from criticizer.resilience.failures import (
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
)
from criticizer.resilience.health_checks import CHECKS
from criticizer.resilience.states import CircuitState
from reviews import health_checks, pipeline
from reviews.intake.review_requests import ReviewRequest, request_review
from reviews.models import ReviewJob
from reviews.pipeline import Due
from reviews.recipients.viewing_scopes import Scope
from reviews.stages import fetch
from tests import changes
from tests.acceptance.line import Line
from tests.fakes.p4.server import CONNECTION_REFUSED, FakeDepot, added
from tests.sources.gitrepo import GitRepo
from tests.stack import eventually

P4 = "p4:127.0.0.1:1666"
LLM = "llm:openai"
A = "//depot/main/a.c"


@pytest.fixture(autouse=True)
def _fresh(settings: Any) -> None:
    CHECKS.clear()
    gate.forget()


@pytest.fixture
def depot(tmp_path: Path, settings: Any, db: None) -> FakeDepot:
    made = FakeDepot(tmp_path)
    settings.DATA_DIR = tmp_path
    settings.CHANGE_SOURCES = ["perforce", "git"]
    settings.P4_EXECUTABLE = str(made.executable)
    settings.P4PORT, settings.P4USER = "127.0.0.1:1666", "criticizer"
    settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "//demo/..."]
    return made


def cool_down_ends() -> None:
    prepared.rows("UPDATE circuits SET retry_at = now() - interval '1 second' WHERE state = 'open'")


def open_now(name: str) -> None:
    gate.check(name)
    prepared.rows("UPDATE circuits SET state = 'open', retry_at = now() + interval '1 hour'")


# -- fetch ------------------------------------------------------------------------------------


def test_a_dead_server_opens_its_circuit_and_the_rest_waits(depot: FakeDepot) -> None:
    change = depot.submit(added(A, "1\n"))
    depot.misbehave("info", times=100, stderr=CONNECTION_REFUSED, exit=1)
    for _ in range(10):
        with pytest.raises(RetryableFailure):
            changes.fetched(change)
    asked = len(depot.calls())
    with pytest.raises(DependencyUnavailable) as caught:
        changes.fetched(change)
    assert (caught.value.dependency, len(depot.calls())) == (P4, asked)
    depot.recover()
    cool_down_ends()
    for _ in range(2):
        assert [file.path for file in changes.fetched(change).files] == [A]
    assert Circuit.objects.get(pk=P4).state == CircuitState.CLOSED


def test_permanent_failure_of_a_job_does_not_count_against_the_server(depot: FakeDepot) -> None:
    with pytest.raises(PermanentFailure):
        changes.fetched("99999")
    bucket = CircuitBucket.objects.get(name=P4)
    assert (bucket.calls, bucket.failures) == (1, 0)


def test_what_the_allow_list_refuses_counts_as_nothing(depot: FakeDepot) -> None:
    change = depot.submit(added("//depot/other/a.c", "1\n"))
    with pytest.raises(PermanentFailure) as failed:
        changes.fetched(change)
    assert failed.value.error_class is ErrorClass.PATH_DENIED
    assert not CircuitBucket.objects.exists()


def test_git_is_local_and_has_no_circuit(depot: FakeDepot, settings: Any, tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "demo")
    repository.commit_files({"a.c": "1\n"})
    settings.GIT_REPOSITORIES = {"demo": repository.path}
    changes.fetched(f"git:demo@{repository.git('rev-parse', 'HEAD')}")
    assert not Circuit.objects.exists()


@pytest.mark.parametrize(("is_submitted", "seconds"), [(True, 900), (False, 600)])
def test_the_kind_of_a_fetched_change_decides_its_deadline(
    depot: FakeDepot, settings: Any, is_submitted: bool, seconds: int
) -> None:
    """Also of a review that was requested without it, and once: a second fetch moves nothing."""
    settings.REVIEW_SLA_SECONDS = {"": 1200, "submitted": 900, "shelved": 600}
    made = depot.submit if is_submitted else depot.shelve
    change = made(added(A, "1\n"))
    job = ReviewJob.objects.get(pk=request_review(ReviewRequest("k", change)).job_id)
    assert (job.kind, job.deadline_at - job.created_at) == ("", timedelta(seconds=1200))
    (message,) = outbox.claim("stages", 1)
    claim = pipeline.claim(Due(message.id, message.aggregate_id, message.lease_token), "w")
    assert claim is not None
    pipeline.record(claim, fetch.run(claim))
    for _ in range(2):
        job.refresh_from_db()
        assert job.kind == ("submitted" if is_submitted else "shelved")
        assert job.deadline_at - job.created_at == timedelta(seconds=seconds)
        pipeline.note_kind(job.pk, change, job.kind)


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({"": 1200, "submitted": 900}, 900),
        ({"": 1200, "submitted": 900, "git": 300}, 300),  # of its source, which says more
    ],
)
def test_the_kind_decides_for_every_source(settings: Any, limits: dict[str, int], seconds: int) -> None:
    settings.REVIEW_SLA_SECONDS = limits
    assert pipeline.deadline_seconds("git:app@" + "a" * 40, "submitted") == seconds


def test_context_is_fetched_where_a_model_will_read_it(
    depot: FakeDepot, settings: Any, tmp_path: Path
) -> None:
    repository = GitRepo(tmp_path / "demo")
    repository.commit_files(
        {"a.py": "x\n", "lib.py": "def discounted(x):\n    pass\n", "vendor/v.py": "RATE_OF = 1\n"}
    )
    sha = repository.commit_files({"a.py": "discounted(RATE_OF)\n"})
    settings.GIT_REPOSITORIES = {"demo": repository.path}
    settings.LLM_PROVIDER, settings.LLM_SKIP_PATHS = "openai", ["*/vendor/*"]
    everything, nothing = Scope(everything=True), Scope(prefixes=("//demo/a",))
    assert [file.path for file in changes.fetched(f"git:demo@{sha}", scope=everything).context] == [
        "//demo/lib.py"
    ]
    assert changes.fetched(f"git:demo@{sha}", scope=nothing).context == ()
    settings.LLM_CONTEXT_PERCENT = 0
    assert changes.fetched(f"git:demo@{sha}").context == ()
    settings.LLM_CONTEXT_PERCENT, settings.LLM_PROVIDER = 35, "none"
    assert changes.fetched(f"git:demo@{sha}").context == ()


# -- harmless probes --------------------------------------------------------------------------


def test_perforce_health_check_runs_info(depot: FakeDepot) -> None:
    health_checks.perforce(P4)
    assert [call.argv[-2:] for call in depot.calls()] == [["info", "-s"]]


def test_perforce_health_check_fails_when_the_server_is_down(depot: FakeDepot) -> None:
    depot.misbehave("*", stderr=CONNECTION_REFUSED, exit=1)
    with pytest.raises(RetryableFailure):
        health_checks.perforce(P4)


@contextmanager
def model_server(*statuses: int) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Serve the statuses in turn, then the last for ever; yield the base URL and what was asked."""
    left = list(statuses)
    asked: list[tuple[str, str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            key = self.headers.get("Authorization") or self.headers.get("x-api-key") or ""
            asked.append((self.path, key, self.headers.get("Content-Length") or "no body"))
            self.send_response(left.pop(0) if len(left) > 1 else left[0])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def model(settings: Any) -> Any:
    settings.LLM_PROVIDER, settings.LLM_MODEL = "openai", "m"
    settings.LLM_API_KEYS = ["a-key-for-tests", "the-next-key"]
    return settings


@pytest.mark.parametrize("status", [200, 404, 405, 429, 501])
def test_model_health_check_passes_on_any_answer(model: Any, status: int) -> None:
    with model_server(status) as (model.LLM_BASE_URL, asked):
        health_checks.model(LLM)
    assert asked == [("/v1/models", "Bearer a-key-for-tests", "no body")]


@pytest.mark.parametrize(
    ("status", "error_class"),
    [
        (500, ErrorClass.UPSTREAM_UNAVAILABLE),
        (503, ErrorClass.UPSTREAM_UNAVAILABLE),
        (401, ErrorClass.AUTH_DENIED),
    ],
)
def test_model_health_check_fails_on_server_errors(model: Any, status: int, error_class: ErrorClass) -> None:
    with model_server(status) as (model.LLM_BASE_URL, _), pytest.raises(Failure) as failed:
        health_checks.model(LLM)
    assert failed.value.error_class is error_class


def test_a_refused_key_is_followed_by_the_next(model: Any) -> None:
    with model_server(401, 200) as (model.LLM_BASE_URL, asked):
        health_checks.model(LLM)
    assert [key for _, key, _ in asked] == ["Bearer a-key-for-tests", "Bearer the-next-key"]


def test_the_other_provider_takes_its_key_in_its_own_header(model: Any) -> None:
    model.LLM_PROVIDER = "anthropic"
    with model_server(200) as (model.LLM_BASE_URL, asked):
        health_checks.model("llm:anthropic")
    assert asked == [("/v1/models", "a-key-for-tests", "no body")]


@pytest.mark.parametrize(
    ("mode", "error_class"),
    [("silent", ErrorClass.NETWORK_TIMEOUT), ("refuse", ErrorClass.NETWORK_UNREACHABLE)],
)
def test_model_health_check_fails_on_a_broken_connection(
    model: Any, monkeypatch: pytest.MonkeyPatch, mode: str, error_class: ErrorClass
) -> None:
    if mode == "silent":
        monkeypatch.setattr("reviews.reviewers.health_checks.LIMITS", Limits(0.3, 0.3, 0.3))
    line = Line(1, mode)
    try:
        model.LLM_BASE_URL = f"http://127.0.0.1:{line.port}/v1"
        with pytest.raises(Failure) as failed:
            health_checks.model(LLM)
    finally:
        line.close()
    assert failed.value.error_class is error_class


@pytest.mark.parametrize("name", ["llm:anthropic", "p4:old-server:1666"])
def test_circuit_of_an_unconfigured_dependency_closes(model: Any, name: str) -> None:
    model.LLM_BASE_URL = "http://127.0.0.1:1/v1"
    (health_checks.perforce if name.startswith("p4") else health_checks.model)(name)


@pytest.mark.django_db
def test_due_health_checks_are_made_and_decide(settings: Any, model: Any) -> None:
    CHECKS["llm"] = health_checks.model
    open_now(LLM)
    assert harmless.run_due() == 0  # the cool-down first
    with model_server(503, 200) as (model.LLM_BASE_URL, asked):
        cool_down_ends()
        assert harmless.run_due() == 1
        assert Circuit.objects.get(pk=LLM).state == CircuitState.OPEN
        cool_down_ends()
        assert harmless.run_due() == 1
    assert Circuit.objects.get(pk=LLM).state == CircuitState.HALF_OPEN
    assert len(asked) == 2


def defective(name: str) -> None:
    raise KeyError(name)


@pytest.mark.django_db
def test_a_defective_health_check_does_not_stop_the_others(settings: Any, model: Any) -> None:
    CHECKS["llm"] = health_checks.model
    CHECKS["p4"] = defective
    open_now(P4)
    open_now(LLM)
    cool_down_ends()
    with model_server(200) as (model.LLM_BASE_URL, _):
        assert harmless.run_due() == 2
    assert Circuit.objects.get(pk=P4).probe_detail == "the health check itself failed: KeyError"
    assert Circuit.objects.get(pk=LLM).state == CircuitState.HALF_OPEN


@pytest.mark.django_db(transaction=True)
def test_a_thread_of_each_cluster_makes_due_health_checks(
    monkeypatch: pytest.MonkeyPatch, model: Any
) -> None:
    monkeypatch.setattr(harmless, "PERIOD_SECONDS", 0.01)
    CHECKS["llm"] = health_checks.model
    open_now("provider:webhook:dead.example.com")  # has no health check
    open_now(LLM)
    cool_down_ends()
    stop = threading.Event()
    with model_server(200) as (model.LLM_BASE_URL, asked):
        thread = harmless.start(stop)
        eventually(lambda: Circuit.objects.get(pk=LLM).state == CircuitState.HALF_OPEN, 20)
        stop.set()
        thread.join(20)
    assert len(asked) == 1


@pytest.mark.django_db
def test_maintenance_ends_forced_states_and_forgets_old_circuits() -> None:
    for name in (LLM, P4, "provider:webhook:old.example.com"):
        gate.check(name)
    overrides.force(LLM, CircuitState.FORCED_CLOSED, actor="ann", reason="INC-7", seconds=60)
    prepared.rows("UPDATE circuits SET retry_at = now() - interval '1 second' WHERE state = 'forced_closed'")
    prepared.rows("UPDATE circuits SET changed_at = now() - interval '8 days' WHERE name LIKE '%%old%%'")
    gate.acquire_permit(P4).report(None)
    prepared.rows("UPDATE circuit_buckets SET started_at = now() - interval '6 minutes'")
    harmless.maintain()
    assert set(Circuit.objects.values_list("name", "state")) == {(LLM, "closed"), (P4, "closed")}
    assert CircuitEvent.objects.filter(name=LLM).latest("id").change == "released"
    assert not CircuitBucket.objects.exists()
