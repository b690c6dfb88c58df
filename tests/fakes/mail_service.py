"""What the doubles of the hosted mail services share: an HTTP server that misbehaves on demand.

with ResendService() as service:
    service.script(Act(status=500, accept=True))
    ... send to service.url ...
    assert len(service.accepted) == 1
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Act:
    """What happens to one request to send, instead of the normal course.

    `accept` says whether the message is taken over before the answer. `reset` closes the
    connection by RST, `hang` keeps it silent until the service stops. `body` replaces the answer.
    """

    status: int = 200
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    accept: bool = False
    reset: bool = False
    hang: bool = False


@dataclass(slots=True)
class Asked:
    """One request. Header names are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


Reply = tuple[int, object]


class MailService:
    """A real HTTP server in threads of its own. `accepted` is the ledger: one entry a mail."""

    def __init__(self, keys: tuple[str, ...] = ("key-for-tests",)) -> None:
        self.keys = keys
        self.accepted: list[dict[str, Any]] = []
        self.requests: list[Asked] = []
        self.look_up_act: Act | None = None  # what happens to every question
        self._scripted: deque[Act] = deque()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                service._serve(self)

            do_GET = do_POST  # noqa: N815  http.server finds its hooks by these names

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that hangs up is part of the tests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
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

    def script(self, *acts: Act) -> None:
        """Queue acts for the next requests to send; afterwards the service behaves."""
        self._scripted.extend(acts)

    # What a service defines.

    def refusal_of(self, asked: Asked) -> Reply | None:
        raise NotImplementedError

    def send(self, asked: Asked) -> Reply:
        """Check the request and, when it is good, write it into `accepted`."""
        raise NotImplementedError

    def answer(self, asked: Asked) -> Reply:
        raise NotImplementedError

    # The wire.

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        asked = Asked(
            handler.command,
            parts.path,
            {name: values[0] for name, values in parse_qs(parts.query).items()},
            {name.lower(): value for name, value in handler.headers.items()},
            handler.rfile.read(int(handler.headers.get("content-length", "0"))),
        )
        act: Act | None = None
        with self._lock:
            self.requests.append(asked)
            refused = self.refusal_of(asked)
            if refused is not None:
                reply = refused
            elif asked.method == "POST":
                act = self._scripted.popleft() if self._scripted else None
                reply = self.send(asked) if act is None or act.accept else (act.status, {})
            else:
                act = self.look_up_act
                reply = self.answer(asked)
        self._write(handler, act, reply)

    def _write(self, handler: BaseHTTPRequestHandler, act: Act | None, reply: Reply) -> None:
        handler.close_connection = True
        status, content = (act.status, reply[1]) if act else reply
        body = act.body if act and act.body is not None else json.dumps(content).encode()
        if act and act.hang:
            self._stopping.wait(60)
            return
        if act and act.reset:
            # A linger of zero makes close() send RST.
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
            return
        handler.send_response(status)
        for name, value in (act.headers if act else {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(body)
