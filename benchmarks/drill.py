"""The fault drill: break a running installation JOBS jobs long, FAULTS times; then do the books.

`manage.py up` runs as it does for everybody: embedded PostgreSQL, web, all clusters. Posters
send a stream of review requests and repeat each with its idempotency key until it is answered.
The model server, two webhook receivers, an SMTP server and a maildir misbehave on schedule
(`drill_peers`), processes die (`drill_faults`). When the faults are over and everything is quiet,
what was posted, the database and the receivers' ledgers are compared (`drill_ledger`).

The last line on standard output is a JSON object; the status is 1 unless lost, duplicated, stuck
and wrong_state are 0. A drill that fails keeps its directory. The same SEED repeats the schedule.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
import psycopg

from benchmarks import drill_ledger, drill_peers, drill_schedule
from benchmarks.drill_faults import Hit, Injector, Recovery, recovery_of
from benchmarks.drill_ledger import Posted, Verdict
from benchmarks.drill_peers import Peers
from benchmarks.drill_schedule import SMTP_DOMAIN
from benchmarks.drill_stack import Installation, environment, make_commits
from benchmarks.figures import percentile, say
from benchmarks.ground import CannotRun
from criticizer.queue.outbox import LEASE_SECONDS
from reviews.demo import free_port

POSTERS = 3
SMTP_SHARE = 0.1  # of the jobs: their mail goes through the server that nobody can ask
AGAIN_SHARE = 0.1  # of the jobs: posted once more after the answer
SETTLE_SECONDS = 180.0  # after the last fault; then what is not final is stuck


@dataclass(frozen=True, slots=True)
class Request:
    key: str
    changelist_id: str
    recipients: tuple[str, ...]
    again: bool


@dataclass
class Stream:
    """Posts requests evenly over `seconds`, each until it is answered."""

    base_url: str
    key: str
    requests: Sequence[Request]
    seconds: float
    posted: list[Posted] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    _due: queue.SimpleQueue[tuple[float, Request]] = field(default_factory=queue.SimpleQueue)
    _threads: list[threading.Thread] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        begun = time.monotonic()
        for number, request in enumerate(self.requests):
            self._due.put((begun + self.seconds * number / len(self.requests), request))
        self._threads = [threading.Thread(target=self._post_all, daemon=True) for _ in range(POSTERS)]
        for thread in self._threads:
            thread.start()

    def is_done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Give up what was never answered."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(15)

    def _post_all(self) -> None:
        headers = {"Authorization": f"Bearer {self.key}"}
        with httpx.Client(base_url=self.base_url, headers=headers, trust_env=False, timeout=10) as client:
            while not self._is_over.is_set():
                try:
                    at, request = self._due.get_nowait()
                except queue.Empty:
                    return
                self._is_over.wait(max(0.0, at - time.monotonic()))
                for _ in range(2 if request.again else 1):
                    self._post(client, request)

    def _post(self, client: httpx.Client, request: Request) -> None:
        body = {
            "idempotency_key": request.key,
            "changelist_id": request.changelist_id,
            "recipients": list(request.recipients),
        }
        while not self._is_over.is_set():
            try:
                answer = client.post("/api/v1/reviews/", json=body)
            except httpx.TransportError as error:
                self.refusals[type(error).__name__] += 1
            else:
                if answer.status_code in {200, 201}:
                    job = int(answer.json()["id"])
                    self.posted.append(Posted(request.key, job, request.recipients))
                    return
                self.refusals[str(answer.status_code)] += 1
                if answer.status_code not in {429, 500, 502, 503, 504}:
                    say(f"drill: {request.key} was refused: {answer.status_code} {answer.text[:200]}")
                    return
            self._is_over.wait(0.2)


def make_requests(commits: Sequence[str], peers: Peers, seed: int) -> list[Request]:
    """Return a request a commit. Recipients are a job's own, so that a duplicate shows as one."""
    dice = random.Random(f"requests {seed}")
    made = []
    for number, commit in enumerate(commits):
        domain = SMTP_DOMAIN if dice.random() < SMTP_SHARE else "example.com"
        port = peers.receivers[number % len(peers.receivers)].port
        recipients = (f"mail:job{number}@{domain}", f"webhook:http://127.0.0.1:{port}/hook/{number}")
        made.append(
            Request(f"drill-{number}", f"git:drill@{commit}", recipients, dice.random() < AGAIN_SHARE)
        )
    return made


