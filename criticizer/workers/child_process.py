"""Modules of the product as processes of their own: both ends of the pipes, and limits.

    parent: ChildProcess ── send ─► ── receive ── child: Parent
                         ◄─ receive ── ── send ──

A message is a length and so many bytes. The process has no environment and ends with its parent.
"""

from __future__ import annotations

import os
import resource
import selectors
import struct
import time
from collections.abc import Sequence
from types import ModuleType
from typing import IO, Any, cast

from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
)
from criticizer.workers import subprocesses
from criticizer.workers.parent_death import die_with_parent

NICENESS = 5  # the calls of other reviews go first
_LENGTH = struct.Struct(">Q")
_PIECE_BYTES = 1 << 20


class ProcessLost(Exception):
    """There is no message: the time is over, or it is longer than it may be."""


class ProcessEnded(ProcessLost):
    """The process has closed its end of a pipe. Its status may come some time later."""


class ChildProcess:
    """A running module, for one thread at a time; to be closed. `until` is in time.monotonic."""

    def __init__(self, module: ModuleType) -> None:
        self._process = subprocesses.start_module(module)
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._stdout = cast("IO[bytes]", self._process.stdout)
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)

    def send(self, message: bytes, until: float) -> None:
        """Send a message. Raises ProcessLost."""
        rest = memoryview(_LENGTH.pack(len(message)) + message)
        while rest:
            _wait(self._stdin, selectors.EVENT_WRITE, until)
            try:
                rest = rest[os.write(self._stdin.fileno(), rest[:_PIECE_BYTES]) :]
            except OSError:
                raise ProcessEnded from None

    def receive(self, until: float, max_bytes: int) -> bytes:
        """Return the next message. Raises ProcessLost."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, until))
        if length > max_bytes:
            raise ProcessLost
        return self._read(length, until)

    def _read(self, size: int, until: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            _wait(self._stdout, selectors.EVENT_READ, until)
            piece = os.read(self._stdout.fileno(), min(size - len(data), _PIECE_BYTES))
            if not piece:
                raise ProcessEnded
            data += piece
        return bytes(data)

    def close(self) -> None:
        """End the process and all that it started."""
        for pipe in (self._stdin, self._stdout):
            pipe.close()
        subprocesses.kill_group(self._process)


def _wait(pipe: IO[bytes], event: int, until: float) -> None:
    # Unlike others, this one takes no descriptor: there may be none left.
    with selectors.PollSelector() as selector:
        selector.register(pipe, event)
        if not selector.select(max(0.0, until - time.monotonic())):
            raise ProcessLost


def live_within(memory_bytes: int, cpu_seconds: int | None = None) -> None:
    """End this process with its parent, or once it takes more address space or processor time."""
    die_with_parent()
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    if cpu_seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))


class Parent:
    """The parent of this process.

    What is printed from now on is lost: it must not become a message.
    """

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def send(self, message: bytes) -> None:
        rest = memoryview(_LENGTH.pack(len(message)) + message)
        while rest:
            rest = rest[os.write(self._out, rest) :]

    def receive(self) -> bytes:
        """Return the next message; b"" once the parent has closed its end."""
        head = self._read(_LENGTH.size)
        return self._read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size and (piece := os.read(0, min(size - len(data), _PIECE_BYTES))):
            data += piece
        return bytes(data)


def fields_of(failure: Failure) -> list[object]:
    """Return a failure as a message may hold it."""
    return [failure.retryable, failure.error_class, failure.component, failure.detail, dict(failure.context)]


def failure_of(fields: Sequence[Any]) -> Failure:
    """Return the failure that a process had, from `fields_of`."""
    retryable, error_class, place, detail, context = fields
    kind = RetryableFailure if retryable else PermanentFailure
    return kind(ErrorClass(error_class), Component(place), detail, context=context)
