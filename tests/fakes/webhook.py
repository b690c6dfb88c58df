"""A webhook receiver on loopback that treats `webhook-id` as an idempotency key.

Origin of the wire form: documented (the Standard Webhooks specification); nothing here was
captured from a product. It verifies signatures on its own, keeps every request, processes
each id once, and misbehaves on demand::

    with WebhookReceiver() as receiver:
        receiver.script(Behaviour(status=500, process=True), Behaviour())
        ... post to receiver.url ...
        assert receiver.processed == {token: 1}
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.fakes.http import ThreadedServer


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Behaviour of one request.

    `process` says whether its id is taken before the answer. `reset` closes the connection by RST instead of
    answering, `hang` keeps it silent until the receiver stops, `drip` answers a header byte at a time for as
    long as the client reads. `delay` is in seconds, after the id is taken.
    """

    status: int = 204
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    process: bool | None = None  # None: exactly the 2xx ones
    reset: bool = False
    hang: bool = False
    drip: bool = False
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived. Header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class WebhookReceiver(ThreadedServer):
    """A receiver that records requests and deduplicates them by `webhook-id`.

    `respond` decides about requests that nothing is scripted for; None means the default.
    """

    path = "/hook"

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        respond: Callable[[Received], Behaviour | None] | None = None,
    ) -> None:
        self.respond = respond
        self.requests: list[Received] = []
        self.processed: Counter[str] = Counter()
        self._scripted: deque[Behaviour] = deque()
        self._default = Behaviour()
        self._lock = threading.Lock()
        super().__init__(tls)

    def script(self, *behaviours: Behaviour) -> None:
        """Queue behaviours; afterwards the default answers again."""
        self._scripted.extend(behaviours)

    def always(self, behaviour: Behaviour) -> None:
        self._default = behaviour

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        raw = handler.rfile.read(int(handler.headers.get("content-length", "0")))
        received = Received(
            handler.path, {name.lower(): value for name, value in handler.headers.items()}, raw
        )
        with self._lock:
            self.requests.append(received)
            act = (
                self._scripted.popleft()
                if self._scripted
                else (self.respond and self.respond(received)) or self._default
            )
            takes = act.process if act.process is not None else 200 <= act.status <= 299
            token = received.headers.get("webhook-id", "")
            if takes and not self.processed[token]:
                self.processed[token] = 1
        handler.close_connection = True
        self._stopping.wait(act.delay)
        if act.hang:
            self._stopping.wait(60)
        elif act.reset:
            self._reset(handler)
        elif act.drip:
            self._drip(handler)
        else:
            self._send(handler, act.status, act.headers, act.body)

    def _drip(self, handler: BaseHTTPRequestHandler) -> None:
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not self._stopping.wait(0.02):
                handler.wfile.write(b"x")
        except OSError:
            return


def is_signed(received: Received, secret: str) -> bool:
    """Verify a request as the Standard Webhooks specification tells receivers to."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    head = f"{received.headers['webhook-id']}.{received.headers['webhook-timestamp']}."
    expected = base64.b64encode(hmac.digest(key, head.encode() + received.raw, hashlib.sha256)).decode()
    return any(
        hmac.compare_digest(signature, f"v1,{expected}")
        for signature in received.headers.get("webhook-signature", "").split(" ")
    )
