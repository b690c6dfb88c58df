"""The redacting process of this worker: started at the first change, kept for the next ones.

    raw change ─► redactor_child ─► fork within limits ─► prepare ─► redacted change

A change that takes too much time or memory is blocked, and costs nothing but its own attempt. A
process that was killed is started again.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from criticizer.redaction import known_secrets
from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
)
from criticizer.workers import subprocesses
from criticizer.workers.child_process import ChildProcess, ProcessEnded, ProcessLost, failure_of
from reviews.reviewers import redactor_child as child
from reviews.reviewers.base import Edit
from reviews.reviewers.prepare import ReviewLimits

WALL_SECONDS = 90.0  # on a machine that is busy with other things
END_SECONDS = 10.0  # for a process that has closed its pipes to end
MAX_ANSWER_BYTES = 300_000_000
_OVERRUNS = {
    child.NO_MEMORY: "too_much_memory",
    child.SIGNALED + signal.SIGXCPU: "too_slow",
    # A library that gets no memory, or a defect in one.
    child.SIGNALED + signal.SIGABRT: "too_much_memory",
    child.SIGNALED + signal.SIGSEGV: "crashed",
    child.SIGNALED + signal.SIGBUS: "crashed",
}


class RedactorProcess(ChildProcess):
    """A running redacting process, for one thread at a time.

    It is sent the secrets of the settings.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._generation = known_secrets.registered().generation
        super().__init__(child)
        values = _values()
        self._knows = hashlib.sha256(values).digest()
        self._unsent = [values]

    def is_usable(self) -> bool:
        return self.pid == os.getpid() and self._process.poll() is None and self._is_current()

    def _is_current(self) -> bool:
        """Return whether a new process would be sent the same secrets.

        The worker learns others all the time, such as the tokens that a code host lends it for an hour.
        """
        generation = known_secrets.registered().generation
        if generation != self._generation and hashlib.sha256(_values()).digest() == self._knows:
            self._generation = generation
        return generation == self._generation

    def ask(self, options: Mapping[str, object], raw: bytes) -> bytes:
        """Return the answer to one change. Raises ProcessLost; any exception closes the process."""
        until = time.monotonic() + WALL_SECONDS
        messages = [*self._unsent, json.dumps(options).encode(), raw]
        self._unsent = []
        try:
            for message in messages:
                self.send(message, until)
            return self.receive(until, MAX_ANSWER_BYTES)
        except ProcessEnded:
            self._wait_for_its_end()
            raise
        except BaseException:
            # The rest of this exchange must not become the answer to the next change.
            self.close()
            raise

    def _wait_for_its_end(self) -> None:
        # Its status says why; on a busy machine it comes some time after the pipe is closed.
        try:
            with contextlib.suppress(subprocesses.TimeoutExpired):
                self._process.wait(END_SECONDS)
        finally:
            self.close()

    @property
    def overrun(self) -> str:
        """Return the reason code of a change that took too much, "" for any other end."""
        return _OVERRUNS.get(self._process.returncode, "")

    def close(self) -> None:
        """End the process and its fork."""
        if self.pid == os.getpid():  # otherwise it is our parent's
            super().close()


_lock = threading.Lock()
_current: RedactorProcess | None = None


def redact_change(raw: bytes, policy: Mapping[str, object], limits: ReviewLimits, recipe: str) -> bytes:
    """Return the prepared change of a raw one, within limits of time and memory.

    The forms of the two are those of `prepared_change_codec` and `change_codec`.
    Raises PermanentFailure REDACTION_BLOCKED when redaction is in doubt or the change takes more
    processor time or memory than a change may, and the failures of `prepare`; RetryableFailure
    WORKER_LOST when the process was killed or did not answer.
    """
    return _asked(raw, {"policy": policy, "limits": asdict(limits), "recipe": recipe})


def refused_edits(raw: bytes, edits: Sequence[tuple[str, Edit]]) -> list[str]:
    """Return why each edit of a raw change must not be offered, "" where it is proven.

    Raises as `redact_change` does.
    """
    return list(json.loads(_asked(raw, {"edits": [(path, asdict(edit)) for path, edit in edits]})))


def verify_documents(recording: bytes) -> bytes:
    """Return the answer to a recorded comparison (`drift.recording`).

    Raises as `redact_change` does.
    """
    return _asked(recording, {"documents": True})


def _asked(raw: bytes, options: Mapping[str, object]) -> bytes:
    limits = {"cpu_seconds": child.CPU_SECONDS, "memory_bytes": child.MEMORY_BYTES}
    with _lock:
        process = _running()
        try:
            answer = process.ask({**options, **limits}, raw)
        except ProcessLost:
            raise _failure_of(process.overrun) from None
    if answer[:1] == b"+":
        return answer[1:]
    raise failure_of(json.loads(answer[1:]))


def _running() -> RedactorProcess:
    global _current
    if _current is None or not _current.is_usable():
        close()
        _current = RedactorProcess()
    return _current


def close() -> None:
    """End this worker's redacting process, if there is one."""
    global _current
    process, _current = _current, None
    if process is not None:
        process.close()


atexit.register(close)


def _failure_of(overrun: str) -> Failure:
    if overrun:
        return PermanentFailure(
            ErrorClass.REDACTION_BLOCKED,
            Component.INTERNAL,
            "the change takes more time or memory to clean of secrets than a change may",
            context={"reason_code": overrun},
        )
    return RetryableFailure(
        ErrorClass.WORKER_LOST, Component.QUEUE, "the redacting process was killed or did not answer"
    )


def _values() -> bytes:
    return json.dumps([value for read in known_secrets.current for value in read()]).encode()
