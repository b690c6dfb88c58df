"""Receivers of webhooks that hang, and the slots that they leave to others (guarantee G582)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from criticizer.models import Circuit, CircuitBucket, OutboxMessage, PaceSlot
from criticizer.queue import outbox
from criticizer.resilience import gate, overrides, rate_limit, receivers
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
)
from criticizer.resilience.states import CircuitState
from tests.core.test_circuit_breaker import cool_down_ends, timeout
from tests.core.test_rate_limit import slow_down, time_passes, waiting_of
from tests.factories import OutboxMessageFactory

pytestmark = pytest.mark.django_db
_numbers = count()


@pytest.fixture
def senders(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set how many workers send, and let no lease of a slot end while a test runs."""
    monkeypatch.setattr(receivers, "CALL_SECONDS", 3600.0)
    monkeypatch.setattr(rate_limit, "HANDOVER_SECONDS", 3600.0)
    return lambda number: monkeypatch.setattr(receivers, "_counted", (math.inf, number))


def receiver(name: str = "") -> str:
    """Return the dependency of a receiver; without a name of one that was never called."""
    return gate.name_of("provider", "webhook", f"{name or f'new{next(_numbers)}'}.example.com:443")


@contextmanager
def work_of(flow: str) -> Iterator[int]:
    """Work on a new message of a requester."""
    message = OutboxMessageFactory(queue="notify", flow=flow).pk
    with outbox.working_on(message):
        outbox.note_flow(flow)
        yield message


def begun(flow: str, name: str = "") -> gate.Permit | None:
    """Begin a call for a requester; None where it has to wait."""
    with work_of(flow):
        try:
            return gate.acquire_permit(receiver(name))
        except DependencyUnavailable:
            return None


def hang(permit: gate.Permit | None) -> None:
    assert permit is not None
    permit.began_at -= receivers.SLOW_CALL_SECONDS
    permit.report(timeout())


def answer(flow: str, name: str = "") -> None:
    permit = begun(flow, name)
    assert permit is not None
    permit.report(None)


@pytest.mark.parametrize("workers", [4, *(pytest.param(number, marks=pytest.mark.long) for number in (3, 9))])
@pytest.mark.parametrize("keys", [5, *(pytest.param(number, marks=pytest.mark.long) for number in (1, 20))])
def test_hung_receivers_of_many_requesters_leave_a_slot_to_every_other(
    senders: Callable[[int], None], keys: int, workers: int
) -> None:
    """Each of 5 keys with 40 hung hosts hangs once among others, and then among slow ones only."""
    senders(workers)
    hung = []
    for number in range(keys):
        permit = begun(f"key:{number}")
        assert begun(f"key:{number}") is None  # one at a time of those that are not known
        hung.append(permit)
        if len(hung) == workers - 1:
            assert begun("key:other") is None
            hang(hung.pop(0))
    for permit in hung:
        hang(permit)
    # All begin as many calls as they may, again and again.
    for _ in range(2):
        held = [permit for number in range(keys) for _ in range(2) if (permit := begun(f"key:{number}"))]
        assert 1 <= len(held) <= (workers - 1) // 2
        answer("key:other")
        answer("key:another", "quick")
        for permit in held:
            hang(permit)


def test_receivers_that_answered_and_hang_together_leave_a_slot_too(senders: Callable[[int], None]) -> None:
    senders(4)
    for number in range(10):
        answer(f"key:{number % 5}", f"trap{number}")
    for number in range(5):
        hang(begun(f"key:{number}", f"trap{number}"))
    held = [permit for number in range(10) if (permit := begun(f"key:{number % 5}", f"trap{number}"))]
    assert 1 <= len(held) <= 2
    answer("key:other")


def test_receivers_that_answer_slowly_count_as_hung(senders: Callable[[int], None]) -> None:
    senders(4)
    permit = begun("key:drips", "drips")
    assert permit is not None
    permit.began_at -= receivers.SLOW_CALL_SECONDS
    permit.report(None)
    names = {name for name, _ in begun("key:drips").slots}  # type: ignore[union-attr]
    assert {rate_limit.SLOW, rate_limit.SLOW_REQUESTERS} <= names


def test_good_receivers_of_a_requester_with_a_slow_one_do_not_wait_for_it(
    senders: Callable[[int], None],
) -> None:
    senders(4)
    answer("key:ci", "good")
    hang(begun("key:ci", "bad"))
    with work_of("key:ci"):
        bad = gate.acquire_permit(receiver("bad"))
    assert rate_limit.SLOW in {name for name, _ in bad.slots}
    for _ in range(3):
        answer("key:ci", "good")
    # One that is not known waits with the slow one.
    with work_of("key:ci"):
        assert waiting_of(receiver()).dependency in {rate_limit.SLOW, receivers.slots_of_flow("key:ci")}


