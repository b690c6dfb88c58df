"""Turns of requests by address and client, on the real server: a flood delays no others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from django.urls import reverse

from criticizer.queue.broker import connect
from criticizer.workers import request_turns, web_server
from tests.stack import eventually

THREADS = 4
FLOOD = "127.0.0.9"


class Served:
    """A server that answers `/slow` and forms when `let_go` is called, and others at once."""

    def __init__(self, threads: int) -> None:
        self.working: list[str] = []  # in the order in which they began
        self._go = threading.Semaphore(0)
        listening = web_server.listen("127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.server = web_server.Server(self.answer, listening, threads, connect)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        self.pool = ThreadPoolExecutor(32)

    def answer(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.working.append(environ["PATH_INFO"] + environ["QUERY_STRING"])
        if environ["PATH_INFO"] == "/slow" or environ["REQUEST_METHOD"] == "POST":
            self._go.acquire()
        start_response("204 OK", [])
        return []

    def let_go(self, requests: int) -> None:
        self._go.release(requests)

    def get(self, path: str, address: str = "127.0.0.1", method: str = "GET", key: str = "") -> int:
        way = httpx.HTTPTransport(local_address=address)
        with httpx.Client(base_url=self.base_url, transport=way, trust_env=False, timeout=20) as client:
            return client.request(method, path, headers={"Authorization": key}).status_code

    def send(self, path: str, *given: str, **named: str) -> Future[int]:
        return self.pool.submit(self.get, path, *given, **named)

    def waiting(self) -> int:
        return len(self.server.task_dispatcher.queue)

    def await_waiting(self, number: int) -> None:
        eventually(lambda: self.waiting() == number)

    def await_working(self, number: int) -> None:
        eventually(lambda: len(self.working) == number)

    def close(self) -> None:
        self.let_go(1000)
        self.server.stop()
        self.thread.join()
        self.pool.shutdown()
        self.server.task_dispatcher.shutdown()
        self.server.trigger.close()


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    made = Served(getattr(request, "param", THREADS))
    try:
        yield made
    finally:
        made.close()


def test_slow_requests_of_one_address_leave_a_thread_to_others(served: Served) -> None:
    # Many keys and sessions, which a client can make up.
    for number in range(3 * THREADS):
        served.send("/slow", FLOOD, key=f"Bearer {number}")
    eventually(lambda: len(served.working) + served.waiting() == 3 * THREADS)
    assert served.get("/other") == 204
    assert served.get("/livez", FLOOD) == 204
    assert served.working.count("/slow") == THREADS - 1


@pytest.mark.parametrize("path", request_turns.PASSWORDS)
def test_checks_of_passwords_leave_all_threads_but_one_to_others(served: Served, path: str) -> None:
    for number in range(2 * THREADS):
        served.send(path, f"127.0.0.{10 + number}", method="POST")
    eventually(lambda: len(served.working) + served.waiting() == 2 * THREADS)
    slow = [served.send("/slow", f"127.0.0.{30 + number}") for number in range(THREADS - 1)]
    eventually(lambda: served.working.count("/slow") == THREADS - 1)
    assert served.working.count(path) == 1
    served.let_go(3 * THREADS)
    assert [one.result() for one in slow] == [204] * (THREADS - 1)
    eventually(lambda: served.working.count(path) == 2 * THREADS)  # each has its turn


@pytest.mark.parametrize("served", [1], indirect=True)
def test_addresses_and_clients_take_turns(served: Served) -> None:
    served.send("/slow?first", FLOOD)
    eventually(lambda: served.working == ["/slowfirst"])
    for number in range(4):
        served.send(f"/slow?a{number}", FLOOD, key="a")
        served.await_waiting(number + 1)
    served.send("/slow?b", FLOOD, key="b")
    served.await_waiting(5)
    served.send("/slow?other")
    served.await_waiting(6)
    for number in range(6):
        served.let_go(1)
        served.await_working(number + 2)
    assert served.working[:3] == ["/slowfirst", "/slowa0", "/slowother"]
    assert served.working.index("/slowb") <= 3
    assert [name for name in served.working if "/slowa" in name] == [f"/slowa{number}" for number in range(4)]


@pytest.mark.parametrize("served", [1], indirect=True)
@pytest.mark.parametrize("made_up", [pytest.param("key", marks=pytest.mark.long), "address"])
def test_made_up_keys_and_addresses_get_no_turn_before_a_request_that_waits(
    served: Served, made_up: str
) -> None:
    def flood(number: int) -> None:
        if made_up == "key":
            served.send(f"/slow?flood{number}", key=f"Bearer {number}")
        else:
            served.send(f"/slow?flood{number}", f"127.0.1.{number}", key="Bearer 0")

    served.let_go(1)
    assert served.get("/slow?ann1", key="Bearer ann") == 204
    flood(1)
    served.await_working(2)
    served.send("/slow?ann2", key="Bearer ann")
    served.await_waiting(1)
    for number in range(2, 6):
        flood(number)
        served.await_waiting(number)
    for number in range(6, 10):  # one new name for each request that is answered
        served.let_go(1)
        served.await_working(number - 3)
        flood(number)
    assert served.working[1:3] == ["/slowflood1", "/slowann2"]


class Request:
    """A task that runs until it is let go."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.go, self.ended = threading.Event(), threading.Event()
        self.is_cancelled = False

    def turn(self) -> request_turns.Turn:
        return request_turns.Turn(self.address, self.address)

    def service(self) -> None:
        self.go.wait(20)
        self.ended.set()

    def cancel(self) -> None:
        self.is_cancelled = True


def test_a_request_may_end_between_the_steps_of_a_shutdown() -> None:
    first, second, third = Request("192.0.2.1"), Request("192.0.2.2"), Request("192.0.2.3")

    class Ending(request_turns.FairDispatcher):
        def set_thread_count(self, count: int) -> None:
            if count == 0:
                first.go.set()
                eventually(lambda: first.ended.is_set() and len(self.queue) == 1)
            super().set_thread_count(count)
            if count == 0:
                second.go.set()

    dispatcher = Ending(1)
    for task in (first, second, third):
        dispatcher.add_task(task)
    eventually(lambda: len(dispatcher.queue) == 2)
    dispatcher.shutdown(timeout=20)
    assert second.ended.is_set()
    assert third.is_cancelled
    assert not dispatcher.threads


def test_each_form_with_a_password_is_known() -> None:
    names = ("login", "admin:login", "reauth", "change-password", "welcome", "admin:password_change")
    users = [reverse("admin:auth_user_add"), reverse("admin:auth_user_password_change", args=[1])]
    for address in [*map(reverse, names), *users]:
        assert request_turns.turn_of("127.0.0.1", "POST", address, {}).is_password
        assert not request_turns.turn_of("127.0.0.1", "GET", address, {}).is_password


def test_behind_a_trusted_proxy_the_client_counts(settings: Any) -> None:
    settings.TRUSTED_PROXIES = ["10.0.0.0/8"]
    named = {"X_FORWARDED_FOR": "203.0.113.7"}
    assert request_turns.turn_of("10.0.0.1", "GET", "/", named).address == "203.0.113.7"
    assert request_turns.turn_of("192.0.2.1", "GET", "/", named).address == "192.0.2.1"
    same = {request_turns.turn_of(f"2001:db8::{number}", "GET", "/", {}).address for number in range(9)}
    assert same == {"2001:db8::/64"}
