"""The one way a program is started (specification 001, 9.2).

An absolute executable, an argument list, no shell, no inherited environment, its own
session, a deadline, and a bound on what it may print. What a program was asked and what it
answered is never logged: names, numbers and sizes only.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import signal
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import structlog

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from criticizer.workers import subprocesses

log = structlog.get_logger()

# Bare names are looked up here and nowhere else: PATH belongs to whoever started us.
TRUSTED_DIRECTORIES = ("/usr/local/bin", "/usr/bin", "/bin", "/opt/perforce/bin")
SEARCH_PATH = ":".join(TRUSTED_DIRECTORIES)
MAX_STDERR_BYTES = 64 * 1024
_READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended.

    `exit_code` is negative when a signal ended it. `truncated` says that it printed more
    than its bound and was killed for it: `stdout` then holds exactly the bound.
    """

    exit_code: int
    stdout: bytes
    stderr: str
    truncated: bool
    timed_out: bool
    seconds: float


def resolve_executable(name: str | Path) -> Path:
    """Return the absolute path of a program that may be run.

    An absolute path is taken as it is; a bare name is searched in `TRUSTED_DIRECTORIES`.
    Raises PermanentFailure CONFIG_INVALID when it is missing, not executable, relative, or
    writable by everybody.
    """
    given = Path(name)
    if given.is_absolute():
        candidates = [given]
    elif len(given.parts) == 1:
        candidates = [Path(directory) / given for directory in TRUSTED_DIRECTORIES]
    else:
        raise _unusable(given, "give an absolute path or a bare name")
    for candidate in candidates:
        try:
            mode = candidate.stat().st_mode
        except OSError:
            continue
        if not stat.S_ISREG(mode) or not os.access(candidate, os.X_OK):
            raise _unusable(candidate, "it is not an executable file")
        if mode & stat.S_IWOTH:
            raise _unusable(candidate, "everybody may write to it")
        return candidate
    raise _unusable(given, "it does not exist" if given.is_absolute() else f"it is not in {SEARCH_PATH}")


