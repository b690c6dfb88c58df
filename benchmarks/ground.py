"""Ground of every benchmark: a temporary directory with PostgreSQL and Redis in it.

Nothing outside is used or touched: no configured database, no environment of an installation, no service of
the machine. Everything listens on unix sockets or loopback and ends by pid.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figures import say
from criticizer.db.embedded import DATABASE, EmbeddedServer
from criticizer.workers.supervisor import Child, Supervisor

# What survives of the caller's environment; the rest could configure the product.
_KEPT = {"HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "USER", "VIRTUAL_ENV"}

_SETTINGS = {"track_commit_timestamp": "on"}


class CannotRun(Exception):
    """Reason why the benchmark cannot run here; the text says what to do."""


def until(look: Callable[[], bool], seconds: float, what: str, every: float = 0.05) -> None:
    """Wait until `look` is true. Raises CannotRun naming `what` when time is up."""
    end = time.monotonic() + seconds
    while not look():
        if time.monotonic() > end:
            raise CannotRun(f"{what}: not within {seconds:g} s")
        time.sleep(every)


@dataclass
class Ground:
    """PostgreSQL with the product's tables, in `files`. Made by `prepared`."""

    files: Path
    server: EmbeddedServer
    _count: int = 0
    environment: dict[str, str] = field(default_factory=dict)

    def postmaster(self) -> int:
        pid = self.server.postmaster_pid()
        assert pid is not None
        return pid

    def restart(self, **settings: str) -> None:
        """Restart PostgreSQL with other settings beside the product's, once all is on the disk."""
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("CHECKPOINT")
        connection.close()
        self.server.stop("fast")
        self.server = EmbeddedServer(self.files, **_SETTINGS, **settings)
        self.server.start()

    def use_kept(self, name: str) -> None:
        """Point Django at a copy of the migrated database that stays, made or migrated now."""
        from django.core.management import call_command
        from django.db import connection

        connection.close()
        is_there = bool(self._maintain(f"SELECT 1 FROM pg_database WHERE datname = '{name}'"))
        if not is_there:
            self._maintain(f'CREATE DATABASE "{name}" TEMPLATE "{DATABASE}"')
        connection.settings_dict["NAME"] = name
        if is_there:
            call_command("migrate", verbosity=0)

    @contextlib.contextmanager
    def database(self) -> Iterator[dict[str, str]]:
        """Point Django at a fresh copy of the migrated database.

        Yield the environment for processes.
        """
        from django.db import connection

        self._count += 1
        name = f"benchmark_{self._count}"
        before = connection.settings_dict["NAME"]
        connection.close()
        self._maintain(f'CREATE DATABASE "{name}" TEMPLATE "{DATABASE}"')
        connection.settings_dict["NAME"] = name
        try:
            yield {**self.environment, "BENCHMARK_DATABASE": name}
        finally:
            connection.close()
            connection.settings_dict["NAME"] = before
            self._maintain(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _maintain(self, statement: str) -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(
            host=str(self.server.socket_dir), user="postgres", dbname="postgres", autocommit=True
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @contextlib.contextmanager
    def running(self, children: Sequence[Child], *, restarts: bool = False) -> Iterator[list[int]]:
        """Run processes for the duration of the block; yield their pids.

        With `restarts` they are tended as `manage.py up` does: what ends is started again.
        """
        supervisor = Supervisor(list(children), self.files / "logs")
        supervisor.tick()
        is_over = threading.Event()
        tender = threading.Thread(target=_tend, args=(supervisor, is_over), daemon=True)
        if restarts:
            tender.start()
        try:
            yield [child.process.pid for child in children if child.process is not None]
        except BaseException:
            self._show_logs(children)
            raise
        finally:
            is_over.set()
            if restarts:
                tender.join()
            supervisor.stop()

    def _show_logs(self, children: Sequence[Child]) -> None:
        for child in children:
            log = self.files / "logs" / f"{child.name}.log"
            tail = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
            say("\n".join([f"--- {child.name}", *tail]))


def _tend(supervisor: Supervisor, is_over: threading.Event) -> None:
    while not is_over.wait(0.5):
        supervisor.tick()


@contextlib.contextmanager
def prepared(options: Mapping[str, str] | None = None, keep: Path | None = None) -> Iterator[Ground]:
    """Start PostgreSQL, migrate it, set Django up on it; clean up afterwards.

    `options` go into the environment that configures the product. fsync stays on, as in
    production; commit times are kept, because they are what is measured. `keep` is a directory that
    stays, with its data, for another run.
    """
    files = keep or Path(tempfile.mkdtemp(prefix="criticizer-benchmark-"))
    environment = {name: value for name, value in os.environ.items() if name in _KEPT}
    environment |= {
        "CRITICIZER_DATA_DIR": str(files),
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "PYTHONUNBUFFERED": "1",
        "DEPOT_ALLOW_LIST": "//bench/...",
        "LOG_LEVEL": "WARNING",
        "WORKERS": "2",
        **(options or {}),
    }
    os.environ.clear()
    os.environ.update(environment)
    server = EmbeddedServer(files, **_SETTINGS)
    try:
        server.start()
        import django
        from django.core.management import call_command
        from django.db import connection

        django.setup()
        call_command("migrate", verbosity=0)
        connection.close()
        yield Ground(files, server, environment=environment)
    finally:
        # Also one that was restarted with other settings.
        server.stop("fast" if keep else "immediate")
        if keep is None:
            shutil.rmtree(files, ignore_errors=True)


@contextlib.contextmanager
def redis(files: Path) -> Iterator[tuple[str, int]]:
    """Run a Redis of our own (append-only file, synced every second); yield its socket and pid."""
    directory, socket = files / "redis", files / "redis" / "socket"
    directory.mkdir()
    process = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", str(socket), "--dir", str(directory),
         "--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--daemonize", "no"],
        executable=_redis_program(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(socket.exists, 10, "Redis did not start")
        yield str(socket), process.pid
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(directory, ignore_errors=True)


def _redis_program() -> str:
    """Return the server's program, installing it where that can be done. Raises CannotRun."""
    if found := _find_redis():
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say("Installing Redis, the peer's broker ...")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update", "-q"], ["install", "-y", "-q", "redis-tools"]):
            subprocess.run(["apt-get", *arguments], env=quiet, stdout=sys.stderr, check=False, timeout=300)
        if found := _find_redis():
            return found
    raise CannotRun("redis-server is not installed: install it (Debian: apt-get install redis-tools)")


def _find_redis() -> str | None:
    # One program under two names: redis-tools brings it without the service of redis-server.
    return shutil.which("redis-server") or shutil.which("redis-check-rdb")