def test_a_slow_receiver_makes_no_further_requester_slow(senders: Callable[[int], None]) -> None:
    """Else whoever names a receiver of others' could be slowed by it."""
    senders(4)
    hang(begun("key:first", "bad"))
    hang(begun("key:second", "bad"))
    permit = begun("key:second")
    assert permit is not None
    assert {rate_limit.SLOW, rate_limit.SLOW_REQUESTERS}.isdisjoint(name for name, _ in permit.slots)


def test_a_quick_answer_and_time_end_the_marks(senders: Callable[[int], None]) -> None:
    senders(4)
    hang(begun("key:ci", "bad"))
    marks = PaceSlot.objects.filter(name__contains="#is-slow#")
    assert marks.count() == 2
    answer("key:ci", "bad")
    assert marks.count() == 1  # the requester's
    time_passes(receivers.SLOW_SECONDS)
    permit = begun("key:ci")
    assert permit is not None
    assert rate_limit.SLOW not in {name for name, _ in permit.slots}


def test_a_refused_call_is_quick_and_unmarks_nothing(senders: Callable[[int], None]) -> None:
    senders(4)
    hang(begun("key:ci", "bad"))
    permit = begun("key:ci", "bad")
    assert permit is not None
    permit.report(timeout())
    assert PaceSlot.objects.filter(name__contains="#is-slow#").count() == 2


def test_slow_receivers_of_several_requesters_take_turns(senders: Callable[[int], None]) -> None:
    """The slot of slow receivers is kept for the message that waits, not for the one in work."""
    senders(4)
    for flow in ("key:greedy", "key:other"):
        hang(begun(flow))
    with work_of("key:greedy"), work_of("key:other") as waiting:
        pass
    with work_of("key:greedy"):
        permit = gate.acquire_permit(receiver())
        OutboxMessage.objects.filter(pk=waiting).update(waiting_for=rate_limit.SLOW)
        hang(permit)
        assert waiting_of(receiver()).dependency == rate_limit.SLOW
    assert OutboxMessage.objects.get(pk=waiting).waiting_for == ""  # woken
    with outbox.working_on(waiting):
        outbox.note_flow("key:other")
        gate.acquire_permit(receiver()).report(None)
    with work_of("key:greedy"):
        gate.acquire_permit(receiver()).report(None)


def test_a_slow_slot_is_handed_on_by_a_message_that_cannot_use_it(senders: Callable[[int], None]) -> None:
    senders(4)
    for flow in ("key:greedy", "key:unable", "key:able"):
        hang(begun(flow))
    with work_of("key:unable") as unable, work_of("key:able") as able:
        pass
    busy = receiver("busy")
    assert rate_limit.take_slot(rate_limit.Slots(busy, 1, 3600.0))
    with work_of("key:greedy"):
        permit = gate.acquire_permit(receiver())
        OutboxMessage.objects.filter(pk__in=[unable, able]).update(waiting_for=rate_limit.SLOW)
        hang(permit)
    assert OutboxMessage.objects.get(pk=able).waiting_for == rate_limit.SLOW
    with outbox.working_on(unable):
        outbox.note_flow("key:unable")
        assert waiting_of(busy).dependency == busy
    assert OutboxMessage.objects.get(pk=able).waiting_for == ""  # woken


def test_two_workers_have_one_slot_and_no_classes(senders: Callable[[int], None]) -> None:
    senders(2)
    hang(begun("key:ci", "bad"))
    permit = begun("key:ci", "bad")
    assert permit is not None
    assert [name for name, _ in permit.slots] == [receiver("bad"), rate_limit.RECEIVERS]


def test_a_receiver_that_others_find_slow_is_none_for_whom_it_answers(senders: Callable[[int], None]) -> None:
    """A request that names a slow address of a host does not slow down others' webhooks to it."""
    senders(4)
    answer("key:ci", "shared")
    hang(begun("key:other", "shared"))
    permit = begun("key:ci", "shared")
    assert permit is not None
    assert {rate_limit.SLOW, rate_limit.SLOW_REQUESTERS}.isdisjoint(name for name, _ in permit.slots)
    hang(permit)  # not warned of: it is its requester's as well
    warned = begun("key:ci", "shared")
    assert warned is not None
    assert rate_limit.SLOW in {name for name, _ in warned.slots}
    warned.report(None)
    unknown = begun("key:ci")
    assert unknown is not None
    assert rate_limit.SLOW in {name for name, _ in unknown.slots}


def test_whom_a_receiver_answers_does_not_wait_behind_those_whom_it_hangs(
    senders: Callable[[int], None],
) -> None:
    senders(4)
    long = "x" * 200
    for name in ("shared", long):
        answer("key:ci", name)
        held = begun("key:mallory", name)
        assert held is not None
        assert begun("key:eve", name) is None
        answer("key:ci", name)
        with work_of("key:ci"):
            one = gate.acquire_permit(receiver(name))
            assert begun("key:ci", name) is None  # one of these, too
            one.report(None)
        hang(held)
        answer("key:ci", name)


