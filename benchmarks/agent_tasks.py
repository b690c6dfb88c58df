"""Agents' lists: 100,000 open tasks, keys that see all, a tenth or a handful of them.

    list    the answer of GET /api/v1/agent-tasks/ without HTTP: `reviews.agents.claim.listed`
    claim   the next task: `claim.claim_next`, given back outside of the time that is measured
    offer   what an offer of 20 tasks costs a stage without any: it pays for the indexes

The tasks are those of 1,000 repositories, in the order of their offer; the handful is offered last.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import ground
from benchmarks.figures import Figure, Must, emit, say
from benchmarks.ground import CannotRun

REPOSITORIES, HANDFUL = 1000, 7
KEYS = {
    "all": ("//app/",),
    "a tenth by 100 prefixes": tuple(f"//app/r{n}/" for n in range(0, REPOSITORIES, 10)),
    "one repository": ("//app/r500/",),
    "a handful": ("//late/one/",),
    "a handful of many prefixes": ("//late/one/", *(f"//none/r{n}/" for n in range(40))),
    "nothing": ("//none/x/",),
}


def _fill(tasks: int) -> list[tuple[int, int]]:
    """Store jobs with tasks; return further jobs without tasks, each with its stage.

    Those stages wait for agents.
    """
    from datetime import timedelta

    from django.db import connection
    from django.utils import timezone

    from reviews.models import ReviewJob, StageRun
    from reviews.states import Stage

    later = timezone.now() + timedelta(days=1)
    jobs = ReviewJob.objects.bulk_create(
        ReviewJob(
            idempotency_key=f"k-{n}", request_sha256="0" * 64, changelist_id=f"c-{n}", review_version=1,
            status="in_progress", deadline_at=later,
        )
        for n in range(2 * REPOSITORIES)
    )  # fmt: skip
    StageRun.objects.bulk_create(StageRun(job=job, stage=Stage.LLM) for job in jobs)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO agent_tasks (id, job_id, stage_run_id, type, ordinal, digest, directories, payload,
                                     result, expires_at, created_at)
            SELECT gen_random_uuid(), s.job_id, s.id, 'review_chunk', n / %(of)s, md5(n::text),
                   CASE WHEN n > %(tasks)s - %(few)s THEN ARRAY['//late/one/src/']
                        ELSE ARRAY['//app/r' || n %% %(of)s || '/docs/', '//app/r' || n %% %(of)s || '/src/']
                   END, '[]', '[]', now() + interval '1 day', now() - (%(tasks)s - n) * interval '1 ms'
              FROM generate_series(1, %(tasks)s) n
              JOIN (SELECT id, job_id, row_number() OVER (ORDER BY id) - 1 AS place FROM stage_runs) s
                ON s.place = n %% %(of)s""",
            {"tasks": tasks, "of": REPOSITORIES, "few": HANDFUL},
        )
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("SELECT job_id, id FROM stage_runs ORDER BY id OFFSET %s", [REPOSITORIES])
        return list(cursor.fetchall())


def _p95(run: Callable[[], Any], times: int) -> float:
    """Return the milliseconds that 19 of 20 calls stay below.

    The first calls warm up and are not measured.
    """
    taken = []
    for number in range(times + 6):  # PostgreSQL keeps a generic plan from the sixth call on
        began = time.perf_counter()
        run()
        if number >= 6:
            taken.append(1000 * (time.perf_counter() - began))
    return sorted(taken)[int(0.95 * len(taken))]


def _measure(times: int, stages: list[tuple[int, int]]) -> None:
    from django.db import transaction

    from reviews.agents import claim, offer
    from reviews.agents.rows import Caller
    from reviews.states import AgentTaskType

    for name, prefixes in KEYS.items():
        caller = Caller("bench", prefixes)
        listed = _p95(partial(claim.listed, caller), times)
        emit([_figure(f"list of a key that sees {name}", listed, 100)])
        taken = _p95(partial(_take, caller), times)
        emit([_figure(f"claim and release of a key that sees {name}", taken, 100)])

    payload = {"type": "review_chunk", "instructions": "x" * 4000, "request": "x" * 20_000}
    without_tasks = iter(stages)

    def add() -> None:
        drafts = [offer.Draft(AgentTaskType.REVIEW_CHUNK, n, f"{n}", payload) for n in range(20)]
        with transaction.atomic():
            offer.offer(*next(without_tasks), drafts, ["//new/r/docs/", "//new/r/src/"])

    emit([_figure("offer of 20 tasks", _p95(add, times), None)])


def _take(caller: Any) -> None:
    from reviews.agents import claim

    if (task := claim.claim_next(caller)) is not None:
        claim.release(caller, task["id"], task["claim_token"])


def _figure(what: str, value: float, bound: float | None) -> Figure:
    must = None if bound is None else Must("value", "<=", bound)
    return Figure(f"agent_tasks: {what}, p95", value, "ms", lower_is_better=True, must=must)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_tasks", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=20, help="measured calls of each kind")
    given = parser.parse_args()
    try:
        with ground.prepared():
            say(f"agent_tasks: storing {given.tasks} tasks")
            stages = _fill(given.tasks)
            say("agent_tasks: measuring")
            _measure(given.times, stages)
    except CannotRun as error:
        sys.exit(f"agent_tasks: {error}")


if __name__ == "__main__":
    main()
