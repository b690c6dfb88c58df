"""Maintenance runs beside the heartbeat, one at a time; no function stops another.

One that hangs loses its statement, then the lock, and is skipped for a while.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections
from structlog.testing import capture_logs

from criticizer.db import prepared
from criticizer.models import WorkerCluster
from criticizer.queue.broker import connect
from criticizer.workers.watchdog import Watchdog

pytestmark = pytest.mark.django_db(transaction=True)

HELD = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"

calls: list[str] = []
used: list[Any] = []  # psycopg's connections
inside = threading.Semaphore(0)
released = threading.Event()


def works() -> None:
    calls.append("works")
    prepared.value("SELECT 1")
    used.append(connections["default"].connection)


def fails() -> None:
    calls.append("fails")
    raise PermissionError("AccessDenied")


def breaks_its_connection() -> None:
    calls.append("breaks")
    prepared.value("SELECT pg_terminate_backend(pg_backend_pid())")


def takes_the_lock_away() -> None:
    calls.append("takes")
    prepared.rows("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")


def waits() -> None:
    calls.append("waits")
    inside.release()
    released.wait(20)
    calls.append("has waited")


def sleeps_in_the_database() -> None:
    calls.append("sleeps")
    prepared.value("SELECT pg_sleep(600)")
    calls.append("has slept")


@pytest.fixture(autouse=True)
def _forget(transactional_db: None) -> Iterator[None]:
    calls.clear()
    used.clear()
    released.clear()
    while inside.acquire(blocking=False):
        pass  # what another test has not waited for
    yield
    released.set()
    join()


def until(is_so: Callable[[], object]) -> None:
    """Wait for what another thread or session is about to do."""
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def join() -> None:
    """Wait until the sweeps that this process started have ended and their lock is released."""
    for thread in threading.enumerate():
        if thread.name == "sweep":
            thread.join(20)
            assert not thread.is_alive()
    until(lambda: prepared.value(HELD) == 0)  # the session of a closed connection ends later


def maintenance(settings: Any, *functions: Any) -> None:
    settings.MAINTENANCE = [f"{__name__}.{function.__name__}" for function in functions]


def swept() -> None:
    """Have a cluster sweep, and wait until it has."""
    with connect() as own:
        Watchdog("stages", connect)._sweep(own)
    join()


@pytest.fixture
def keeper() -> Iterator[Watchdog]:
    made = Watchdog("stages", connect)
    yield made
    if made._connection is not None:
        made._connection.close()


def due(keeper: Watchdog, *jobs: Any) -> None:
    keeper._due = {job: 0.0 if job in jobs else float("inf") for job in keeper._due}


def test_a_function_that_fails_is_named_and_stops_none_behind_it(settings: Any) -> None:
    maintenance(settings, fails, works, breaks_its_connection, works)
    with capture_logs() as logs:
        swept()
    assert calls == ["fails", "works", "breaks", "works"]
    failed = [entry["function"] for entry in logs if entry["event"] == "maintenance_failed"]
    assert failed == [f"{__name__}.fails", f"{__name__}.breaks_its_connection"]


def test_the_heartbeat_continues_while_maintenance_waits(settings: Any, keeper: Watchdog) -> None:
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


def test_one_sweep_runs_at_a_time(settings: Any, keeper: Watchdog) -> None:
    maintenance(settings, waits)
    with connect() as own, capture_logs() as logs:
        keeper._sweep(own)
        assert inside.acquire(timeout=20)
        keeper._sweep(own)  # the same cluster
        assert [entry["event"] for entry in logs] == ["sweep_still_runs"]
        Watchdog("llm", connect)._sweep(own)  # another one
        for thread in threading.enumerate():
            if thread.name == "sweep" and thread is not keeper._maintenance._run:
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
    assert prepared.value(HELD) == 0


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


# -- a function that hangs ------------------------------------------------------------------------


def look(keeper: Watchdog) -> list[str]:
    """Let the watchdog sweep once more; return its log events without those of the run."""
    with connect() as own, capture_logs() as logs:
        keeper._sweep(own)
    its_own = {"sweep_still_runs", "maintenance_hangs", "maintenance_abandoned"}
    return [entry["event"] for entry in logs if entry["event"] in its_own]


def ended(keeper: Watchdog) -> None:
    """Wait for its newest round, not for those that were abandoned."""
    assert keeper._maintenance._run is not None
    keeper._maintenance._run.join(20)
    assert not keeper._maintenance._run.is_alive()


def is_asleep() -> bool:
    found = prepared.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    return bool(found)


def beaten() -> list[str]:
    found: list[str] = WorkerCluster.objects.values_list("hanging", flat=True).get()
    return found


def test_a_statement_that_hangs_fails_and_the_round_goes_on(settings: Any, keeper: Watchdog) -> None:
    maintenance(settings, sleeps_in_the_database, works)
    assert look(keeper) == []
    until(is_asleep)
    assert look(keeper) == ["sweep_still_runs"]  # it has time yet
    settings.MAINTENANCE_SECONDS = 0
    assert look(keeper) == ["sweep_still_runs", "maintenance_hangs"]
    join()
    assert calls == ["sleeps", "works"]  # under the same lock
    assert prepared.value(HELD) == 0


def test_a_function_that_was_cut_short_is_left_out_for_as_long_again(settings: Any, keeper: Watchdog) -> None:
    maintenance(settings, sleeps_in_the_database, works)
    settings.MAINTENANCE_SECONDS = 0.2
    look(keeper)
    until(is_asleep)
    until(lambda: "maintenance_hangs" in look(keeper))
    keeper._maintenance._paused = dict.fromkeys(keeper._maintenance._paused, math.inf)
    join()
    calls.clear()
    look(keeper)
    join()
    assert calls == ["works"]
    due(keeper, keeper._beat)
    keeper._tick()
    assert beaten() == [f"{__name__}.sleeps_in_the_database"]
    keeper._maintenance._paused = dict.fromkeys(keeper._maintenance._paused, 0.0)  # its time is over
    due(keeper, keeper._beat)
    keeper._tick()
    assert beaten() == []
    look(keeper)
    until(is_asleep)
    assert calls == ["works", "sleeps"]
    prepared.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    join()


def test_a_thread_that_hangs_in_python_loses_the_lock(settings: Any, keeper: Watchdog) -> None:
    maintenance(settings, waits, works)
    look(keeper)
    assert inside.acquire(timeout=20)
    settings.MAINTENANCE_SECONDS = 0
    assert look(keeper) == ["sweep_still_runs", "maintenance_hangs"]
    assert prepared.value(HELD) == 1  # it may come out by itself
    assert look(keeper) == ["sweep_still_runs", "maintenance_abandoned"]
    settings.MAINTENANCE_SECONDS = 600
    until(lambda: (look(keeper), "works" in calls)[1])  # what is behind it, by another thread
    ended(keeper)
    until(lambda: prepared.value(HELD) == 0)
    assert [one.is_alive() for one in keeper._maintenance._abandoned] == [True]
    # And whoever else is there can have the lock.
    maintenance(settings, works)
    calls.clear()
    look(other := Watchdog("llm", connect))
    ended(other)
    assert calls == ["works"]


def test_what_hangs_is_left_out_while_its_thread_lives(settings: Any, keeper: Watchdog) -> None:
    maintenance(settings, waits, works)
    settings.MAINTENANCE_SECONDS = 0
    look(keeper)
    assert inside.acquire(timeout=20)
    look(keeper), look(keeper)
    settings.MAINTENANCE_SECONDS = 600
    due(keeper, keeper._beat)
    keeper._tick()
    assert beaten() == [f"{__name__}.waits"]
    until(lambda: (look(keeper), "works" in calls)[1])
    assert calls.count("waits") == 1
    # It goes on after all: its lock is gone, so it does nothing more, and has its turn again.
    released.set()
    join()
    calls.clear()
    look(keeper)
    join()
    assert calls == ["waits", "has waited", "works"]
    assert prepared.value(HELD) == 0
