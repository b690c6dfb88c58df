"""The course that every drill runs: load, quiet, books.

A `Course` puts the load on an installation, whether it is one process tree (`drill_stack`) or several hosts
(`cluster_hosts`), waits until everything is quiet after the faults, and compares what was posted, the
database and the receivers' ledgers.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psycopg

from benchmarks import drill_host_ledger, drill_ledger
from benchmarks.drill_ledger import Facts, Posted, Receipts, Verdict
from benchmarks.drill_load import Request, Stream
from benchmarks.drill_peers import Peers
from benchmarks.figures import percentile, say
from benchmarks.ground import CannotRun

FLOOD_SHARE = 0.5  # of the jobs: posted by another key besides, all at once
FLOOD_AT = 0.25  # of the length of the run
PULL_SHARE = 0.1  # of the jobs: pull requests besides those that faults open
SETTLE_SECONDS = 180.0  # after the last fault, and after the last job that ended: what is left then is stuck
OVERTIME_SECONDS = 180.0  # for the faults, on a slow machine
COUNTED = ("lost", "duplicated", "stuck", "wrong_state")
_REFUSALS = "SELECT coalesce(sum(refusals), 0) FROM paces WHERE name LIKE %s"
Database = psycopg.Connection[Any]


class Installation(Protocol):
    """Interface of the installation that a course loads."""

    @property
    def addresses(self) -> Sequence[str]:
        """Return the base URLs that requests are posted to, in turns."""

    def connect(self) -> Database:
        """Open a connection to the database: autocommit. Raises psycopg.OperationalError."""

    def missing(self) -> Sequence[str]:
        """Return what does not run and should."""


@dataclass
class Course:
    """Load of one run.

    `keys`: the API keys of the requests and of the flood; `length` in seconds.
    """

    installation: Installation
    peers: Peers
    requests: Sequence[Request]
    flooded: Sequence[Request]
    keys: tuple[str, str]
    length: float
    started: float = 0.0
    streams: tuple[Stream, ...] = ()
    facts: Facts = field(default_factory=Facts)
    receipts: Receipts = field(default_factory=Receipts)

    def start(self) -> None:
        addresses = self.installation.addresses
        self.streams = (
            Stream(addresses, self.keys[0], self.requests, 0.95 * self.length),
            Stream(addresses, self.keys[1], self.flooded, 1.0, FLOOD_AT * self.length),
        )
        self.started = time.monotonic()
        for stream in self.streams:
            stream.start()
        pulls = max(1, int(PULL_SHARE * len(self.requests)))
        self.peers.hosts.start(addresses, pulls, 0.95 * self.length, self._is_limited)

    def _is_limited(self, host: str) -> bool:
        """Return whether, as the product counts it, a host's limit refused its last call."""
        try:
            with self.installation.connect() as connection:
                row = connection.execute(_REFUSALS, [f"{host}:%"]).fetchone()
        except psycopg.OperationalError:
            return True
        return row is not None and row[0] > 0

    def is_late(self) -> bool:
        """Return whether no further fault is to begin."""
        return time.monotonic() > self.started + self.length + OVERTIME_SECONDS

    def settle(self) -> str:
        """Cease every fault of the peers and wait for quiet; return what is left.

        The last heads are pushed into the quiet, or into what is left when the time for it is up. They have
        a time of their own, as the books compare their reviews.
        """
        self.peers.cease()
        say(f"drill: no more faults after {time.monotonic() - self.started:.0f} s")
        unsettled = [self._quiet("after the faults")]
        self.peers.hosts.push_to_all()
        unsettled.append(self._quiet("after the last heads were pushed"))
        for stream in self.streams:
            stream.stop()
        return "; ".join(filter(None, unsettled))

    def _quiet(self, when: str) -> str:
        """Wait until every job has an end and every role is filled; return what is left.

        Time is up SETTLE_SECONDS after the last progress: a job that ended, or a case less in the books of
        pull requests.
        """
        said, progress, until = 0.0, (0, 0), time.monotonic() + SETTLE_SECONDS
        while True:
            row, pulls = self._state()
            missing, is_done = self.installation.missing(), all(stream.is_done() for stream in self.streams)
            jobs = len(self.requests) + len(self.flooded)
            is_empty = row is not None and row[0] == row[1] == jobs and row[2] == 0
            if is_empty and is_done and not missing and pulls is not None and pulls.is_settled:
                time.sleep(1.0)  # a worker that was thought dead may still be sending
                return ""
            left = [] if pulls is None else [*pulls.lost, *pulls.stuck, *pulls.wrong_state]
            state = f"jobs, ended, queued: {row}; missing: {missing}; left of pull requests: {len(left)}"
            if row is not None and pulls is not None and (row[1], -len(left)) > progress:
                progress, until = (row[1], -len(left)), time.monotonic() + SETTLE_SECONDS
            if time.monotonic() > until:
                state = f"time is up {when}: {state}{''.join(f': {one}' for one in left[:1])}"
                say(f"drill: {state}")
                return state
            if time.monotonic() - said > 10:
                said = time.monotonic()
                say(f"drill: {state}")
            time.sleep(0.5)

    def _state(self) -> tuple[tuple[Any, ...] | None, Verdict | None]:
        """Return the numbers of jobs (all, ended, queued) and the books of pull requests.

        None: unknown.
        """
        try:
            with self.installation.connect() as connection:
                row = connection.execute(
                    "SELECT count(*), count(finished_at), (SELECT count(*) FROM outbox_messages"
                    " WHERE aggregate_type = 'stage_run') FROM jobs"  # others come round for ever
                    " WHERE split_part(idempotency_key, ':', 1) <> ALL(%s)",
                    [list(drill_ledger.PULLS)],
                ).fetchone()
                versions = drill_host_ledger.read(connection)
        except psycopg.OperationalError:
            return None, None
        return row, drill_host_ledger.reconcile_all(self.peers.hosts.books(), versions)

    def reconcile(
        self, connection: Database, unsettled: str, *, is_cut: bool = False
    ) -> tuple[dict[str, object], Verdict]:
        """Compare the books; return their part of the summary and the verdict.

        Those of a drill that was cut in the middle leave out what only time could have settled.
        """
        posted = [entry for stream in self.streams for entry in stream.posted]
        facts, versions = drill_ledger.read(connection), drill_host_ledger.read(connection)
        self.facts, self.receipts = facts, self.peers.receipts()
        verdict = drill_ledger.reconcile(posted, facts, self.receipts)
        books = self.peers.hosts.books()
        if is_cut:
            unfinished, verdict.stuck = len(verdict.stuck), ["the drill was cut"]
            return {
                "posted": len(posted),
                "unfinished": unfinished,
                **self._counts(connection, verdict),
            }, verdict
        verdict.add(drill_host_ledger.reconcile_all(books, versions))
        unanswered = {request.key for request in (*self.requests, *self.flooded)}
        unanswered -= {entry.key for entry in posted}
        verdict.stuck += [f"{key} was never answered" for key in sorted(unanswered)]
        if unsettled and verdict.ok:
            verdict.wrong_state.append(unsettled)
        return self._counts(connection, verdict), verdict

    def _counts(self, connection: Database, verdict: Verdict) -> dict[str, object]:
        books = self.peers.hosts.books()
        summary: dict[str, object] = {name: len(getattr(verdict, name)) for name in COUNTED}
        return summary | {
            "uncertain": verdict.uncertain,
            "uncertain_received": verdict.uncertain_received,
            "dead_lettered": verdict.dead_lettered,
            "max_attempts": verdict.max_attempts,
            "webhook_requests": self.receipts.webhook_requests,
            "flood": len(self.flooded),
            **_waits(connection, self.streams[0].posted),
            "pull_requests": sum(len({number for number, _ in one.heads}) for one in books),
            "heads": sum(len(one.heads) for one in books),
            "heads_without_webhook": sum(
                len({head for _, head in one.heads} - one.taken_in) for one in books
            ),
            "limited_calls": self.peers.hosts.limited,
        }


