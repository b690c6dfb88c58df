"""Database of the cluster drill: a primary and its streaming standby on two machines.

The drill is the operator of the pair: it promotes the standby of a dead primary, and makes the machine that
comes back a standby of the new one. With synchronous replication a primary waits for its standby from the
moment on at which that one streams; a promoted standby is alone, and waits for none, until then.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.cluster_network import NETWORK, Machine
from benchmarks.figures import say
from benchmarks.ground import CannotRun, until
from criticizer.db.embedded import DATABASE, OWNER, ROLE, EmbeddedServer

PORT = 5432
_FOLLOWERS = """
SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND application_name = 'walreceiver'"""
COPY_SECONDS = 180.0
RECONNECT_SECONDS = 20.0  # for a standby that does not stream: it may be connecting again
TRIES = 4  # to make a standby
BEHIND_SECONDS = 3.0  # an asynchronous standby, when the primary dies
_CLIENTS = (
    f"host all all {NETWORK}.0/24 trust\nhost replication all {NETWORK}.0/24 trust\nlocal all all trust\n"
)
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
_SETTINGS = {
    "listen_addresses": "*",
    "max_connections": "400",
    "unix_socket_directories": "",
    "wal_sender_timeout": "3s",
    "wal_receiver_timeout": "3s",
    "wal_retrieve_retry_interval": "500ms",
    "hot_standby_feedback": "on",
    "log_min_messages": "fatal",
    "idle_in_transaction_session_timeout": "5min",
}


@dataclass(frozen=True, slots=True)
class Lost:
    """Committed transactions that a promotion left behind, and the requests among them."""

    transactions: int
    keys: frozenset[str]


@dataclass
class Server:
    """One PostgreSQL on one machine, from the embedded server's binaries."""

    machine: Machine
    directory: Path
    embedded: EmbeddedServer = field(init=False)

    def __post_init__(self) -> None:
        self.embedded = EmbeddedServer(self.directory)
        self.data = self.embedded.cluster_dir
        self._host = self.machine.address

    def _account(self) -> int:
        self.embedded._drop_root()
        return int(self.embedded._as_account.get("user", 0))

    def run(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [self.embedded._binary(name), *arguments]
        with (self.directory / "log").open("ab") as log:
            return self.machine.start(command, _ENVIRONMENT, log, self._account())

    def start(self, *, alone: bool = False) -> None:
        """Start the server and wait until it answers. Raises CannotRun.

        With `alone` it listens on no address: only the drill reaches it, through its files.
        """
        # Left by a power cut: on a machine that was off, its process number is another process's.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        (self.data / "pg_hba.conf").write_text("local all all trust\n" if alone else _CLIENTS)
        settings = dict(_SETTINGS)
        if alone:
            settings |= {"listen_addresses": "", "unix_socket_directories": str(self.data)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self.run("postgres", "-D", str(self.data), *options)
        self._host = str(self.data) if alone else self.machine.address
        until(
            self.answers, 60, f"PostgreSQL on {self.machine.name} does not answer; see {self.directory}/log"
        )

    def answers(self) -> bool:
        try:
            self.ask("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def ask(self, query: str) -> list[Any]:
        with psycopg.connect(
            host=self._host, port=PORT, user=OWNER, dbname=DATABASE, autocommit=True,
            connect_timeout=2,
        ) as connection:  # fmt: skip
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def copy_from(self, primary: Server) -> None:
        """Become a copy of `primary` that follows it."""
        shutil.rmtree(self.data, ignore_errors=True)
        # A busy machine writes slowly: the primary must not take that for an end.
        source = (
            f"host={primary.machine.address} port={PORT} user={OWNER} options='-c wal_sender_timeout=60s'"
        )
        # Without --no-sync it waits for the disk: no machine here loses what the kernel has.
        copying = self.run(
            "pg_basebackup", "-d", source, "-D", str(self.data), "-R", "-X", "stream", "-c", "fast",
            "--no-sync",
        )  # fmt: skip
        try:
            status = copying.wait(COPY_SECONDS)
        except subprocess.TimeoutExpired:
            status = "no status in time"
        if status != 0:
            raise CannotRun(f"pg_basebackup ended with {status}; see {self.directory}/log")


@dataclass
class Pair:
    """A primary and its standby. `is_synchronous`: a commit waits for the standby."""

    primary: Server
    standby: Server
    is_synchronous: bool
    promotions: list[float] = field(default_factory=list)  # seconds of the epoch
    losses: list[float] = field(default_factory=list)  # when a primary was lost, the same
    lost: list[Lost] = field(default_factory=list)

    @property
    def servers(self) -> tuple[Server, Server]:
        """Return both, in the order of their machines."""
        first, second = sorted((self.primary, self.standby), key=lambda server: server.machine.number)
        return first, second

    def start(self) -> None:
        """Create the primary, and the standby from it."""
        self.primary.embedded.start()
        self.primary.embedded.stop()
        for server in self.servers:
            server.machine.switch_on()
        self.primary.start()
        self.mend()

    def mend(self) -> None:
        """Make the standby follow the primary, on an empty machine, where it does not.

        Raises CannotRun.
        """
        for turn in range(TRIES):
            if self.is_whole():
                return
            try:
                self.standby.machine.switch_off()
                self.standby.machine.switch_on()
                self._follow()
            except (CannotRun, psycopg.Error) as error:
                say(f"drill: {self.standby.machine.name} does not follow, try {turn + 1}: {error}")
        raise CannotRun(f"{self.standby.machine.name} could not be made a standby")

    def is_whole(self) -> bool:
        """Return whether the standby streams from the primary."""
        try:
            return bool(self.primary.ask(_FOLLOWERS))
        except psycopg.OperationalError:
            return False

    def _follow(self) -> None:
        """Make the standby follow the primary; then commits wait for it, if they are to."""
        self.standby.directory.mkdir(exist_ok=True)
        self.standby.copy_from(self.primary)
        self.standby.start()
        until(self.is_whole, 60, "the standby does not follow the primary")
        if self.is_synchronous:
            self.primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.primary.ask("SELECT pg_reload_conf()")

    def fail_over(self, seconds: float) -> float:
        """Lose the primary's machine and promote the standby `seconds` later.

        Return when, in seconds of the epoch. With asynchronous replication the standby is cut off before, so
        that something is lost. Raises CannotRun where there is no standby: then the primary stays.
        """
        with contextlib.suppress(CannotRun):
            until(self.is_whole, RECONNECT_SECONDS, "the standby does not stream")
        self.mend()
        if not self.is_synchronous:
            self.standby.machine.cut()
            time.sleep(BEHIND_SECONDS)
        self.primary.machine.switch_off()
        self.losses.append(time.time())
        self.standby.machine.heal()
        time.sleep(seconds)
        until(self._is_promoted, 120, f"{self.standby.machine.name} was not promoted")
        promoted = time.time()
        # It may have copied the setting of the primary: alone, it waits for none.
        self.standby.ask("ALTER SYSTEM RESET synchronous_standby_names")
        self.standby.ask("SELECT pg_reload_conf()")
        self.primary, self.standby = self.standby, self.primary
        self.promotions.append(promoted)
        return promoted

    def _is_promoted(self) -> bool:
        """Promote the standby, where it is none yet; return whether it takes writes."""
        try:
            if self.standby.ask("SELECT pg_is_in_recovery()")[0][0]:
                self.standby.ask("SELECT pg_promote(true, 60)")
            return not self.standby.ask("SELECT pg_is_in_recovery()")[0][0]
        except psycopg.Error:
            return False

    def rejoin(self) -> None:
        """Make the machine that was lost the standby, after counting what only it knows."""
        self.standby.machine.switch_on()
        self.lost.append(self._left_behind())
        self.mend()

    def _left_behind(self) -> Lost:
        """Return what the old primary committed after the point at which the new one took over."""
        history = max((self.primary.data / "pg_wal").glob("*.history"))
        line, fork = history.read_text().strip().splitlines()[-1].split("\t")[:2]
        done = subprocess.run(
            [self.standby.embedded._binary("pg_waldump"), "--path", str(self.standby.data / "pg_wal"),
             "--timeline", line, "--start", fork, "--rmgr", "Transaction"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        transactions = len(re.findall(r"desc: COMMIT ", done.stdout))
        if self.is_synchronous or not transactions:
            return Lost(transactions, frozenset())
        self.standby.start(alone=True)  # as a primary: no process of the product may find it
        # With its number: a lost request may have been made again by now, under another.
        query = "SELECT idempotency_key, id FROM jobs"
        keys = {key for key, _ in set(self.standby.ask(query)) - set(self.primary.ask(query))}
        self.standby.machine.switch_off()
        self.standby.machine.switch_on()
        say(f"drill: {transactions} transactions were lost with the primary, {len(keys)} requests among them")
        return Lost(transactions, frozenset(keys))


def urls(pair: Pair) -> dict[str, str]:
    """Return the variables of an installation on this pair."""
    hosts = ",".join(f"{server.machine.address}:{PORT}" for server in pair.servers)
    end = f"@{hosts}/{DATABASE}?target_session_attrs=read-write"
    return {"DATABASE_URL": f"postgres://{ROLE}{end}", "DATABASE_OWNER_URL": f"postgres://{OWNER}{end}"}


def connect(pair: Pair) -> psycopg.Connection[Any]:
    """Open a connection to the server that takes writes: autocommit.

    Raises psycopg.OperationalError.
    """
    return psycopg.connect(
        host=",".join(server.machine.address for server in pair.servers),
        port=PORT, user=OWNER, dbname=DATABASE, autocommit=True, connect_timeout=2,
        target_session_attrs="read-write", tcp_user_timeout=5000,
    )  # fmt: skip
