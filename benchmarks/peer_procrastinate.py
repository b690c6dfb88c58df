"""Procrastinate in its best form: async tasks, hand-written SQL, a pool, several processes.

`python -m benchmarks.peer_procrastinate` runs one worker process of `CONCURRENCY` tasks; the benchmark
starts as many as the others have workers. The next stage is deferred inside the commit that records the one
before it (its own SQL function, in the same statement), so nothing is lost. Finished jobs are deleted from
its table, LISTEN is on, locks are not used; the pool of psycopg is ours, without the liveness check and the
transaction around each of its queries.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from django.db import connection, transaction
from procrastinate import App, PsycopgConnector
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from benchmarks import peer_sql
from criticizer.db import prepared

CONCURRENCY = 10
_DEFER = """
SELECT procrastinate_defer_jobs_v1(ARRAY[ROW('default', 'stage', 0, NULL, NULL,
       jsonb_build_object('run', due.id), NULL)::procrastinate_job_to_defer_v1])"""
_INSERT = f"{peer_sql.INSERTING} {_DEFER} FROM due"
_RECORD = f"{peer_sql.RECORDING} {_DEFER} FROM due"


def insert(changelists: Sequence[str]) -> None:
    """Make jobs due: rows and messages in one commit."""
    with transaction.atomic():
        for changelist in changelists:
            prepared.rows(_INSERT, {"changelist": changelist})


def create_tables() -> None:
    from procrastinate.schema import SchemaManager

    with connection.cursor() as cursor:
        cursor.execute(SchemaManager.get_schema().replace("%", "%%"), [])


def command() -> list[str]:
    """Return the command line of one worker process."""
    return [sys.executable, "-m", "benchmarks.peer_procrastinate"]


async def work(parameters: dict[str, Any]) -> None:
    """Run a worker until it is told to stop."""
    app = App(connector=PsycopgConnector())
    # One pool for its queries and ours. The one it makes itself asks each connection whether it
    # lives and wraps each query in a transaction: three round trips for one.
    pool = AsyncConnectionPool[AsyncConnection[dict[str, Any]]](
        kwargs={**parameters, "row_factory": dict_row},
        configure=lambda connection: connection.set_autocommit(True),
        min_size=CONCURRENCY,
        max_size=CONCURRENCY + 2,
        open=False,
    )

    @app.task(name="stage", queue="default")
    async def stage(run: int) -> None:
        async with pool.connection() as connection:
            cursor = await connection.execute(peer_sql.CLAIM, {"run": run}, prepare=True)
            claim = await cursor.fetchone()
            if claim is not None:
                await connection.execute(_RECORD.encode(), peer_sql.recording(claim), prepare=True)

    async with pool, app.open_async(pool):
        await app.run_worker_async(concurrency=CONCURRENCY, delete_jobs="always", wait=True)


if __name__ == "__main__":
    asyncio.run(work(json.loads(os.environ["BENCHMARK_CONNECTION"])))