@dataclass
class Drill:
    jobs: int
    faults: int
    seed: int
    scale: float
    files: Path
    only: tuple[str, ...] = ()

    def run(self) -> tuple[dict[str, object], Verdict]:
        """Run the drill; return its summary and what the books say."""
        begun = time.monotonic()
        say(f"drill: {self.jobs} jobs, {self.faults} faults, seed {self.seed}, in {self.files}")
        repository = self.files / "repository"
        commits = make_commits(repository, self.jobs)
        with drill_peers.running(self.files / "mail") as peers:
            options = {
                "RETRY_TIME_SCALE": str(self.scale),
                "LLM_PROVIDER": "openai",
                "LLM_MODEL": "drill",
                "LLM_BASE_URL": peers.model.base_url,
                "LLM_TIMEOUT_SECONDS": "2",
                "SMTP_HOST": "127.0.0.1",
                "SMTP_PORT": str(peers.mail.port),
                "WEBHOOK_SECRETS": peers.secret,
            }
            installation = Installation(self.files, free_port(), environment(self.files, repository, options))
            try:
                installation.start()
                say(f"drill: ready after {time.monotonic() - begun:.0f} s")
                return self._break(installation, peers, commits, begun)
            finally:
                installation.stop()

    def _break(
        self, installation: Installation, peers: Peers, commits: Sequence[str], begun: float
    ) -> tuple[dict[str, object], Verdict]:
        key = installation.manage("create_api_key", "--name", "drill", "--role", "trigger")
        length = drill_schedule.length_of(self.faults)
        until = time.monotonic() + length + SETTLE_SECONDS
        stream = Stream(installation.base_url, key, make_requests(commits, peers, self.seed), 0.95 * length)
        injector = Injector(installation, peers, self.scale * LEASE_SECONDS, self.seed)
        started = time.monotonic()
        stream.start()
        faults = drill_schedule.schedule(self.faults, self.seed, self.only)
        injector.run(faults, started, lambda: time.monotonic() > until)
        peers.cease()
        say(f"drill: no more faults after {time.monotonic() - started:.0f} s")
        unsettled = _settle(installation, stream, self.jobs, until)
        stream.stop()
        with installation.connect() as connection:
            facts = drill_ledger.read(connection)
            recovery = recovery_of(injector.hits, connection)
        receipts = peers.receipts()
        verdict = drill_ledger.reconcile(stream.posted, facts, receipts)
        unanswered = {request.key for request in stream.requests} - {entry.key for entry in stream.posted}
        verdict.stuck += [f"{key} was never answered" for key in sorted(unanswered)]
        if unsettled and verdict.ok:
            verdict.wrong_state.append(unsettled)
        seconds = time.monotonic() - begun
        _explain(verdict, recovery, stream, (self.files / "up.log").read_text(errors="replace"))
        summary = summary_of(self, verdict, injector.hits, recovery, seconds)
        summary["webhook_requests"] = receipts.webhook_requests
        return summary, verdict


