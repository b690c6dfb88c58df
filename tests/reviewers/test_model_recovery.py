"""An idle circuit that closes by itself: a real server that dies and returns, no review.

The rows are real. The tests end the cool-down and the quiet time by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from criticizer.db import prepared
from criticizer.models import Circuit, CircuitEvent, OutboxMessage
from criticizer.resilience import circuit_breaker, gate, health_checks, overrides
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
)
from criticizer.resilience.health_checks import CHECKS
from criticizer.resilience.states import CircuitChange, CircuitState
from reviews.health_checks import model as ask_model
from reviews.replay.adapter import JobRecovery
from reviews.web.context_processors import stopped_dependencies
from tests import factories
from tests.fakes.closed import closed_port
from tests.fakes.llm import FakeLlm
from tests.stack import eventually

LLM = "llm:openai"
OPENED, HALF, CLOSED = CircuitChange.OPENED, CircuitChange.HALF_OPENED, CircuitChange.CLOSED


@pytest.fixture(autouse=True)
def _model(settings: Any) -> Iterator[None]:
    settings.LLM_PROVIDER, settings.LLM_MODEL, settings.LLM_API_KEYS = "openai", "m", ["a-key-for-tests"]
    CHECKS["llm"] = ask_model
    gate.forget()
    with closed_port() as port:
        settings.NOWHERE = f"http://127.0.0.1:{port}/v1"  # of these tests alone
        yield


def close_the_port(settings: Any) -> None:
    settings.LLM_BASE_URL = settings.NOWHERE


def opened(settings: Any) -> None:
    """Let ten calls to a server that is not there open the circuit."""
    close_the_port(settings)
    for _ in range(10):
        with pytest.raises(Failure), gate.guarded(LLM):
            ask_model(LLM)
    assert row().state == CircuitState.OPEN


def row() -> Circuit:
    return Circuit.objects.get(pk=LLM)


def time_passes() -> None:
    """Let the cool-down, or the quiet time, be over."""
    prepared.rows("UPDATE circuits SET retry_at = now() - interval '1 second'")


def changes() -> list[str]:
    return list(CircuitEvent.objects.filter(name=LLM).order_by("id").values_list("change", flat=True))


def waits_for_the_model(stage_run: int) -> OutboxMessage:
    return OutboxMessage.objects.create(
        aggregate_type="stage_run",
        aggregate_id=stage_run,
        message_type="run_stage",
        queue="llm",
        waiting_for=LLM,
    )


def half_opened(settings: Any, server: FakeLlm) -> None:
    opened(settings)
    settings.LLM_BASE_URL = server.base_url
    time_passes()
    assert health_checks.run_due() == 1
    assert row().state == CircuitState.HALF_OPEN


@pytest.mark.django_db
def test_an_open_circuit_closes_without_any_review_when_the_server_is_back(settings: Any) -> None:
    opened(settings)
    time_passes()
    assert health_checks.run_due() == 1  # still away
    assert row().state == CircuitState.OPEN
    with FakeLlm() as server:
        settings.LLM_BASE_URL = server.base_url
        assert health_checks.run_due() == 0  # another cool-down first
        states = []
        for _ in range(3):
            time_passes()
            assert health_checks.run_due() == 1
            states.append(row().state)
        assert server.requests == []  # nothing but the list of models was asked for
    assert states == [CircuitState.HALF_OPEN, CircuitState.HALF_OPEN, CircuitState.CLOSED]
    assert changes() == [OPENED, HALF, CLOSED]
    assert gate.acquire_permit(LLM).trial is None
    assert health_checks.due() == []


@pytest.mark.django_db
def test_it_is_asked_again_only_after_a_quiet_time(settings: Any) -> None:
    with FakeLlm() as server:
        half_opened(settings, server)
        assert health_checks.run_due() == 0
        time_passes()
        assert health_checks.run_due() == 1
        assert health_checks.run_due() == 0
        assert row().probe_successes == 1


@pytest.mark.django_db
def test_a_server_that_goes_away_again_opens_it_again(settings: Any) -> None:
    with FakeLlm() as server:
        half_opened(settings, server)
    time_passes()
    assert health_checks.run_due() == 1
    found = row()
    assert found.state == CircuitState.OPEN
    assert found.reason == "a health check failed with NETWORK_UNREACHABLE"
    assert found.probe_detail.startswith("NETWORK_UNREACHABLE: ")
    assert changes() == [OPENED, HALF, OPENED]
    assert health_checks.due() == []


@pytest.mark.django_db
def test_waiting_work_makes_the_trial_call_itself(settings: Any) -> None:
    with FakeLlm() as server:
        half_opened(settings, server)
        message = waits_for_the_model(1)
        time_passes()
        assert (health_checks.due(), health_checks.begin(LLM), health_checks.run_due()) == ([], None, 0)
        message.delete()
        assert health_checks.due() == [LLM]


@pytest.mark.django_db
def test_no_health_check_runs_beside_a_trial_call_however_long_it_takes(settings: Any) -> None:
    with FakeLlm() as server:
        half_opened(settings, server)
        permit = gate.acquire_permit(LLM)
        assert permit.trial is not None
        prepared.rows("UPDATE circuits SET probe_expires_at = now() - interval '1 second'")
        assert health_checks.run_due() == 0
        permit.report(None)
        assert (row().state, health_checks.run_due()) == (CircuitState.HALF_OPEN, 0)
        time_passes()
        assert health_checks.run_due() == 1  # no other call: the health check is the second
    assert row().state == CircuitState.CLOSED


@pytest.mark.django_db
def test_while_it_is_asked_calls_wait(settings: Any) -> None:
    with FakeLlm() as server:
        half_opened(settings, server)
    time_passes()
    turn = health_checks.begin(LLM)
    assert turn is not None
    with pytest.raises(DependencyUnavailable):
        gate.acquire_permit(LLM)
    health_checks.answered(LLM, turn)
    assert gate.acquire_permit(LLM).trial is not None


@pytest.mark.django_db
def test_what_was_asked_before_it_opened_again_changes_nothing(settings: Any) -> None:
    with FakeLlm() as server:
        half_opened(settings, server)
    time_passes()
    turn = health_checks.begin(LLM)
    assert turn is not None
    overrides.force(LLM, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=60)
    health_checks.answered(LLM, turn)
    health_checks.failed(LLM, turn, "NETWORK_TIMEOUT", "no answer")
    assert row().state == CircuitState.FORCED_OPEN
    assert row().probe_successes == 0


def defective(name: str) -> None:
    raise KeyError(name)


@pytest.mark.django_db
def test_a_defective_health_check_leaves_the_circuit_half_open_and_free(settings: Any) -> None:
    with FakeLlm() as server:
        half_opened(settings, server)
        CHECKS["llm"] = defective
        time_passes()
        assert health_checks.run_due() == 1
        found = row()
        assert (found.state, found.probe_token) == (CircuitState.HALF_OPEN, None)
        assert health_checks.run_due() == 0
        assert gate.acquire_permit(LLM).trial is not None


@pytest.mark.django_db
def test_what_an_operator_forced_open_closes_by_itself_after_its_time(settings: Any) -> None:
    gate.check(LLM)
    overrides.force(LLM, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=60)
    assert overrides.release(LLM, actor="ann", reason="INC-7 is over")
    assert health_checks.due() == []
    with FakeLlm() as server:
        settings.LLM_BASE_URL = server.base_url
        for _ in range(circuit_breaker.TRIALS_TO_CLOSE):
            time_passes()
            assert health_checks.run_due() == 1
    assert row().state == CircuitState.CLOSED


@pytest.mark.django_db
def test_a_late_failure_does_not_wait_for_the_quiet_time(settings: Any) -> None:
    gate.forget()
    late = gate.acquire_permit(LLM)
    with FakeLlm() as server:
        half_opened(settings, server)
        gate.acquire_permit(LLM)  # the trial call is out: the next health check is minutes away
        close_the_port(settings)
        with pytest.raises(Failure) as failed:
            ask_model(LLM)
    waiting = late.report(failed.value)
    assert waiting is not None
    assert waiting.seconds <= gate.SPREAD_SECONDS


@pytest.mark.django_db(transaction=True)
def test_the_thread_of_a_cluster_closes_an_idle_half_open_circuit(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_checks, "PERIOD_SECONDS", 0.01)
    stop = threading.Event()

    def is_closed() -> bool:
        time_passes()
        return bool(row().state == CircuitState.CLOSED)

    with FakeLlm() as server:
        half_opened(settings, server)
        thread = health_checks.start(stop)
        eventually(is_closed, 20)
        stop.set()
        thread.join(20)
    assert changes() == [OPENED, HALF, CLOSED]


# -- where only a real call closes it ----------------------------------------------------------


def refused() -> Failure:
    return PermanentFailure(ErrorClass.AUTH_DENIED, Component.REVIEWER, "HTTP 403")


def broken(error_class: ErrorClass = ErrorClass.UPSTREAM_INTERNAL) -> Failure:
    return RetryableFailure(error_class, Component.REVIEWER, "HTTP 500")


def opened_by_refusals(settings: Any, server: FakeLlm) -> None:
    """Completions are refused, the list of models is not."""
    settings.LLM_BASE_URL = server.base_url
    for _ in range(circuit_breaker.AUTH_FAILURES_IN_A_ROW):
        gate.acquire_permit(LLM).report(refused())
    time_passes()
    assert health_checks.run_due() == 1


def a_trial_call_failed(settings: Any, server: FakeLlm, failure: Callable[[], Failure] = broken) -> None:
    """A real call fails while the list of models is answered."""
    half_opened(settings, server)
    gate.acquire_permit(LLM).report(failure())
    time_passes()
    assert health_checks.run_due() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("stand", [opened_by_refusals, a_trial_call_failed])
def test_health_checks_do_not_close_a_circuit_that_needs_a_real_call(
    settings: Any, stand: Callable[[Any, FakeLlm], None]
) -> None:
    with FakeLlm() as server:
        stand(settings, server)
        time_passes()
        assert (health_checks.due(), health_checks.begin(LLM), health_checks.run_due()) == ([], None, 0)
        assert row().state == CircuitState.HALF_OPEN
        assert row().needs_call
        assert {name for name, found in circuit_breaker.open_circuits().items() if found.needs_call} == {LLM}
        # A replay is the trial call. After it the health check may be the second one.
        gate.acquire_permit(LLM).report(None)
        assert row().state == CircuitState.HALF_OPEN
        assert not circuit_breaker.open_circuits()[LLM].needs_call
        time_passes()
        assert health_checks.run_due() == 1
    assert row().state == CircuitState.CLOSED


@pytest.mark.django_db
def test_pages_tell_refused_credentials_from_silence(settings: Any) -> None:
    settings.LLM_REQUIRED = True
    for _ in range(circuit_breaker.AUTH_FAILURES_IN_A_ROW):
        gate.acquire_permit(LLM).report(refused())
    assert row().error_class == "AUTH_DENIED"
    assert stopped_dependencies() == [
        "The language model rejects our credentials. Reviews wait; they continue once an operator renews"
        " them."
    ]
    with FakeLlm() as server:
        settings.LLM_BASE_URL = server.base_url
        time_passes()
        assert health_checks.run_due() == 1
    assert stopped_dependencies() == [
        "The language model rejected our credentials and is tried again with the next review or replay that"
        " needs it. Reviews wait; they continue automatically when it answers."
    ]
    gate.acquire_permit(LLM).report(broken())  # the new key is taken, and then it breaks
    assert (row().error_class, circuit_breaker.open_circuits()[LLM].is_refused) == (
        "UPSTREAM_INTERNAL",
        False,
    )
    overrides.force(LLM, CircuitState.FORCED_CLOSED, actor="ann", reason="INC-7", seconds=60)
    assert row().error_class == ""


@pytest.mark.django_db
def test_refused_credentials_are_remembered_when_the_next_trial_call_finds_no_server(settings: Any) -> None:
    with FakeLlm() as server:
        opened_by_refusals(settings, server)
        gate.acquire_permit(LLM).report(broken(ErrorClass.NETWORK_UNREACHABLE))
        time_passes()
        assert health_checks.run_due() == 1
        time_passes()
        assert health_checks.run_due() == 0
    assert (row().reason, row().needs_call) == ("a trial call failed with NETWORK_UNREACHABLE", True)


@pytest.mark.django_db
def test_a_refused_trial_call_needs_a_real_call_too(settings: Any) -> None:
    opened(settings)
    prepared.rows("UPDATE circuits SET retry_at = now() - interval '61 seconds'")  # no health check was made
    gate.acquire_permit(LLM).report(refused())
    assert (row().reason, row().needs_call) == ("a trial call failed with AUTH_DENIED", True)


@pytest.mark.django_db
def test_a_server_lost_between_health_check_and_trial_call_needs_no_real_call(settings: Any) -> None:
    with FakeLlm() as server:
        a_trial_call_failed(settings, server, lambda: broken(ErrorClass.NETWORK_UNREACHABLE))
        for _ in range(circuit_breaker.TRIALS_TO_CLOSE):
            time_passes()
            assert health_checks.run_due() == 1
    assert row().state == CircuitState.CLOSED


@pytest.mark.django_db
def test_a_trial_call_that_fails_after_an_answered_health_check_needs_a_real_call(settings: Any) -> None:
    gate.check(LLM)
    overrides.force(LLM, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=60)
    overrides.release(LLM, actor="ann", reason="INC-7 is over")
    with FakeLlm() as server:
        settings.LLM_BASE_URL = server.base_url
        time_passes()
        assert health_checks.run_due() == 1
    gate.acquire_permit(LLM).report(broken())
    assert (row().reason, row().needs_call) == ("a trial call failed with UPSTREAM_INTERNAL", True)


@pytest.mark.django_db
def test_a_review_that_backs_off_is_work_that_waits(settings: Any) -> None:
    job = factories.ReviewJobFactory(status="retryable_failed")
    run = factories.StageRunFactory(job=job, stage="llm", status="retry_wait")
    message = OutboxMessage.objects.create(
        aggregate_type="stage_run", aggregate_id=run.pk, message_type="run_stage", queue="llm", retry_count=1
    )
    with FakeLlm() as server:
        half_opened(settings, server)
        time_passes()
        assert (health_checks.due(), health_checks.run_due()) == ([], 0)
        type(run).objects.update(stage="fetch")  # what backs off needs another server
        assert health_checks.due() == [LLM]
        type(run).objects.update(stage="llm")
        message.delete()
        assert health_checks.run_due() == 1


@pytest.mark.django_db
def test_what_cannot_be_asked_is_not_looked_for(settings: Any) -> None:
    for name in ("provider:webhook:a.example.com", "llmx:openai", LLM):
        circuit_breaker.create(name)
    prepared.rows("UPDATE circuits SET state = 'open', retry_at = now() - interval '1 second'")
    assert health_checks.due() == [LLM]
    CHECKS.clear()
    assert health_checks.due() == []


@pytest.mark.django_db
def test_an_expired_key_is_not_hidden_behind_the_outage_that_opened_the_circuit(settings: Any) -> None:
    """The newest health check names the cause (G224).

    The banner says who waits, for whom and until when.
    """
    settings.LLM_REQUIRED = True
    opened(settings)
    assert row().error_class == "NETWORK_UNREACHABLE"
    until = datetime(2030, 1, 2, 11, 30, tzinfo=UTC)
    for n in range(3):
        job = factories.ReviewJobFactory(changelist_id=str(n), deadline_at=until + timedelta(hours=n))
        waits_for_the_model(factories.StageRunFactory(job=job, stage="llm").pk)
    with FakeLlm(refused_keys=frozenset({"a-key-for-tests"})) as server:
        settings.LLM_BASE_URL = server.base_url
        time_passes()
        assert health_checks.run_due() == 1
    assert (row().state, row().error_class) == (CircuitState.OPEN, "AUTH_DENIED")
    assert row().why == "a health check failed with AUTH_DENIED"
    assert stopped_dependencies() == [
        "The language model rejects our credentials. 3 reviews wait; they continue once an operator renews"
        " them, and expire from 2030-01-02 11:30:00 UTC."
    ]
    assert "3 reviews" not in str(
        stopped_dependencies(counts=lambda: False)
    )  # for people who see some files only
    time_passes()
    assert health_checks.run_due() == 1  # unreachable again: the port is closed
    assert row().error_class == "NETWORK_UNREACHABLE"


@pytest.mark.django_db
def test_pages_and_letters_say_whose_call_closes_it(settings: Any) -> None:
    settings.LLM_REQUIRED = True
    with FakeLlm() as server:
        a_trial_call_failed(settings, server)
    assert stopped_dependencies() == [
        "The language model is being tried again with the next review or replay that needs it. Reviews"
        " wait; they continue automatically when it answers."
    ]
    assert JobRecovery()._circuits([LLM])[LLM].check.message == (
        f"the circuit of {LLM} is half-open: only a real call closes it, and a replay is one: it tries it,"
        " and uses no attempt"
    )
