"""`manage.py up`: its errors about address and database come before it says where it runs."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection, connections, transaction

from criticizer.management.commands.up import FIRST_LOGIN, Command, database_problem
from criticizer.queue import advisory_locks
from criticizer.queue.advisory_locks import Lock
from criticizer.workers import web_server
from criticizer.workers.ports import port_problem
from criticizer.workers.supervisor import Supervisor, clusters
from tests.stack import eventually


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


@pytest.mark.long
def test_a_taken_port_is_a_sentence_and_nothing_was_started(tmp_path: Path, taken: int) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "CRITICIZER_DATA_DIR": str(tmp_path),
        "DEPOT_ALLOW_LIST": "//depot/main/...",
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "up", "--port", str(taken)],
        cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"port {taken} of 127.0.0.1 is taken by another program" in done.stderr
    assert "PORT=" in done.stderr
    assert "Criticizer runs at" not in done.stdout
    assert not (tmp_path / "postgres").exists()


def test_a_free_port_is_no_problem_also_while_old_connections_linger(taken: int) -> None:
    assert port_problem("127.0.0.1", taken)
    own = "127.83.0.1"  # of this machine, and given to no other program that asks for a free port
    with socket.create_server((own, 0)) as server:
        port = int(server.getsockname()[1])
        client = socket.create_connection((own, port))
        accepted, _ = server.accept()
    accepted.close()  # closed here first: this side's connection lingers
    client.close()
    assert port_problem(own, port) == ""


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("127.0.0.1", 0, "is not a port"),
        ("127.0.0.1", 70_000, "is not a port"),
        ("192.0.2.1", 8000, "'192.0.2.1' is not an address of this machine"),
    ],
)
def test_what_can_be_no_place_to_listen_is_said(host: str, port: int, words: str) -> None:
    assert words in port_problem(host, port)


_SERVE = """
import sys
from django.core.management import call_command
from criticizer.workers import web_server
def serve(*given):
    before = set(sys.modules)
    from django.urls import resolve
    resolve("/")
    print(given[-1].__module__, given[-1].__name__)
    print("LATE", sorted(set(sys.modules) - before))
web_server.serve = serve
import django; django.setup()
call_command("web", port=0, skip_checks=True)
"""


@pytest.mark.long
def test_pages_are_loaded_before_the_first_requests() -> None:
    """Threads that load pages at once find modules half loaded: first requests got a 500."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    done = subprocess.run(
        [sys.executable, "-c", _SERVE], cwd=settings.BASE_DIR, env=environment, capture_output=True,
        text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["reviews.intake.kept_requests watch", "LATE []"]


_BACKGROUND = """
import os, signal
from criticizer.workers import web_server
parent = os.getpid()
def background():
    print("child of the parent:", os.getppid() == parent, flush=True)
    os.kill(parent, signal.SIGTERM)
web_server.serve(lambda environ, start: [], web_server.listen("127.0.0.1", 0), 1, 1, None, background)
"""


def test_each_web_process_runs_a_background_thread() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BACKGROUND], cwd=settings.BASE_DIR, capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == "child of the parent: True\n"


@pytest.mark.parametrize(("host", "family"), [("::1", socket.AF_INET6), ("127.0.0.1", socket.AF_INET)])
def test_the_web_server_listens_where_it_is_told(host: str, family: socket.AddressFamily) -> None:
    with web_server.listen(host, 0) as listening:
        assert (listening.family, listening.getsockname()[0]) == (family, host)


