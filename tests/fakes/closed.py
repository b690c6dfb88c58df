"""A port of loopback that refuses every call for as long as it is held."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


def held() -> socket.socket:
    """Return a socket that holds a port but does not listen, so that no other process gets it.

    A server that sets SO_REUSEADDR, as Python's do, can still be given the port by its number.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


@contextmanager
def closed_port() -> Iterator[int]:
    """Hold a port on which nothing listens, and return its number."""
    with held() as holder:
        yield holder.getsockname()[1]
