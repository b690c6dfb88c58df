"""A service on a loopback socket that records what it is sent and answers as told."""

from __future__ import annotations

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.fakes.closed import held


class Service:
    """A server that listens from `start` to `stop`, and keeps its port while it is away."""

    def __init__(self) -> None:
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.headers: list[dict[str, str]] = []
        self.status = 202
        self.body = b"{}"
        self.lives = 200  # what /livez answers
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._holder = held()
        self.port = self._holder.getsockname()[1]
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.may_answer.wait(30)
                self._answer(service.lives if self.path == "/livez" else 404, b"{}")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                service.headers.append(dict(self.headers))
                answer = service.status, service.body  # a test that has the event changes them
                service.events.put({"path": self.path, **json.loads(body)})
                service.may_answer.wait(30)
                self._answer(*answer)

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that gave up is part of the tests

        self._server = Server(("127.0.0.1", self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.may_answer.set()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    def close(self) -> None:
        """Stop, and give the port back."""
        self.stop()
        self._holder.close()

    def next_change(self) -> int:
        """Return the number in the next event, waiting for it."""
        return int(self.events.get(timeout=30)["change"])
