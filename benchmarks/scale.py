"""Jobs a second of each stage, with one and two hosts, and one and two worker processes.

A host is a set of worker clusters of its own (`manage.py cluster`), here beside the other on one machine.
What grows with hosts is what waits for a source, a model or a receiver, so the stages are replaced by
functions that wait as long (`benchmarks.stages_waiting`). Claim, lease, record and the queue are the
product's. Each stage is measured alone: its jobs are prepared, made due at once and timed to the last
commit.

`scale_database_ms_*` is the CPU time of PostgreSQL for one stage of a job: what hosts share, and what is
used up first where stages do not wait.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from benchmarks import ground, machine, stages_waiting
from benchmarks.figures import Figure, Must, emit, say
from benchmarks.ground import CannotRun, Ground, until
from criticizer.workers.supervisor import clusters

CONCURRENCY = 10  # model calls of one host
JOBS = {"fetch": 160, "llm": 150, "notify": 150}
QUEUES = {"fetch": "stages", "llm": "llm", "notify": "notify"}


@dataclass(frozen=True, slots=True)
class Rate:
    """Stages a second, and the CPU time of PostgreSQL for one of them."""

    per_second: float
    database_ms: float


def measure(place: Ground, stage: str, hosts: int, workers: int = 2) -> Rate:
    """Run the jobs of one stage on `hosts` hosts, all due at once. `workers`: WORKERS of each."""
    from criticizer.db import prepared
    from criticizer.models import WorkerCluster

    done = f"SELECT count(*) FROM stage_runs WHERE stage = '{stage}' AND status = 'succeeded'"
    jobs = JOBS[stage]
    with place.database() as base:
        environment = {
            **base,
            "BENCHMARK_STAGES": "benchmarks.stages_waiting",
            "BENCHMARK_QUEUES": "own",
            "WORKERS": str(workers),
            "LLM_MAX_CONCURRENCY": str(CONCURRENCY),
        }
        _prepare(stage, jobs)
        children = [
            replace(child, name=f"host{number}-{child.name}")
            for number in range(hosts)
            for child in clusters([QUEUES[stage]], environment)
        ]
        with place.running(children):
            until(lambda: WorkerCluster.objects.count() == hosts, 90, "a cluster did not start")
            watch = machine.Stopwatch([place.postmaster()])
            _release(QUEUES[stage])
            until(lambda: bool(prepared.value(done) >= jobs), 120, f"{jobs} stages {stage}", every=0.1)
            cpu = watch.cpu()
            last = prepared.value("SELECT extract(epoch FROM max(finished_at)) FROM attempts")
    rate = Rate(jobs / (float(last) - watch.started_at), 1000 * cpu / jobs)
    say(f"scale: {stage}: {hosts} hosts, {workers} workers: {rate.per_second:.1f}/s")
    return rate


def _prepare(stage: str, count: int) -> None:
    """Make jobs whose stages before `stage` are done and whose message is not due."""
    from criticizer.db import prepared
    from criticizer.queue import outbox
    from reviews import pipeline
    from reviews.intake.review_requests import ReviewRequest, request_review
    from reviews.pipeline import Due

    for number in range(1, count + 1):
        request_review(ReviewRequest(f"scale-{number}", str(number)))
    for before in list(QUEUES)[: list(QUEUES).index(stage)]:
        for message in outbox.claim(QUEUES[before], count):
            claim = pipeline.claim(Due(message.id, message.aggregate_id, message.lease_token), "benchmark")
            assert claim is not None
            pipeline.record(claim)
    prepared.rows("UPDATE outbox_messages SET available_at = now() + interval '1 hour'")


def _release(queue: str) -> None:
    from criticizer.db import prepared

    prepared.rows("UPDATE outbox_messages SET available_at = now()")
    prepared.rows("SELECT pg_notify(%(channel)s, '')", {"channel": f"criticizer_{queue}"})


def main() -> int:
    figures = []
    with ground.prepared({"LOG_LEVEL": "ERROR"}) as place:
        for stage in QUEUES:
            one, two = (measure(place, stage, hosts) for hosts in (1, 2))
            figures += [
                Figure(
                    f"scale_{stage}_two_hosts", two.per_second, "stages/s", "one host", one.per_second,
                    must=Must("ratio", ">=", 1.6),
                ),
                Figure(f"scale_database_ms_{stage}", one.database_ms, "ms"),
            ]  # fmt: skip
        one, two = (measure(place, "fetch", 1, workers) for workers in (1, 2))
        figures.append(
            Figure("scale_fetch_two_workers", two.per_second, "stages/s", "one worker", one.per_second)
        )
    say(f"scale: a fetch waits {stages_waiting.FETCH_SECONDS} s, llm {stages_waiting.LLM_SECONDS} s")
    emit(figures)
    return 0 if all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CannotRun as error:
        sys.exit(f"scale: {error}")
