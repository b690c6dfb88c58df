"""The sweep finds lost work at a cost that a backlog does not raise (guarantee G16)."""

from __future__ import annotations

import importlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from criticizer.db import prepared, reconnect
from criticizer.models import OutboxMessage
from criticizer.queue import outbox
from reviews import pipeline
from reviews.models import ReviewJob, StageRun

pytestmark = pytest.mark.django_db(transaction=True)
Post = Callable[..., Any]
sweeping = importlib.import_module("reviews.pipeline.sweep")  # its package names the function like that


@pytest.fixture(autouse=True)
def _a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_after", sweeping._START)
    monkeypatch.setattr(sweeping, "_whole_at", None)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examine three jobs with a statement, six with a sweep."""
    monkeypatch.setattr(sweeping, "PART", 3)
    monkeypatch.setattr(sweeping, "AT_ONCE", 6)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the statements of sweeps, as they are run."""
    run: list[tuple[str, Mapping[str, Any]]] = []
    original = prepared.rows

    def rows(sql: str, parameters: Any = ()) -> list[dict[str, Any]]:
        run.extend([(sql, parameters)] if "outbox_messages" in sql else [])
        return original(sql, parameters)

    monkeypatch.setattr(prepared, "rows", rows)
    return run


def queue_up(post: Post, jobs: int) -> list[int]:
    """Request reviews; return the ids of their jobs in the order of their deadlines."""
    return [post(f"k{number}", str(1000 + number)).job_id for number in range(jobs)]


def lose(*jobs: int) -> None:
    runs = StageRun.objects.filter(job__in=jobs).values_list("pk", flat=True)
    OutboxMessage.objects.filter(aggregate_type=pipeline.AGGREGATE, aggregate_id__in=list(runs)).delete()


def has_message(job: int) -> bool:
    run = StageRun.objects.get(job=job, stage="fetch")
    return OutboxMessage.objects.filter(aggregate_type=pipeline.AGGREGATE, aggregate_id=run.pk).exists()


def scanned(sql: str, parameters: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the tables that a statement reads, each with the number of rows read there.

    Rows that a filter removed are included.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(outbox.BY_INDEX.replace("false", "true"))
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", parameters)
        (plan,) = cursor.fetchone()
    waiting = [(json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]]
    while waiting:
        node = waiting.pop()
        waiting += node.get("Plans", [])
        if table := node.get("Relation Name"):
            removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            yield table, (node["Actual Rows"] + removed) * node["Actual Loops"]


def plan_of(sql: str, parameters: Mapping[str, Any]) -> str:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(outbox.BY_INDEX.replace("false", "true"))
        cursor.execute(f"EXPLAIN {sql}", parameters)
        return str(cursor.fetchall())


def test_rows_read_by_a_sweep_do_not_grow_with_the_backlog(
    post: Post, parts: None, statements: list[tuple[str, Mapping[str, Any]]]
) -> None:
    queue_up(post, 60)
    prepared.rows("ANALYZE")
    pipeline.sweep()  # the whole round that a process begins with
    statements.clear()
    pipeline.sweep()
    read = [rows for sql, parameters in list(statements) for _, rows in scanned(sql, parameters)]
    assert 0 < sum(read) <= 6 * 10  # of each job: its row, its stages, its message


def test_a_whole_round_reads_the_indexes_that_claims_read(
    post: Post, parts: None, statements: list[tuple[str, Mapping[str, Any]]]
) -> None:
    """The sweep warms the indexes of claims in a database server that has just started.

    A claim would otherwise wait for the disk.
    """
    queue_up(post, 14)
    statements.clear()
    pipeline.sweep()
    whole = list(statements)
    statements.clear()
    pipeline.sweep()
    indexes = ("stage_runs_pkey", "jobs_pkey", "attempts_stage_run")
    assert [[index in plan_of(*asked) for index in indexes] for asked in whole] == [[True] * 3] * len(whole)
    assert not any("attempts" in plan_of(*asked) for asked in list(statements))


def test_a_sweep_goes_on_where_the_last_one_ended_until_it_was_around(post: Post, parts: None) -> None:
    jobs = queue_up(post, 14)
    assert pipeline.sweep() == 0
    lose(*jobs)
    assert [pipeline.sweep() for _ in range(4)] == [6, 6, 2, 0]
    lose(jobs[0], jobs[13])
    assert [pipeline.sweep() for _ in range(3)] == [0, 1, 1]  # the third of a round that began before


def test_the_first_sweep_of_a_process_finds_all_lost_work(post: Post, parts: None) -> None:
    jobs = queue_up(post, 14)
    lose(*jobs)
    assert pipeline.sweep() == 14


def test_the_first_sweep_after_a_lost_database_finds_all_lost_work(
    post: Post, parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = queue_up(post, 14)
    pipeline.sweep()
    lose(*jobs)
    monkeypatch.setattr(reconnect, "_lost_at", time.monotonic())
    assert pipeline.sweep() == 14
    lose(*jobs)
    assert pipeline.sweep() == 6
    monkeypatch.setattr(reconnect, "_lost_at", -math.inf)


def test_a_sweep_that_is_asked_for_everything_examines_everything(post: Post, parts: None) -> None:
    jobs = queue_up(post, 14)
    pipeline.sweep()
    lose(*jobs)
    assert pipeline.sweep(is_whole=True) == 14


def test_jobs_of_one_deadline_are_all_examined(post: Post, parts: None) -> None:
    jobs = queue_up(post, 20)
    ReviewJob.objects.update(deadline_at=timezone.now() + timedelta(hours=1))
    pipeline.sweep()
    lose(*jobs)
    assert [pipeline.sweep() for _ in range(4)] == [6, 6, 6, 2]


def test_a_part_that_fails_is_examined_again(
    post: Post, parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Death between two parts loses nothing: the next sweep begins where this one began."""
    jobs = queue_up(post, 14)
    pipeline.sweep()
    lose(*jobs)
    run = outbox.rows_by_index
    calls = iter([run])

    def fails_second(*arguments: Any) -> Any:
        return next(calls)(*arguments)

    monkeypatch.setattr(outbox, "rows_by_index", fails_second)
    with pytest.raises(StopIteration):
        pipeline.sweep()
    assert [has_message(job) for job in jobs[:6]] == [True] * 3 + [False] * 3
    monkeypatch.setattr(outbox, "rows_by_index", run)
    assert [pipeline.sweep() for _ in range(3)] == [3, 6, 2]
