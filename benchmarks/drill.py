"""The fault drill: break a running installation JOBS jobs long, FAULTS times; then do the books.

`manage.py up` runs as it does for everybody: embedded PostgreSQL, web, all clusters. Posters
send a stream of review requests and repeat each with its idempotency key until it is answered.
The model server, two webhook receivers, an SMTP server and a maildir misbehave on schedule
(`drill_peers`), processes die (`drill_faults`). Pull requests are opened and pushed to on a code
host that reaches its limits and loses webhooks (`drill_host`). Another key posts a flood whose
webhooks go to a receiver that hangs or drips; the summary has how long the reviews of the first key
took. When the faults are over and everything is quiet, each pull request is pushed to once more; then
what was posted, the database and the receivers' ledgers are compared (`drill_ledger`,
`drill_host_ledger`).

The last line on standard output is a JSON object; the status is 1 unless lost, duplicated, stuck
and wrong_state are 0. A drill that fails keeps its directory. The same SEED repeats the schedule.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import drill_host_ledger, drill_ledger, drill_peers, drill_schedule
from benchmarks.drill_faults import Hit, Injector, Recovery, recovery_of
from benchmarks.drill_ledger import Posted, Verdict
from benchmarks.drill_load import Stream, make_flood, make_requests
from benchmarks.drill_peers import Peers
from benchmarks.drill_stack import Installation, environment, make_commits
from benchmarks.figures import percentile, say
from benchmarks.ground import CannotRun
from criticizer.queue.outbox import LEASE_SECONDS
from reviews.demo import free_port

FLOOD_SHARE = 0.5  # of the jobs: posted by another key besides, all at once
FLOOD_AT = 0.25  # of the length of the run
PULL_SHARE = 0.1  # of the jobs: pull requests besides those that faults open
SETTLE_SECONDS = 180.0  # after the last fault; then what is not final is stuck


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
        flood = int(FLOOD_SHARE * self.jobs)
        commits = make_commits(repository, self.jobs + flood)
        with drill_peers.running(self.files) as peers:
            options = {
                "RETRY_TIME_SCALE": str(self.scale),
                "LLM_PROVIDER": "openai",
                "LLM_MODEL": "drill",
                "LLM_BASE_URL": peers.model.base_url,
                "LLM_TIMEOUT_SECONDS": "2",
                "SMTP_HOST": "127.0.0.1",
                "SMTP_PORT": str(peers.mail.port),
                "WEBHOOK_SECRETS": peers.secret,
                **peers.host.options,
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
        key, other = (
            installation.manage("create_api_key", "--name", name, "--role", "trigger")
            for name in ("drill", "flood")
        )
        length = drill_schedule.length_of(self.faults)
        until = time.monotonic() + length + SETTLE_SECONDS
        requests = make_requests(commits[: self.jobs], peers, self.seed)
        stream = Stream(installation.base_url, key, requests, 0.95 * length)
        flooded = make_flood(commits[self.jobs :], peers.tarpit.port)
        flood = Stream(installation.base_url, other, flooded, 1.0, FLOOD_AT * length)
        injector = Injector(installation, peers, self.scale * LEASE_SECONDS, self.seed)
        started = time.monotonic()
        stream.start()
        flood.start()
        peers.host.start(installation.base_url, max(1, int(PULL_SHARE * self.jobs)), 0.95 * length)
        faults = drill_schedule.schedule(self.faults, self.seed, self.only)
        injector.run(faults, started, lambda: time.monotonic() > until)
        peers.cease()
        say(f"drill: no more faults after {time.monotonic() - started:.0f} s")
        unsettled = _settle(installation, (stream, flood), peers, len(commits), until)
        peers.host.push_to_all()
        unsettled = unsettled or _settle(installation, (stream, flood), peers, len(commits), until)
        stream.stop()
        flood.stop()
        posted = stream.posted + flood.posted
        with installation.connect() as connection:
            facts, versions = drill_ledger.read(connection), drill_host_ledger.read(connection)
            recovery = recovery_of(injector.hits, connection)
            waits = _waits(connection, stream.posted)
        receipts = peers.receipts()
        verdict = drill_ledger.reconcile(posted, facts, receipts)
        books = peers.host.books()
        verdict.add(drill_host_ledger.reconcile(books, versions))
        unanswered = {request.key for request in requests + flooded} - {entry.key for entry in posted}
        verdict.stuck += [f"{key} was never answered" for key in sorted(unanswered)]
        if unsettled and verdict.ok:
            verdict.wrong_state.append(unsettled)
        seconds = time.monotonic() - begun
        _explain(verdict, recovery, stream, (self.files / "up.log").read_text(errors="replace"))
        summary = summary_of(self, verdict, injector.hits, recovery, seconds)
        summary |= {"webhook_requests": receipts.webhook_requests, "flood": len(flooded), **waits}
        summary |= {
            "pull_requests": len({number for number, _ in books.heads}),
            "heads": len(books.heads),
            "heads_without_webhook": len({head for _, head in books.heads} - books.taken_in),
            "limited_calls": peers.host.limited,
        }
        return summary, verdict


def _waits(connection: psycopg.Connection[Any], posted: Sequence[Posted]) -> dict[str, float]:
    """Return how long reviews took beside the flood, from request to end."""
    rows = connection.execute(
        "SELECT extract(epoch FROM finished_at - created_at)::float8 FROM jobs WHERE id = ANY(%s)"
        " AND finished_at IS NOT NULL",
        [[entry.job for entry in posted]],
    ).fetchall()
    seconds = [row[0] for row in rows] or [0.0]
    found = {"p50": percentile(seconds, 50), "p95": percentile(seconds, 95), "max": max(seconds)}
    return {f"others_wait_{name}_seconds": round(value, 2) for name, value in found.items()}


def _settle(
    installation: Installation, streams: Sequence[Stream], peers: Peers, jobs: int, until: float
) -> str:
    """Wait until every job has an end and every role is filled; return what is not when time is up."""
    said = 0.0
    while True:
        try:
            with installation.connect() as connection:
                row = connection.execute(
                    "SELECT count(*), count(finished_at), (SELECT count(*) FROM outbox_messages"
                    " WHERE aggregate_type = 'stage_run') FROM jobs"  # others come round for ever
                    f" WHERE idempotency_key NOT LIKE '{drill_ledger.PULL}:%'"
                ).fetchone()
                pulls = drill_host_ledger.reconcile(peers.host.books(), drill_host_ledger.read(connection))
        except psycopg.OperationalError:
            row, pulls = None, Verdict()
        missing, is_done = installation.missing(), all(stream.is_done() for stream in streams)
        if row and row[0] == row[1] == jobs and row[2] == 0 and is_done and not missing and pulls.is_settled:
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
