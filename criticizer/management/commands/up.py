"""`manage.py up`: run database, web and workers, or some of them, until Ctrl-C.

They run in the foreground.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from functools import partial

import structlog
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from criticizer.checks import environment as start_checks  # noqa: F401  registers them
from criticizer.db.embedded import EmbeddedError, EmbeddedServer
from criticizer.db.error_hints import refuse_pooler
from criticizer.queue import advisory_locks, outbox
from criticizer.queue.advisory_locks import Lock
from criticizer.redaction import clean
from criticizer.workers.ports import port_problem
from criticizer.workers.supervisor import Supervisor, clusters, url_host, web

log = structlog.get_logger(__name__)

FIRST_LOGIN = "first-login.txt"
WEB = "web"
# Between tries to start the embedded database again.
FIRST_RESTART_WAIT_SECONDS, LONGEST_RESTART_WAIT_SECONDS = 0.5, 5.0


class Command(BaseCommand):
    help = "Run database, web and workers on this machine until Ctrl-C."
    show_login = False
    _restart_wait = FIRST_RESTART_WAIT_SECONDS

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument(
            "--only",
            action="append",
            choices=(WEB, *outbox.queues()),
            help="run this process alone on this machine; repeat it for several (default: all)",
        )
        parser.add_argument(
            "--show-login",
            action="store_true",
            help="print the first password, also where the output is a log",
        )

    def handle(
        self, *, host: str, port: int, only: list[str] | None, show_login: bool, **options: object
    ) -> None:
        self.show_login = show_login
        chosen = frozenset(only or (WEB, *outbox.queues()))
        problem = port_problem(host, port) if WEB in chosen else ""
        if not settings.EMBEDDED_DATABASE:
            if problem := problem or database_problem(connection):
                raise CommandError(problem)
            self._up(None, host, port, chosen)
            return
        server = EmbeddedServer(settings.DATA_DIR)
        with server.held() as is_ours:
            if not is_ours:
                raise CommandError(
                    f"Criticizer already runs on {settings.DATA_DIR}: set another DATA_DIR for a second one."
                )
            if problem:
                raise CommandError(problem)
            try:
                server.start()
                self._up(server, host, port, chosen)
            finally:
                server.stop()

    def _up(self, server: EmbeddedServer | None, host: str, port: int, chosen: frozenset[str]) -> None:
        if chosen != {WEB}:
            refuse_pooler("workers")
        if settings.DATABASE_POOLER == "none":
            call_command("migrate", verbosity=0)
        environment = dict(os.environ)
        if not (environment.get("BASE_URL") or environment.get("BASE_URL_FILE")):
            environment["BASE_URL"] = f"http://{url_host(host)}:{port}"
        self._first_login()
        children = clusters([queue for queue in outbox.queues() if queue in chosen], environment)
        if WEB in chosen:
            children.insert(0, web(host, port, environment))
            address = (environment.get("BASE_URL") or settings.BASE_URL).rstrip("/")
            bound = f"http://{url_host(host)}:{port}"
            served = "" if address == bound else f", served on {bound}"
            self.stdout.write(f"Criticizer runs at {address}/{served}   (Ctrl-C stops it)")
        connections.close_all()
        self._run(Supervisor(children), server)

    def _run(self, supervisor: Supervisor, server: EmbeddedServer | None) -> None:
        stopping = False

        def stop(signum: int, frame: object) -> None:
            nonlocal stopping
            stopping = True

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        try:
            while not stopping:
                supervisor.tick()
                if server and server.postmaster_pid() is None:
                    self._restart(server)
                time.sleep(0.3)
        finally:
            self.stdout.write("Stopping: running work is finished first.")
            supervisor.stop()

    def _restart(self, server: EmbeddedServer) -> None:
        try:
            server.start()
            log.error("database_restarted")
            self._restart_wait = FIRST_RESTART_WAIT_SECONDS
        except EmbeddedError as error:
            log.error("database_not_restarted", error=str(error))
            # At first soon: what is left of a killed server ends by itself.
            time.sleep(self._restart_wait)
            self._restart_wait = min(2 * self._restart_wait, LONGEST_RESTART_WAIT_SECONDS)

    def _first_login(self) -> None:
        """Create the first administrator; show its password on a terminal, else keep it in a file.

        Other output may be a service's log, which other people read; `make up` passes --show-login.
        """
        users = get_user_model()
        with transaction.atomic():
            advisory_locks.take(Lock.FIRST_LOGIN, "")
            if users.objects.exists():
                return
            password = secrets.token_urlsafe(15)
            if self.show_login or self.stdout.isatty():
                shown = f"{password}   (shown once; change it in the admin)"
            else:
                # Before the account: an interrupted start leaves no account with an unknown password.
                file = settings.DATA_DIR / FIRST_LOGIN
                file.unlink(missing_ok=True)
                with open(file, "x", opener=partial(os.open, mode=0o600)) as kept:
                    kept.write(f"{password}\n")
                shown = f"the password in {file}   (change it in the admin and delete the file)"
            users.objects.create_superuser("admin", password=password)
        self.stdout.write(f"First login: admin / {shown}")


def database_problem(database: BaseDatabaseWrapper) -> str:
    """Return why the database cannot be reached and what to do; "" when it can."""
    try:
        database.ensure_connection()
    except OperationalError as error:
        why = clean(" ".join(str(error).split()), 300)
        return f"DATABASE_URL: {why}. Start that PostgreSQL, or correct host, port, name and login."
    return ""
