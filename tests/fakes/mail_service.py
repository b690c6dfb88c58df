"""Base of the doubles of hosted mail services: an HTTP server that misbehaves on demand.

with ResendService() as service:
    service.script(Act(status=500, accept=True))
    ... send to service.url ...
    assert len(service.accepted) == 1
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.http import Asked, LoopbackServer, Said


@dataclass(frozen=True, slots=True)
class Act:
    """Behaviour of one request to send, instead of the normal course.

    `accept` says whether the message is taken over before the answer. `reset` closes the
    connection by RST, `hang` keeps it silent until the service stops. `body` replaces the answer.
    """

    status: int = 200
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    accept: bool = False
    reset: bool = False
    hang: bool = False


Reply = tuple[int, object]


class MailService(LoopbackServer):
    """A service over a real socket. `accepted` is the ledger: one entry a mail."""

    def __init__(self, keys: tuple[str, ...] = ("key-for-tests",)) -> None:
        super().__init__(self._said)
        self.url += "/"
        self.keys = keys
        self.accepted: list[dict[str, Any]] = []
        self.requests: list[Asked] = []
        self.look_up_act: Act | None = None  # what happens to every question
        self._scripted: deque[Act] = deque()
        self._lock = threading.Lock()

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

    def _said(self, asked: Asked) -> Said:
        act: Act | None = None
        with self._lock:
            self.requests.append(asked)
            refused = self.refusal_of(asked)
            if refused is not None:
                status, content = refused
            elif asked.method == "POST":
                act = self._scripted.popleft() if self._scripted else None
                status, content = self.send(asked) if act is None or act.accept else (act.status, {})
            else:
                act = self.look_up_act
                status, content = self.answer(asked)
        if act is None:
            return Said(status, content)
        body = content if act.body is None else act.body
        return Said(act.status, body, act.headers, hang=act.hang, reset=act.reset)
