"""Bounds and phases of the HTTP client, against real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

from criticizer.http_client import Answer, ClientPool, ExchangeFailed, Fault, Limits, Phase, Request, exchange
from tests.fakes.closed import closed_port

LIMITS = Limits(1.0, 1.0, 1.0, max_answer_bytes=1000)


class Handler(BaseHTTPRequestHandler):
    released = Event()
    paths: list[str] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        if self.path == "/silent":
            self.released.wait(10)
            return
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Location", "/json")
        self.end_headers()
        if self.path == "/drip":
            while not self.released.wait(0.2):
                try:
                    self.wfile.write(b"x")
                except OSError:
                    return
        else:
            self.wfile.write(b"y" * 5000 if self.path == "/long" else b'{"ok": true}')

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with running() as url:
        yield url


@contextmanager
def running() -> Iterator[str]:
    Handler.released, Handler.paths = Event(), []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        Handler.released.set()
        listening.shutdown()


def get(url: str, limits: Limits = LIMITS) -> Answer:
    return exchange(Request("GET", url, {}), limits)


def fault_of(url: str, limits: Limits = LIMITS) -> tuple[Fault, Phase]:
    with pytest.raises(ExchangeFailed) as failed:
        get(url, limits)
    return failed.value.fault, failed.value.phase


def test_an_answer_has_status_headers_and_json(server: str) -> None:
    answer = get(f"{server}/json")
    assert (answer.status, answer.json(), answer.headers["location"]) == (200, {"ok": True}, "/json")


def test_failures_say_in_which_phase_they_happened(server: str) -> None:
    with closed_port() as port:
        assert fault_of(f"http://127.0.0.1:{port}/") == (Fault.UNREACHABLE, Phase.BEFORE_SEND)
    assert fault_of(f"{server}/silent", Limits(1.0, 0.2, 5.0)) == (Fault.TIMEOUT, Phase.SENT)
    assert fault_of("ftp://127.0.0.1/") == (Fault.UNUSABLE_REQUEST, Phase.BEFORE_SEND)


def test_the_total_time_bounds_a_server_that_answers_a_byte_at_a_time(server: str) -> None:
    """Without the bound it would end after 1,000 bytes, with another fault."""
    assert fault_of(f"{server}/drip") == (Fault.TIMEOUT, Phase.ANSWERED)


def test_of_an_answer_over_the_bound_nothing_is_kept(server: str) -> None:
    answer = get(f"{server}/long")
    assert (answer.status, answer.body, answer.is_too_long, answer.json()) == (200, b"", True, None)


def test_redirects_are_not_followed(server: str) -> None:
    assert get(f"{server}/away").status == 302
    assert Handler.paths == ["/away"]


def test_proxies_of_the_environment_are_ignored(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_port() as port:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        assert get(f"{server}/json").status == 200


def test_a_body_that_is_not_wanted_is_not_read(server: str) -> None:
    answer = exchange(Request("GET", f"{server}/drip", {}, reads_answer=False), LIMITS)
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.long
def test_a_pool_serves_many_requests_at_once(server: str) -> None:
    async def run() -> list[Answer]:
        pool = ClientPool(server)
        try:
            request = Request("GET", f"{server}/json", {})
            return await asyncio.gather(*(pool.send(request, Limits(5.0, 5.0, 5.0)) for _ in range(25)))
        finally:
            await pool.aclose()

    assert [answer.status for answer in asyncio.run(run())] == [200] * 25
