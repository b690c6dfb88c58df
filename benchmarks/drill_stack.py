"""Installation of the drill: `manage.py up` in a directory of its own.

The drill stands outside: it starts one process, finds the others as its children, reads the database with a
connection of its own, and signals only what descends from the process it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg

from benchmarks.drill_schedule import QUEUES
from benchmarks.figures import say
from benchmarks.ground import CannotRun, until
from criticizer.db.embedded import EmbeddedServer, django_settings
from criticizer.workers.supervisor import STOP_SECONDS, manage

KEPT = {"HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "USER", "VIRTUAL_ENV"}
ROLES = ("pusher", "monitor", "worker")
_BASE = Path(__file__).resolve().parent.parent


@dataclass
class Installation:
    """A running `manage.py up`. `environment` configures the product."""

    files: Path
    port: int
    environment: Mapping[str, str]
    _up: subprocess.Popen[bytes] | None = None
    _names: dict[int, str] = field(default_factory=dict)  # pid -> name
    _read: int = 0  # of the log
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.server = EmbeddedServer(self.files)
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.log = self.files / "up.log"

    # -- as a whole ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and wait until it is ready. Raises CannotRun."""
        with self.log.open("ab") as log:
            self._up = subprocess.Popen(
                manage("up", "--port", str(self.port)),
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._is_ready, 120, f"the installation is not ready; see {self.log}", every=0.2)

    def _is_ready(self) -> bool:
        assert self._up is not None
        if self._up.poll() is not None:
            raise CannotRun(f"manage.py up ended with {self._up.returncode}; see {self.log}")
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.base_url}/readyz", trust_env=False, timeout=5).status_code == 200
        return False

    def stop(self) -> None:
        """Stop as an operator does; whatever is left of it afterwards is killed."""
        if self._up is None:
            return
        family = [psutil.Process(pid) for pid in self._family()]
        self._up.send_signal(signal.SIGCONT)
        self._up.terminate()
        try:
            self._up.wait(STOP_SECONDS + 20)
        except subprocess.TimeoutExpired:
            say("drill: the installation does not stop: killed")
            self._up.kill()
            self._up.wait()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(Exception):
            self.server.stop("immediate")
        self._up = None

    def kill(self) -> None:
        """End all processes at once, as a power cut does; the database is the caller's."""
        assert self._up is not None
        family = [psutil.Process(pid) for pid in self._family()]
        self._up.kill()  # first: it starts others again
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._up.wait()
        self._up = None

    def _family(self) -> list[int]:
        assert self._up is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            return [process.pid for process in psutil.Process(self._up.pid).children(recursive=True)]
        return []

    def manage(self, *arguments: str) -> str:
        """Run a management command and return what it prints."""
        done = subprocess.run(
            manage(*arguments), env=dict(self.environment), stdout=subprocess.PIPE, check=True, timeout=120
        )
        return done.stdout.decode().strip()

    @property
    def addresses(self) -> tuple[str]:
        return (self.base_url,)

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection to the database: autocommit. Raises psycopg.OperationalError."""
        return psycopg.connect(
            host=str(django_settings(self.files)["HOST"]),
            user="postgres",
            dbname="criticizer",
            autocommit=True,
            connect_timeout=5,
        )

    # -- processes ----------------------------------------------------------------------------

    def heads(self) -> dict[str, psutil.Process]:
        """Return the children of `up` by name: `web` and the queues."""
        assert self._up is not None
        found: dict[str, psutil.Process] = {}
        with contextlib.suppress(psutil.NoSuchProcess), self._lock:
            self._read_names()
            for child in psutil.Process(self._up.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    name = self._names.get(child.pid)
                    if name and child.status() != psutil.STATUS_ZOMBIE:
                        found[name] = child
        return found

    def _read_names(self) -> None:
        """Learn which process is which from the supervisor's log: clusters rename themselves alike."""
        with self.log.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                if b'"process_started"' in line:
                    event = json.loads(line)
                    self._names[event["pid"]] = event["process"].removeprefix("cluster-")

    def sentinel(self, queue: str) -> psutil.Process | None:
        head = self.heads().get(queue)
        with contextlib.suppress(psutil.NoSuchProcess):
            children = head.children() if head else []
            return children[0] if children else None
        return None

    def of_role(self, queue: str, role: str) -> list[psutil.Process]:
        """Return the living processes of a role in a cluster.

        A role is pusher, monitor, idle, processing or worker.
        """
        wanted = {"idle", "processing"} if role == "worker" else {role}
        found = []
        sentinel = self.sentinel(queue)
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in sentinel.children() if sentinel else []:
                with contextlib.suppress(psutil.NoSuchProcess):
                    if wanted & set(" ".join(child.cmdline()).split()):
                        found.append(child)
        return found

    def web_workers(self) -> list[psutil.Process]:
        head = self.heads().get("web")
        with contextlib.suppress(psutil.NoSuchProcess):
            return head.children() if head else []
        return []

    def web_answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.base_url}/livez", trust_env=False, timeout=2).status_code == 200
        return False

    def missing(self) -> list[str]:
        """Return the roles that no living process has."""
        found = [f"{role} of {queue}" for queue in QUEUES for role in ROLES if not self.of_role(queue, role)]
        return found if self.web_answers() else [*found, "web"]

    # -- database -----------------------------------------------------------------------------

    def kill_postgres(self) -> None:
        pid = self.server.postmaster_pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def stop_postgres(self, seconds: float) -> None:
        """Keep the database down for `seconds`.

        The supervisor, which would start it again, is stopped for as long.
        """
        assert self._up is not None
        self._up.send_signal(signal.SIGSTOP)
        try:
            self.server.stop("immediate")
            time.sleep(seconds)
        finally:
            self._up.send_signal(signal.SIGCONT)