@pytest.mark.django_db
@pytest.mark.parametrize(("is_terminal", "show_login"), [(True, False), (False, True), (False, False)])
def test_the_first_password_is_shown_on_a_terminal_and_else_kept_in_a_file(
    tmp_path: Path, settings: Any, is_terminal: bool, show_login: bool
) -> None:
    settings.DATA_DIR = tmp_path
    out = io.StringIO()
    out.isatty = lambda: is_terminal  # type: ignore[method-assign]
    for _ in range(2):  # the second time there is an account
        command = Command(stdout=out)
        command.show_login = show_login
        command._first_login()
    said, file = out.getvalue(), tmp_path / FIRST_LOGIN
    assert said.count("First login: admin / ") == 1
    admin = get_user_model().objects.get()
    if is_terminal or show_login:
        assert admin.check_password(said.split()[4])
        assert not file.exists()
    else:
        password = file.read_text().strip()
        assert admin.check_password(password)
        assert str(file) in said
        assert password not in said
        assert file.stat().st_mode & 0o777 == 0o600


def in_thread(work: Callable[[], object]) -> threading.Thread:
    """Run `work` in a thread with a connection of its own."""

    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.django_db(transaction=True)
def test_machines_that_start_together_create_one_first_account(tmp_path: Path, settings: Any) -> None:
    """The second machine neither fails nor leaves a password that is not valid (G481)."""
    settings.DATA_DIR = tmp_path
    out = io.StringIO()
    with transaction.atomic():  # the first machine, before its commit
        advisory_locks.take(Lock.FIRST_LOGIN, "")
        get_user_model().objects.create_superuser("admin", password="of the first machine")
        second = in_thread(Command(stdout=out)._first_login)
        second.join(0.5)
        assert second.is_alive()
    second.join(20)
    assert not second.is_alive()
    assert get_user_model().objects.get().check_password("of the first machine")
    assert out.getvalue() == ""
    assert not (tmp_path / FIRST_LOGIN).exists()


@pytest.mark.django_db(transaction=True)
def test_machines_that_start_together_migrate_one_after_another() -> None:
    """One machine runs a migration; the other says that it waits, and finds it done (G481)."""
    said = io.StringIO()
    with advisory_locks.awaited(Lock.MIGRATE):
        second = in_thread(lambda: call_command("migrate", verbosity=0, stderr=said))
        eventually(said.getvalue)
        second.join(4 * advisory_locks._POLL_SECONDS)  # it says it once
        assert second.is_alive()
    second.join(60)
    holder = connection.connection.info.backend_pid
    assert said.getvalue().count("waits for another migration, on the machine of the database since ") == 1
    assert f"(database session {holder})." in said.getvalue()
    assert not second.is_alive()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("only", "names"),
    [
        (None, ["web", "cluster-llm", "cluster-notify", "cluster-stages"]),
        (["llm"], ["cluster-llm"]),
        (["web", "notify"], ["web", "cluster-notify"]),
    ],
)
def test_a_machine_runs_what_it_is_told_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path, only: list[str] | None, names: list[str]
) -> None:
    settings.EMBEDDED_DATABASE, settings.DATA_DIR = False, tmp_path
    ran: list[str] = []

    def run(command: Command, supervisor: Supervisor, server: object) -> None:
        ran.extend(child.name for child in supervisor.children)

    monkeypatch.setattr(Command, "_run", run)
    monkeypatch.setattr(connections, "close_all", lambda: None)  # the test's own connection
    call_command(Command(), host="127.0.0.1", port=1024, only=only, show_login=False)
    assert ran == names


def test_what_up_has_checked_its_workers_do_not_say_again() -> None:
    for child in clusters(["llm", "stages"], {}):
        assert "--skip-checks" in child.command


@pytest.mark.django_db
def test_a_database_that_is_not_there_is_named_with_what_to_do() -> None:
    assert database_problem(connection) == ""
    away = connection.copy()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        away.settings_dict |= {"HOST": "127.0.0.1", "PORT": taken.getsockname()[1], "PASSWORD": "hunter2pw"}
        said = database_problem(away)
    assert said.startswith("DATABASE_URL: ")
    assert "Connection refused" in said
    assert said.endswith("Start that PostgreSQL, or correct host, port, name and login.")
    assert "hunter2pw" not in said
