"""Failover from a killed primary to its standby, under a process that knows both by its URL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from cryptography.fernet import Fernet

from criticizer.db import timeline
from criticizer.db.embedded import DATABASE, OWNER, ROLE, EmbeddedServer

_CLIENTS = "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"

# One process: it adds a row per line that it reads and says where it did, and hears of each by LISTEN.
_PROCESS = """
import sys, django
django.setup()
from django.db import connection
from criticizer.db import reconnect
from criticizer.queue.broker import OutboxBroker
from criticizer.queue import outbox

broker = OutboxBroker("failover")

def add(row):
    def work():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO work VALUES (%s) ON CONFLICT DO NOTHING", [row])
            cursor.execute("SELECT inet_server_port()")
            return cursor.fetchone()[0]
    return reconnect.with_retries(work, waits=[30] * 4)

def listens():
    # As `dequeue` does: the connection is dropped after an error, and opened by the next try.
    for _ in range(600):
        try:
            broker._open().execute("SELECT 1")
            return
        except Exception:
            broker._disconnect()
    raise SystemExit("no connection to listen on")

for line in sys.stdin:
    port = add(int(line))
    listens()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [outbox.channel("failover"), line.strip()])
    heard = [item.payload for item in broker._open().notifies(timeout=30, stop_after=1)]
    print("done", port, *heard, flush=True)
"""


class Server:
    """A PostgreSQL on a port of 127.0.0.1, from the embedded server's binaries."""

    def __init__(self, directory: Path) -> None:
        self.embedded = EmbeddedServer(directory)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    def start(self, **settings: str) -> None:
        directory = self.embedded.cluster_dir
        (directory / "pg_hba.conf").write_text(_CLIENTS)
        self.embedded._drop_root()
        options = {
            **self.embedded.settings,
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            **settings,
        }
        given = " ".join(f"-c {name}='{value}'" for name, value in options.items())
        self._control("-w", "-l", str(self.embedded.log), "-o", given, "start")

    def promote(self) -> None:
        self._control("-w", "promote")

    def _control(self, *arguments: str) -> None:
        status, output = self.embedded._run("pg_ctl", "-D", str(self.embedded.cluster_dir), *arguments)
        assert status == 0, output + self.embedded.log.read_text()[-1000:]

    def ask(self, query: str) -> Any:
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user=OWNER, dbname=DATABASE, autocommit=True
        ) as connection:
            cursor = connection.execute(query)
            return cursor.fetchall() if cursor.description else None

    def kill(self) -> None:
        pid = self.embedded.postmaster_pid()
        assert pid
        backends = psutil.Process(pid).children()
        os.kill(pid, signal.SIGKILL)
        psutil.wait_procs(backends, 60)  # one that has not noticed yet still commits


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A primary and the standby that streams from it."""
    primary, standby = Server(tmp_path / "one"), Server(tmp_path / "two")
    primary.embedded.start()
    primary.embedded.stop()
    standby.embedded.data_dir.mkdir()
    subprocess.run(
        ["cp", "-a", str(primary.embedded.cluster_dir), str(standby.embedded.cluster_dir)], check=True
    )
    (standby.embedded.cluster_dir / "standby.signal").touch()
    try:
        primary.start()
        standby.start(primary_conninfo=f"host=127.0.0.1 port={primary.port} user={OWNER}")
        primary.ask(f'CREATE TABLE work (id int PRIMARY KEY); GRANT ALL ON work TO "{ROLE}"')
        yield primary, standby
    finally:
        for server in (primary, standby):
            server.embedded.stop("immediate")
            shutil.rmtree(server.embedded.data_dir, ignore_errors=True)


def until(is_so: Any) -> None:
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen in a minute")


def test_one_process_goes_on_at_the_promoted_standby(pair: tuple[Server, Server], tmp_path: Path) -> None:
    """One process adds rows and hears notifications before and after the failover (G480)."""
    primary, standby = pair
    # First one that never answers, as if its machine had vanished; then the standby. Both are passed by.
    silent = socket.create_server(("127.0.0.1", 0))
    hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{standby.port},127.0.0.1:{primary.port}"
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "DJANGO_SETTINGS_MODULE": "criticizer.settings",
        "CRITICIZER_DATA_DIR": str(tmp_path / "data"),
        "DATABASE_URL": f"postgres://{ROLE}@{hosts}/{DATABASE}?connect_timeout=120",
        "SECRET_KEY": "k" * 64,
        "ARTIFACT_KEYS": Fernet.generate_key().decode(),
        "BASE_URL": "http://127.0.0.1:8000",
        "CHANGE_SOURCES": "perforce",
        "DEPOT_ALLOW_LIST": "//depot/main/...",
        "LLM_PROVIDER": "none",
    }
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROCESS], env=environment, cwd=tmp_path, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    assert process.stdin
    assert process.stdout

    def answer() -> str:
        line = next((line for line in process.stdout or () if line.startswith("done")), "")
        return line.strip() or (tmp_path / "errors").read_text()[-2000:]

    try:
        process.stdin.write("1\n")
        assert answer() == f"done {primary.port} 1"
        until(lambda: standby.ask("SELECT id FROM work") == [(1,)])
        ((before, system),) = primary.ask(timeline.READ)

        primary.kill()
        process.stdin.write("2\n")  # nobody takes writes now
        until(lambda: "database_reconnect" in (tmp_path / "errors").read_text())
        standby.promote()

        assert answer() == f"done {standby.port} 2"
        assert standby.ask("SELECT id FROM work ORDER BY id") == [(1,), (2,)]
        assert standby.ask(timeline.READ) == [(before + 1, system)]
        ((last,),) = standby.ask(timeline.LAST)
        assert last is not None
    finally:
        process.kill()
        process.communicate()
        silent.close()
