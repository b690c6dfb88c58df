"""Work waits for a lost database and goes on when it is back (`db.reconnect`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from criticizer.db import prepared, reconnect
from criticizer.queue import outbox
from criticizer.resilience.retry import CONNECTION
from tests.factories import OutboxMessageFactory, StageRunFactory


class Outage:
    """An outage of the database, for this process and a number of waits."""

    def __init__(self, nowhere: Path) -> None:
        self._nowhere = str(nowhere)
        self._host = connection.settings_dict["HOST"]
        self.slept: list[float] = []
        self.waits_left: float = 0

    def begin(self, waits: float) -> None:
        self.waits_left = waits
        connection.close()
        connection.settings_dict["HOST"] = self._nowhere

    def end(self) -> None:
        connection.close()
        connection.settings_dict["HOST"] = self._host

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.waits_left -= 1
        if self.waits_left <= 0:
            self.end()


@pytest.fixture
def outage(transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outage]:
    monkeypatch.setattr(
        reconnect, "_lost_at", reconnect._lost_at
    )  # what this process remembers ends with the test
    made = Outage(tmp_path)
    yield made
    made.end()


def one() -> Any:
    return prepared.value("SELECT 1")


def test_the_profile_doubles_from_two_seconds_to_thirty_ten_times() -> None:
    assert list(CONNECTION.waits(lambda low, high: low)) == [2, 4, 8, 16, 30, 30, 30, 30, 30, 30]
    assert list(CONNECTION.waits(lambda low, high: high)) == [4, 6, 10, 18, 32, 32, 32, 32, 32, 32]


def test_each_wait_is_drawn_when_it_is_asked_for() -> None:
    drawn = iter([0.5, 1.5])
    waits = CONNECTION.waits(lambda low, high: next(drawn))
    assert next(waits) == 2.5
    assert next(waits) == 5.5
    assert next(drawn, None) is None


def test_a_wait_ends_when_the_server_answers(outage: Outage) -> None:
    outage.begin(waits=3)
    assert reconnect.with_retries(one, waits=[30], sleep=outage.sleep) == 1
    assert outage.slept == [reconnect.TRY_SECONDS] * 3


def test_a_server_that_stays_away_is_given_up_after_the_last_wait(outage: Outage) -> None:
    outage.begin(waits=100)
    with pytest.raises(OperationalError):
        reconnect.with_retries(one, waits=[2, 4], sleep=outage.sleep)
    assert sum(outage.slept) == 6
    outage.end()
    assert reconnect.with_retries(one, waits=[], sleep=outage.sleep) == 1


def test_a_lost_connection_alone_costs_no_wait(outage: Outage) -> None:
    other = connection.copy()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    other.close()
    assert reconnect.with_retries(one, waits=[30], sleep=outage.sleep) == 1
    assert outage.slept == []


def test_an_answer_that_proves_wrong_is_not_believed_twice_in_a_row(outage: Outage) -> None:
    """A proxy accepts connections for a server that is away."""
    failures = iter([1, 1])

    def work() -> Any:
        if next(failures, None):
            raise OperationalError("the server closed the connection")
        return one()

    assert reconnect.with_retries(work, waits=[2, 4], sleep=outage.sleep) == 1
    assert outage.slept == [4]


def test_a_deadlock_is_repeated_at_once_and_another_error_is_not(outage: Outage) -> None:
    class Driver(Exception):
        sqlstate = "40P01"

    failures = iter([Driver()])

    def work() -> Any:
        if error := next(failures, None):
            raise OperationalError("conflict") from error
        return one()

    assert reconnect.with_retries(work, waits=[30], sleep=outage.sleep) == 1
    assert outage.slept == [0.05]
    Driver.sqlstate = "53100"  # the disk is full: nothing that waiting for a connection mends
    failures = iter([Driver()])
    with pytest.raises(OperationalError):
        reconnect.with_retries(work, waits=[30], sleep=outage.sleep)


def test_nothing_is_repeated_inside_a_transaction(outage: Outage) -> None:
    tries = []

    def work() -> None:
        tries.append(1)
        raise OperationalError("the server closed the connection")

    with pytest.raises(OperationalError), transaction.atomic():
        reconnect.with_retries(work, waits=[0, 0], sleep=outage.sleep)
    assert tries == [1]


def test_leases_that_ran_out_while_the_database_was_away_are_not_taken_over_at_once(
    outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker could renew its lease, so that it says nothing about the worker."""
    leased = OutboxMessageFactory(queue="stages", aggregate_id=StageRunFactory().pk)
    (claimed,) = outbox.claim("stages", 10)
    prepared.rows("UPDATE outbox_messages SET available_at = now() - interval '1 s'")
    waiting = OutboxMessageFactory(queue="stages", aggregate_id=StageRunFactory().pk)
    outage.begin(waits=1)
    again = reconnect.with_retries(lambda: outbox.claim("stages", 10), waits=[30], sleep=outage.sleep)
    assert [message.id for message in again] == [waiting.pk]

    monkeypatch.setattr(reconnect, "_lost_at", reconnect._lost_at - outbox.RESCUE_SECONDS - 1)
    (rescued,) = outbox.claim("stages", 10)
    assert rescued.id == leased.pk
    assert rescued.lease_token != claimed.lease_token
