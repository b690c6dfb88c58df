"""Parent's side of the scanning process: started for one scan, and ended with it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Self

from criticizer.workers.child_process import ChildProcess, failure_of
from reviews.drift import scan_child

MAX_MESSAGE_BYTES = 64_000_000
SEND_SECONDS = 120.0


class ScanProcess:
    """A running scan, to be closed. Messages are as in `scan_child`."""

    def __init__(self) -> None:
        self._process = ChildProcess(scan_child)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def send(self, message: Any) -> None:
        """Send a message. Raises ProcessLost."""
        self._process.send(json.dumps(message).encode(), time.monotonic() + SEND_SECONDS)

    def receive(self, seconds: float) -> Mapping[str, Any]:
        """Return the next message. Raises ProcessLost, and the Failure that the process had."""
        received = self._process.receive(time.monotonic() + seconds, MAX_MESSAGE_BYTES)
        message: dict[str, Any] = json.loads(received)
        if "failure" in message:
            raise failure_of(message["failure"])
        return message
