"""Installation of the cluster drill: `manage.py up` on several machines, one database pair.

Every machine has a data directory of its own; what machines share is the database, the bucket of artifacts
(moto, in a process of its own) and the git repository, of which each would have a clone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
from cryptography.fernet import Fernet

from benchmarks import cluster_database
from benchmarks.cluster_database import Pair
from benchmarks.cluster_network import Machine
from benchmarks.drill_schedule import QUEUES
from benchmarks.figures import say
from benchmarks.ground import CannotRun, until
from criticizer.workers.supervisor import STOP_SECONDS, manage
from reviews.demo import free_port

PORT = 8000
START_SECONDS = 300.0  # at most, on a busy machine
_S3_KEY = "key-of-the-bucket"  # no word of the drill: the product redacts its own secrets everywhere
_BUCKETS = ("raw", "redacted", "letters")
_ALIVE = """
SELECT host, queue FROM worker_clusters
 WHERE beat_at > now() - interval '10 seconds' AND NOT draining"""


@dataclass
class Host:
    """A machine that runs web and workers of every queue. `environment` configures the product."""

    machine: Machine
    log: Path
    clock: Path
    environment: dict[str, str]
    is_told_to_run: bool = False  # it is missed when it does not
    _up: subprocess.Popen[bytes] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def base_url(self) -> str:
        return f"http://{self.machine.address}:{PORT}"

    def start(self) -> None:
        """Switch the machine on, where it is off, and start the product on it."""
        with self._lock:
            if not self.machine.is_on:
                self.machine.switch_on()
            command = manage("up", "--host", self.machine.address, "--port", str(PORT))
            with self.log.open("ab") as log:
                self._up = self.machine.start(command, self.environment, log)
            self.is_told_to_run = True

    def tend(self) -> None:
        """Start the product again where it ended unasked, as its service manager does."""
        with self._lock:
            if self._up is not None and self._up.poll() is not None:
                say(f"drill: manage.py up on {self.name} ended with {self._up.returncode}: started again")
                self.start()

    def drain(self) -> float:
        """Stop the product as an operator does; return the seconds until it had ended."""
        begun = time.monotonic()
        with self._lock:
            stopped, self._up = self._up, None  # not to be tended
        assert stopped is not None
        for child in psutil.Process(stopped.pid).children():  # the process itself is nsenter
            child.send_signal(signal.SIGTERM)
        try:
            stopped.wait(STOP_SECONDS + 20)
        except subprocess.TimeoutExpired:
            say(f"drill: {self.name} does not stop: switched off")
            self.machine.switch_off()
        return time.monotonic() - begun

    def vanish(self) -> None:
        with self._lock:
            self._up = None
            self.machine.switch_off()

    def answers(self, path: str = "/livez") -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.base_url}{path}", trust_env=False, timeout=2).status_code == 200
        return False


@dataclass
class Cluster:
    """All machines that run the product, on one database pair."""

    pair: Pair
    hosts: tuple[Host, ...]
    environment: Mapping[str, str]
    files: Path
    _is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(host.base_url for host in self.hosts)

    def start(self) -> None:
        """Start database, schema and hosts; wait until each host is ready. Raises CannotRun."""
        self.pair.start()
        self.manage("migrate", "--verbosity", "0")
        for host in self.hosts:
            host.start()
        threading.Thread(target=self._tend, name="service managers", daemon=True).start()
        for host in self.hosts:
            is_ready = partial(host.answers, "/readyz")
            until(is_ready, START_SECONDS, f"{host.name} is not ready; see {host.log}", 0.3)
        until(lambda: not self.missing(), START_SECONDS, "not every cluster runs", 0.3)

    def _tend(self) -> None:
        while not self._is_over.wait(0.5):
            for host in self.hosts:
                try:
                    host.tend()
                except (OSError, CannotRun) as error:
                    say(f"drill: {host.name} was not started again: {error}")

    def stop(self) -> None:
        self._is_over.set()
        for machine in (host.machine for host in self.hosts):
            machine.switch_off()
        for server in self.pair.servers:
            server.machine.switch_off()

    def manage(self, *arguments: str, **options: str) -> str:
        """Run a management command beside the hosts and return what it prints."""
        done = subprocess.run(
            manage(*arguments), env={**self.environment, **options}, stdout=subprocess.PIPE, check=True,
            timeout=400,
        )  # fmt: skip
        return done.stdout.decode().strip()

    def connect(self) -> psycopg.Connection[Any]:
        return cluster_database.connect(self.pair)

    def missing(self) -> list[str]:
        """Return the clusters that do not beat and the hosts whose web server does not answer."""
        try:
            with self.connect() as connection:
                alive = set(connection.execute(_ALIVE).fetchall())
        except psycopg.OperationalError:
            return ["database"]
        wanted = {(host.name, queue) for host in self.hosts if host.is_told_to_run for queue in QUEUES}
        silent = [f"{queue} of {host}" for host, queue in sorted(wanted - alive)]
        return silent + [f"web of {host.name}" for host in self.hosts if not host.answers()]

    def count(self, event: str) -> int:
        """Return how often the logs of all hosts have an event."""
        return sum(host.log.read_text(errors="replace").count(f'"{event}"') for host in self.hosts)


def made(files: Path, count: int, environment: Mapping[str, str], *, is_synchronous: bool) -> Cluster:
    """Return a cluster of `count` hosts that is not started.

    `environment`: the variables that all hosts have alike.
    """
    database = [
        cluster_database.Server(Machine(name, number), files / name)
        for number, name in ((2, "db1"), (3, "db2"))
    ]
    pair = Pair(*database, is_synchronous=is_synchronous)
    common = {
        **environment,
        **cluster_database.urls(pair),
        "DJANGO_SETTINGS_MODULE": "benchmarks.cluster_settings",
        "SECRET_KEY": "k" * 64,
        "ARTIFACT_KEYS": Fernet.generate_key().decode(),
        "ALLOWED_HOSTS": "*",
        # Hundreds of jobs may take two busy cores longer than the product's 20 minutes (others_wait_max).
        "REVIEW_SLA_SECONDS": "3600",
        "BASE_URL": f"http://127.0.0.1:{PORT}",
    }
    hosts = []
    for number in range(count):
        name = f"app{number + 1}"
        own = files / name
        own.mkdir()
        clock = own / "clock"
        clock.write_text("0")
        options = {**common, "CRITICIZER_DATA_DIR": str(own), "CLUSTER_CLOCK": str(clock)}
        hosts.append(Host(Machine(name, 11 + number), files / f"{name}.log", clock, options))
    return Cluster(pair, tuple(hosts), {**common, "CRITICIZER_DATA_DIR": str(files / "outside")}, files)


@contextlib.contextmanager
def bucket(files: Path) -> Iterator[dict[str, str]]:
    """Run an S3 server in a process of its own; yield the variables that name it.

    Raises CannotRun.
    """
    try:
        import boto3
        import moto  # noqa: F401  started as a program
    except ImportError as error:
        raise CannotRun(f"{error.name} is not installed: make .venv/nightly installs it") from error
    port = free_port()
    with (files / "moto.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            env={**os.environ, "AWS_EC2_METADATA_DISABLED": "true"}, stdout=log, stderr=log,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: _serves(url), 60, f"moto did not start; see {files}/moto.log", 0.2)
        client = boto3.client(
            "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id=_S3_KEY,
            aws_secret_access_key=_S3_KEY,
        )  # fmt: skip
        for name in _BUCKETS:
            client.create_bucket(Bucket=name)
        yield {
            "ARTIFACT_STORAGE": "s3",
            "ARTIFACT_S3_ENDPOINT": url,
            "ARTIFACT_S3_REGION": "us-east-1",
            "ARTIFACT_S3_ACCESS_KEY": _S3_KEY,
            "ARTIFACT_S3_SECRET_KEY": _S3_KEY,
            **{f"ARTIFACT_S3_BUCKET_{name.upper()}": name for name in _BUCKETS},
        }
    finally:
        process.kill()
        process.wait()


def _serves(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/moto-api/", trust_env=False, timeout=2).status_code < 500
    return False
