"""Model calls in flight: one worker of the cluster `llm` against a server that waits 5 s.

Ours is the product: real jobs whose change is fetched, `manage.py cluster llm` with its one
worker, the OpenAI-compatible client, `python -m tests.fakes.llm --delay 5` as the model. Timed
from the moment the jobs are due, with the worker running and idle, to the commit of the last
review. Memory is what the processes of the cluster have for themselves (USS) while all calls
wait; the peer is the same product with one process per call (`BENCHMARK_SYNCHRONOUS`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import ground, machine
from benchmarks.figures import Figure, Must, emit, say
from benchmarks.ground import CannotRun, Ground, until
from criticizer.workers.supervisor import clusters

if TYPE_CHECKING:
    from reviews.artifacts.store import Stored

DELAY = 5
PROCESSES = 8
_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class Run:
    """One run: `seconds` to the last review, and the calls `in_flight` at once.

    `mib` is the memory that the processes had for themselves meanwhile.
    """

    seconds: float
    in_flight: int
    mib: float

    @property
    def per_gib(self) -> float:
        return self.in_flight * _MIB_PER_GIB / self.mib


@contextlib.contextmanager
def model_server() -> Iterator[str]:
    """Run the waiting model server; yield its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.llm", "--port", "0", "--delay", str(DELAY)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait(10)


def waiting(model: str) -> int:
    """Return the calls that the model server holds at this moment."""
    with urllib.request.urlopen(f"{model}/_stats", timeout=10) as answer:
        return int(json.load(answer)["in_flight"])


def _save(artifacts: Iterable[Stored]) -> None:
    for artifact in artifacts:
        artifact.save()


def make_fetched(count: int) -> None:
    """Make jobs whose change is fetched and whose review waits for `release`."""
    from criticizer.db import prepared
    from criticizer.queue import outbox
    from reviews import pipeline
    from reviews.artifacts import redactor
    from reviews.intake.review_requests import ReviewRequest, request_review
    from reviews.pipeline import Due
    from reviews.sources.base import Action, Change, ChangeStatus, FileChange

    for number in range(1, count + 1):
        request_review(ReviewRequest(f"bench-{number}", str(number)))
    for message in outbox.claim("stages", count):
        claim = pipeline.claim(Due(message.id, message.aggregate_id, message.lease_token), "benchmark")
        assert claim is not None
        file = FileChange("//bench/a.py", Action.ADD, new_text=f"def answer():\n    return {claim.job_id}\n")
        change = Change(
            claim.changelist_id, "perforce", "ann", "A change", ChangeStatus.SUBMITTED, 0, "", (file,)
        )
        _, artifacts = redactor.make(claim, change)
        pipeline.record(claim, partial(_save, artifacts))
    prepared.rows("UPDATE outbox_messages SET available_at = now() + interval '1 hour'")


def release(queue: str) -> None:
    """Make every waiting review due on `queue` at once."""
    from criticizer.db import prepared

    prepared.rows("UPDATE outbox_messages SET available_at = now(), queue = %(queue)s", {"queue": queue})
    prepared.rows("SELECT pg_notify(%(channel)s, '')", {"channel": f"criticizer_{queue}"})


def reviewed() -> int:
    from criticizer.db import prepared

    return int(prepared.value("SELECT count(*) FROM stage_runs WHERE stage = 'llm' AND status = 'succeeded'"))


def measure(place: Ground, model: str, count: int, queue: str, **environment: str) -> Run:
    """Run `count` reviews on one cluster, all due at once."""
    from criticizer.models import WorkerCluster

    with place.database() as base:
        make_fetched(count)
        children = clusters([queue], {**base, **environment})
        with place.running(children) as pids:
            until(lambda: WorkerCluster.objects.exists(), 60, "the cluster did not start")
            time.sleep(1)
            begun = time.monotonic()
            release(queue)
            peak, mib = 0, 0.0
            while reviewed() < count:
                if time.monotonic() - begun > 120:
                    raise CannotRun(f"{reviewed()} of {count} reviews within 120 s")
                now = waiting(model)
                if now > peak:
                    peak, mib = now, machine.own_mib(pids)
                time.sleep(0.1)
            seconds = time.monotonic() - begun
    say(f"llm_inflight: {count} calls on {queue}: {seconds:.1f} s, {peak} in flight, {mib:.0f} MiB")
    return Run(seconds, peak, mib)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--many", type=int, default=1000)
    given = parser.parse_args()
    with model_server() as model:
        options = {
            "LLM_PROVIDER": "openai",
            "LLM_MODEL": "bench",
            "LLM_BASE_URL": f"{model}/v1",
            "LLM_MAX_CONCURRENCY": str(max(given.calls, given.many)),
        }
        with ground.prepared(options) as place:
            few = measure(place, model, given.calls, "llm")
            many = measure(place, model, given.many, "llm")
            each = measure(
                place, model, 2 * PROCESSES, "stages", BENCHMARK_SYNCHRONOUS="1", WORKERS=str(PROCESSES)
            )
    peer = f"one process per call ({PROCESSES})"
    emit(
        [
            Figure(
                f"llm_{given.calls}_calls_of_{DELAY}_s", few.seconds, "s", peer,
                DELAY * given.calls / PROCESSES, lower_is_better=True, must=Must("value", "<=", 8),
            ),
            Figure(
                "llm_in_flight_per_gib", few.per_gib, "calls", peer, each.per_gib,
                must=Must("value", ">=", 2000),
            ),
            Figure(f"llm_{given.many}_calls_of_{DELAY}_s", many.seconds, "s"),
            Figure(f"llm_in_flight_per_gib_at_{given.many}", many.per_gib, "calls", peer, each.per_gib),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except CannotRun as error:
        sys.exit(f"llm_inflight: {error}")
