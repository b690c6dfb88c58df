"""Real web and worker processes on the test's own database."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
from django.core.management import call_command
from django.db import connection

from criticizer.queue import outbox
from criticizer.workers.supervisor import Child, Supervisor, clusters, web
from reviews.demo import free_port

T = TypeVar("T")


PATIENCE_SECONDS = 300.0  # for what takes some seconds on an idle machine


def eventually(look: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """Return the first true answer of `look`; fail with the last one when time is up."""
    until = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {found!r}")
        time.sleep(0.05)


def process_environment(files: Path, **further: str) -> dict[str, str]:
    """Return the environment of a process that works on the database of the running tests."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("CRITICIZER_CLUSTER")
    }
    return {
        **inherited,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "CRITICIZER_TEST_DATABASE": str(connection.settings_dict["NAME"]),
        "TEST_FILES_DIR": str(files),
        **further,
    }


@dataclass
class Stack:
    """The processes of one installation, kept alive by the product's own supervisor."""

    files: Path
    environment: dict[str, str] = field(default_factory=dict)
    queues: Sequence[str] = field(default_factory=outbox.queues)
    with_web: bool = False

    def __post_init__(self) -> None:
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        given = {"BASE_URL": self.base_url, "WORKERS": "2", **self.environment}
        environment = process_environment(self.files, **given)
        children = clusters(self.queues, environment)
        if self.with_web:
            children.append(web("127.0.0.1", self.port, environment))
        self.supervisor = Supervisor(children, self.files / "logs")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._tend, daemon=True)

    def _tend(self) -> None:
        while not self._stopping.wait(0.1):
            self.supervisor.tick()

    def start(self) -> None:
        self.supervisor.tick()
        self._thread.start()
        for queue in self.queues:
            eventually(lambda queue=queue: self.named(queue, "pusher"))
        if self.with_web:
            eventually(self._web_answers)

    def _web_answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.base_url}/livez", trust_env=False).status_code == 200
        return False

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.supervisor.stop()

    def child(self, name: str) -> Child:
        return next(child for child in self.supervisor.children if child.name == name)

    def logs(self) -> str:
        return "\n".join(
            path.read_text(errors="replace") for path in sorted((self.files / "logs").glob("*.log"))
        )

    # -- processes of a cluster, by role ------------------------------------------------------

    def main(self, queue: str) -> psutil.Process:
        process = self.child(f"cluster-{queue}").process
        assert process is not None
        return psutil.Process(process.pid)

    def sentinel(self, queue: str) -> psutil.Process:
        return self.main(queue).children()[0]

    def named(self, queue: str, role: str) -> list[psutil.Process]:
        """Return the processes of a role: pusher, monitor, idle or processing."""
        try:
            return [
                process
                for process in self.sentinel(queue).children()
                if role in " ".join(process.cmdline()).split()
            ]
        except (psutil.NoSuchProcess, IndexError, AssertionError, StopIteration):
            return []

    def kill(self, process: psutil.Process) -> None:
        os.kill(process.pid, signal.SIGKILL)

    def api(self, role: str = "trigger") -> httpx.Client:
        """Return a client of the API with a key of its own."""
        import io

        out = io.StringIO()
        call_command(
            "create_api_key", name=f"test-{role}-{free_port()}", role=role, stdout=out, stderr=io.StringIO()
        )
        return httpx.Client(
            base_url=self.base_url,
            headers={"Authorization": f"Bearer {out.getvalue().strip()}"},
            trust_env=False,
            timeout=30,
        )


@contextlib.contextmanager
def running(files: Path, **options: Any) -> Iterator[Stack]:
    """Start a stack, stop it afterwards, and show its logs when the test fails."""
    stack = Stack(files, **options)
    try:
        stack.start()
        yield stack
    except BaseException:
        print(stack.logs()[-20_000:])
        raise
    finally:
        stack.stop()


@contextlib.contextmanager
def web_of_module(directories: Any, blocker: Any, **environment: str) -> Iterator[Stack]:
    """Run the web server without workers for a fixture that serves a whole module.

    `directories` and `blocker` are the fixtures `tmp_path_factory` and `django_db_blocker`.
    """
    files = directories.mktemp("web")
    with blocker.unblock(), running(files, environment=environment, queues=(), with_web=True) as made:
        yield made


def git_repository(path: Path, commits: int = 1, name: str = "demo") -> list[str]:
    """Make a git repository and return its commit ids, oldest first."""
    import subprocess

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(path), "-c", "user.name=Ann", "-c", "user.email=ann@example.com", *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    path.mkdir(parents=True, exist_ok=True)
    git("init", "-q", "-b", "main")
    ids = []
    for number in range(commits):
        (path / "app.py").write_text(f"def answer():\n    return {number}\n")
        (path / "README.md").write_text(f"# Demo {number}\n")
        git("add", "-A")
        git("commit", "-q", "-m", f"Change {number}")
        ids.append(git("rev-parse", "HEAD"))
    return ids
