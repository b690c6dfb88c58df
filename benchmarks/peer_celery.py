"""Celery with Redis, tuned: prefork, late acknowledgement, enqueued after the commit.

What was tuned: CELERY_DB_REUSE_MAX (by default every task opens a database connection of its own: a third of
the throughput), no results, no events, no gossip, mingle or heartbeat, no rate limits, JSON messages of one
number, Redis on a unix socket. Connections are kept. Each stage is a task; it is published after the commit
of the stage before it, as `transaction.on_commit` would. A crash between the two loses the job, as does
Redis within its second between syncs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from celery import Celery  # type: ignore[import-untyped]
from django.db import transaction

from benchmarks import peer_sql, retries
from criticizer.db import prepared

PREFETCH = 16  # from 1 to 64 no difference beyond the noise

app = Celery("benchmark")
app.conf.update(
    broker_url="redis+socket://" + os.environ.get("BENCHMARK_REDIS", ""),
    worker_prefetch_multiplier=PREFETCH,
    task_acks_late=True,
    task_ignore_result=True,
    worker_disable_rate_limits=True,
    worker_enable_remote_control=False,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    CELERY_DB_REUSE_MAX=10**9,
)


@app.task(name="stage")  # type: ignore[untyped-decorator]
def stage(run: int) -> None:
    """Claim, do nothing, record, and publish the next stage."""
    claim = prepared.row(peer_sql.CLAIM, {"run": run})
    if claim is None:
        return
    delay = retries.seconds_of(claim["changelist_id"]) if claim["stage"] == "fetch" else None
    if delay is not None and claim["attempt"] == 1:
        prepared.rows(peer_sql.RETRY, {**claim, "delay": delay})
        stage.apply_async((run,), countdown=delay)
        return
    following = prepared.row(peer_sql.RECORD, peer_sql.recording(claim))
    if following is not None:
        stage.delay(following["id"])


def insert(changelists: Sequence[str]) -> None:
    """Make jobs due: rows in one commit, then their messages."""
    with transaction.atomic():
        for changelist in changelists:
            run = prepared.value(peer_sql.INSERT, {"changelist": changelist})
            transaction.on_commit(lambda run=run: stage.delay(run))


def command(workers: int) -> list[str]:
    """Return the command line of the worker."""
    return [
        sys.executable, "-m", "celery", "--app", "benchmarks.peer_celery", "worker",
        "--pool", "prefork", "--concurrency", str(workers), "--loglevel", "WARNING",
        "--without-gossip", "--without-mingle", "--without-heartbeat", "-O", "fair",
    ]  # fmt: skip
