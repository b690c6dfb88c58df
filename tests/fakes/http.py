"""A small HTTP server on loopback for doubles of documented APIs.

`Api.answer` is called for each request and says what happens; the server does it, misbehaviour
included. Origin of behaviour: with the double that subclasses nothing and passes its function in.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, slots=True)
class Asked:
    """One request.

    Header names are in lower case; `query` has the last of repeated names.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


@dataclass(frozen=True, slots=True)
class Said:
    """Behaviour of one answer: it is sent, or cut off in one of three ways.

    `hang` keeps silent, `reset` closes by RST, `cut` closes in the body. A `body` of bytes is sent as it is.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: bool = False
    reset: bool = False
    cut: bool = False


class ThreadedServer:
    """A real HTTP server in threads of its own; subclasses answer in `_serve`."""

    path = ""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._stopping = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._serve(self)

            def do_POST(self) -> None:
                outer._serve(self)

            def do_PATCH(self) -> None:
                outer._serve(self)

            def do_PUT(self) -> None:
                outer._serve(self)

            def do_DELETE(self) -> None:
                outer._serve(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """Do nothing: a client that hangs up is part of the tests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}{self.path}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        raise NotImplementedError

    @staticmethod
    def _reset(handler: BaseHTTPRequestHandler) -> None:
        """Close the connection by RST: that is what a linger of zero makes of close()."""
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()

    @staticmethod
    def _send(
        handler: BaseHTTPRequestHandler,
        status: int,
        headers: Mapping[str, str],
        content: bytes,
        *,
        is_cut: bool = False,
    ) -> None:
        handler.send_response_only(status)
        for name, value in {"Date": handler.date_time_string(), **headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2] if is_cut else content)


class LoopbackServer(ThreadedServer):
    """A server that answers each request with what a function returns for it."""

    def __init__(self, answer: Callable[[Asked], Said], tls: ssl.SSLContext | None = None) -> None:
        self._answer = answer
        super().__init__(tls)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        raw = handler.rfile.read(int(handler.headers.get("content-length", "0")))
        said = self._answer(
            Asked(
                handler.command,
                parts.path,
                dict(parse_qsl(parts.query)),
                {name.lower(): value for name, value in handler.headers.items()},
                raw,
            )
        )
        handler.close_connection = True
        if said.hang:
            self._stopping.wait(60)
        elif said.reset:
            self._reset(handler)
        else:
            content = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
            content = b"" if said.status == 204 else content
            headers = {"Content-Type": "application/json", **said.headers}
            self._send(handler, said.status, headers, content, is_cut=said.cut)
