"""Connections to the one of several servers that takes writes.

libpq tries the servers of a URL one after another, and gives each its `connect_timeout`: while one is away,
every connection would begin with seconds of waiting, and a try that began just before a promotion would miss
it. Here all servers are tried at once, repeatedly, until one takes writes or all have refused.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Self

import psycopg
from django.db.backends.postgresql import base

from criticizer.db import reconnect

HEAD_START_SECONDS = 0.3  # for the server of this process's last connection, before the others are tried
AGAIN_SECONDS = 0.25  # before a server that refused is tried again, while another has not answered
Server = tuple[str, str]  # host and port; port "": the usual one
Answer = tuple[Server, psycopg.Error | None]  # None: it takes writes

_last: Server | None = None


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection to the server that takes writes at the moment it is opened."""

    _opened_at = 0.0

    def get_connection_params(self) -> dict[str, Any]:
        parameters: dict[str, Any] = super().get_connection_params()
        parameters["host"], parameters["port"] = find(parameters)
        return parameters

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        self._opened_at = time.monotonic()
        return super().get_new_connection(conn_params)

    def is_usable(self) -> bool:
        """Return whether the connection works; one opened before a loss counts as broken, untried."""
        return reconnect.seconds_since_loss() > time.monotonic() - self._opened_at and super().is_usable()


def find(parameters: Mapping[str, Any]) -> Server:
    """Return the server that takes writes. Raises psycopg.OperationalError when none does.

    `parameters` are those of `psycopg.connect`, with several hosts. A server that refuses is tried again
    while another has not answered yet: it may be a standby that is being promoted.
    """
    global _last
    hosts = str(parameters["host"]).split(",")
    ports = str(parameters.get("port") or "").split(",")
    servers = list(zip_longest(hosts, ports[: len(hosts)], fillvalue=""))
    if _last in servers:
        servers.sort(key=lambda server: server != _last)
    errors: dict[Server, psycopg.Error] = {}
    with _Search(parameters) as search:
        search.start(servers[:1])
        answer = search.answer(HEAD_START_SECONDS)
        if answer is None or answer[1] is not None:
            search.start(servers[1:])
        while True:
            if answer is not None:
                server, error = answer
                if error is None:
                    _last = server
                    return server
                errors[server] = error
                if len(errors) == len(servers):
                    break
            answer = search.answer()
    listed = "; ".join(f"{host}: {' '.join(str(error).split())}" for (host, _), error in errors.items())
    raise psycopg.OperationalError(f"no server takes writes: {listed}")


class _Search:
    """Tries servers, each in a thread of its own, until the block ends."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = parameters
        self._is_over = threading.Event()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def start(self, servers: list[Server]) -> None:
        for server in servers:
            threading.Thread(target=self._try, args=(server,), daemon=True, name="find-server").start()

    def answer(self, seconds: float | None = None) -> Answer | None:
        """Return the next answer; None when there is none in `seconds`."""
        try:
            return self._answers.get(timeout=seconds)
        except queue.Empty:
            return None

    def _try(self, server: Server) -> None:
        host, port = server
        while not self._is_over.is_set():
            try:
                psycopg.connect(**{**self._parameters, "host": host, "port": port or None}).close()
            except psycopg.Error as error:
                self._answers.put((server, error))
                self._is_over.wait(AGAIN_SECONDS)
            else:
                self._answers.put((server, None))
                return
