"""Cluster drill: break an installation of HOSTS machines, then compare the books.

The database is replicated. Machines are namespaces (`cluster_network`), each with web and workers of every
queue; PostgreSQL is a primary and a streaming standby on two more (`cluster_database`), artifacts lie in a
bucket. Load, peers and books are those of `make drill`. When the faults are over (`cluster_faults`), the
hosts are upgraded one by one under load: first the database, then each host is drained and comes back with
the next version.

The last line on standard output is a JSON object; the status is 1 unless lost, duplicated, stuck and
wrong_state are 0, and 3 where machines cannot be made. With asynchronous replication a promotion loses
transactions (`lost_transactions`). Requests among them are counted apart (`lost_by_database`), and those of
them that the product had made again (`made_again`) and named in an alert (`told`) by the end of the upgrade,
and that `manage.py lost_requests` finds in the logs (`logged`); one that neither names is lost. All are
posted again. Counted apart too are mails that were sent again because their record was lost
(`repeated_mails`), and webhooks with the same key and another time of review (`repeated_webhooks`), which a
receiver that honours the key drops.

A drill that is told to end (SIGTERM, SIGINT, SIGHUP), or that cannot go on, compares its books as they
stand: its summary says while what it was `cut`, and its status is 1.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg

from benchmarks import cluster_faults, cluster_hosts, cluster_network, drill_peers, drill_schedule
from benchmarks.cluster_faults import Injector, recovery_of
from benchmarks.cluster_hosts import Cluster
from benchmarks.drill_course import COUNTED, FLOOD_SHARE, Course, explain, kept_unless_good, options_of
from benchmarks.drill_ledger import Verdict, take_out_repeated
from benchmarks.drill_load import make_flood, make_requests
from benchmarks.drill_peers import Peers
from benchmarks.drill_phases import Cut, Phases
from benchmarks.drill_stack import api_keys, environment, make_commits
from benchmarks.figures import percentile, say
from benchmarks.ground import CannotRun, until
from criticizer.queue.outbox import LEASE_SECONDS

# A lease of 3 s, as in `make drill`, ends by itself where hundreds of processes share two cores.
SCALE = 0.3
UPGRADE_SECONDS = 15.0  # of a host, during which load arrives
CANNOT = 3  # exit status where machines cannot be made
CUT_BY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CUT_SECONDS = 20.0  # so long a cut drill waits for a database to do its books


@dataclass
class ClusterDrill:
    hosts: int
    jobs: int
    faults: int
    seed: int
    scale: float
    files: Path
    is_synchronous: bool
    only: tuple[str, ...] = ()

    phases: Phases = field(default_factory=Phases)

    def run(self) -> tuple[dict[str, object], Verdict]:
        """Run the drill; return its summary and what the books say, also of one that was cut."""
        say(f"drill: {self.hosts} hosts, {self.jobs} jobs, {self.faults} faults, seed {self.seed}")
        summary: dict[str, object] = {
            "hosts": self.hosts,
            "jobs": self.jobs,
            "seed": self.seed,
            "replication": "synchronous" if self.is_synchronous else "asynchronous",
        }
        try:
            found, verdict = self._run()
        except Cut as cut:
            found = {"cut": f"{self.phases.now}: {cut}"}
            verdict = Verdict(stuck=["the drill was cut before its load began"])
        return {**summary, **found, **self.phases.summary()}, verdict

    def _run(self) -> tuple[dict[str, object], Verdict]:
        self.phases.watch()
        cluster_network.make_bridge()
        repository = self.files / "repository"
        flood = int(FLOOD_SHARE * self.jobs)
        commits = make_commits(repository, self.jobs + flood)
        with drill_peers.running(self.files) as peers, cluster_hosts.bucket(self.files) as bucket:
            options = {**options_of(peers, self.scale), **bucket}
            configured = environment(self.files, repository, options)
            cluster = cluster_hosts.made(
                self.files, self.hosts, configured, is_synchronous=self.is_synchronous
            )
            try:
                cluster.start()
                course = self._course(cluster, peers, commits)
                return self._break(course, Injector(cluster, peers, self.scale * LEASE_SECONDS))
            finally:
                cluster.stop()

    def _course(self, cluster: Cluster, peers: Peers, commits: list[str]) -> Course:
        return Course(
            cluster,
            peers,
            # A maildir is a machine's own: another one cannot look there, so all mail goes through SMTP.
            make_requests(commits[: self.jobs], peers, self.seed, smtp_share=1.0),
            make_flood(commits[self.jobs :], peers.tarpit.port),
            api_keys(cluster.manage),
            self._length + UPGRADE_SECONDS * self.hosts,
        )

    @property
    def _length(self) -> float:
        return max(20.0, cluster_faults.SECONDS_A_FAULT * self.faults)

    def _break(self, course: Course, injector: Injector) -> tuple[dict[str, object], Verdict]:
        cluster, cut, unsettled = injector.cluster, "", ""
        lost: dict[str, int] = {}
        unreported: list[str] = []
        drained: list[float] = []
        faults = drill_schedule.schedule(
            self.faults, self.seed, self.only, weights=cluster_faults.WEIGHTS, length=self._length
        )
        try:
            self.phases.begin("faults")
            course.start()
            injector.run(faults, course.started, course.is_late)
            self.phases.begin("upgrade")
            drained += upgrade(cluster)
            lost, unreported = _post_lost_again(cluster, course)
            self.phases.begin("settling")
            unsettled = course.settle()
        except (Cut, CannotRun, psycopg.Error, subprocess.SubprocessError) as error:
            cut = f"{self.phases.now}: {error}"
            say(f"drill: cut while {cut}")
        self.phases.begin("books")
        books, verdict, recovery = _books(course, injector, unsettled, cut)
        repeated = dict.fromkeys(("mail", "webhook"), 0)
        if not self.is_synchronous:
            keys = {key for one in cluster.pair.lost for key in one.keys}
            repeated = take_out_repeated(verdict, course.facts, cluster.pair.losses, keys)
        verdict.lost += unreported
        explain(verdict)
        say(f"drill: answers other than 200 and 201: {dict(course.streams[0].refusals)}")
        felt = injector.felt
        return {
            **({"cut": cut} if cut else {}),
            "faults": len(injector.hits),
            **books,
            **{name: len(getattr(verdict, name)) for name in COUNTED},
            "failovers": len(cluster.pair.promotions),
            "failover_felt_p95_seconds": round(percentile(felt, 95), 2) if felt else None,
            "failover_felt_max_seconds": round(max(felt), 2) if felt else None,
            "failover_restarts": injector.restarted,
            "fenced": cluster.count("lease_lost"),
            "clusters_ended": cluster.count("cluster_ended"),  # by their watchdogs
            "recoveries": len(recovery),
            "recovery_p95_seconds": round(percentile(recovery, 95), 2) if recovery else None,
            "recovery_bound_seconds": self.scale * LEASE_SECONDS + 10,
            "drain_max_seconds": round(max(drained), 1) if drained else None,
            "lost_transactions": sum(one.transactions for one in cluster.pair.lost),
            **lost,
            "repeated_mails": repeated["mail"],
            "repeated_webhooks": repeated["webhook"],
        }, verdict


def _books(
    course: Course, injector: Injector, unsettled: str, cut: str
) -> tuple[dict[str, object], Verdict, list[float]]:
    """Compare the books; return the summary, the verdict and the seconds of each recovery.

    Those of a drill that was cut say how they stand now, if the database takes writes within CUT_SECONDS.
    """
    cluster, last = injector.cluster, time.monotonic() + (CUT_SECONDS if cut else 0)
    while True:
        try:
            with cluster.connect() as connection:
                books, verdict = course.reconcile(connection, unsettled, is_cut=bool(cut))
                return books, verdict, recovery_of(injector.hits, connection)
        except psycopg.OperationalError as error:
            if time.monotonic() > last:
                if not cut:
                    raise
                return {}, Verdict(stuck=[f"the books were not done: {error}"]), []
            time.sleep(0.5)


def upgrade(cluster: Cluster) -> list[float]:
    """Upgrade the hosts one by one; return the seconds of each drain.

    Until the last one, some are a version behind.
    """
    cluster.manage("migrate", "--verbosity", "0", CLUSTER_NEXT_VERSION="1")
    say("drill: the database is a version ahead")
    drained = []
    for host in cluster.hosts:
        drained.append(host.drain())
        host.environment["CLUSTER_NEXT_VERSION"] = "1"
        host.start()
        is_ready = partial(host.answers, "/readyz")
        until(is_ready, cluster_hosts.START_SECONDS, f"{host.name} is not ready after the upgrade", 0.3)
        say(f"drill: {host.name} drained in {drained[-1]:.1f} s and came back upgraded")
    return drained


def _post_lost_again(cluster: Cluster, course: Course) -> tuple[dict[str, int], list[str]]:
    """Forget answers about jobs that the promotions lost, and post those requests again.

    Return how many, and a sentence for each that the product reports nowhere.

    Which ones is what the old primaries' own files show, so nothing that the product lost is among them.
    """
    keys = {key for lost in cluster.pair.lost for key in lost.keys}
    if not keys:
        return {}, []
    with cluster.connect() as connection:
        query = "SELECT idempotency_key, id FROM jobs WHERE idempotency_key = ANY(%s)"
        jobs = dict(connection.execute(query, [list(keys)]).fetchall())
        alerts = connection.execute("SELECT text FROM operator_alerts WHERE kind = 'requests_lost'")
        lines = [line for (text,) in alerts.fetchall() for line in text.splitlines()]
    logged = _lost_requests(cluster)
    found = dict.fromkeys(("lost_by_database", "made_again", "told", "logged"), 0)
    unreported = []
    for stream in course.streams:
        answers = dict.fromkeys(stream.posted)  # a request that was posted twice has one
        lost = [entry for entry in answers if entry.key in keys and jobs.get(entry.key) != entry.job]
        found["lost_by_database"] += len(lost)
        found["made_again"] += sum(entry.key in jobs for entry in lost)
        for entry in lost:
            is_told = any(line.startswith(f"{entry.key}: was review {entry.job},") for line in lines)
            is_logged = any(
                line.startswith(f"review {entry.job} of ") and f", key {entry.key}, " in line
                for line in logged
            )
            found["told"] += is_told
            found["logged"] += is_logged
            case = f"{entry.key}, which PostgreSQL lost as job {entry.job},"
            if not is_told:
                say(f"drill: {case} was not told; now: {jobs.get(entry.key)}")
            if not (is_told or is_logged):
                unreported.append(f"{case} is reported nowhere")
        stream.posted[:] = [entry for entry in stream.posted if entry not in lost]
        stream.post_again({entry.key for entry in lost})
    say(f"drill: requests that were lost with a primary and are posted again: {found}")
    return found, unreported


def _lost_requests(cluster: Cluster) -> list[str]:
    """Return what `manage.py lost_requests` finds in the logs of all hosts."""
    try:
        printed = cluster.manage("lost_requests", *(str(host.log) for host in cluster.hosts))
    except subprocess.CalledProcessError as missing:  # so it ends where any is missing
        printed = missing.stdout.decode()
    return printed.splitlines()


def _cut(number: int, _: object) -> None:
    """End the drill with a summary, once: what follows does not last long."""
    for each in CUT_BY:
        signal.signal(each, signal.SIG_IGN)
    raise Cut(signal.Signals(number).name)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster_drill", description="The cluster drill."
    )
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--faults", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=SCALE, help="RETRY_TIME_SCALE of the run")
    parser.add_argument("--asynchronous", action="store_true", help="a commit does not wait for the standby")
    parser.add_argument("--only", default="", help="kinds of faults, comma-separated; default: all")
    parser.add_argument("--keep", action="store_true", help="keep the directory of a good run as well")
    given = parser.parse_args()
    try:
        cluster_network.enter()
    except CannotRun as error:
        say(f"cluster drill: {error}")
        return CANNOT
    for number in CUT_BY:
        signal.signal(number, _cut)
    only = tuple(given.only.split(",")) if given.only else ()
    repeat = (
        f"make cluster-drill HOSTS={given.hosts} JOBS={given.jobs} FAULTS={given.faults} SEED={given.seed}"
        + (" ASYNCHRONOUS=1" if given.asynchronous else "")
    )

    def run(files: Path) -> tuple[dict[str, object], Verdict]:
        return ClusterDrill(
            given.hosts,
            given.jobs,
            given.faults,
            given.seed,
            given.scale,
            files,
            not given.asynchronous,
            only,
        ).run()

    return kept_unless_good(run, repeat, is_kept=given.keep)


if __name__ == "__main__":
    sys.exit(main())
