"""The port that a web server of this machine is to listen on."""

from __future__ import annotations

import errno
import socket


def port_problem(host: str, port: int) -> str:
    """Return why the web server cannot listen there and what to do; "" when it can."""
    if not 0 < port < 65536:
        return f"{port} is not a port: choose one from 1 to 65535 with PORT= (make) or --port."
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            # As the web server does it: only a listener is in the way, not a lingering connection.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return (
                f"port {port} of {host} is taken by another program: stop that one, "
                "or choose another port with PORT= (make) or --port."
            )
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            return f"{host!r} is not an address of this machine: choose one with HOST= (make) or --host."
        return (
            f"port {port} of {host} cannot be used ({error.strerror}): "
            "choose another with PORT= (make) or --port."
        )
    return ""
