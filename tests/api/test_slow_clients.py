"""Clients that send or read slowly, or not at all, hold no thread of the web server."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from criticizer.queue.broker import connect
from criticizer.workers import web_server
from reviews.intake import api_keys
from reviews.models import FindingRow
from tests.api.conftest import review
from tests.factories import job_with_stages
from tests.stack import Stack, eventually

EACH = 250  # connections of each kind: far more than threads
HEAD = b"POST /api/v1/reviews/ HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@contextlib.contextmanager
def connections(port: int, send: bytes, drip: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open EACH connections and send the same on all; then send a byte of `drip` every second."""
    opened = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(EACH)]
    done = threading.Event()

    def send_on() -> None:
        for byte in itertools.cycle(drip):
            if done.wait(1):
                return
            for each in opened:
                with contextlib.suppress(OSError):
                    each.send(bytes([byte]))

    dripping = threading.Thread(target=send_on)
    try:
        for each in opened:
            each.sendall(send)
        if drip:
            dripping.start()
        yield opened
    finally:
        done.set()
        if drip:
            dripping.join()
        for each in opened:
            each.close()


def test_half_open_connections_keep_nobody_waiting(web: Stack) -> None:
    key = api_keys.create("ci", "trigger")
    half_a_body = HEAD + b"Content-Type: application/json\r\nContent-Length: 4000\r\n\r\n{"
    kinds = [
        (b"", b""), (HEAD, b""), (half_a_body, b""), (HEAD + b"X-Slow: ", b"a"), (half_a_body, b" "),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n4", b"000"),
    ]  # fmt: skip
    with contextlib.ExitStack() as held, httpx.Client(trust_env=False, timeout=10) as client:
        for number, (send, drip) in enumerate(kinds):
            held.enter_context(connections(web.port, send, drip))
            assert client.get(f"{web.base_url}/livez").status_code == 200
            body = review(idempotency_key=f"k-{number}", changelist_id=f"{number + 1}")
            made = client.post(
                f"{web.base_url}/api/v1/reviews/", json=body, headers={"Authorization": f"Bearer {key}"}
            )
            assert made.status_code == 201


def test_clients_that_do_not_take_their_answers_keep_nobody_waiting(web: Stack) -> None:
    key = api_keys.create("ci", "trigger")
    job = job_with_stages()
    FindingRow.objects.bulk_create(
        FindingRow(job=job, file="//depot/a.c", severity="low", category="bug", title="t", message="m" * 8000)
        for _ in range(650)  # 5 MB: more than a socket takes
    )
    ask = f"GET /api/v1/reviews/{job.pk}/ HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n"
    opened = []
    try:
        for _ in range(16):
            each = socket.socket()
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect(("127.0.0.1", web.port))
            each.sendall(ask.encode())
            opened.append(each)
        for each in opened:
            assert each.recv(8) == b"HTTP/1.1"  # the answer is ready, and stays where it is
        for _ in range(10):
            assert httpx.get(f"{web.base_url}/livez", trust_env=False, timeout=10).status_code == 200
    finally:
        for each in opened:
            each.close()


@pytest.mark.long
def test_a_stop_finishes_the_answer_that_a_client_is_taking(web: Stack) -> None:
    job = job_with_stages()
    FindingRow.objects.bulk_create(
        FindingRow(job=job, file="//depot/a.c", severity="low", category="bug", title="t", message="m" * 8000)
        for _ in range(1000)
    )
    headers = {"Authorization": f"Bearer {api_keys.create('ci', 'trigger')}"}
    with (
        httpx.Client(base_url=web.base_url, headers=headers, trust_env=False, timeout=30) as client,
        client.stream("GET", f"/api/v1/reviews/{job.pk}/") as answer,
    ):
        parts = answer.iter_raw(1000)
        first = next(parts)
        process = web.child("web").process
        assert process is not None
        process.terminate()
        eventually(lambda: not _accepts(web.port))
        assert len(first + b"".join(parts)) == int(answer.headers["Content-Length"])
    assert process.wait(30) == 0
    eventually(lambda: _accepts(web.port))  # it was started again, for the other tests


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


# -- deadlines, in a server of this process ------------------------------------------------------


@pytest.fixture
def running() -> list[tuple[web_server.Server, threading.Thread]]:
    """The servers that `served` started, each with its thread."""
    return []


@pytest.fixture
def served(
    monkeypatch: pytest.MonkeyPatch, running: list[tuple[web_server.Server, threading.Thread]]
) -> Iterator[Callable[..., int]]:
    """Return a function that starts a server whose answers have 8 MB, and returns its port."""

    def application(environ: object, start_response: Callable[..., object]) -> list[bytes]:
        start_response("200 OK", [("Content-Length", str(8_000_000))])
        return [b"x" * 8_000_000]

    def start(**constants: float) -> int:
        for name, value in constants.items():
            monkeypatch.setattr(web_server, name, value)
        listening = web_server.listen("127.0.0.1", 0)
        port: int = listening.getsockname()[1]
        server = web_server.Server(application, listening, 1, connect)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        return port

    monkeypatch.setattr(web_server, "STOP_SECONDS", 1.0)
    yield start
    for server, thread in running:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()
        server.task_dispatcher.shutdown()
        server.trigger.close()


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    try:
        return connection.recv(1 << 20) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_request_that_does_not_arrive_ends_at_its_deadline_however_it_trickles(
    served: Callable[..., int],
) -> None:
    port = served(REQUEST_SECONDS=0.5)
    with contextlib.ExitStack() as held:
        silent, trickling, waiting = (
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)) for _ in range(3)
        )
        trickling.sendall(b"GET / HTTP/1.1\r\nX: ")
        waiting.sendall(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n")

        def is_closed() -> bool:
            with contextlib.suppress(OSError):
                trickling.send(b"1")
            return _is_closed(trickling)

        eventually(is_closed, 20)
        for each in (silent, waiting):
            eventually(lambda each=each: _is_closed(each), 20)


@pytest.mark.long
def test_an_answer_that_is_not_taken_ends_at_its_deadline(
    served: Callable[..., int], running: list[tuple[web_server.Server, threading.Thread]]
) -> None:
    port = served(ANSWER_SECONDS=1.0)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as deaf:
        deaf.sendall(b"GET / HTTP/1.1\r\n\r\n")
        received = len(deaf.recv(100))
        eventually(lambda: not running[0][0].active_channels)  # it takes nothing until it was given up
        with contextlib.suppress(OSError):
            while part := deaf.recv(1 << 20):
                received += len(part)
        assert received < 8_000_000


def test_of_requests_sent_at_once_the_first_is_answered_and_ends_the_connection(
    served: Callable[..., int],
) -> None:
    with socket.create_connection(("127.0.0.1", served()), timeout=10) as greedy:
        greedy.sendall(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n" * 100)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while part := greedy.recv(1 << 20):
                received += part
        assert received.count(b"HTTP/1.1 200 OK") == 1
        assert b"Connection: close" in received[:500]


def test_over_the_limit_the_oldest_waiting_connections_make_room(served: Callable[..., int]) -> None:
    port = served(CONNECTIONS=20)
    idle = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(60)]
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/", trust_env=False, timeout=10)
        assert len(answer.content) == 8_000_000
        eventually(lambda: sum(map(_is_closed, idle[:40])) >= 39)
    finally:
        for each in idle:
            each.close()
