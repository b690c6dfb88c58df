"""Sockets with one deadline and one size limit for a whole conversation."""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any

_PIECE_BYTES = 16_384  # what TLS sends at once, each time with the whole timeout
# Limit for everything that the server sends, because mail clients buffer a reply until its last line.
MAX_ANSWER_BYTES = 8_388_608


class AnswerTooLong(OSError):
    """The server has sent more than a conversation needs."""


class _Bounded(socket.socket):
    ends_at = float("inf")
    wait_seconds: float | None = None
    bytes_left = MAX_ANSWER_BYTES

    def bound(self, total_seconds: float, wait_seconds: float) -> None:
        """Raise TimeoutError from now on after `total_seconds`, or after one wait of `wait_seconds`."""
        self.ends_at, self.wait_seconds = time.monotonic() + total_seconds, wait_seconds

    def recv_into(self, *buffer: Any) -> int:
        self._limit()
        if self.bytes_left < 0:
            raise AnswerTooLong("the server sent more than 8 MiB")
        count = super().recv_into(*buffer)
        self.bytes_left -= count
        return count

    def sendall(self, data: Any, *flags: Any) -> None:
        for start in range(0, len(data), _PIECE_BYTES):
            self._limit()
            super().sendall(data[start : start + _PIECE_BYTES], *flags)

    def _limit(self) -> None:
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the dialogue takes too long")
        if self.wait_seconds is not None:
            self.settimeout(min(self.wait_seconds, left))


def connect(host: str, port: int, timeout_seconds: float) -> _Bounded:
    """Return a connection. Raises OSError, and UnicodeError if `host` is not a valid host name."""
    plain = socket.create_connection((host, port), timeout_seconds)
    family, kind, protocol = plain.family, plain.type, plain.proto
    connection = _Bounded(family, kind, protocol, fileno=plain.detach())
    connection.settimeout(timeout_seconds)
    return connection


def tls_context(connection: socket.socket, tls: ssl.SSLContext | None) -> ssl.SSLContext:
    """Return a context that wraps this connection under the bounds which it has now."""
    assert isinstance(connection, _Bounded)
    bounds = {"ends_at": connection.ends_at, "wait_seconds": connection.wait_seconds}
    context = tls or ssl.create_default_context()
    context.sslsocket_class = type("BoundedTls", (_Bounded, ssl.SSLSocket), bounds)
    return context


def bound(connection: socket.socket | None, total_seconds: float, wait_seconds: float) -> None:
    """Bound the rest of a dialogue: see `_Bounded.bound`."""
    assert isinstance(connection, _Bounded)
    connection.bound(total_seconds, wait_seconds)
