"""The API behind its real web server, for all that Django's test client cannot show."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from reviews.intake import api_keys
from reviews.models import ReviewJob
from tests.api.conftest import review
from tests.stack import Stack

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/api/v1/reviews/"


@pytest.fixture
def key() -> str:
    return api_keys.create("ci", "trigger")


def client_of(web: Stack, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=web.base_url, headers=headers, trust_env=False, timeout=30)


def in_chunks(body: bytes, size: int = 4096) -> Iterator[bytes]:
    """Give the body piecewise: httpx sends it without a Content-Length."""
    for at in range(0, len(body), size):
        yield body[at : at + size]


def raw_answer(web: Stack, head: bytes, body: bytes) -> int:
    """Send bytes as they are and return the status of the answer."""
    with socket.create_connection(("127.0.0.1", web.port), timeout=30) as connected:
        connected.sendall(head + b"\r\n\r\n" + body)
        return int(connected.makefile("rb").readline().split()[1])


def test_sizes_and_ways_of_sending(web: Stack, key: str) -> None:
    small = json.dumps(review()).encode()
    large = small.ljust(200_000)
    kind = {"Content-Type": "application/json"}
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        "Content-Type: application/json\r\n"
    ).encode()
    with client_of(web, key) as client:
        assert client.post(PATH, content=in_chunks(small), headers=kind).status_code == 201
        assert client.post(PATH, content=small, headers=kind).json()["duplicate"] is True
        for content in (large, in_chunks(large)):
            answer = client.post(PATH, content=content, headers=kind)
            assert (answer.status_code, answer.json()["error"]) == (413, "PAYLOAD_TOO_LARGE")
        assert client.post(PATH, content=in_chunks(b"{"), headers=kind).status_code == 400
        # Without a key nothing of the body is looked at.
        assert client.post(PATH, content=large, headers={**kind, "Authorization": ""}).status_code == 401
    # Says much and sends little: answered without waiting for the rest.
    assert raw_answer(web, head + b"Content-Length: 99000000", b"{}") == 413
    for page in (b"/login/", b"/nowhere/"):
        given = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99000000" % page
        assert raw_answer(web, given, b"a=b") == 413
    # Says little and sends much: what was announced is read, and it is no JSON.
    assert raw_answer(web, head + b"Content-Length: 10\r\nConnection: close", small) == 400
    assert raw_answer(web, head + b"Transfer-Encoding: chunked", b"zz\r\nnot a chunk\r\n") == 400
    assert ReviewJob.objects.count() == 1


@pytest.mark.long
def test_fifty_equal_requests_at_once_make_one_job(web: Stack, key: str) -> None:
    start = threading.Barrier(50)
    with client_of(web, key) as client, ThreadPoolExecutor(50) as pool:

        def post(number: int) -> tuple[int, Any]:
            start.wait()
            answer = client.post(PATH, json=review())
            return answer.status_code, answer.json()["id"]

        answers = list(pool.map(post, range(50)))
    assert sorted(status for status, _ in answers) == [200] * 49 + [201]
    assert {job_id for _, job_id in answers} == {ReviewJob.objects.get().pk}


def test_head_is_answered_without_a_body(web: Stack, key: str) -> None:
    """With one, the next answer on the connection would begin inside it."""
    for path in ("/livez", "/login/", PATH, "/api/schema/", "/nothing"):
        _assert_no_body(web, key, path)


def _assert_no_body(web: Stack, key: str, path: str) -> None:
    lines = f"Host: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", web.port), timeout=30) as connected,
        connected.makefile("rb") as answer,
    ):
        connected.sendall(f"HEAD {path} HTTP/1.1\r\n{lines}".encode())
        head = list(iter(answer.readline, b"\r\n"))
        assert head[0].startswith(b"HTTP/1.1 "), path
        if b"Connection: close\r\n" not in head:
            assert any(line.startswith(b"Content-Length: ") for line in head), path
            connected.sendall(f"GET /livez HTTP/1.1\r\nConnection: close\r\n{lines}".encode())
            assert answer.readline() == b"HTTP/1.1 200 OK\r\n", path
        else:
            assert answer.read() == b"", path
