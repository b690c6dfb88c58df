"""Requests that wait without a thread, on the real server and a real database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from criticizer.db import prepared
from criticizer.queue.broker import connect
from criticizer.workers import parking, web_server
from tests.stack import eventually

pytestmark = pytest.mark.django_db(transaction=True)


class Served:
    """A server with one thread. `/wait` answers `news`, and waits while there are none."""

    def __init__(self) -> None:
        self.news, self.looks, self.seconds = b"", 0, 20.0
        self.before_it_is_parked: Callable[[], object] = lambda: None
        listening = web_server.listen("127.0.0.1", 0)
        self.server = web_server.Server(self.answer, listening, 1, connect)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", trust_env=False, timeout=60
        )
        self.pool = ThreadPoolExecutor(8)

    def answer(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        body = self.news
        if environ["PATH_INFO"] == "/wait" and not body:
            self.looks += 1
            place = parking.place_of(environ)
            assert place is not None
            self.before_it_is_parked()
            if not place.park(environ["QUERY_STRING"], self.seconds):
                body = b"over" if place.was_parked else b"full"
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    def wait(self, key: str = "a") -> Future[httpx.Response]:
        return self.pool.submit(self.client.get, f"/wait?{key}")

    def close(self) -> None:
        self.server.stop()
        self.thread.join()
        self.client.close()
        self.pool.shutdown()
        eventually(lambda: not any(thread.name == "parking" for thread in threading.enumerate()), 20)
        self.server.task_dispatcher.shutdown()
        self.server.trigger.close()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(parking, "_LOOK_SECONDS", 1000.0)
    monkeypatch.setattr(parking, "_AGAIN_SECONDS", 0.1)  # after which the listener sees that it is closed
    made = Served()
    try:
        yield made
    finally:
        made.close()


def test_a_request_of_the_method_head_logs_no_warning(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.news = b"alive"
    assert served.client.head("/").headers["Content-Length"] == "5"
    assert served.client.get("/").content == b"alive"  # the first request has ended
    assert not [record for record in caplog.records if record.name.startswith("waitress")]


def notify() -> None:
    prepared.rows("SELECT pg_notify(%(channel)s, '')", {"channel": parking.CHANNEL})


def test_waiting_requests_hold_no_thread_and_are_answered_at_a_notification(served: Served) -> None:
    waits = [served.wait(key) for key in "aabbc"]
    # Once more for the first, when the listener listens; the others may come later.
    eventually(lambda: served.looks >= 6)
    assert served.client.get("/other").content == b"", "the one thread is free"
    assert not any(wait.done() for wait in waits)
    served.news = b"a task"
    notify()
    assert [wait.result().content for wait in waits] == [b"a task"] * 5


def test_a_key_has_two_requests_that_wait(served: Served) -> None:
    first = [served.wait() for _ in range(2)]
    eventually(lambda: served.looks >= 3)  # twice for the one that came first
    assert served.wait().result().content == b"full"
    served.server.parking.heard()
    served.news = b"x"
    notify()
    assert {wait.result().content for wait in first} == {b"x"}


def test_a_notification_between_the_look_and_the_parking_is_not_lost(served: Served) -> None:
    first = served.wait("other")
    eventually(lambda: served.looks >= 2)

    def meanwhile() -> None:
        served.before_it_is_parked = lambda: None
        served.news = b"just now"
        served.server.parking.heard()

    served.before_it_is_parked = meanwhile
    assert served.wait().result().content == b"just now"
    assert first.result().content == b"just now"


@pytest.mark.long
def test_a_request_is_answered_when_its_time_is_over_and_when_the_server_stops(served: Served) -> None:
    served.seconds = 0.5
    assert served.wait().result().content == b"over"
    served.seconds, served.looks = 60.0, 0
    waiting = served.wait()
    eventually(lambda: served.looks >= 1)
    assert served.client.get("/other").content == b"", "the one thread is free: the other request is parked"
    served.server.stop()
    assert waiting.result().content == b"over"


@pytest.mark.long
def test_without_a_notification_requests_look_again_by_themselves(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a pooler in transaction mode, notifications do not come."""
    monkeypatch.setattr(parking, "_LOOK_SECONDS", 0.5)
    waiting = served.wait()
    eventually(lambda: served.looks >= 2)
    served.news = b"found"
    assert waiting.result().content == b"found"