def options_of(peers: Peers, scale: float) -> dict[str, str]:
    """Return the variables of an installation that works with the peers."""
    return {
        "RETRY_TIME_SCALE": str(scale),
        "LLM_PROVIDER": "openai",
        "LLM_MODEL": "drill",
        "LLM_BASE_URL": peers.model.base_url,
        "LLM_TIMEOUT_SECONDS": "2",
        "SMTP_HOST": "127.0.0.1",
        "SMTP_PORT": str(peers.mail.port),
        "WEBHOOK_SECRETS": peers.secret,
        **peers.hosts.options,
    }


def kept_unless_good(
    run: Callable[[Path], tuple[dict[str, object], Verdict]], repeat: str, *, is_kept: bool
) -> int:
    """Run a drill in a directory of its own, print its summary, and return the exit status.

    The directory of a drill that fails stays. `repeat`: the command that runs it again.
    """
    files = Path(tempfile.mkdtemp(prefix="criticizer-drill-"))
    files.chmod(0o755)
    is_good = False
    try:
        summary, verdict = run(files)
        is_good = verdict.ok
        (files / "report.json").write_text(json.dumps({**summary, "cases": asdict(verdict)}, indent=1))
    except CannotRun as error:
        say(f"drill: {error}")
        return 2
    finally:
        if is_good and not is_kept:
            shutil.rmtree(files, ignore_errors=True)
        else:
            say(f"drill: kept in {files} (logs, report.json)")
    if not is_good:
        say(f"drill: repeat with {repeat}")
    print(json.dumps(summary), flush=True)
    return 0 if is_good else 1


def explain(verdict: Verdict) -> None:
    """Print what the figures are made of."""
    for name in COUNTED:
        found = getattr(verdict, name)
        for sentence in found[:15]:
            say(f"drill: {name}: {sentence}")
        if len(found) > 15:
            say(f"drill: {name}: and {len(found) - 15} more")


def _waits(connection: Database, posted: Sequence[Posted]) -> dict[str, float]:
    """Return how long reviews took beside the flood, from request to end."""
    rows = connection.execute(
        "SELECT extract(epoch FROM finished_at - created_at)::float8 FROM jobs WHERE id = ANY(%s)"
        " AND finished_at IS NOT NULL",
        [[entry.job for entry in posted]],
    ).fetchall()
    seconds = [row[0] for row in rows] or [0.0]
    found = {"p50": percentile(seconds, 50), "p95": percentile(seconds, 95), "max": max(seconds)}
    return {f"others_wait_{name}_seconds": round(value, 2) for name, value in found.items()}