def run(
    executable: Path,
    arguments: Sequence[str],
    *,
    subcommand: str,
    environment: Mapping[str, str],
    timeout_seconds: float,
    max_stdout_bytes: int,
    stdin: bytes = b"",
    cwd: Path = Path("/"),
) -> CommandResult:
    """Run a program to its end, its deadline or its output bound.

    `subcommand` is a fixed word for the log. `environment` is the whole environment of the
    child. `stdin` is for lists of arguments and for passwords, which never become arguments.
    A non-zero exit is the caller's to judge: it is returned, not raised.

    Raises PermanentFailure CONFIG_INVALID when the program cannot be started, and
    RetryableFailure UPSTREAM_UNAVAILABLE when the machine has no room for another process.
    """
    started = time.monotonic()
    if not executable.is_absolute() or not os.access(executable, os.X_OK):
        raise _unusable(executable, "it is not an executable file with an absolute path")
    # Depot paths may hold bytes that are not UTF-8; the locale of this process has no say.
    argv = [*_end_with_parent(), str(executable), *arguments]
    command = [argument.encode("utf-8", "surrogateescape") for argument in argv]
    try:
        child = subprocesses.start(
            command,
            environment=environment,
            stdin=subprocesses.PIPE if stdin else subprocesses.DEVNULL,
            stdout=subprocesses.PIPE,
            stderr=subprocesses.PIPE,
            cwd=cwd,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise _unusable(executable, f"starting it failed: {error.strerror}") from error
    except OSError as error:
        raise RetryableFailure(
            ErrorClass.UPSTREAM_UNAVAILABLE,
            Component.SOURCE,
            f"no process could be started: {error.strerror}",
        ) from error
    exchange = _Exchange(child, stdin, max_stdout_bytes, deadline=started + timeout_seconds)
    try:
        exchange.until_end()
    finally:
        # The child has not been waited for yet, so its process group cannot be another's.
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        exchange.close()
    result = CommandResult(
        exit_code=child.returncode,
        stdout=bytes(exchange.stdout),
        stderr=exchange.stderr.decode("utf-8", "replace"),
        truncated=exchange.truncated,
        timed_out=exchange.timed_out,
        seconds=time.monotonic() - started,
    )
    log.info(
        "command_done",
        command=executable.name,
        subcommand=subcommand,
        exit=result.exit_code,
        seconds=round(result.seconds, 3),
        stdin_bytes=len(stdin),
        stdout_bytes=len(result.stdout),
        stderr_bytes=len(exchange.stderr),
        truncated=result.truncated,
        timed_out=result.timed_out,
    )
    return result


class _Exchange:
    """Both directions of a child's pipes, on one thread."""

    def __init__(
        self, child: subprocesses.Process, stdin: bytes, max_stdout_bytes: int, deadline: float
    ) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.truncated = False
        self.timed_out = False
        self._child = child
        self._to_send = memoryview(stdin)
        self._max_stdout_bytes = max_stdout_bytes
        self._deadline = deadline
        self._selector = selectors.DefaultSelector()
        for pipe, event in (
            (child.stdin, selectors.EVENT_WRITE),
            (child.stdout, selectors.EVENT_READ),
            (child.stderr, selectors.EVENT_READ),
        ):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, event)

    def until_end(self) -> None:
        """Return when the child has ended, its time is over or it has printed too much."""
        while self._selector.get_map():
            left = self._deadline - time.monotonic()
            ready = self._selector.select(left) if left > 0 else []
            if not ready and self._deadline <= time.monotonic():
                self.timed_out = True
                return
            for key, _ in ready:
                self._turn(key.fileobj)  # type: ignore[arg-type]  # only pipes were registered
            if self.truncated:
                return
        try:
            self._child.wait(timeout=max(0.0, self._deadline - time.monotonic()))
        except subprocesses.TimeoutExpired:
            self.timed_out = True

    def _turn(self, pipe: IO[bytes]) -> None:
        try:
            if pipe is self._child.stdin:
                self._to_send = self._to_send[os.write(pipe.fileno(), self._to_send[:_READ_BYTES]) :]
                if not self._to_send:
                    self._drop(pipe)
                return
            data = os.read(pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:
            # The child does not want the rest; what it says about that is in its answer.
            self._drop(pipe)
            return
        if not data:
            self._drop(pipe)
        elif pipe is self._child.stderr:
            # The rest is read and thrown away, or the child would block on a full pipe.
            self.stderr += data[: MAX_STDERR_BYTES - len(self.stderr)]
        else:
            self.stdout += data
            if len(self.stdout) > self._max_stdout_bytes:
                del self.stdout[self._max_stdout_bytes :]
                self.truncated = True

    def _drop(self, pipe: IO[bytes]) -> None:
        self._selector.unregister(pipe)
        pipe.close()

    def close(self) -> None:
        self._selector.close()
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()


@functools.cache
def _end_with_parent() -> tuple[str, ...]:
    """Return the words before a command that make the kernel end it when our thread dies.

    `setpriv` sets PR_SET_PDEATHSIG between fork and exec: a `preexec_fn` would do the same,
    but runs Python in a forked copy of a threaded process, which can deadlock. Without
    setpriv (not Linux, or an old util-linux) a child outlives a killed worker until its own
    output or network fails.
    """
    for directory in ("/usr/bin", "/bin"):
        setpriv = Path(directory) / "setpriv"
        if os.access(setpriv, os.X_OK):
            prefix = (str(setpriv), "--pdeathsig", "KILL", "--")
            try:
                status, _, _ = subprocesses.run(
                    [*prefix, str(setpriv), "--version"], environment={}, timeout_seconds=10
                )
            except (OSError, subprocesses.TimeoutExpired):
                continue
            if status == 0:
                return prefix
    return ()


def _unusable(path: Path, why: str) -> PermanentFailure:
    return PermanentFailure(
        ErrorClass.CONFIG_INVALID,
        Component.CONFIGURATION,
        f"the program {path.name} cannot be used: {why}",
        context={"program": str(path)},
    )
