"""PgBouncer in transaction mode: the web server works, workers and migrations refuse it."""

from __future__ import annotations

import pwd
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.db import connection

from reviews.demo import free_port
from reviews.models import ReviewJob
from tests.stack import eventually, running

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
CLIENTS, REQUESTS = 8, 48


@pytest.fixture
def pooler(tmp_path: Path, transactional_db: Any) -> Iterator[int]:
    """PgBouncer with two sessions for all clients; the port."""
    if PGBOUNCER is None:
        pytest.skip("PgBouncer is not installed")
    account = pwd.getpwuid(Path(connection.settings_dict["HOST"]).stat().st_uid)
    port = free_port()
    (tmp_path / "users").write_text('"postgres" ""\n')
    (tmp_path / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={connection.settings_dict['HOST']}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {tmp_path}/users\n"
        "pool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 200\n"
    )
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    with (tmp_path / "pooler.log").open("wb") as log:
        process = subprocess.Popen(
            [PGBOUNCER, str(tmp_path / "pgbouncer.ini")], stdout=log, stderr=log, user=account.pw_uid
        )
    try:
        eventually(lambda: _answers(port), 20)
        yield port
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        _sessions(port)
    except psycopg.OperationalError:
        return False
    return True


def _sessions(port: int) -> int:
    """Return the number of a session of PostgreSQL that the pooler gives to one transaction."""
    name = connection.settings_dict["NAME"]
    with psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname=name, autocommit=True) as own:
        row = own.execute("SELECT pg_backend_pid()").fetchone()
    assert row
    return int(row[0])


@pytest.mark.cluster
def test_the_web_server_works_through_a_pooler(pooler: int, tmp_path: Path) -> None:
    """More clients than sessions meet no error: each transaction takes a free session (G483)."""
    environment = {
        "DATABASE_URL": f"postgres://postgres@127.0.0.1:{pooler}/{connection.settings_dict['NAME']}",
        "DATABASE_POOLER": "transaction",
        "SECRET_KEY": "k" * 64,
        "ARTIFACT_KEYS": Fernet.generate_key().decode(),
    }
    files = tmp_path / "files"
    files.mkdir()
    with running(files, queues=(), with_web=True, environment=environment) as stack, stack.api() as client:

        def post(number: int) -> list[int]:
            body = {"idempotency_key": f"key-{number}", "changelist_id": str(1000 + number)}
            made = client.post("/api/v1/reviews/", json={**body, "recipients": ["mail:ann@example.com"]})
            if made.status_code != 201:
                return [made.status_code]
            again = client.post("/api/v1/reviews/", json={**body, "recipients": ["mail:ann@example.com"]})
            return [made.status_code, again.status_code, client.get(made.json()["links"]["self"]).status_code]

        with ThreadPoolExecutor(CLIENTS) as threads:
            answers = list(threads.map(post, range(REQUESTS)))
        assert answers == [[201, 200, 200]] * REQUESTS, stack.logs()[-3000:]
        assert httpx.get(f"{stack.base_url}/readyz", trust_env=False).json()["reason"] == "workers_missing"
    assert ReviewJob.objects.count() == REQUESTS


@pytest.mark.parametrize(("command", "what"), [("migrate", "migrations"), ("cluster llm", "workers")])
def test_what_needs_sessions_of_its_own_refuses_a_pooler(settings: Any, command: str, what: str) -> None:
    settings.DATABASE_POOLER = "transaction"
    with pytest.raises(CommandError, match=f"{what} need sessions of their own"):
        call_command(*command.split(), skip_checks=True)
