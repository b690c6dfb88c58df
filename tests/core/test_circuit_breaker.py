"""Circuit breakers: window, thresholds, trial calls, health checks, fences, overrides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from django.db import connection, connections

from criticizer.db import prepared
from criticizer.models import Circuit, CircuitBucket, CircuitEvent, OutboxMessage
from criticizer.queue import outbox
from criticizer.resilience import gate, health_checks, overrides
from criticizer.resilience.circuit_breaker import Counts, Signal, next_state
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from criticizer.resilience.health_checks import CHECKS
from criticizer.resilience.states import CircuitChange, CircuitState

T = TypeVar("T")
LLM = "llm:openai"
HOOK = "provider:webhook:ci.example.com"


def timeout(component: Component = Component.REVIEWER) -> Failure:
    return RetryableFailure(ErrorClass.NETWORK_TIMEOUT, component, "no answer")


def refused() -> Failure:
    return PermanentFailure(ErrorClass.AUTH_DENIED, Component.REVIEWER, "the key was refused")


def call(error: BaseException | None = None, name: str = LLM) -> DependencyUnavailable | None:
    return gate.acquire_permit(name).report(error)


def calls(successes: int, failures: int, name: str = LLM) -> None:
    """Successes first: the rate is judged when a failure is counted."""
    for _ in range(successes):
        call(None, name)
    for _ in range(failures):
        call(timeout(Component.PROVIDER if name == HOOK else Component.REVIEWER), name)


def state(name: str = LLM) -> str:
    return Circuit.objects.get(pk=name).state


def changes(name: str = LLM) -> list[str]:
    return list(CircuitEvent.objects.filter(name=name).order_by("id").values_list("change", flat=True))


def cool_down_ends(name: str = LLM) -> None:
    prepared.rows(
        "UPDATE circuits SET retry_at = now() - interval '1 second' WHERE name = %(name)s", {"name": name}
    )


def opened(name: str = LLM) -> None:
    calls(0, 10, name)
    assert state(name) == CircuitState.OPEN


def half_opened(name: str = LLM) -> gate.Permit:
    """Return the permit of the trial call."""
    opened(name)
    cool_down_ends(name)
    return gate.acquire_permit(name)


def parked(count: int, name: str = LLM) -> list[int]:
    """Messages that wait for `name`, due again in an hour, in this order."""
    rows = [
        OutboxMessage.objects.create(
            aggregate_type="stage_run", aggregate_id=number, message_type="run_stage", queue="llm",
            waiting_for=name,
        ).pk
        for number in range(count)
    ]  # fmt: skip
    prepared.rows(
        "UPDATE outbox_messages SET available_at = now() + interval '1 hour' + id * interval '1 second'"
    )
    return rows


def in_threads(count: int, work: Callable[[], T]) -> list[T]:
    """Run `work` at once in threads with connections of their own."""
    start = threading.Barrier(count)
    results: list[T] = []

    def run() -> None:
        try:
            connection.ensure_connection()
            start.wait(20)
            results.append(work())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def early_in_a_bucket() -> None:
    """Wait while the present bucket is about to end.

    Calls that count at the same time in two buckets do not see each other.
    """
    left = "10 - mod(extract(epoch FROM clock_timestamp()), 10)::float8"
    prepared.value(f"SELECT pg_sleep(CASE WHEN {left} < 5 THEN {left} ELSE 0 END)")


@pytest.fixture(autouse=True)
def _no_harmless_probe(settings: Any) -> None:
    CHECKS.clear()
    gate.forget()


# -- the rules --------------------------------------------------------------------------------

MANY = Counts(calls=10, failures=6, refusals=3, answers=2)
MOVES = {
    (CircuitState.CLOSED, Signal.FAILED): CircuitState.OPEN,
    (CircuitState.CLOSED, Signal.REFUSED): CircuitState.OPEN,
    (CircuitState.OPEN, Signal.TRIED): CircuitState.HALF_OPEN,
    (CircuitState.HALF_OPEN, Signal.ANSWERED): CircuitState.CLOSED,
    (CircuitState.HALF_OPEN, Signal.FAILED): CircuitState.OPEN,
    (CircuitState.HALF_OPEN, Signal.REFUSED): CircuitState.OPEN,
    (CircuitState.FORCED_OPEN, Signal.RELEASED): CircuitState.HALF_OPEN,
    (CircuitState.FORCED_CLOSED, Signal.RELEASED): CircuitState.CLOSED,
}


def test_next_state_moves_as_the_table_says_and_stays_otherwise() -> None:
    given = {
        (state_, signal): next_state(state_, signal, MANY) for state_ in CircuitState for signal in Signal
    }
    assert given == {(state_, signal): MOVES.get((state_, signal), state_) for state_, signal in given}


def test_next_state_stays_below_each_threshold() -> None:
    too_few = [
        (CircuitState.CLOSED, Signal.FAILED, Counts(calls=9, failures=9)),
        (CircuitState.CLOSED, Signal.FAILED, Counts(calls=10, failures=5)),
        (CircuitState.CLOSED, Signal.FAILED, Counts(calls=3, failures=3, timeouts=2, seconds_lost=29)),
        (CircuitState.CLOSED, Signal.FAILED, Counts(calls=1, failures=1, timeouts=1, seconds_lost=60)),
        (CircuitState.CLOSED, Signal.REFUSED, Counts(refusals=2)),
        (CircuitState.HALF_OPEN, Signal.ANSWERED, Counts(answers=1)),
    ]
    assert [next_state(*row) for row in too_few] == [state_ for state_, _, _ in too_few]


# -- opening ----------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("successes", "failures", "expected"),
    [
        (0, 9, CircuitState.CLOSED),  # too few calls
        (0, 10, CircuitState.OPEN),
        (5, 5, CircuitState.CLOSED),  # half is not more than half
        (5, 6, CircuitState.OPEN),
        (30, 30, CircuitState.CLOSED),
    ],
)
def test_more_than_half_of_at_least_ten_calls_open_it(successes: int, failures: int, expected: str) -> None:
    calls(successes, failures)
    assert state() == expected


def lost(seconds: float, error: Failure) -> None:
    """Make a failed call to a receiver that took so long."""
    permit = gate.acquire_permit(HOOK)
    permit.began_at -= seconds
    permit.report(error)


@pytest.mark.django_db
def test_a_receiver_that_times_out_three_times_in_a_row_is_not_called_again() -> None:
    """It is not called again however few calls a minute there are, as each holds a worker."""
    for _ in range(2):
        lost(1, timeout(Component.PROVIDER))
    call(None, HOOK)  # breaks the row
    for expected in (CircuitState.CLOSED, CircuitState.CLOSED, CircuitState.OPEN):
        lost(1, timeout(Component.PROVIDER))
        assert state(HOOK) == expected
    assert Circuit.objects.get(pk=HOOK).timeouts == 0  # counted anew under the next state


@pytest.mark.django_db
def test_a_receiver_that_costs_half_of_the_time_is_not_called_again() -> None:
    """It answers in between, so that no three timeouts follow each other."""
    for expected in (CircuitState.CLOSED, CircuitState.CLOSED, CircuitState.OPEN):
        call(None, HOOK)
        lost(10, timeout(Component.PROVIDER))
        assert state(HOOK) == expected
    assert "took 30 s" in Circuit.objects.get(pk=HOOK).reason


@pytest.mark.django_db
def test_a_model_or_source_that_times_out_thrice_is_called_on() -> None:
    """One prompt or change that always takes too long must not stop all the others."""
    for _ in range(4):
        permit = gate.acquire_permit(LLM)
        permit.began_at -= 120
        permit.report(timeout())
    assert state() == CircuitState.CLOSED


@pytest.mark.django_db
def test_calls_of_more_than_a_minute_ago_do_not_count() -> None:
    calls(0, 9)
    prepared.rows("UPDATE circuit_buckets SET started_at = started_at - interval '70 seconds'")
    calls(0, 1)
    assert state() == CircuitState.CLOSED


@pytest.mark.django_db
def test_calls_of_the_same_minute_count_together() -> None:
    calls(0, 9)
    prepared.rows("UPDATE circuit_buckets SET started_at = started_at - interval '20 seconds'")
    calls(0, 1)
    assert state() == CircuitState.OPEN


@pytest.mark.django_db
def test_the_first_failures_cost_attempts_and_the_opening_one_too() -> None:
    assert [call(timeout()) for _ in range(10)] == [None] * 10


@pytest.mark.django_db
def test_an_open_circuit_refuses_permits_and_says_until_when() -> None:
    opened()
    for look in (gate.check, gate.acquire_permit):
        with pytest.raises(DependencyUnavailable) as caught:
            look(LLM)
        assert caught.value.dependency == LLM
        assert 20 < caught.value.seconds <= 30 + gate.SPREAD_SECONDS


@pytest.mark.django_db
def test_waiting_is_spread() -> None:
    opened()
    waits = set()
    for _ in range(5):
        with pytest.raises(DependencyUnavailable) as caught:
            gate.check(LLM)
        waits.add(caught.value.seconds)
    assert len(waits) == 5


@pytest.mark.django_db
def test_one_circuit_does_not_stop_another() -> None:
    calls(0, 3, HOOK)
    assert state(HOOK) == CircuitState.OPEN
    gate.check("provider:webhook:b.example.com")
    gate.check(LLM)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (timeout(), 1),
        (UncertainFailure(ErrorClass.UPSTREAM_INTERNAL, Component.PROVIDER), 1),
        (UncertainFailure(ErrorClass.DELIVERY_UNCERTAIN, Component.PROVIDER), 1),
        (PermanentFailure(ErrorClass.NOT_FOUND, Component.SOURCE), 0),
        (PermanentFailure(ErrorClass.TOKEN_LIMIT, Component.REVIEWER), 0),
        (PermanentFailure(ErrorClass.RECIPIENT_REJECTED, Component.PROVIDER), 0),
    ],
)
def test_what_counts_as_a_failure_and_what_as_an_answer(error: Failure, expected: int) -> None:
    call(error)
    bucket = CircuitBucket.objects.get(name=LLM)
    assert (bucket.calls, bucket.failures) == (1, expected)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "error",
    [
        RetryableFailure(ErrorClass.DATABASE_UNAVAILABLE, Component.DATABASE),
        PermanentFailure(ErrorClass.PATH_DENIED, Component.INTERNAL),
        PermanentFailure(ErrorClass.CONFIG_INVALID, Component.REVIEWER),
        DependencyUnavailable(LLM, 1),
        KeyError("a defect of ours"),
        KeyboardInterrupt(),
    ],
)
def test_our_own_trouble_counts_as_nothing(error: BaseException) -> None:
    assert call(error) is None
    assert not CircuitBucket.objects.exists()


@pytest.mark.django_db
def test_a_permit_is_reported_once() -> None:
    permit = gate.acquire_permit(LLM)
    permit.report(None)
    permit.report(timeout())
    assert CircuitBucket.objects.get(name=LLM).calls == 1


# -- credentials ------------------------------------------------------------------------------


@pytest.mark.django_db
def test_refused_credentials_in_a_row_open_it_at_once() -> None:
    assert [call(refused()) for _ in range(3)] == [None] * 3
    assert state() == CircuitState.OPEN
    assert "refused 3 times in a row, the last with AUTH_DENIED" in Circuit.objects.get(pk=LLM).reason


@pytest.mark.django_db
def test_an_answer_between_them_breaks_the_row() -> None:
    for error in (refused(), refused(), None, refused(), refused()):
        call(error)
    assert state() == CircuitState.CLOSED


@pytest.mark.django_db
def test_refusals_of_calls_that_were_in_flight_when_it_opened_cost_nothing() -> None:
    permits = [gate.acquire_permit(LLM) for _ in range(20)]
    costly = [permit.report(refused()) is None for permit in permits]
    assert costly == [True] * 3 + [False] * 17


@pytest.mark.django_db(transaction=True)
def test_refusals_reported_at_the_same_moment_cost_three_attempts() -> None:
    permits = [gate.acquire_permit(LLM) for _ in range(12)]
    reports = in_threads(12, lambda: permits.pop().report(refused()))
    assert sum(report is None for report in reports) == 3
    assert changes() == [CircuitChange.OPENED]


# -- trial calls ------------------------------------------------------------------------------


@pytest.mark.django_db
def test_after_the_cool_down_one_call_is_let_through() -> None:
    permit = half_opened()
    assert permit.trial is not None
    assert state() == CircuitState.HALF_OPEN
    with pytest.raises(DependencyUnavailable):
        gate.acquire_permit(LLM)
    with pytest.raises(DependencyUnavailable):
        gate.check(LLM)


@pytest.mark.django_db
def test_two_answered_trial_calls_in_a_row_close_the_circuit() -> None:
    half_opened().report(None)
    assert state() == CircuitState.HALF_OPEN
    call(None)
    assert state() == CircuitState.CLOSED
    assert changes() == [CircuitChange.OPENED, CircuitChange.HALF_OPENED, CircuitChange.CLOSED]


@pytest.mark.django_db
def test_a_failed_trial_call_reopens_the_circuit_and_costs_no_attempt() -> None:
    permit = half_opened()
    waiting = permit.report(timeout())
    assert waiting is not None
    assert waiting.seconds >= 30
    assert state() == CircuitState.OPEN
    with pytest.raises(DependencyUnavailable):
        gate.acquire_permit(LLM)


@pytest.mark.django_db
@pytest.mark.parametrize(("asked", "seconds"), [(7.0, 30), (100.0, 100), (900.0, 300)])
def test_a_failed_call_waits_as_long_as_it_asks_five_minutes_at_most(asked: float, seconds: float) -> None:
    failure = RetryableFailure(
        ErrorClass.UPSTREAM_UNAVAILABLE, Component.REVIEWER, "503", retry_after_seconds=asked
    )
    in_flight = gate.acquire_permit(LLM)
    for waiting in (half_opened().report(failure), in_flight.report(failure)):
        assert waiting is not None
        assert seconds - 1 <= waiting.seconds <= seconds + gate.SPREAD_SECONDS


@pytest.mark.django_db
def test_a_failed_second_trial_call_reopens_the_circuit() -> None:
    half_opened().report(None)
    assert call(refused()) is not None
    assert state() == CircuitState.OPEN


@pytest.mark.django_db
def test_it_starts_with_a_clean_window_after_closing() -> None:
    half_opened().report(None)
    call(None)
    calls(0, 9)
    assert state() == CircuitState.CLOSED


@pytest.mark.django_db(transaction=True)
def test_of_concurrent_callers_one_gets_the_trial_call() -> None:
    opened()
    cool_down_ends()

    def attempt() -> bool:
        try:
            gate.acquire_permit(LLM)
        except DependencyUnavailable:
            return False
        return True

    assert sorted(in_threads(10, attempt)) == [False] * 9 + [True]
    assert changes() == [CircuitChange.OPENED, CircuitChange.HALF_OPENED]


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_all_processes_share_its_state() -> None:
    def fail() -> DependencyUnavailable | None:
        return gate.acquire_permit(LLM).report(timeout())

    assert in_threads(5, fail) == [None] * 5
    early_in_a_bucket()
    assert in_threads(5, fail) == [None] * 5
    assert state() == CircuitState.OPEN
    assert changes() == [CircuitChange.OPENED]


@pytest.mark.django_db
def test_another_worker_makes_the_trial_call_after_its_lease_expired() -> None:
    half_opened()  # and never reported
    with pytest.raises(DependencyUnavailable):
        gate.acquire_permit(LLM)
    prepared.rows("UPDATE circuits SET probe_expires_at = now() - interval '1 second'")
    assert gate.acquire_permit(LLM).trial is not None


@pytest.mark.django_db
def test_a_trial_call_slower_than_its_lease_still_counts() -> None:
    slow = half_opened()
    prepared.rows("UPDATE circuits SET probe_expires_at = now() - interval '1 second'")
    second = gate.acquire_permit(LLM)
    slow.report(None)
    assert Circuit.objects.get(pk=LLM).probe_token == second.trial.token if second.trial else False
    second.report(None)
    assert state() == CircuitState.CLOSED


@pytest.mark.django_db
def test_a_trial_call_without_an_outcome_is_released() -> None:
    permit = half_opened()
    assert permit.report(KeyError("a defect")) is None
    assert state() == CircuitState.HALF_OPEN
    assert gate.acquire_permit(LLM).trial is not None


# -- the fence --------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_late_failure_of_an_older_state_changes_nothing_and_costs_nothing() -> None:
    late = gate.acquire_permit(LLM)
    half_opened().report(None)
    call(None)
    assert late.report(timeout()) is not None
    assert state() == CircuitState.CLOSED
    assert not CircuitBucket.objects.filter(generation=3).exists()


@pytest.mark.django_db
def test_a_late_answer_of_an_older_state_does_not_close_it() -> None:
    late = gate.acquire_permit(LLM)
    half_opened()
    late.report(None)
    assert Circuit.objects.get(pk=LLM).probe_successes == 0


@pytest.mark.django_db
def test_a_late_trial_call_of_an_older_half_open_state_changes_nothing() -> None:
    old = half_opened()
    prepared.rows("UPDATE circuits SET probe_expires_at = now() - interval '1 second'")
    gate.acquire_permit(LLM).report(timeout())
    old.report(None)
    assert (state(), Circuit.objects.get(pk=LLM).probe_successes) == (CircuitState.OPEN, 0)


# -- waking -----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_closing_wakes_what_waits_one_after_another_in_order() -> None:
    ids = parked(5)
    half_opened().report(None)
    call(None)
    woken = list(OutboxMessage.objects.order_by("available_at", "id").values_list("pk", flat=True))
    assert woken == ids
    first, last = OutboxMessage.objects.get(pk=ids[0]), OutboxMessage.objects.get(pk=ids[-1])
    assert not OutboxMessage.objects.exclude(waiting_for="").exists()
    # One has been woken by the first trial call already; the others follow 1/20 s apart.
    assert 0.1 < (last.available_at - first.available_at).total_seconds() < 60


@pytest.mark.django_db
def test_the_first_answered_trial_call_wakes_one_message() -> None:
    ids = parked(5)
    half_opened().report(None)
    assert list(OutboxMessage.objects.filter(waiting_for="").values_list("pk", flat=True)) == ids[:1]


@pytest.mark.django_db
def test_what_waits_for_another_dependency_sleeps_on() -> None:
    parked(2, "p4:main:1666")
    half_opened().report(None)
    call(None)
    assert OutboxMessage.objects.filter(waiting_for="p4:main:1666").count() == 2


# -- health checks ----------------------------------------------------------------------------


@pytest.fixture
def health_check(settings: Any) -> None:
    CHECKS["llm"] = lambda _: timeout()


@pytest.mark.django_db
def test_calls_wait_for_the_health_check_where_there_is_one(health_check: None) -> None:
    opened()
    cool_down_ends()
    for look in (gate.check, gate.acquire_permit):
        with pytest.raises(DependencyUnavailable):
            look(LLM)
    assert health_checks.due() == [LLM]


@pytest.mark.django_db
def test_an_answered_health_check_lets_the_next_call_be_the_trial_call(health_check: None) -> None:
    ids = parked(5)
    opened()
    cool_down_ends()
    turn = health_checks.begin(LLM)
    assert turn is not None
    assert health_checks.begin(LLM) is None  # one at a time
    health_checks.answered(LLM, turn)
    assert state() == CircuitState.HALF_OPEN
    assert sorted(OutboxMessage.objects.filter(waiting_for="").values_list("pk", flat=True)) == ids[:2]
    assert gate.acquire_permit(LLM).trial is not None


@pytest.mark.django_db
def test_a_failed_health_check_keeps_the_circuit_open_for_another_cool_down(health_check: None) -> None:
    opened()
    cool_down_ends()
    turn = health_checks.begin(LLM)
    assert turn is not None
    health_checks.failed(LLM, turn, "NETWORK_TIMEOUT", "no answer")
    row = Circuit.objects.get(pk=LLM)
    assert (row.state, row.probe_detail) == (CircuitState.OPEN, "NETWORK_TIMEOUT: no answer")
    with pytest.raises(DependencyUnavailable) as caught:
        gate.acquire_permit(LLM)
    assert caught.value.seconds > 20


@pytest.mark.django_db
def test_without_a_health_check_in_time_a_call_is_the_trial_call(health_check: None) -> None:
    opened()
    prepared.rows("UPDATE circuits SET retry_at = now() - interval '61 seconds'")
    assert gate.acquire_permit(LLM).trial is not None


# -- operators --------------------------------------------------------------------------------


@pytest.mark.django_db
def test_forced_open_stops_all_calls_until_it_is_released() -> None:
    gate.check(LLM)
    assert overrides.force(LLM, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=3600)
    with pytest.raises(DependencyUnavailable) as caught:
        gate.acquire_permit(LLM)
    assert caught.value.seconds <= gate.LONGEST_WAIT_SECONDS + gate.SPREAD_SECONDS
    parked(3)
    assert overrides.release(LLM, actor="ann", reason="INC-7 is over")
    assert gate.acquire_permit(LLM).trial is not None  # the dependency is tried first
    assert OutboxMessage.objects.filter(waiting_for="").count() == 2


@pytest.mark.django_db
def test_forced_open_expires_by_itself() -> None:
    gate.check(LLM)
    overrides.force(LLM, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=3600)
    cool_down_ends()
    assert overrides.expire_forced() == 1
    assert state() == CircuitState.HALF_OPEN
    event = CircuitEvent.objects.latest("id")
    assert (event.change, event.actor, event.reason) == (CircuitChange.RELEASED, "", "its time was over")


@pytest.mark.django_db
def test_an_expired_forced_state_stops_no_call() -> None:
    gate.check(LLM)
    overrides.force(LLM, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=3600)
    cool_down_ends()
    assert gate.acquire_permit(LLM).trial is not None


@pytest.mark.django_db
def test_forced_closed_lets_all_pass_whatever_fails_and_wakes_what_waits() -> None:
    opened()
    parked(3)
    overrides.force(LLM, CircuitState.FORCED_CLOSED, actor="ann", reason="INC-8", seconds=60)
    assert [call(timeout()) for _ in range(20)] == [None] * 20
    assert state() == CircuitState.FORCED_CLOSED
    assert not OutboxMessage.objects.exclude(waiting_for="").exists()
    assert overrides.release(LLM, actor="ann", reason="done")
    assert state() == CircuitState.CLOSED


@pytest.mark.django_db
def test_every_forced_state_is_kept_with_actor_reason_and_end() -> None:
    gate.check(LLM)
    overrides.force(LLM, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=3600)
    event = CircuitEvent.objects.get()
    assert (event.change, event.actor, event.reason) == (CircuitChange.FORCED_OPEN, "ann", "INC-7")
    assert event.until is not None
    assert (event.until - event.created_at).total_seconds() == pytest.approx(3600, abs=1)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("state_", "reason", "seconds"),
    [
        (CircuitState.FORCED_OPEN, " ", 60),
        (CircuitState.FORCED_OPEN, "INC-7", 24 * 3600 + 1),
        (CircuitState.FORCED_OPEN, "INC-7", 0),
        (CircuitState.CLOSED, "INC-7", 60),
    ],
)
def test_what_an_operator_may_not_force(state_: CircuitState, reason: str, seconds: float) -> None:
    gate.check(LLM)
    with pytest.raises(ValueError, match=r"\w"):
        overrides.force(LLM, state_, actor="ann", reason=reason, seconds=seconds)
    assert state() == CircuitState.CLOSED


@pytest.mark.django_db
def test_what_is_not_forced_cannot_be_released() -> None:
    opened()
    assert not overrides.release(LLM, actor="ann", reason="why not")
    assert state() == CircuitState.OPEN


@pytest.mark.django_db
def test_the_history_cannot_be_changed() -> None:
    opened()
    with pytest.raises(Exception, match="append_only"):
        CircuitEvent.objects.update(reason="nothing happened")


# -- the database -----------------------------------------------------------------------------


@pytest.fixture
def outage(transactional_db: None, tmp_path: Any) -> Any:
    """Return a switch that takes the database away and gives it back."""
    host = connection.settings_dict["HOST"]

    def switch(is_down: bool) -> None:
        connection.close()
        connection.settings_dict["HOST"] = str(tmp_path) if is_down else host

    yield switch
    switch(False)


def test_without_the_database_permits_are_refused_but_reports_raise_nothing(outage: Any) -> None:
    from django.db import OperationalError

    permit = gate.acquire_permit(LLM)
    outage(True)
    with pytest.raises(OperationalError):
        gate.acquire_permit(LLM)
    assert permit.report(timeout()) is None
    outage(False)
    assert not CircuitBucket.objects.exists()
    call(None)  # its twin: back again, it counts again
    assert CircuitBucket.objects.get().calls == 1


# -- cost -------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_closed_circuit_costs_no_statement_to_admit_and_one_to_report(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CIRCUIT_CACHE_SECONDS = 60
    call()
    executed: list[str] = []
    rows = prepared.rows
    monkeypatch.setattr(prepared, "rows", lambda *given: executed.append(given[0]) or rows(*given))
    try:
        permit = gate.acquire_permit(LLM)
        assert len(executed) == 0
        permit.report(None)
        assert len(executed) == 1
    finally:
        gate.forget()


@pytest.mark.django_db
def test_a_remembered_circuit_is_forgotten_when_a_call_fails(settings: Any) -> None:
    settings.CIRCUIT_CACHE_SECONDS = 60
    opened()
    with pytest.raises(DependencyUnavailable):
        gate.acquire_permit(LLM)


@pytest.mark.parametrize("host", ["a.example.com", "a" * 200 + ".example.com"])
def test_names_fit_the_column_and_stay_apart(host: str) -> None:
    name = gate.name_of("provider", "webhook", host)
    assert len(name) <= gate.MAX_NAME
    assert name != gate.name_of("provider", "webhook", host + "x")


def test_guarded_reports_and_turns_failures_into_waiting(db: None) -> None:
    for _ in range(9):
        with pytest.raises(RetryableFailure), gate.guarded(LLM):
            raise timeout()
    late = gate.guarded(LLM)
    late.__enter__()
    with pytest.raises(RetryableFailure), gate.guarded(LLM):
        raise timeout()
    with pytest.raises(DependencyUnavailable):
        late.__exit__(RetryableFailure, timeout(), None)
    cool_down_ends()
    for _ in range(2):
        with gate.guarded(LLM):
            pass
    assert state() == CircuitState.CLOSED
    assert outbox.wake(LLM) == 0
