"""The only module that starts other programs (guarantee G85).

A program is a list of arguments with an absolute path in front. There is no shell, no search along
PATH and no inherited environment. `start` leaves the program running; `run` waits for its end, with
a deadline and a bound on what it may print. Neither logs arguments or output.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import selectors
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from subprocess import DEVNULL, PIPE, TimeoutExpired
from types import ModuleType
from typing import IO, Any, TypeAlias

import structlog

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure

__all__ = [
    "DEVNULL",
    "PIPE",
    "CommandResult",
    "Process",
    "TimeoutExpired",
    "resolve_executable",
    "run",
    "start",
]

log = structlog.get_logger()

Process: TypeAlias = subprocess.Popen[bytes]
Stream: TypeAlias = int | IO[bytes] | None

# Bare names are searched here and nowhere else: PATH belongs to the process that started this one.
TRUSTED_DIRECTORIES = ("/usr/local/bin", "/usr/bin", "/bin", "/opt/perforce/bin")
SEARCH_PATH = ":".join(TRUSTED_DIRECTORIES)
MAX_STDOUT_BYTES = 16 * 1024 * 1024
MAX_STDERR_BYTES = 64 * 1024
_READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command.

    `exit_code` is negative when a signal ended it. `truncated`: it printed more than its bound and
    was killed for it; `stdout` then holds exactly the bound.
    """

    exit_code: int
    stdout: bytes
    stderr: str
    truncated: bool
    timed_out: bool
    seconds: float

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")


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


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdin: Stream = DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
    cwd: str | PathLike[str] | None = None,
    account: Mapping[str, Any] | None = None,
) -> Process:
    """Start a program in a session and process group of its own; None as a stream inherits ours.

    `account` holds `user`, `group` and `extra_groups` of another account to run as. Raises
    ValueError for a command that is not a list with an absolute path in front, OSError when the
    program cannot be started.
    """
    # Depot paths may hold bytes that are not UTF-8; the locale of this process does not matter.
    arguments = [argument.encode("utf-8", "surrogateescape") for argument in _checked(command)]
    return subprocess.Popen(
        arguments, shell=False, env=dict(environment), stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd,
        start_new_session=True, bufsize=0, **(account or {}),
    )  # fmt: skip


def start_module(module: ModuleType) -> Process:
    """Start a module of the product as a program with pipes.

    It does not get the environment around it.
    """
    return start(
        [sys.executable, "-E", "-s", "-m", module.__name__],
        environment={"LC_ALL": "C.UTF-8"},
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=Path(__file__).parents[2],
    )


def kill_group(process: Process) -> None:
    """End a started program and all that it started; nothing where it has been waited for."""
    # Until then its process group cannot be another's.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_seconds: float,
    cpu_seconds: int | None = None,
    max_file_bytes: int | None = None,
    max_memory_bytes: int | None = None,
    max_stdout_bytes: int = MAX_STDOUT_BYTES,
    stdin: bytes = b"",
    cwd: str | PathLike[str] = "/",
    account: Mapping[str, Any] | None = None,
    subcommand: str = "",
) -> CommandResult:
    """Run a program to its end, its deadline or its output bound; it ends when our thread dies.

    `environment` is the whole environment of the child. `stdin` is for lists of arguments and for
    passwords, which never become arguments. `subcommand` is a fixed word for the log; without one
    nothing is logged. A non-zero exit is returned, not raised; -SIGXCPU is that of a program that used up
    `cpu_seconds` of processor time. No file that it writes becomes larger than `max_file_bytes`, and none of
    its processes gets more than `max_memory_bytes`, files that it only maps not counted.

    Raises ValueError as `start` does, PermanentFailure CONFIG_INVALID when the program cannot be
    started, RetryableFailure UPSTREAM_UNAVAILABLE when the machine cannot start another process.
    """
    started = time.monotonic()
    executable = Path(_checked(command)[0])
    if not os.access(executable, os.X_OK):
        raise _unusable(executable, "it is not an executable file")
    try:
        child = start(
            [*_end_with_parent(), *command],
            environment=environment,
            stdin=PIPE if stdin else DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            account=account,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise _unusable(executable, f"starting it failed: {error.strerror}") from error
    except OSError as error:
        detail = f"no process could be started: {error.strerror}"
        raise RetryableFailure(ErrorClass.UPSTREAM_UNAVAILABLE, Component.SOURCE, detail) from error
    with contextlib.suppress(ProcessLookupError):
        if cpu_seconds is not None:
            resource.prlimit(child.pid, resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
        if max_file_bytes is not None:
            resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
        if max_memory_bytes is not None:
            resource.prlimit(child.pid, resource.RLIMIT_DATA, (max_memory_bytes, max_memory_bytes))
    exchange = _Exchange(child, stdin, max_stdout_bytes, deadline=started + timeout_seconds)
    try:
        exchange.until_end()
    finally:
        kill_group(child)
        exchange.close()
    result = CommandResult(
        exit_code=child.returncode,
        stdout=bytes(exchange.stdout),
        stderr=exchange.stderr.decode("utf-8", "replace"),
        truncated=exchange.truncated,
        timed_out=exchange.timed_out,
        seconds=time.monotonic() - started,
    )
    if subcommand:
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

    def __init__(self, child: Process, stdin: bytes, max_stdout_bytes: int, deadline: float) -> None:
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
                self._transfer(key.fileobj)  # type: ignore[arg-type]  # only pipes were registered
            if self.truncated:
                return
        try:
            self._child.wait(timeout=max(0.0, self._deadline - time.monotonic()))
        except TimeoutExpired:
            self.timed_out = True

    def _transfer(self, pipe: IO[bytes]) -> None:
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
            # The child does not read the rest; its exit code and output say whether that is an error.
            self._drop(pipe)
            return
        if not data:
            self._drop(pipe)
        elif pipe is self._child.stderr:
            # The rest is read and dropped, or the child would block on a full pipe.
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
    """Return the arguments before a command that end it when our thread dies.

    `setpriv` sets PR_SET_PDEATHSIG between fork and exec: a `preexec_fn` would do the same,
    but runs Python in a forked copy of a threaded process, which can deadlock. Without
    setpriv (not Linux, or an old util-linux) a child outlives a killed worker until its own
    output or network fails.
    """
    for directory in ("/usr/bin", "/bin"):
        setpriv = f"{directory}/setpriv"
        if os.access(setpriv, os.X_OK):
            prefix = (setpriv, "--pdeathsig", "KILL", "--")
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(
                    [*prefix, setpriv, "--version"],
                    shell=False, env={}, stdin=DEVNULL, capture_output=True, timeout=10, check=True,
                )  # fmt: skip
                return prefix
    return ()


def _checked(command: Sequence[str]) -> list[str]:
    if isinstance(command, (str, bytes)) or not command:
        raise ValueError("a command is a list of arguments, never a line for a shell")
    if not Path(os.fsdecode(command[0])).is_absolute():
        raise ValueError("a command begins with an absolute path")
    return list(command)


def _unusable(path: Path, why: str) -> PermanentFailure:
    return PermanentFailure(
        ErrorClass.CONFIG_INVALID,
        Component.CONFIGURATION,
        f"the program {path.name} cannot be used: {why}",
        context={"program": str(path)},
    )
