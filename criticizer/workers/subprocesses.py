"""The one door to other programs: no other module imports `subprocess` (specification 001, 9.2).

A program is a list of arguments with an absolute path in front. There is no shell, no search
along PATH and no inherited environment: what a child knows, its caller said.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from subprocess import DEVNULL, PIPE, TimeoutExpired
from typing import IO, Any, TypeAlias

Process: TypeAlias = subprocess.Popen[bytes]
Command: TypeAlias = Sequence[str] | Sequence[bytes]
Stream: TypeAlias = int | IO[bytes] | None


def start(
    command: Command,
    *,
    environment: Mapping[str, str],
    stdin: Stream = DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
    cwd: str | PathLike[str] | None = None,
) -> Process:
    """Start a program in a session and process group of its own; None as a stream inherits ours.

    Raises ValueError for a command that is not a list with an absolute path in front, OSError
    when the program cannot be started.
    """
    return subprocess.Popen(
        _checked(command),
        shell=False,
        env=dict(environment),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        start_new_session=True,
        bufsize=0,
    )


def run(
    command: Command,
    *,
    environment: Mapping[str, str],
    timeout_seconds: float,
    cwd: str | PathLike[str] | None = None,
    account: Mapping[str, Any] | None = None,
) -> tuple[int, str, str]:
    """Run a trusted program to its end and return exit status, standard output and standard error.

    For our own short helpers only: the output is not bounded. `account` holds `user`, `group`
    and `extra_groups` when the program is to run as another one. Raises what `start` does, and
    TimeoutExpired.
    """
    done = subprocess.run(
        _checked(command),
        shell=False,
        env=dict(environment),
        stdin=DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_seconds,
        cwd=cwd,
        check=False,
        **(account or {}),
    )
    return done.returncode, done.stdout, done.stderr


def _checked(command: Command) -> list[str] | list[bytes]:
    if isinstance(command, (str, bytes)) or not command:
        raise ValueError("a command is a list of arguments, never a line for a shell")
    program = command[0]
    if not Path(program.decode() if isinstance(program, bytes) else program).is_absolute():
        raise ValueError("a command begins with an absolute path")
    return list(command)  # type: ignore[return-value]  # all text or all bytes, as it came


__all__ = ["DEVNULL", "PIPE", "Command", "Process", "TimeoutExpired", "run", "start"]