def _settle(installation: Installation, stream: Stream, jobs: int, until: float) -> str:
    """Wait until every job has an end and every role is filled; return what is not when time is up."""
    said = 0.0
    while True:
        try:
            with installation.connect() as connection:
                row = connection.execute(
                    "SELECT count(*), count(finished_at), (SELECT count(*) FROM outbox_messages"
                    " WHERE aggregate_type = 'stage_run') FROM jobs"  # others come round for ever
                ).fetchone()
        except psycopg.OperationalError:
            row = None
        missing = installation.missing()
        if row and row[0] == row[1] == jobs and row[2] == 0 and stream.is_done() and not missing:
            time.sleep(1.0)  # whoever was thought dead may still be sending
            return ""
        if time.monotonic() > until:
            return f"jobs, ended, queued: {row}; processes that are not back: {missing}"
        if time.monotonic() - said > 10:
            said = time.monotonic()
            say(f"drill: jobs, ended, queued: {row}; missing: {missing}")
        time.sleep(0.5)


def summary_of(
    drill: Drill, verdict: Verdict, hits: Sequence[Hit], recovery: Recovery, seconds: float
) -> dict[str, object]:
    """Return the last line's object of `make drill`."""
    kills = [value for value, _ in recovery.kills]
    return {
        "jobs": drill.jobs,
        "faults": len(hits),
        "seed": drill.seed,
        "lost": len(verdict.lost),
        "duplicated": len(verdict.duplicated),
        "stuck": len(verdict.stuck),
        "wrong_state": len(verdict.wrong_state),
        "uncertain": verdict.uncertain,
        "uncertain_received": verdict.uncertain_received,
        "dead_lettered": verdict.dead_lettered,
        "max_attempts": verdict.max_attempts,
        "kills": len(kills),
        "recovery_p50_seconds": round(percentile(kills, 50), 2) if kills else None,
        "recovery_p95_seconds": round(percentile(kills, 95), 2) if kills else None,
        "recovery_bound_seconds": drill.scale * LEASE_SECONDS + 10,
        "database_recovery_max_seconds": round(max((v for v, _ in recovery.database), default=0.0), 2),
        "seconds": round(seconds, 1),
    }


def _explain(verdict: Verdict, recovery: Recovery, stream: Stream, log: str) -> None:
    """Tell people what the figures are made of."""
    for name in ("lost", "duplicated", "stuck", "wrong_state"):
        found = getattr(verdict, name)
        for sentence in found[:15]:
            say(f"drill: {name}: {sentence}")
        if len(found) > 15:
            say(f"drill: {name}: and {len(found) - 15} more")
    for value, hit in sorted(recovery.kills, key=lambda pair: pair[0], reverse=True)[:5]:
        say(f"drill: slow recovery: {value:.1f} s after {hit.fault} {hit.queue} {hit.note}".rstrip())
    say(f"drill: answers other than 200 and 201: {dict(stream.refusals)}")
    fenced, ended = log.count('"lease_lost"'), log.count('"cluster_ended"')
    say(f"drill: workers that found themselves fenced: {fenced}; clusters that ended themselves: {ended}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drill", description="The fault drill.")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=0.1, help="RETRY_TIME_SCALE of the run")
    parser.add_argument("--only", default="", help="kinds of faults, comma-separated; default: all")
    parser.add_argument("--keep", action="store_true", help="keep the directory of a good run as well")
    given = parser.parse_args()
    files = Path(tempfile.mkdtemp(prefix="criticizer-drill-"))
    files.chmod(0o755)
    is_good = False
    try:
        only = tuple(given.only.split(",")) if given.only else ()
        summary, verdict = Drill(given.jobs, given.faults, given.seed, given.scale, files, only).run()
        is_good = verdict.ok
        (files / "report.json").write_text(json.dumps({**summary, "cases": asdict(verdict)}, indent=1))
    except CannotRun as error:
        say(f"drill: {error}")
        return 2
    finally:
        if is_good and not given.keep:
            shutil.rmtree(files, ignore_errors=True)
        else:
            say(f"drill: kept in {files} (up.log, report.json)")
    if not is_good:
        say(f"drill: repeat with make drill JOBS={given.jobs} FAULTS={given.faults} SEED={given.seed}")
    print(json.dumps(summary), flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
