"""Rate limits: pauses, the token bucket, slots; one pace for all workers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db.models.functions import Now

from criticizer.db import prepared
from criticizer.environment.variables import VARIABLES
from criticizer.http_client import retry_after
from criticizer.models import Circuit, CircuitBucket, OutboxMessage, Pace, PaceSlot
from criticizer.queue import outbox
from criticizer.resilience import gate, health_checks, overrides, rate_limit, receivers
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    QuotaExceeded,
    RetryableFailure,
)
from criticizer.resilience.health_checks import CHECKS
from criticizer.resilience.retry import BACKOFF
from criticizer.resilience.states import CircuitState
from tests.core.test_circuit_breaker import (
    LLM,
    call,
    cool_down_ends,
    half_opened,
    in_threads,
    parked,
    timeout,
)
from tests.factories import WorkerClusterFactory


def slow_down(seconds: float | None = None) -> Failure:
    return RetryableFailure(
        ErrorClass.RATE_LIMITED, Component.REVIEWER, "too many requests", retry_after_seconds=seconds
    )


def clock() -> datetime:
    now: datetime = prepared.value("SELECT clock_timestamp()")
    return now


def pauses(error: Failure, seconds: float, permit: gate.Permit | None = None) -> bool:
    """Report `error`; say whether the pause ends so many seconds after it."""
    permit = permit or gate.acquire_permit(LLM)
    before = clock()
    permit.report(error)
    end = Pace.objects.get(pk=LLM).paused_until
    assert end is not None
    return before <= end - timedelta(seconds=seconds) <= clock()


def time_passes(seconds: float) -> None:
    """Move every moment of the paces so far into the past."""
    prepared.rows(
        "UPDATE paces SET paused_until = paused_until - make_interval(secs => %(s)s),"
        " slow_since = slow_since - make_interval(secs => %(s)s),"
        " refilled_at = refilled_at - make_interval(secs => %(s)s)",
        {"s": seconds},
    )
    prepared.rows(
        "UPDATE pace_slots SET expires_at = expires_at - make_interval(secs => %(s)s)", {"s": seconds}
    )


def waiting_of(name: str = LLM) -> DependencyUnavailable:
    with pytest.raises(DependencyUnavailable) as caught:
        gate.acquire_permit(name)
    return caught.value


def admitted(count: int, name: str = LLM) -> int:
    """Ask for so many permits at one moment; return how many were given."""
    given = 0
    for _ in range(count):
        try:
            gate.acquire_permit(name).report(None)
            given += 1
        except DependencyUnavailable:
            pass
    return given


@pytest.fixture(autouse=True)
def _no_harmless_probe(settings: Any) -> None:
    CHECKS.clear()
    gate.forget()


# -- Retry-After ------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(("asked", "expected"), [(7.0, 7.0), (400.0, 300.0)])
def test_a_refusal_pauses_for_as_long_as_it_asks_five_minutes_at_most(asked: float, expected: float) -> None:
    assert pauses(slow_down(asked), expected)
    assert 0 < waiting_of().seconds <= expected + 1
    with pytest.raises(DependencyUnavailable):
        gate.check(LLM)


@pytest.mark.django_db
def test_a_refusal_during_a_pause_prolongs_it_to_five_minutes_at_most() -> None:
    first, second = gate.acquire_permit(LLM), gate.acquire_permit(LLM)
    assert pauses(slow_down(7.0), 7.0, first)
    assert pauses(slow_down(86_400.0), 300.0, second)


@pytest.mark.django_db
@pytest.mark.parametrize(("told", "expected"), [(2, 2), (2400, 2400), (90_000, 7200)])
def test_a_quota_that_is_used_up_is_a_wait_for_as_long_as_the_server_says(
    told: float, expected: float
) -> None:
    permit = gate.acquire_permit(LLM)
    refused = QuotaExceeded(Component.PROVIDER, "used up", float(told))
    before = clock()
    waiting = permit.report(refused)
    assert waiting is not None  # so that it costs no attempt, also the first time
    assert waiting.seconds >= expected
    end = Pace.objects.get(pk=LLM).paused_until
    assert end is not None
    assert before <= end - timedelta(seconds=expected) <= clock()
    assert waiting_of().seconds > expected - 60


@pytest.mark.django_db
def test_a_quota_without_a_time_is_a_minute_and_twice_as_long_each_time() -> None:
    found = []
    for _ in range(3):
        permit = gate.acquire_permit(LLM)
        permit.report(QuotaExceeded(Component.PROVIDER, "used up", None))
        pace = Pace.objects.get(pk=LLM)
        assert pace.paused_until is not None
        found.append(round((pace.paused_until - clock()).total_seconds()))
        time_passes(found[-1] + 1)
        gate.forget()
    assert found == [60, 120, 240]


@pytest.mark.django_db
def test_one_writer_for_each_installation_of_a_github_app() -> None:
    name = "github:api.github.com:443:acme"
    permit = gate.acquire_permit(name)
    assert waiting_of(name).dependency == name
    gate.acquire_permit("github:api.github.com:443:other").release()
    permit.release()


@pytest.mark.django_db
def test_a_retry_after_date_pauses_until_then() -> None:
    seconds_of_date = retry_after({"retry-after": "Wed, 21 Oct 2026 07:28:07 GMT"}, lambda: 1792567680.0)
    assert seconds_of_date == pytest.approx(7)
    assert pauses(slow_down(seconds_of_date), 7)


@pytest.mark.django_db
def test_after_the_pause_calls_go_on() -> None:
    call(slow_down(7))
    time_passes(7.1)
    assert call(None) is None


@pytest.mark.django_db
def test_without_retry_after_the_backoff_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []
    monkeypatch.setattr(
        type(BACKOFF), "delay", lambda self, attempt, retry_after=None: float(attempts.append(attempt) or 9)
    )
    for _ in range(3):
        assert pauses(slow_down(), 9)
        time_passes(80)
    assert attempts == [1, 2, 3]
    call(None)  # an answer ends the row
    call(slow_down())
    assert attempts == [1, 2, 3, 1]


@pytest.mark.django_db
def test_a_refusal_is_neither_a_failure_nor_an_answer_of_the_circuit() -> None:
    for _ in range(20):
        time_passes(500)
        call(slow_down(1))
    assert not CircuitBucket.objects.exists()
    assert Circuit.objects.get(pk=LLM).state == CircuitState.CLOSED


@pytest.mark.django_db
def test_a_rate_limited_trial_call_is_released_and_costs_no_attempt() -> None:
    assert half_opened().report(slow_down(7)) is not None
    row = Circuit.objects.get(pk=LLM)
    assert (row.state, row.probe_token) == (CircuitState.HALF_OPEN, None)


# -- a batch is one ---------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_batch_that_is_refused_slows_down_as_one() -> None:
    permits = [gate.acquire_permit(LLM) for _ in range(30)]
    reports = [permit.report(slow_down(7)) for permit in permits]
    assert [waiting is None for waiting in reports] == [True] + [False] * 29
    row = Pace.objects.get(pk=LLM)
    assert (row.generation, row.refusals) == (1, 1)
    assert row.slow_rate == rate_limit.ASSUMED_RATE / 2


@pytest.mark.django_db
def test_one_of_the_batch_may_ask_for_more() -> None:
    permits = [gate.acquire_permit(LLM) for _ in range(3)]
    for permit, seconds in zip(permits, (7, 60), strict=False):
        assert pauses(slow_down(seconds), seconds, permit)
    assert not pauses(slow_down(5), 5, permits[2])


@pytest.mark.django_db
def test_a_refusal_that_comes_after_the_pause_it_belongs_to_halves_nothing() -> None:
    first, late = gate.acquire_permit(LLM), gate.acquire_permit(LLM)
    first.report(slow_down(2))
    time_passes(5)
    assert late.report(slow_down()) is not None
    row = Pace.objects.get(pk=LLM)
    assert (row.generation, row.slow_rate) == (1, 2.0)


@pytest.mark.django_db(transaction=True)
def test_refusals_reported_at_the_same_moment_cost_one_attempt() -> None:
    permits = [gate.acquire_permit(LLM) for _ in range(10)]
    reports = in_threads(10, lambda: permits.pop().report(slow_down(7)))
    assert sum(waiting is None for waiting in reports) == 1
    assert Pace.objects.get(pk=LLM).refusals == 1


@pytest.mark.django_db
def test_what_waits_for_the_end_of_a_pause_comes_back_spread(settings: Any) -> None:
    settings.RATE_LIMITS = {LLM: 2.0}
    parked(99)
    call(slow_down(60))
    waits = [waiting_of().seconds for _ in range(20)]
    assert max(waits) - min(waits) > 10  # 100 at 2 a second are 50 seconds
    assert max(waits) <= 60 + 60


# -- the rate ---------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_bucket_holds_a_seconds_worth_and_fills_with_time(settings: Any) -> None:
    settings.RATE_LIMITS = {"llm:openai": 10.0}
    admitted(1)
    assert Pace.objects.get(pk=LLM).tokens == 9
    time_passes(3600)
    admitted(1)
    assert Pace.objects.get(pk=LLM).tokens == 9
    prepared.rows("UPDATE paces SET tokens = 0, refilled_at = now() + interval '1 hour'")
    assert admitted(1) == 0
    time_passes(3600.5)
    assert admitted(5) == 5


@pytest.mark.django_db
def test_no_token_says_when_to_come_back(settings: Any) -> None:
    settings.RATE_LIMITS = {LLM: 0.5}
    assert admitted(1) == 1
    assert 0 < waiting_of().seconds <= 2 + 2


@pytest.mark.django_db
def test_the_more_wait_the_later_each_comes_back(settings: Any) -> None:
    settings.RATE_LIMITS = {LLM: 0.1}
    admitted(1)
    parked(4)
    waits = [waiting_of().seconds for _ in range(20)]
    assert max(waits) - min(waits) > 10  # 5 at one in ten seconds are 50 seconds
    assert max(waits) <= 10 + 50


@pytest.mark.django_db(transaction=True)
def test_the_bucket_is_shared_by_connections(settings: Any) -> None:
    settings.RATE_LIMITS = {LLM: 1 / 3600}
    gate.check(LLM)
    assert sum(in_threads(6, lambda: admitted(1))) == 1


@pytest.mark.django_db
def test_the_rate_halves_after_a_refusal_and_grows_back(settings: Any) -> None:
    settings.RATE_LIMITS = {LLM: 10.0}
    call(None)
    call(slow_down(7))
    rates = []
    for seconds in (7.0, 30.0, 31.0):
        time_passes(seconds)
        rates.append(prepared.row(rate_limit._WHEN_TOKEN, rate_limit._parameters(LLM)))
    assert [row["rate"] for row in rates if row] == [
        pytest.approx(5, abs=0.5),
        pytest.approx(7.5, abs=0.5),
        10,
    ]


@pytest.mark.django_db
def test_refusal_after_refusal_never_ends_in_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(BACKOFF), "delay", lambda self, attempt, retry_after=None: retry_after)
    for _ in range(12):
        call(slow_down(1))
        time_passes(12)
    assert Pace.objects.get(pk=LLM).slow_rate >= rate_limit.SLOWEST_RATE
    time_passes(200)
    assert admitted(50) == 50  # a minute later nothing is limited any more


@pytest.mark.django_db
def test_a_dependency_without_a_limit_is_not_counted() -> None:
    assert admitted(50) == 50
    assert not Pace.objects.exists()


@pytest.mark.django_db
def test_a_limit_of_a_kind_holds_for_each_of_it(settings: Any) -> None:
    settings.RATE_LIMITS = {"provider:webhook": 1 / 3600, "provider:webhook:big.example.com": 9.0}
    assert rate_limit.rate_of("provider:webhook:a.example.com:8443") == 1 / 3600
    assert rate_limit.rate_of("provider:webhook:big.example.com") == 9.0
    assert rate_limit.rate_of("provider:mail") is None
    assert [admitted(2, f"provider:webhook:{host}.example.com") for host in "ab"] == [1, 1]


# -- slots ------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_no_more_calls_at_once_than_slots(settings: Any) -> None:
    settings.CONCURRENCY_LIMITS = {LLM: 2}
    first, _second = gate.acquire_permit(LLM), gate.acquire_permit(LLM)
    assert waiting_of().seconds > 0
    first.report(None)
    gate.acquire_permit(LLM)


@pytest.mark.django_db
def test_a_receiver_gets_one_call_at_a_time_and_all_receivers_never_all_workers(settings: Any) -> None:
    WorkerClusterFactory(queue="notify", workers=3)
    WorkerClusterFactory(queue="notify", workers=3, draining=True)
    settings.CONCURRENCY_LIMITS = {"provider:webhook:b.example.com": 9}
    a, b, c = (f"provider:webhook:{name}.example.com" for name in "abc")
    first = gate.acquire_permit(a)
    assert waiting_of(a).dependency == a
    gate.acquire_permit(b)
    assert waiting_of(b).dependency == waiting_of(c).dependency == rate_limit.RECEIVERS
    parked(2, rate_limit.RECEIVERS)
    first.report(None)
    assert OutboxMessage.objects.filter(waiting_for="").count() == 1  # woken
    gate.acquire_permit(c)


@pytest.mark.django_db
def test_a_slot_of_receivers_is_kept_after_a_long_call_for_the_one_that_waits() -> None:
    """The slot goes to the work that waits, not again to the work that has a worker.

    Otherwise work with many hung receivers, which has a worker, would take each slot again before others.
    """
    WorkerClusterFactory(queue="notify", workers=2)
    a, b, c = (f"provider:webhook:{name}.example.com" for name in "abc")
    greedy, waiting, other = parked(3, "")
    with outbox.working_on(greedy):
        permit = gate.acquire_permit(a)
        permit.began_at -= rate_limit.HANDOVER_AFTER_SECONDS
        OutboxMessage.objects.filter(pk=waiting).update(waiting_for=rate_limit.RECEIVERS)
        permit.report(timeout())
        assert waiting_of(b).dependency == rate_limit.RECEIVERS
    assert OutboxMessage.objects.get(pk=waiting).waiting_for == ""  # woken
    with outbox.working_on(waiting):
        permit = gate.acquire_permit(c)
        OutboxMessage.objects.filter(pk=other).update(waiting_for=rate_limit.RECEIVERS)
        permit.report(None)  # a short call: who comes first
    with outbox.working_on(greedy):
        gate.acquire_permit(b).report(None)


@pytest.mark.django_db
def test_a_kept_slot_is_free_when_its_message_does_not_come() -> None:
    WorkerClusterFactory(queue="notify", workers=2)
    permit = gate.acquire_permit("provider:webhook:a.example.com")
    permit.began_at -= rate_limit.HANDOVER_AFTER_SECONDS
    parked(1, rate_limit.RECEIVERS)
    permit.report(None)
    waiting_of("provider:webhook:b.example.com")
    time_passes(rate_limit.HANDOVER_SECONDS)
    gate.acquire_permit("provider:webhook:b.example.com").report(None)


@pytest.mark.django_db
@pytest.mark.parametrize("why", ["its receiver is busy", "its circuit is open"])
def test_a_kept_slot_is_handed_on_by_a_message_that_cannot_use_it(why: str) -> None:
    """A kept slot is not idle for three seconds after each long call.

    It is the only slot of two workers that send.
    """
    WorkerClusterFactory(queue="notify", workers=2)
    a, b, c = (f"provider:webhook:{name}.example.com" for name in "abc")
    first, unable, able = parked(3, "")
    permit = gate.acquire_permit(a)
    permit.began_at -= rate_limit.HANDOVER_AFTER_SECONDS
    OutboxMessage.objects.filter(pk__in=[unable, able]).update(waiting_for=rate_limit.RECEIVERS)
    permit.report(None)
    assert OutboxMessage.objects.get(pk=able).waiting_for == rate_limit.RECEIVERS
    if why == "its circuit is open":
        gate.check(b)  # makes it
        overrides.force(b, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=60)
        gate.forget()
    else:
        assert rate_limit.take_slot(rate_limit.Slots(b, 1, 60))
        assert rate_limit.take_slot(rate_limit.Slots(b, 1, 60)) is None
    with outbox.working_on(unable):
        assert waiting_of(b).dependency == b
        assert waiting_of(b).dependency == b
    assert OutboxMessage.objects.get(pk=able).waiting_for == ""  # woken
    with outbox.working_on(first):
        assert waiting_of(a).dependency == rate_limit.RECEIVERS
    with outbox.working_on(able):
        gate.acquire_permit(c).report(None)
    gate.acquire_permit(a).report(None)  # free for all


@pytest.mark.django_db
def test_a_kept_slot_stays_until_the_work_ends_for_the_next_receiver_of_its_message() -> None:
    WorkerClusterFactory(queue="notify", workers=2)
    a, b, c = (f"provider:webhook:{name}.example.com" for name in "abc")
    _, waiting = parked(2, "")
    permit = gate.acquire_permit(a)
    permit.began_at -= rate_limit.HANDOVER_AFTER_SECONDS
    OutboxMessage.objects.filter(pk=waiting).update(waiting_for=rate_limit.RECEIVERS)
    permit.report(None)
    assert rate_limit.take_slot(rate_limit.Slots(b, 1, 60))
    assert rate_limit.take_slot(rate_limit.Slots(b, 1, 60)) is None
    with outbox.working_on(waiting):
        assert waiting_of(b).dependency == b
        used = gate.acquire_permit(c)
    assert used.slots[1] == (rate_limit.RECEIVERS, PaceSlot.objects.get(name=rate_limit.RECEIVERS).token)


@pytest.mark.django_db
def test_a_lease_that_expired_hands_nothing_over_and_wakes_nobody() -> None:
    WorkerClusterFactory(queue="notify", workers=2)
    a, b = (f"provider:webhook:{name}.example.com" for name in "ab")
    lost = gate.acquire_permit(a)
    lost.began_at -= receivers.CALL_SECONDS
    time_passes(receivers.CALL_SECONDS)
    heir = gate.acquire_permit(b)
    (waiting,) = parked(1, rate_limit.RECEIVERS)
    lost.report(None)
    assert OutboxMessage.objects.get(pk=waiting).waiting_for == rate_limit.RECEIVERS
    assert heir.slots[1] == (rate_limit.RECEIVERS, PaceSlot.objects.get(name=rate_limit.RECEIVERS).token)


@pytest.mark.django_db
def test_a_receiver_that_hangs_delays_no_other_one_with_the_default_workers(settings: Any) -> None:
    workers = settings.Q_CLUSTER["ALT_CLUSTERS"]["notify"]["workers"]
    WorkerClusterFactory(queue="notify", workers=workers)
    gate.acquire_permit("provider:webhook:hung.example.com")
    assert waiting_of("provider:webhook:hung.example.com").seconds > 0
    for _ in range(20):
        gate.acquire_permit("provider:webhook:healthy.example.com").report(None)


@pytest.mark.django_db
def test_a_failed_call_frees_its_slot_too(settings: Any) -> None:
    settings.CONCURRENCY_LIMITS = {LLM: 1}
    for error in (timeout(), slow_down(0.0), KeyError("a defect"), None):
        gate.acquire_permit(LLM).report(error)
        prepared.rows("DELETE FROM paces")
    gate.acquire_permit(LLM)


@pytest.mark.django_db
def test_a_slot_of_a_worker_that_died_expires(settings: Any) -> None:
    settings.CONCURRENCY_LIMITS = {LLM: 1}
    dead = gate.acquire_permit(LLM)
    time_passes(settings.CALL_SECONDS - 5)
    waiting_of()
    time_passes(6)
    heir = gate.acquire_permit(LLM)
    dead.report(None)  # not dead after all: the slot is another's now
    assert heir.slots == [(LLM, PaceSlot.objects.get().token)]


@pytest.mark.django_db
def test_a_freed_slot_wakes_one_that_waits(settings: Any) -> None:
    settings.CONCURRENCY_LIMITS = {LLM: 1}
    ids = parked(3)
    gate.acquire_permit(LLM).report(None)
    assert list(OutboxMessage.objects.filter(waiting_for="").values_list("pk", flat=True)) == ids[:1]


@pytest.mark.django_db
def test_slots_that_were_not_used_for_a_week_are_deleted(settings: Any) -> None:
    """Callers choose the receivers of webhooks."""
    for name in ("provider:webhook:old.example.com", "provider:webhook:new.example.com"):
        gate.acquire_permit(name).report(None)
    PaceSlot.objects.filter(name__contains="old").update(expires_at=Now() - timedelta(days=8))
    health_checks.maintain()
    assert set(PaceSlot.objects.values_list("name", flat=True)) == {
        "provider:webhook:new.example.com",
        "provider:webhook",
    }
    gate.acquire_permit("provider:webhook:old.example.com").report(None)  # made again


@pytest.mark.django_db
def test_buckets_of_a_dependency_that_was_not_called_for_a_week_are_deleted(settings: Any) -> None:
    settings.RATE_LIMITS = {rate_limit.RECEIVERS: 5.0}
    names = [f"provider:webhook:{name}.example.com" for name in ("old", "new", "x" * 200)]
    names[-1] = gate.name_of(names[-1])
    for name in names:
        gate.acquire_permit(name).report(None)
        rate_limit.take_token(name, receivers.bucket_of_rest(name))
    assert Pace.objects.count() == 6
    CircuitBucket.objects.all().delete()
    Circuit.objects.exclude(name__contains="new").update(changed_at=Now() - timedelta(days=8))
    health_checks.maintain()
    assert set(Pace.objects.values_list("name", flat=True)) == {names[1], receivers.bucket_of_rest(names[1])}


@pytest.mark.django_db(transaction=True)
def test_slots_are_shared_by_connections(settings: Any) -> None:
    settings.CONCURRENCY_LIMITS = {LLM: 3}
    # The slots are made by the first call; who comes while they are being made waits as well.
    gate.acquire_permit(LLM).report(None)

    def take() -> bool:
        try:
            gate.acquire_permit(LLM)
        except DependencyUnavailable:
            return False
        return True

    assert sum(in_threads(8, take)) == 3


@pytest.mark.django_db
def test_a_token_is_not_lost_when_no_slot_is_free(settings: Any) -> None:
    settings.CONCURRENCY_LIMITS, settings.RATE_LIMITS = {LLM: 1}, {LLM: 1.0}
    permit = gate.acquire_permit(LLM)
    time_passes(1)
    waiting_of()
    permit.release()
    gate.acquire_permit(LLM)


@pytest.mark.django_db
def test_waiting_for_a_leased_trial_call_takes_neither_slot_nor_token(settings: Any) -> None:
    settings.CONCURRENCY_LIMITS = {LLM: 5}
    gate.check(LLM)
    overrides.force(LLM, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=60)
    cool_down_ends()
    trial = gate.acquire_permit(LLM)
    assert trial.trial is not None
    waiting_of()
    assert PaceSlot.objects.filter(token__isnull=False).count() == 1


# -- configuration ----------------------------------------------------------------------------


RATE_LIMITS, CONCURRENCY_LIMITS = VARIABLES["RATE_LIMITS"], VARIABLES["CONCURRENCY_LIMITS"]


def test_limits_are_read_from_the_environment() -> None:
    text = "llm:openai=60/m, provider:mail=10/s,provider:webhook:ci.example.com:8443=7200/h"
    assert RATE_LIMITS.parse(text) == {
        "llm:openai": 1.0,
        "provider:mail": 10.0,
        "provider:webhook:ci.example.com:8443": 2.0,
    }
    assert CONCURRENCY_LIMITS.parse("llm:openai=200,p4=4") == {"llm:openai": 200, "p4": 4}
    assert RATE_LIMITS.parse("") == {}


@pytest.mark.parametrize(
    "text",
    ["llm:openai=60", "llm:openai=0/s", "llm:openai=-1/s", "llm:openai=1/d", "mail=1/s", "=1/s", "llm"],
)
def test_a_wrong_rate_stops_the_start_with_its_name(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"^RATE_LIMITS: .*llm:openai=60/m"):
        RATE_LIMITS.parse(text)


@pytest.mark.parametrize("text", ["llm:openai=0", "llm:openai=1/s", "llm:openai=1,llm:openai=2"])
def test_a_wrong_concurrency_stops_the_start(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"^CONCURRENCY_LIMITS: "):
        CONCURRENCY_LIMITS.parse(text)


@pytest.mark.django_db
def test_no_sequence_is_lost_when_a_standby_is_promoted() -> None:
    """Guarantee G484: unlogged tables are empty then; an unlogged sequence would be unusable."""
    unlogged = "SELECT relname FROM pg_class WHERE relkind = %s AND relpersistence = 'u'"
    assert {row["relname"] for row in prepared.rows(unlogged, ["r"])} >= {"pace_slots"}
    assert prepared.rows(unlogged, ["S"]) == []
