"""Faults of the drill, one thread each, and the time for which each kill was felt.

Recovery of a kill, in seconds from the signal:

- a worker that held stages: until each of them has a new attempt or an end;
- any other process of a cluster, or a worker that held nothing: until a living process has its
  role again and the cluster has begun an attempt after that (as far as there was work left);
- a web process: until as many as before are there and `/livez` answers.

PostgreSQL is measured on its own, from the moment it accepts connections again until the next attempt: how
long it is away is the schedule's doing.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
import psycopg

from benchmarks.drill_peers import Peers
from benchmarks.drill_schedule import Fault, at_their_moments
from benchmarks.drill_stack import Installation
from benchmarks.figures import say

BUSY_SECONDS = 1.5  # so long a busy worker is waited for; then an idle one has to do
FIND_SECONDS = 15.0  # so long any process of a role is waited for: it may be dead already
BACK_SECONDS = 60.0
NOBODY = "nobody there: not done"


@dataclass(slots=True)
class Hit:
    """A fault as it was done. Times are seconds of the epoch."""

    fault: Fault
    queue: str = ""  # "" for web and database
    pid: int = 0
    at: float = 0.0
    back_at: float | None = None  # the role is filled again, the database accepts connections
    note: str = ""


@dataclass
class Injector:
    """Does faults to one installation and its peers. `lease` is the product's, in seconds."""

    installation: Installation
    peers: Peers
    lease: float
    seed: int
    hits: list[Hit] = field(default_factory=list)
    _started: float = 0.0
    _threads: list[threading.Thread] = field(default_factory=list)
    _database: threading.Lock = field(default_factory=threading.Lock)

    def run(self, faults: Sequence[Fault], started: float, is_over: Callable[[], bool]) -> None:
        """Do each fault at its moment; wait for the last.

        `started` is time.monotonic() of the start.
        """
        self._started = started
        for fault in at_their_moments(faults, started, is_over):
            thread = threading.Thread(target=self._do, args=(fault,), name=str(fault), daemon=True)
            self._threads.append(thread)
            thread.start()
        for thread in self._threads:
            thread.join(BACK_SECONDS + 30)

    def _do(self, fault: Fault) -> None:
        hit = Hit(fault, at=time.time())
        try:
            verb, _, rest = fault.kind.partition("_")
            if verb in {"model", "webhook", "smtp", "host"}:
                self.peers.begin(fault)
            elif "postgres" in rest:
                self._database_fault(hit)
            elif rest.startswith("web"):
                self._kill_web(hit, rest)
            elif verb == "freeze":
                self._freeze(hit)
            else:
                self._kill(hit, rest)
        except (psutil.Error, OSError) as error:
            hit.note = f"{type(error).__name__}: {error}"
        if hit.note != NOBODY:
            self.hits.append(hit)
        felt = f"{hit.back_at - hit.at:.1f} s" if hit.back_at else ""
        clock = f"{hit.at - time.time() + time.monotonic() - self._started:6.1f}"
        words = [clock, str(fault), hit.queue, str(hit.pid or ""), hit.note, felt]
        say("drill: " + " ".join(word for word in words if word))

    # -- clusters -----------------------------------------------------------------------------

    def _kill(self, hit: Hit, what: str) -> None:
        """Kill processes.

        `what`: worker_<queue>, idle_<queue>, pusher, monitor, sentinel, cluster.
        """
        role, _, queue = what.partition("_")
        hit.queue = queue or hit.fault.queue
        self._end(hit, self._find(hit, role), lambda: self._is_filled(hit, role))

    def _end(self, hit: Hit, process: psutil.Process | None, is_back: Callable[[], bool]) -> None:
        """Kill a process, if one was found, and wait until it is replaced."""
        if process is None:
            hit.note = NOBODY
            return
        hit.pid, hit.at = process.pid, time.time()
        process.kill()
        hit.back_at = self._back(is_back)

    def _find(self, hit: Hit, role: str) -> psutil.Process | None:
        if role not in {"worker", "idle"}:
            return self._one(hit, role, FIND_SECONDS)
        wanted = "processing" if role == "worker" else "idle"
        found = self._one(hit, wanted, BUSY_SECONDS)
        if found is None:
            found = self._one(hit, "worker", FIND_SECONDS)
            hit.note = f"not {wanted}"
        return found

    def _one(self, hit: Hit, role: str, seconds: float) -> psutil.Process | None:
        """Return a process of the role, waiting for one; which of several is the seed's choice."""
        end = time.monotonic() + seconds
        while True:
            if found := self._all(hit.queue, role):
                return random.Random(f"{self.seed} {hit.fault.number}").choice(found)
            if time.monotonic() >= end:
                return None
            time.sleep(0.02)

    def _all(self, queue: str, role: str) -> list[psutil.Process]:
        """Return the living processes of a role, `web_master` and `web_worker` included."""
        if role == "web_worker":
            return self.installation.web_workers()
        if role == "sentinel":
            one = self.installation.sentinel(queue)
        elif role in {"cluster", "web_master"}:
            one = self.installation.heads().get("web" if role == "web_master" else queue)
        else:
            return self.installation.of_role(queue, role)
        return [one] if one else []

    def _is_filled(self, hit: Hit, role: str) -> bool:
        if role in {"cluster", "sentinel"}:
            head, sentinel = self.installation.heads().get(hit.queue), self.installation.sentinel(hit.queue)
            if head is None or sentinel is None or hit.pid in {head.pid, sentinel.pid}:
                return False
            return all(self.installation.of_role(hit.queue, each) for each in ("pusher", "worker"))
        filled = self.installation.of_role(hit.queue, "worker" if role in {"worker", "idle"} else role)
        wanted = 2 if role in {"worker", "idle"} and hit.queue != "llm" else 1
        return len([process for process in filled if process.pid != hit.pid]) >= wanted

    def _back(self, look: Callable[[], bool]) -> float | None:
        end = time.monotonic() + BACK_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(psutil.Error):
                if look():
                    return time.time()
            time.sleep(0.1)
        return None

    def _freeze(self, hit: Hit) -> None:
        """Stop a worker for longer than its lease, then let it go on: it must find itself fenced."""
        hit.queue = hit.fault.queue
        process = self._find(hit, "worker")
        if process is None:
            hit.note = NOBODY
            return
        hit.pid = process.pid
        process.suspend()
        time.sleep(self.lease * (1.0 + 0.25 * hit.fault.seconds))
        try:
            process.resume()
        except psutil.NoSuchProcess:
            hit.note = "ended by its cluster meanwhile"

    # -- web and database ---------------------------------------------------------------------

    def _kill_web(self, hit: Hit, role: str) -> None:
        def is_back() -> bool:
            now = [worker for worker in self.installation.web_workers() if worker.pid != hit.pid]
            new = self.installation.heads().get("web")
            is_new = new is not None and new.pid != hit.pid
            return is_new and len(now) >= 2 and self.installation.web_answers()

        self._end(hit, self._one(hit, role, FIND_SECONDS), is_back)

    def _database_fault(self, hit: Hit) -> None:
        if not self._database.acquire(blocking=False):
            hit.note = "the database is down already"
            return
        try:
            if hit.fault.kind == "kill_postgres":
                self.installation.kill_postgres()
            else:
                self.installation.stop_postgres(2 * hit.fault.seconds)
            hit.back_at = self._back(self._accepts)
        finally:
            self._database.release()

    def _accepts(self) -> bool:
        try:
            self.installation.connect().close()
        except psycopg.OperationalError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds of recovery, by fault.

    `kills`: of single processes; `database`: from its return to the next attempt.
    """

    kills: tuple[tuple[float, Hit], ...]
    database: tuple[tuple[float, Hit], ...]


_HELD = """
SELECT max(extract(epoch FROM coalesce(
         (SELECT min(n.started_at) FROM attempts n WHERE n.stage_run_id = a.stage_run_id AND n.id > a.id),
         s.finished_at, now())))::float8
  FROM attempts a JOIN stage_runs s ON s.id = a.stage_run_id
 WHERE a.worker = %(worker)s AND a.started_at < to_timestamp(%(at)s)
   AND (a.finished_at IS NULL OR a.finished_at > to_timestamp(%(at)s))"""
_NEXT = """
SELECT extract(epoch FROM min(a.started_at))::float8
  FROM attempts a JOIN stage_runs s ON s.id = a.stage_run_id
 WHERE s.stage = ANY(%(stages)s) AND a.started_at > to_timestamp(%(at)s)"""
_STAGES = {"stages": ["fetch"], "llm": ["llm"], "notify": ["notify"], "": ["fetch", "llm", "notify"]}


def recovery_of(hits: Sequence[Hit], connection: psycopg.Connection[Any]) -> Recovery:
    """Return how long each kill was felt. `connection` is in autocommit mode."""

    def ask(sql: str, **values: object) -> float | None:
        found: tuple[float | None] | None = connection.execute(sql.encode(), values).fetchone()
        return found[0] if found else None

    kills, database = [], []
    for hit in hits:
        after = ask(_NEXT, stages=_STAGES[hit.queue], at=hit.back_at) if hit.back_at else None
        if "postgres" in hit.fault.kind:
            if hit.back_at and after:
                database.append((after - hit.back_at, hit))
        elif hit.pid and hit.fault.kind.startswith("kill_"):
            held = ask(_HELD, worker=f"{socket.gethostname()}:{hit.pid}", at=hit.at)
            if held is not None:
                kills.append((held - hit.at, hit))
            else:
                back = hit.back_at or hit.at + BACK_SECONDS
                kills.append((max(back, (after or back) if hit.queue else back) - hit.at, hit))
    return Recovery(tuple(kills), tuple(database))