def api_keys(manage_py: Callable[..., str]) -> tuple[str, str]:
    """Make the keys of the requests and of the flood. `manage_py` runs a management command."""
    first, second = (
        manage_py("create_api_key", "--name", name, "--role", "trigger") for name in ("drill", "flood")
    )
    return first, second


def environment(files: Path, repository: Path, options: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the product: nothing of the caller's that could configure it."""
    return {
        **{name: value for name, value in os.environ.items() if name in KEPT},
        "PYTHONPATH": str(_BASE),
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "benchmarks.drill_settings",
        "CRITICIZER_DATA_DIR": str(files),
        "CHANGE_SOURCES": "git",
        "GIT_REPOSITORIES": f"drill={repository}",
        "DEPOT_ALLOW_LIST": "//drill/...,//github/...,//gitea/...,//gitlab/...",
        "OUTBOUND_ALLOW": "127.0.0.0/8",
        "API_THROTTLE": "1000000/min",
        "WORKERS": "2",
        "LOG_LEVEL": "INFO",
        **options,
    }


def make_commits(repository: Path, count: int) -> list[str]:
    """Make a git repository of small commits; return their ids, oldest first."""
    script = [b"feature done\n"]
    for number in range(count):
        text = f"def answer_{number}():\n    return {number}\n".encode()
        notes = f"Change {number}\n".encode()
        message = f"Change {number}".encode()
        script.append(
            b"commit refs/heads/main\n"
            + b"committer Ann <ann@example.com> %d +0000\n" % (1_700_000_000 + number)
            + b"data %d\n%s\n" % (len(message), message)
            + b"M 644 inline app_%d.py\ndata %d\n%s\n" % (number % 20, len(text), text)
            + b"M 644 inline NOTES.md\ndata %d\n%s\n" % (len(notes), notes)
        )
    script.append(b"done\n")
    git = ["git", "-C", str(repository)]
    repository.mkdir(parents=True)
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True, stdout=sys.stderr)
    subprocess.run([*git, "fast-import", "--quiet"], input=b"".join(script), check=True)
    found = subprocess.run(
        [*git, "rev-list", "--reverse", "main"], check=True, stdout=subprocess.PIPE, text=True
    )
    return found.stdout.split()
