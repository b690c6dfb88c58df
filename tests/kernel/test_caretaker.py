"""The caretaker's sweep: beside the heartbeat, one at a time, and no function of it stops another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from structlog.testing import capture_logs

from criticizer import sql
from criticizer.broker import connect
from criticizer.caretaker import Caretaker
from criticizer.models import WorkerCluster

pytestmark = pytest.mark.django_db(transaction=True)

calls: list[str] = []
used: list[Any] = []  # psycopg's connections
inside = threading.Semaphore(0)
released = threading.Event()


def works() -> None:
    calls.append("works")
    sql.value("SELECT 1")
    used.append(connections["default"].connection)


def fails() -> None:
    calls.append("fails")
    raise PermissionError("AccessDenied")


def breaks_its_connection() -> None:
    calls.append("breaks")
    sql.value("SELECT pg_terminate_backend(pg_backend_pid())")


def takes_the_lock_away() -> None:
    calls.append("takes")
    sql.rows("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")


def waits() -> None:
    calls.append("waits")
    inside.release()
    released.wait(20)
    calls.append("has waited")


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    calls.clear()
    used.clear()
    released.clear()
    while inside.acquire(blocking=False):
        pass  # what another test has not waited for
    yield
    released.set()
    join()


def join() -> None:
    """Wait for the sweeps that this process has begun."""
    for thread in threading.enumerate():
        if thread.name == "sweep":
            thread.join(20)
            assert not thread.is_alive()


def maintenance(settings: Any, *functions: Any) -> None:
    settings.MAINTENANCE = [f"{__name__}.{function.__name__}" for function in functions]


def swept() -> None:
    """Have a cluster sweep, and wait until it has."""
    with connect() as own:
        Caretaker("stages", connect)._sweep(own)
    join()


@pytest.fixture
def keeper() -> Iterator[Caretaker]:
    made = Caretaker("stages", connect)
    yield made
    if made._connection is not None:
        made._connection.close()


def due(keeper: Caretaker, *jobs: Any) -> None:
    keeper._due = {job: 0.0 if job in jobs else float("inf") for job in keeper._due}


def test_a_function_that_fails_is_named_and_stops_none_behind_it(settings: Any) -> None:
    maintenance(settings, fails, works, breaks_its_connection, works)
    with capture_logs() as logs:
        swept()
    assert calls == ["fails", "works", "breaks", "works"]
    failed = [entry["function"] for entry in logs if entry["event"] == "maintenance_failed"]
    assert failed == [f"{__name__}.fails", f"{__name__}.breaks_its_connection"]


def test_the_heart_beats_while_a_sweep_waits(settings: Any, keeper: Caretaker) -> None:
    maintenance(settings, waits)
    due(keeper, keeper._beat, keeper._sweep)
    keeper._tick()
    assert inside.acquire(timeout=20)
    first = WorkerCluster.objects.get().beat_at
    due(keeper, keeper._beat)
    keeper._tick()
    assert WorkerCluster.objects.get().beat_at > first
    assert calls == ["waits"]
    # It ends with the process, whatever it waits for.
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "sweep"] == [True]


def test_one_sweep_runs_at_a_time(settings: Any, keeper: Caretaker) -> None:
    maintenance(settings, waits)
    with connect() as own, capture_logs() as logs:
        keeper._sweep(own)
        assert inside.acquire(timeout=20)
        keeper._sweep(own)  # the same cluster
        assert [entry["event"] for entry in logs] == ["sweep_still_runs"]
        Caretaker("llm", connect)._sweep(own)  # another one
        for thread in threading.enumerate():
            if thread.name == "sweep" and thread is not keeper._sweeper:
                thread.join(20)
        assert calls == ["waits"]
        released.set()
        join()
        keeper._sweep(own)
        join()
    assert calls == ["waits", "has waited"] * 2


def test_a_sweep_closes_its_connections(settings: Any) -> None:
    maintenance(settings, works)
    swept()
    assert [connection.closed for connection in used] == [True]
    assert connections["default"].connection not in used
    assert sql.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


def test_a_sweep_whose_lock_was_lost_goes_no_further(settings: Any) -> None:
    """Another cluster may be at it already."""
    maintenance(settings, takes_the_lock_away, works)
    with capture_logs() as logs:
        swept()
    assert calls == ["takes"]
    assert [entry["event"] for entry in logs] == ["sweep_database"]
    maintenance(settings, works)
    swept()
    assert calls == ["takes", "works"]
