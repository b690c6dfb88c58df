"""The server that takes writes is found at once, whatever the others do."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from criticizer.db import reconnect
from criticizer.db.several_servers import base

pytestmark = pytest.mark.django_db


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, str]]:
    """A server that takes connections and never answers, and its port."""
    monkeypatch.setattr(base, "_last", None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, str(server.getsockname()[1])


def parameters(host: str, port: str) -> dict[str, Any]:
    return {**connection.get_connection_params(), "host": host, "port": port, "connect_timeout": 120}


def test_a_server_that_does_not_answer_delays_no_connection(silent: tuple[socket.socket, str]) -> None:
    """Guarantee G488: connections go to the server that took over, wherever the URL names it."""
    server, port = silent
    ours = connection.settings_dict["HOST"]
    given = parameters(f"127.0.0.1,{ours}", f"{port},5432")
    assert base.find(given) == (ours, "5432")

    waiting, _ = server.accept()
    with waiting:
        assert waiting.recv(1)  # it was tried, and the connection was opened without its answer
        server.setblocking(False)
        base.find(given)
        with pytest.raises(BlockingIOError):  # the one that took the last connection is tried alone first
            server.accept()


def test_a_server_that_refuses_is_asked_again_while_another_is_silent(
    silent: tuple[socket.socket, str],
) -> None:
    """A standby becomes the primary in the middle of a try."""
    _, port = silent
    with socket.create_server(("127.0.0.1", 0)) as standby:
        answers = parameters("127.0.0.1,127.0.0.1", f"{port},{standby.getsockname()[1]}")
        with base._Search(answers) as search:
            search.start([("127.0.0.1", str(standby.getsockname()[1]))])
            for _ in range(3):
                asking, _ = standby.accept()
                asking.close()
                answer = search.answer()
                assert answer is not None
                assert isinstance(answer[1], psycopg.OperationalError)


def test_without_a_server_that_takes_writes_each_is_named(silent: tuple[socket.socket, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    each = r"no server takes writes: localhost: .*; 127\.0\.0\.1: "
    with pytest.raises(psycopg.OperationalError, match=each):
        base.find(parameters("localhost,127.0.0.1", f"{port},{port}"))


def test_a_connection_from_before_a_loss_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "_lost_at", reconnect._lost_at)
    one = base.DatabaseWrapper({**settings.DATABASES["default"], **connection.settings_dict}, "default")
    monkeypatch.setattr(
        base,
        "find",
        lambda given: (given["host"], given.get("port")),
    )
    one.ensure_connection()
    try:
        assert one.is_usable()
        reconnect.note_loss()
        assert not one.is_usable()
        one.close()
        one.ensure_connection()
        assert one.is_usable()
    finally:
        one.close()
