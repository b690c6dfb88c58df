"""Fault drill: break an installation of JOBS jobs FAULTS times, then compare the books.

`manage.py up` runs as it does for everybody: embedded PostgreSQL, web, all clusters. Posters send a stream
of review requests and repeat each with its idempotency key until it is answered. The model server, two
webhook receivers, an SMTP server and a maildir misbehave on schedule (`drill_peers`), processes die
(`drill_faults`). Pull requests are opened and pushed to on GitHub, Gitea and GitLab, which reach their
limits and lose webhooks (`drill_host`). Another key posts a flood whose webhooks go to a receiver that hangs
or drips; the summary has how long the reviews of the first key took. When the faults are over and everything
is quiet, each pull request is pushed to once more; then what was posted, the database and the receivers'
ledgers are compared (`drill_ledger`, `drill_host_ledger`).

The last line on standard output is a JSON object; the status is 1 unless lost, duplicated, stuck and
wrong_state are 0. A drill that fails keeps its directory. The same SEED repeats the schedule.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import drill_peers, drill_schedule
from benchmarks.drill_course import FLOOD_SHARE, Course, explain, kept_unless_good, options_of
from benchmarks.drill_faults import Injector, Recovery, recovery_of
from benchmarks.drill_ledger import Verdict
from benchmarks.drill_load import Stream, make_flood, make_requests
from benchmarks.drill_peers import Peers
from benchmarks.drill_stack import Installation, api_keys, environment, make_commits
from benchmarks.figures import percentile, say
from criticizer.queue.outbox import LEASE_SECONDS
from reviews.demo import free_port
from tests.hosts.kinds import KINDS


@dataclass
class Drill:
    jobs: int
    faults: int
    seed: int
    scale: float
    files: Path
    only: tuple[str, ...] = ()
    hosts: tuple[str, ...] = tuple(KINDS)

    def run(self) -> tuple[dict[str, object], Verdict]:
        """Run the drill; return its summary and what the books say."""
        begun = time.monotonic()
        say(f"drill: {self.jobs} jobs, {self.faults} faults, seed {self.seed}, in {self.files}")
        repository = self.files / "repository"
        flood = int(FLOOD_SHARE * self.jobs)
        commits = make_commits(repository, self.jobs + flood)
        with drill_peers.running(self.files, self.hosts) as peers:
            installation = Installation(
                self.files, free_port(), environment(self.files, repository, options_of(peers, self.scale))
            )
            try:
                installation.start()
                say(f"drill: ready after {time.monotonic() - begun:.0f} s")
                return self._break(installation, peers, commits, begun)
            finally:
                installation.stop()

    def _break(
        self, installation: Installation, peers: Peers, commits: Sequence[str], begun: float
    ) -> tuple[dict[str, object], Verdict]:
        course = Course(
            installation,
            peers,
            make_requests(commits[: self.jobs], peers, self.seed),
            make_flood(commits[self.jobs :], peers.tarpit.port),
            api_keys(installation.manage),
            drill_schedule.length_of(self.faults),
        )
        injector = Injector(installation, peers, self.scale * LEASE_SECONDS, self.seed)
        course.start()
        faults = drill_schedule.schedule(self.faults, self.seed, self.only)
        injector.run(faults, course.started, course.is_late)
        unsettled = course.settle()
        with installation.connect() as connection:
            books, verdict = course.reconcile(connection, unsettled)
            recovery = recovery_of(injector.hits, connection)
        explain(verdict)
        _explain(recovery, course.streams[0], (self.files / "up.log").read_text(errors="replace"))
        summary = {"jobs": self.jobs, "faults": len(injector.hits), "seed": self.seed, **books}
        summary |= _felt(recovery, self.scale)
        return {**summary, "seconds": round(time.monotonic() - begun, 1)}, verdict


def _felt(recovery: Recovery, scale: float) -> dict[str, object]:
    kills = [value for value, _ in recovery.kills]
    return {
        "kills": len(kills),
        "recovery_p50_seconds": round(percentile(kills, 50), 2) if kills else None,
        "recovery_p95_seconds": round(percentile(kills, 95), 2) if kills else None,
        "recovery_bound_seconds": scale * LEASE_SECONDS + 10,
        "database_recovery_max_seconds": round(max((v for v, _ in recovery.database), default=0.0), 2),
    }


def _explain(recovery: Recovery, stream: Stream, log: str) -> None:
    """Print what the figures are made of."""
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
    parser.add_argument("--hosts", nargs="+", default=list(KINDS), choices=list(KINDS), help="default: all")
    parser.add_argument("--keep", action="store_true", help="keep the directory of a good run as well")
    given = parser.parse_args()
    only = tuple(given.only.split(",")) if given.only else ()
    repeat = shlex.join([".venv/bin/python", "-m", "benchmarks.drill", *sys.argv[1:]])

    def run(files: Path) -> tuple[dict[str, object], Verdict]:
        return Drill(given.jobs, given.faults, given.seed, given.scale, files, only, tuple(given.hosts)).run()

    return kept_unless_good(run, repeat, is_kept=given.keep)


if __name__ == "__main__":
    sys.exit(main())
