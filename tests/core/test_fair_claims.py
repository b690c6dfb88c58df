"""Claims take turns between flows, whatever each has waiting (guarantee G140)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from criticizer.db import prepared
from criticizer.models import OutboxMessage
from criticizer.queue import outbox
from criticizer.queue.broker import connect
from criticizer.queue.outbox import Claimed
from criticizer.workers.watchdog import Watchdog

pytestmark = pytest.mark.django_db

QUEUE = "stages"


@pytest.fixture(autouse=True)
def _starts_at_the_first_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_after", {})


def due(flow: str, count: int = 1, *, seconds_ago: float = 0, **columns: Any) -> None:
    """Insert messages of a flow, due one after another."""
    first = 1 + (OutboxMessage.objects.count() and OutboxMessage.objects.latest("aggregate_id").aggregate_id)
    prepared.rows(
        """INSERT INTO outbox_messages (aggregate_type, aggregate_id, message_type, queue, flow, available_at,
                                        waiting_for)
           SELECT 'thing', %(first)s + n, 'do_it', %(queue)s, %(flow)s,
                  now() - make_interval(secs => %(ago)s) + make_interval(secs => 0.000001 * n), %(waiting)s
             FROM generate_series(1, %(count)s) n""",
        {"queue": QUEUE, "flow": flow, "count": count, "first": first, "ago": seconds_ago + 1,
         "waiting": columns.get("waiting_for", "")},
    )  # fmt: skip


def claim(limit: int) -> list[str]:
    """Return the flows of the messages that one claim takes, in alphabetical order."""
    return sorted(map(flow_of, outbox.claim(QUEUE, limit)))


def flow_of(message: Claimed) -> str:
    return OutboxMessage.objects.get(pk=message.id).flow


def test_a_single_message_is_claimed_before_5000_older_ones_of_another_flow() -> None:
    due("key:flood", 5000, seconds_ago=600)
    due("key:single")
    assert claim(2) == ["key:flood", "key:single"]
    assert claim(4) == ["key:flood"] * 4  # nobody else waits


def test_flow_with_messages_in_work_yields_to_one_that_has_none() -> None:
    due("key:flood", 20, seconds_ago=600)
    assert claim(4) == ["key:flood"] * 4
    due("key:other", 6)
    assert claim(4) == ["key:other"] * 4  # until both have as many in work
    assert claim(4) == ["key:flood"] * 2 + ["key:other"] * 2


def test_within_a_flow_the_oldest_message_is_claimed_first() -> None:
    due("key:flood", 10)
    expected = list(OutboxMessage.objects.order_by("available_at").values_list("pk", flat=True))
    claimed = [message.id for _ in range(5) for message in sorted(outbox.claim(QUEUE, 2), key=lambda m: m.id)]
    assert claimed == expected


def test_what_is_given_back_before_it_began_keeps_its_place() -> None:
    due("key:flood", 10, seconds_ago=600)
    OutboxMessage.objects.update(created_at=F("available_at"))
    first = {message.id: message.lease_token for message in outbox.claim(QUEUE, 3)}
    outbox.release(list(first.values()))
    assert {message.id for message in outbox.claim(QUEUE, 3)} == set(first)


def test_each_of_many_flows_has_its_turn_although_a_claim_looks_at_some_of_them() -> None:
    flows = [f"key:{number:04}" for number in range(3 * outbox.FLOW_WINDOW)]
    for flow in flows:
        due(flow, 3)
    claimed = [flow for _ in range(len(flows) // 4) for flow in claim(4)]
    assert sorted(claimed) == flows


def test_a_flow_without_due_messages_is_passed_by_and_none_is_missed() -> None:
    for number in range(40):
        due(f"key:{number:04}", seconds_ago=-600)
    due("key:late")
    assert claim(4) == ["key:late"]
    assert claim(4) == []
    due("key:0000")  # before the place where the next claim begins
    assert claim(4) == ["key:0000"]


def test_expired_leases_are_claimed_again_in_turn() -> None:
    due("key:flood", 4)
    due("key:single")
    assert len(outbox.claim(QUEUE, 10)) == 5
    OutboxMessage.objects.update(available_at=prepared.value("SELECT now() - interval '1 second'"))
    assert claim(2) == ["key:flood", "key:single"]


def test_work_of_a_lost_worker_is_claimed_before_what_waits_in_its_flow() -> None:
    """A backlog does not delay what a killed worker held: it was claimed once, and had its turn."""
    due("key:flood", 1, seconds_ago=60)
    [held] = outbox.claim(QUEUE, 1)
    due("key:flood", 5000, seconds_ago=600)
    OutboxMessage.objects.filter(pk=held.id).update(available_at=prepared.value("SELECT now()"))
    due("key:single", 2)
    claimed = outbox.claim(QUEUE, 2)
    assert held.id in {message.id for message in claimed}
    assert sorted(map(flow_of, claimed)) == ["key:flood", "key:single"]


def test_lost_work_of_one_flow_takes_no_turn_of_another() -> None:
    due("key:flood", 20)
    assert len(outbox.claim(QUEUE, 20)) == 20
    OutboxMessage.objects.update(available_at=prepared.value("SELECT now() - interval '1 second'"))
    due("key:single", 4)
    assert claim(4) == ["key:flood"] * 2 + ["key:single"] * 2


def test_two_claimers_share_what_is_due(transactional_db: None) -> None:
    due("key:flood", 6)
    due("key:single")
    first = outbox.claim(QUEUE, 4)
    second = outbox.claim(QUEUE, 4)
    assert len({message.id for message in first + second}) == 7


def test_waiting_for_a_dependency_is_in_turn_too() -> None:
    due("key:flood", 50, seconds_ago=-600, waiting_for="llm:openai")
    due("key:flood", 3)
    assert claim(3) == ["key:flood"] * 3  # three calls of the flood are in flight
    due("key:single", seconds_ago=-900, waiting_for="llm:openai")
    assert outbox.wake("llm:openai", limit=1) == 1
    assert claim(4) == ["key:single"]


def test_work_without_a_requester_has_a_flow_of_its_own() -> None:
    due("key:flood", 100, seconds_ago=600)
    outbox.publish("poll", 0, "poll_sources", QUEUE)
    assert "system" in claim(2)


@pytest.mark.django_db(transaction=True)
def test_what_waits_behind_long_work_is_given_back_for_a_fairer_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of four claimed messages run long: the two behind them yield to another flow."""
    due("key:flood", 6, seconds_ago=600)
    claimed = outbox.claim(QUEUE, 4)
    with connect() as own:
        watchdog = Watchdog(QUEUE, connect)
        watchdog.workers = 2
        watchdog.watch(message.lease_token for message in claimed)
        watchdog._busy_since -= outbox.YIELD_SECONDS
        assert not watchdog._is_wedged(own)  # no worker is busy: nothing is given back
        assert OutboxMessage.objects.filter(lease_token__isnull=False).count() == 4
        for message in claimed[:2]:
            assert outbox.hold(message.id, message.lease_token)
        assert not watchdog._is_wedged(own)  # two have begun: that is progress
        watchdog._busy_since -= outbox.YIELD_SECONDS
        assert not watchdog._is_wedged(own)
    held = OutboxMessage.objects.filter(lease_token__isnull=False).values_list("id", flat=True)
    assert set(held) == {message.id for message in claimed[:2]}
    due("key:other")
    assert [flow_of(message) for message in outbox.claim(QUEUE, 2)] == ["key:other", "key:flood"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("on_its_own_connection", [True, False])
def test_claims_planned_while_the_queue_was_empty_read_no_whole_table(on_its_own_connection: bool) -> None:
    """The statistics say "empty" until the next ANALYZE, and the plan is kept as long."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE outbox_messages")
        cursor.execute("VACUUM ANALYZE outbox_messages")
    connection.close()
    with connect() as own:

        def run(sql: str, parameters: Any) -> list[dict[str, Any]]:
            return own.execute(sql, parameters, prepare=True).fetchall()

        claims = {"run": run} if on_its_own_connection else {}
        ask = run if on_its_own_connection else prepared.rows
        for _ in range(8):  # the sixth makes a plan for all values
            outbox.claim(QUEUE, 2, **claims)
        due("key:flood", 20)
        (plan,) = ask(
            "SELECT name FROM pg_prepared_statements WHERE statement LIKE %(text)s AND generic_plans > 0",
            {"text": "%%WITH RECURSIVE flows%%"},
        )
        said = ask(f"EXPLAIN EXECUTE {plan['name']}('', '{QUEUE}', true, 30)", {})
    assert "outbox_fair" in str(said)
    assert "Seq Scan on outbox_messages" not in str(said)
