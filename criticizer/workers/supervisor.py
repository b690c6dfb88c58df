"""Supervisor of the processes of one machine: web server and worker clusters.

Each child runs in a process group of its own and is started again when it ends: at once the first
time, at growing intervals when it keeps ending. SIGTERM drains them in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import structlog

from criticizer.environment import CODE_DIR, IS_CHECKOUT
from criticizer.queue.outbox import scaled
from criticizer.workers import subprocesses

log = structlog.get_logger(__name__)

STABLE_SECONDS = 30.0  # after so long the next death counts as the first again
MAX_WAIT_SECONDS = 10.0
STOP_SECONDS = 40.0  # longer than a drain


@dataclass
class Child:
    """One supervised process."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    process: subprocesses.Process | None = None
    started_at: float = 0.0
    start_at: float = 0.0
    deaths: int = 0

    def wait_seconds(self) -> float:
        """Return the wait before the next start, after `deaths` quick deaths."""
        return 0.0 if self.deaths <= 1 else scaled(min(MAX_WAIT_SECONDS, 0.5 * 2.0 ** (self.deaths - 2)))


@dataclass
class Supervisor:
    """Runs `children` until `stop`. `output` receives what they print (None: inherit)."""

    children: list[Child]
    output: Path | None = None
    _streams: dict[str, IO[bytes]] = field(default_factory=dict)

    def _stream(self, name: str) -> IO[bytes] | None:
        if self.output is None:
            return None
        if name not in self._streams:
            self.output.mkdir(parents=True, exist_ok=True)
            self._streams[name] = (self.output / f"{name}.log").open("ab")
        return self._streams[name]

    def tick(self) -> None:
        """Start children that are due. Call it about twice a second."""
        now = time.monotonic()
        for child in self.children:
            if child.process is not None and child.process.poll() is not None:
                lived = now - child.started_at
                child.deaths = 1 if lived > scaled(STABLE_SECONDS) else child.deaths + 1
                child.start_at = now + child.wait_seconds()
                log.error(
                    "process_ended",
                    process=child.name,
                    status=child.process.returncode,
                    lived=round(lived, 1),
                )
                child.process = None
            if child.process is None and now >= child.start_at:
                child.process = subprocesses.start(
                    child.command,
                    environment=child.environment,
                    stdout=self._stream(child.name),
                    stderr=self._stream(child.name),
                )
                child.started_at = now
                log.info("process_started", process=child.name, pid=child.process.pid)

    def stop(self) -> None:
        """Let every child finish its work, then kill those that do not end."""
        running = [child.process for child in self.children if child.process is not None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for process in running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocesses.TimeoutExpired:
                log.error("process_killed", pid=process.pid)
            # Processes that the leader left in its group end too.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for child in self.children:
            child.process = None
        for stream in self._streams.values():
            stream.close()


def manage(*arguments: str) -> list[str]:
    """Return the command line of a management command."""
    # -P: modules in the working directory of an installed package are not imported.
    program = [str(CODE_DIR / "manage.py")] if IS_CHECKOUT else ["-P", "-m", "criticizer"]
    return [sys.executable, *program, *arguments]


def clusters(queues: Sequence[str], environment: Mapping[str, str]) -> list[Child]:
    """Return the worker clusters, one per queue. The caller has run the system checks."""
    return [
        Child(
            f"cluster-{queue}",
            manage("cluster", queue, "--skip-checks"),
            {**environment, "Q_CLUSTER_NAME": queue},
        )
        for queue in queues
    ]


def url_host(host: str) -> str:
    """Return a host for a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def web(host: str, port: int, environment: Mapping[str, str]) -> Child:
    """Return the web server. The caller has run the system checks."""
    return Child("web", manage("web", "--host", host, "--port", str(port), "--skip-checks"), environment)
