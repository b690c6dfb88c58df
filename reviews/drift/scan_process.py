"""The parent's side of the scanning process: started for one scan, and ended with it."""

from __future__ import annotations

import json
import os
import selectors
import time
from collections.abc import Mapping
from typing import IO, Any, Self, cast

from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
)
from criticizer.workers import subprocesses
from reviews.drift import scan_child

MAX_LINE_BYTES = 64_000_000
_PIECE_BYTES = 1 << 16


class ScanEnded(Exception):
    """The process has ended without a message, or its time is over."""


class ScanProcess:
    """A running scan, to be closed. Messages are as in `scan_child`."""

    def __init__(self) -> None:
        self._process = subprocesses.start_module(scan_child)
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._stdout = cast("IO[bytes]", self._process.stdout)
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._stdin, self._stdout):
            pipe.close()
        subprocesses.kill_group(self._process)

    def send(self, message: Any) -> None:
        """Send a message. Raises ScanEnded."""
        rest = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while rest:
                rest = rest[os.write(self._stdin.fileno(), rest[:_PIECE_BYTES]) :]
        except OSError:
            raise ScanEnded from None

    def receive(self, seconds: float) -> Mapping[str, Any]:
        """Return the next message. Raises ScanEnded, and the Failure that the process had."""
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise ScanEnded
                piece = os.read(self._stdout.fileno(), _PIECE_BYTES)
                if not piece or len(self._buffer) > MAX_LINE_BYTES:
                    raise ScanEnded
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if "failure" in message:
            raise _failure(message["failure"])
        return message


def _failure(fields: Any) -> Failure:
    retryable, error_class, place, detail, context = fields
    kind = RetryableFailure if retryable else PermanentFailure
    return kind(ErrorClass(error_class), Component(place), detail, context=context)