def test_an_operators_limit_holds_also_with_those_whom_a_receiver_answers(
    senders: Callable[[int], None], settings: Any
) -> None:
    settings.CONCURRENCY_LIMITS = {rate_limit.RECEIVERS: 1}
    senders(4)
    answer("key:ci", "shared")
    held = begun("key:other", "shared")
    assert held is not None
    assert begun("key:ci", "shared") is None
    held.report(None)
    answer("key:ci", "shared")


# -- circuits and pauses (guarantee G585) -------------------------------------------------------


def fail(flow: str, name: str, error: Failure) -> DependencyUnavailable | None:
    """Let a call to a receiver fail; return what its requester waits for then, if it must wait."""
    with work_of(flow):
        try:
            return gate.acquire_permit(receiver(name)).report(error)
        except DependencyUnavailable as waiting:
            return waiting


UPSTREAM = RetryableFailure(ErrorClass.UPSTREAM_INTERNAL, Component.PROVIDER, "the receiver answered 500")
DENIED = PermanentFailure(ErrorClass.AUTH_DENIED, Component.PROVIDER, "the receiver answered 401")


@pytest.mark.parametrize(
    ("error", "times"), [(UPSTREAM, 10), (DENIED, 3), (timeout(), 3), (slow_down(300.0), 1)]
)
def test_failures_of_one_requester_stop_no_other_ones_webhooks(
    senders: Callable[[int], None], error: Failure, times: int
) -> None:
    """Circuit and pause of a requester are its own, although the host is the same.

    Its requests name an address of that host that fails.
    """
    senders(4)
    answer("key:ci", "shared")
    for _ in range(times):
        fail("key:mallory", "shared", error)
    assert fail("key:mallory", "shared", error) is not None  # it waits
    for _ in range(3):
        answer("key:ci", "shared")
        answer("key:new", "shared")
        assert fail("key:mallory", "shared", error) is not None


def test_a_pause_holds_to_its_end_for_the_requester_that_met_it(senders: Callable[[int], None]) -> None:
    """A receiver that asks for five minutes is not called each half minute."""
    senders(4)
    fail("key:ci", "paused", slow_down(300.0))
    time_passes(receivers.FAILED_SECONDS + 1)
    assert begun("key:ci", "paused") is None
    assert fail("key:other", "paused", slow_down()) is not None  # its own call, which belongs to the pause
    time_passes(receivers.FAILED_SECONDS + 1)
    assert begun("key:other", "paused") is None
    time_passes(300.0)
    answer("key:ci", "paused")


def test_another_requesters_pause_leaves_tokens_of_the_rate_limit_to_the_rest(
    senders: Callable[[int], None], settings: Any
) -> None:
    settings.RATE_LIMITS = {rate_limit.RECEIVERS: 0.001}  # a token in a quarter of an hour
    senders(4)
    fail("key:mallory", "shared", slow_down(300.0))
    answer("key:ci", "shared")
    assert begun("key:new", "shared") is None  # the operator's limit is that of the rest together


def test_a_requester_finds_out_once_that_a_receiver_is_away(senders: Callable[[int], None]) -> None:
    senders(4)
    for _ in range(10):
        fail("key:first", "dead", UPSTREAM)
    waiting = fail("key:second", "dead", UPSTREAM)
    assert waiting is not None  # its call was made, and cost it no attempt
    before = CircuitBucket.objects.count()
    with work_of("key:second"), pytest.raises(DependencyUnavailable):
        gate.acquire_permit(receiver("dead"))
    with work_of("key:second"), pytest.raises(DependencyUnavailable):
        gate.check(receiver("dead"))
    with work_of("key:third"):
        gate.check(receiver("dead"))
    assert CircuitBucket.objects.count() == before


def test_an_answer_closes_the_circuit_that_others_opened(senders: Callable[[int], None]) -> None:
    senders(4)
    for _ in range(10):
        fail("key:first", "back", UPSTREAM)
    cool_down_ends(receiver("back"))
    answer("key:second", "back")
    answer("key:third", "back")
    assert Circuit.objects.get(pk=receiver("back")).state == "closed"


def test_an_operators_stop_holds_for_everybody(senders: Callable[[int], None]) -> None:
    senders(4)
    answer("key:ci", "stopped")
    overrides.force(receiver("stopped"), CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=60)
    gate.forget()
    assert begun("key:ci", "stopped") is None


def test_our_own_trouble_blames_nobody(senders: Callable[[int], None]) -> None:
    senders(4)
    permit = begun("key:ci", "any")
    assert permit is not None
    permit.report(KeyError("a defect"))
    assert not PaceSlot.objects.filter(name__contains="#failed#").exists()
