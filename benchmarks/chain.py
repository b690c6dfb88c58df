"""The queue: no-op jobs of three durable stages, against Celery + Redis and Procrastinate.

Ours is the product: `manage.py cluster stages` with two workers, rows made by
`reviews.intake.review_requests`, claimed and recorded by `reviews.pipeline`; only the stages
themselves are replaced by functions that do nothing (`benchmarks.stages`). The peers do the same
database work on the same tables
(`peer_sql`), each in its best form (`peer_celery`, `peer_procrastinate`).

All three stages lie on one queue here, so the product carries a job on in the worker that has it
(the next message is inserted already leased). `chain_throughput_handed_over` is the same without
that: every stage goes back through the queue, as fetch -> llm -> notify do in production.

Each round runs every contender once, on a fresh copy of the database; the printed values are
those of the round with the median ratio.

- throughput: workers started, warmed up and paused; jobs made due; workers resumed. Jobs per
  second from there to the last commit. CPU is user + system time of the workers, PostgreSQL and
  Redis meanwhile, per job.
- idle latency: one job at a time, from before the INSERT to the commit of its last stage, by
  PostgreSQL's record of commit times.
- retry lateness: stages that fail and are due again 0.5 to 6 s later; the start of the second
  attempt after that moment.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field

from benchmarks import ground, machine, retries
from benchmarks.figures import Figure, Must, emit, median_by, percentile, say
from benchmarks.ground import CannotRun, Ground, until
from criticizer.workers.supervisor import Child, clusters

WORKERS = 2
WARM_UP = 60
_numbers = itertools.count(1)


@dataclass
class Contender:
    """A queue: how it makes jobs due, and the processes that work on them."""

    name: str
    insert: Callable[[Sequence[str]], None]
    processes: Callable[[dict[str, str]], list[Child]]
    before: Callable[[], None] = lambda: None
    beside: Callable[[], AbstractContextManager[Sequence[int]]] = lambda: nullcontext(
        ()
    )  # servers of its own
    measures: frozenset[str] = frozenset({"throughput", "latency"})


@dataclass
class Sample:
    """Measurements of one contender in one round."""

    jobs_per_second: float = 0.0
    cpu_ms: float = 0.0
    latencies: list[float] = field(default_factory=list)  # ms
    lateness: list[float] = field(default_factory=list)  # ms; below 0 is early


@dataclass(frozen=True)
class Plan:
    rounds: int
    jobs: int
    single: int
    retries: int


def names(count: int) -> list[str]:
    return [f"bench-{next(_numbers)}" for _ in range(count)]


# -- one contender, one round -------------------------------------------------------------------


def run(contender: Contender, place: Ground, plan: Plan) -> Sample:
    from django.db import connection

    sample = Sample()
    with place.database() as environment, contender.beside() as servers:
        contender.before()
        with place.running(contender.processes(environment)) as pids:
            contender.insert(names(WARM_UP))
            _wait_for(WARM_UP)
            with connection.cursor() as cursor:
                cursor.execute("CHECKPOINT")
            _throughput(contender, [place.postmaster(), *pids, *servers], pids, plan.jobs, sample)
            if "latency" in contender.measures:
                _latency(contender, plan.single, sample)
            if "retry" in contender.measures:
                _retries(contender, plan.retries, sample)
    p50 = f"{percentile(sample.latencies, 50):.1f} ms" if sample.latencies else "-"
    late = f"{percentile(sample.lateness, 95):.1f} ms" if sample.lateness else "-"
    say(
        f"  {contender.name:24} {sample.jobs_per_second:6.1f} jobs/s {sample.cpu_ms:6.2f} CPU ms/job"
        f"  idle p50 {p50:>8}  late p95 {late:>8}"
    )
    return sample


def _throughput(contender: Contender, watched: list[int], pids: list[int], jobs: int, sample: Sample) -> None:
    from criticizer.db import prepared

    machine.pause(pids)
    before = prepared.value("SELECT count(*) FROM jobs")
    contender.insert(names(jobs))
    watch = machine.Stopwatch(watched)
    machine.resume(pids)
    _wait_for(before + jobs, seconds=60 + jobs / 5, every=0.2)
    cpu = watch.cpu()
    last = prepared.value("SELECT extract(epoch FROM max(pg_xact_commit_timestamp(xmin))) FROM jobs")
    sample.jobs_per_second = jobs / (float(last) - watch.started_at)
    sample.cpu_ms = 1000 * cpu / jobs
    if (noise := watch.noise_percent()) > 20:
        say(f"  (other processes took {noise:.0f} % of a core during the next line)")


def _latency(contender: Contender, count: int, sample: Sample) -> None:
    from criticizer.db import prepared

    for _ in range(count):
        time.sleep(random.uniform(0.02, 0.06))
        [name] = names(1)
        started_at = time.time()
        contender.insert([name])
        time.sleep(0.01)
        until(lambda name=name: _committed(name) is not None, 20, "a single job", every=0.005)
        sample.latencies.append(1000 * (float(_committed(name) or 0) - started_at))
    assert prepared.value("SELECT count(*) FROM jobs WHERE status <> 'succeeded'") == 0


def _committed(changelist: str) -> float | None:
    from criticizer.db import prepared

    found: float | None = prepared.value(
        """SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin))
             FROM jobs WHERE changelist_id = %(name)s AND status = 'succeeded'""",
        {"name": changelist},
    )
    return found


def _retries(contender: Contender, count: int, sample: Sample) -> None:
    from criticizer.db import prepared

    before = prepared.value("SELECT count(*) FROM jobs")
    contender.insert([retries.changelist(0.5 + 5.5 * n / count, next(_numbers)) for n in range(count)])
    _wait_for(before + count)
    found = prepared.rows(
        """SELECT extract(epoch FROM again.started_at - first.finished_at) - first.retry_delay_seconds AS late
             FROM attempts first
             JOIN attempts again ON again.stage_run_id = first.stage_run_id AND again.number = 2
            WHERE first.number = 1 AND first.outcome = 'failed'"""
    )
    sample.lateness = [1000 * float(row["late"]) for row in found]
    assert len(sample.lateness) == count


def _wait_for(jobs: int, seconds: float = 30.0, every: float = 0.05) -> None:
    from criticizer.db import prepared

    query = "SELECT count(*) FROM jobs WHERE status = 'succeeded'"
    until(lambda: bool(prepared.value(query) >= jobs), seconds, f"{jobs} jobs finished", every)


# -- the contenders -------------------------------------------------------------------------------


def ours(handed_over: bool = False) -> Contender:
    from reviews.intake.review_requests import ReviewRequest, request_review

    stages = "benchmarks.stages_handed_over" if handed_over else "benchmarks.stages"

    def insert(changelists: Sequence[str]) -> None:
        from django.db import transaction

        with transaction.atomic():
            for changelist in changelists:
                request_review(ReviewRequest(changelist, changelist))

    return Contender(
        "criticizer, handed over" if handed_over else "criticizer",
        insert,
        lambda environment: clusters(["stages"], {**environment, "BENCHMARK_STAGES": stages}),
        measures=frozenset({"throughput"} if handed_over else {"throughput", "latency", "retry"}),
    )


def celery(place: Ground, stack: ExitStack) -> Contender:
    import os

    socket, pid = stack.enter_context(ground.redis(place.files))
    os.environ["BENCHMARK_REDIS"] = socket
    from benchmarks import peer_celery

    def processes(environment: dict[str, str]) -> list[Child]:
        return [Child("celery", peer_celery.command(WORKERS), {**environment, "BENCHMARK_REDIS": socket})]

    return Contender(
        "celery+redis",
        peer_celery.insert,
        processes,
        before=peer_celery.app.control.purge,
        beside=lambda: nullcontext([pid]),
        measures=frozenset({"throughput", "latency", "retry"}),
    )


def procrastinate() -> Contender:
    from django.db import connection

    from benchmarks import peer_procrastinate

    def processes(environment: dict[str, str]) -> list[Child]:
        parameters = {
            "host": connection.settings_dict["HOST"],
            "user": connection.settings_dict["USER"],
            "dbname": environment["BENCHMARK_DATABASE"],
        }
        environment = {**environment, "BENCHMARK_CONNECTION": json.dumps(parameters)}
        return [
            Child(f"procrastinate-{n}", peer_procrastinate.command(), environment) for n in range(WORKERS)
        ]

    return Contender(
        "procrastinate async", peer_procrastinate.insert, processes, before=peer_procrastinate.create_tables
    )


# -- all rounds -----------------------------------------------------------------------------------

Round = dict[str, Sample]


def figures(rounds: Sequence[Round]) -> list[Figure]:
    """Return what the rounds showed."""
    made = []
    for peer, bound in (("celery+redis", 1.5), ("procrastinate async", 1.1)):
        for figure, key, must in (
            ("chain_throughput", "criticizer", Must("ratio", ">=", bound)),
            ("chain_throughput_handed_over", "criticizer, handed over", None),
        ):
            middle = median_by(
                rounds, lambda r, key=key, peer=peer: r[key].jobs_per_second / r[peer].jobs_per_second
            )
            made.append(
                Figure(
                    figure,
                    middle[key].jobs_per_second,
                    "jobs/s",
                    peer,
                    middle[peer].jobs_per_second,
                    must=must,
                )
            )
        middle = median_by(rounds, lambda r, peer=peer: r[peer].cpu_ms / r["criticizer"].cpu_ms)
        made.append(
            Figure(
                "chain_cpu",
                middle["criticizer"].cpu_ms,
                "CPU ms/job",
                peer,
                middle[peer].cpu_ms,
                lower_is_better=True,
            )
        )
        for percent, at_most in ((50, Must("value", "<=", 20)), (95, None)):
            made.append(
                _of_samples(rounds, f"chain_idle_latency_p{percent}", "latencies", percent, peer, at_most)
            )
    late = _of_samples(
        rounds, "chain_retry_lateness_p95", "lateness", 95, "celery+redis", Must("value", "<=", 50)
    )
    early = sum(value < 0 for r in rounds for value in r["criticizer"].lateness)
    early_peer = sum(value < 0 for r in rounds for value in r["celery+redis"].lateness)
    never = Figure(
        "chain_retries_too_early", early, "attempts", "celery+redis", early_peer,
        lower_is_better=True, must=Must("value", "<=", 0),
    )  # fmt: skip
    return [*made, late, never]


def _of_samples(
    rounds: Sequence[Round], figure: str, attribute: str, percent: int, peer: str, must: Must | None
) -> Figure:
    def of(r: Round, name: str) -> float:
        return percentile(getattr(r[name], attribute), percent)

    middle = median_by(rounds, lambda r: of(r, peer) / of(r, "criticizer"))
    value, peer_value = of(middle, "criticizer"), of(middle, peer)
    return Figure(figure, value, "ms", peer, peer_value, lower_is_better=True, must=must)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--single", type=int, default=50)
    parser.add_argument("--retries", type=int, default=40)
    parser.add_argument("--only", default="", help="a part of the contenders' names, to try one out")
    given = parser.parse_args()
    plan = Plan(given.rounds, given.jobs, given.single, given.retries)
    with ExitStack() as stack:
        place = stack.enter_context(ground.prepared())
        contenders = [ours(), celery(place, stack), ours(handed_over=True), procrastinate()]
        chosen = [contender for contender in contenders if given.only in contender.name]
        rounds: list[Round] = []
        for number in range(plan.rounds):
            say(f"chain: round {number + 1} of {plan.rounds}")
            rounds.append({contender.name: run(contender, place, plan) for contender in chosen})
        if chosen == contenders:
            emit(figures(rounds))


if __name__ == "__main__":
    try:
        main()
    except CannotRun as error:
        sys.exit(f"chain: {error}")
