"""Faults of the cluster drill, and the time for which each was felt.

machine_vanishes     all its processes and its cable are gone; it comes back with the next power
machine_partitioned  its cable is off for longer than a lease; it comes back believing that it holds work
link_loses_in, _out  a share of the frames to it, or from it, is lost
link_is_slow         every frame of it is 100 ms late in each direction: 200 ms there and back
clock_ahead, _behind its time of day is five minutes off
primary_dies         the machine of the primary vanishes, and the standby is promoted

All other kinds are the peers' (`drill_peers`). A share of the machines stays untouched at any moment: faults
of machines wait for one another where all others are in trouble.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from benchmarks.cluster_hosts import Cluster, Host
from benchmarks.drill_peers import Peers
from benchmarks.drill_schedule import Fault, at_their_moments
from benchmarks.figures import say
from benchmarks.ground import CannotRun, until

# Kind -> how often, as a share of all.
WEIGHTS = {
    "machine_vanishes": 5,
    "machine_partitioned": 7,
    "link_loses_in": 2,
    "link_loses_out": 2,
    "link_is_slow": 3,
    "clock_ahead": 2,
    "clock_behind": 2,
    "primary_dies": 4,
    "model_5xx": 2,
    "model_hang": 1,
    "webhook_5xx": 2,
    "webhook_drop": 3,
    "smtp_drop": 1,
    "host_push": 2,
    "host_lose": 1,
}
SECONDS_A_FAULT = 4.0
LATENCY_SECONDS = 0.1  # in each direction
LOSS = 0.25
SKEW_SECONDS = 300
BACK_SECONDS = 300.0  # at most, on a busy machine
FELT_SECONDS = 120.0  # from a promotion: what has not worked with the new primary then has restarted
_PEERS = {"model", "webhook", "smtp", "host"}
_BEATS = "SELECT id::text, extract(epoch FROM beat_at)::float8, host FROM worker_clusters"


@dataclass(slots=True)
class Hit:
    """A fault as it was done. Times are seconds of the epoch."""

    fault: Fault
    at: float
    host: str = ""
    note: str = ""


@dataclass
class Injector:
    """Does faults to one cluster and its peers. `lease` is the product's, in seconds."""

    cluster: Cluster
    peers: Peers
    lease: float
    hits: list[Hit] = field(default_factory=list)
    felt: list[float] = field(default_factory=list)  # seconds from a promotion until a part worked again
    restarted: int = 0  # clusters that did not outlive a failover
    _started: float = 0.0
    _troubled: set[str] = field(default_factory=set)
    _free: threading.Condition = field(default_factory=threading.Condition)
    _database: threading.Lock = field(default_factory=threading.Lock)

    def run(self, faults: Sequence[Fault], started: float, is_over: Callable[[], bool]) -> None:
        """Do each fault at its moment; wait for the last.

        `started` is time.monotonic() of the start.
        """
        self._started = started
        threads = []
        for fault in at_their_moments(faults, started, is_over):
            threads.append(threading.Thread(target=self._do, args=(fault,), name=str(fault), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join(2 * BACK_SECONDS)

    def _do(self, fault: Fault) -> None:
        hit = Hit(fault, time.time())
        verb = fault.kind.partition("_")[0]
        try:
            if verb in _PEERS:
                self.peers.begin(fault)
            elif verb == "primary":
                with self._database:  # the pair is whole again
                    hit.at = time.time()
                    self._fail_over(hit)
            else:
                with self._machine(fault) as host:
                    hit.host, hit.at = host.name, time.time()
                    {"machine": self._machine_fault, "link": self._link, "clock": self._clock}[verb](
                        hit, host
                    )
        except (OSError, CannotRun, psycopg.Error, subprocess.SubprocessError) as error:
            hit.note = f"{type(error).__name__}: {error}"
        self.hits.append(hit)
        clock = f"{hit.at - time.time() + time.monotonic() - self._started:6.1f}"
        words = [clock, str(fault), hit.host, hit.note, f"(over after {time.time() - hit.at:.1f} s)"]
        say("drill: " + " ".join(word for word in words if word))

    @contextmanager
    def _machine(self, fault: Fault) -> Iterator[Host]:
        """Choose a host for the fault and keep other faults off it; one host stays out of trouble."""
        hosts = self.cluster.hosts
        with self._free:
            self._free.wait_for(lambda: len(self._troubled) < max(1, len(hosts) - 1), BACK_SECONDS)
            left = [host for host in hosts if host.name not in self._troubled]
            host = left[fault.number % len(left)]
            self._troubled.add(host.name)
        try:
            yield host
        finally:
            with self._free:
                self._troubled.discard(host.name)
                self._free.notify_all()

    # -- machines -----------------------------------------------------------------------------

    def _vanishes(self, hit: Hit, host: Host) -> None:
        host.vanish()
        time.sleep(self.lease + hit.fault.seconds)
        host.start()
        until(host.answers, BACK_SECONDS, f"{host.name} did not come back", 0.3)

    def _machine_fault(self, hit: Hit, host: Host) -> None:
        if hit.fault.kind == "machine_vanishes":
            self._vanishes(hit, host)
            return
        try:
            host.machine.cut()
            time.sleep(self.lease + 1.0 + hit.fault.seconds)
        finally:
            host.machine.heal()

    def _link(self, hit: Hit, host: Host) -> None:
        spoiled = {
            "link_loses_in": {"loss_in": LOSS},
            "link_loses_out": {"loss_out": LOSS},
            "link_is_slow": {"delay": LATENCY_SECONDS},
        }[hit.fault.kind]
        try:
            host.machine.spoil(**spoiled)
            time.sleep(2 * hit.fault.seconds)
        finally:
            host.machine.heal()

    def _clock(self, hit: Hit, host: Host) -> None:
        ahead = hit.fault.kind == "clock_ahead"
        host.clock.write_text(str(SKEW_SECONDS if ahead else -SKEW_SECONDS))
        time.sleep(3 * hit.fault.seconds)
        host.clock.write_text("0")

    # -- database -----------------------------------------------------------------------------

    def _fail_over(self, hit: Hit) -> None:
        pair = self.cluster.pair
        with self.cluster.connect() as connection:
            alive = connection.execute(f"{_BEATS} WHERE beat_at > now() - interval '5 seconds'").fetchall()
        hit.host = pair.primary.machine.name
        promoted = pair.fail_over(hit.fault.seconds / 2)
        felt = self._until_felt_no_more(promoted, {row[0]: row[2] for row in alive})
        self.felt += felt
        hit.note = f"promoted after {promoted - hit.at:.1f} s, felt at most {max(felt, default=0):.1f} s more"
        pair.rejoin()

    def _until_felt_no_more(self, promoted: float, clusters: dict[str, str]) -> list[float]:
        """Return the seconds until each host's web server, and each of `clusters`, worked again.

        Hosts that another fault hits on the way do not count. A cluster that stays away has restarted.
        """
        felt: dict[str, float] = {}
        missing = {host.name for host in self.cluster.hosts} | set(clusters)
        end = time.monotonic() + FELT_SECONDS
        while missing and time.monotonic() < end:
            with self._free:
                troubled = set(self._troubled)
            missing -= {name for name in missing if clusters.get(name, name) in troubled}
            # At once: one that does not answer must not put off the look at the others.
            asked = [host for host in self.cluster.hosts if host.name in missing]
            with ThreadPoolExecutor(max(1, len(asked))) as pool:
                answers = list(pool.map(_ready_at, asked))
            felt |= {host.name: at - promoted for host, at in zip(asked, answers, strict=True) if at}
            try:
                with self.cluster.connect() as connection:
                    beats = {row[0]: float(row[1]) for row in connection.execute(_BEATS).fetchall()}
            except psycopg.OperationalError:
                beats = {}
            felt |= {name: beats[name] - promoted for name in missing & set(beats) if beats[name] > promoted}
            missing -= set(felt)
            time.sleep(0.1)
        self.restarted += len(missing & set(clusters))
        return list(felt.values())


def _ready_at(host: Host) -> float:
    """Return when the host's web server said that it is ready; 0.0 when it does not."""
    return time.time() if host.answers("/readyz") else 0.0


_HELD = """
SELECT max(extract(epoch FROM coalesce(
         (SELECT min(n.started_at) FROM attempts n WHERE n.stage_run_id = a.stage_run_id AND n.id > a.id),
         s.finished_at, now())))::float8
  FROM attempts a JOIN stage_runs s ON s.id = a.stage_run_id
 WHERE a.worker LIKE %(host)s AND a.started_at < to_timestamp(%(at)s)
   AND (a.finished_at IS NULL OR a.finished_at > to_timestamp(%(at)s))"""


def recovery_of(hits: Sequence[Hit], connection: psycopg.Connection[Any]) -> list[float]:
    """Return the seconds until the work of each host that vanished or was cut off went on.

    Hosts that held no work are left out.
    """
    found = []
    for hit in hits:
        if hit.host and hit.fault.kind.startswith("machine_"):
            row = connection.execute(_HELD, {"host": f"{hit.host}:%", "at": hit.at}).fetchone()
            if row and row[0]:
                found.append(row[0] - hit.at)
    return found
