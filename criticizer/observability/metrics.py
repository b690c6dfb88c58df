"""Metrics of `/metrics`, read from PostgreSQL when they are scraped.

Every process returns the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CollectorRegistry, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from criticizer.resilience.classification import sqlstate_of

log = structlog.get_logger(__name__)

QUERY_SECONDS = 2
_CANCELLED = "57014"


class Gauge(NamedTuple):
    """One metric: `query` returns the labels' values, then the number.

    Each query is bounded: by a partial index over open rows, or by the newest rows of a table. Metrics with
    the same query share its answer; `column` is the place of the number, where NULL stands for none.
    `by_index`: PostgreSQL must use an index, although it may take reading the whole table for cheaper.
    """

    name: str
    documentation: str
    labels: tuple[str, ...]
    query: str
    column: int = -1
    by_index: bool = False


# Three numbers of each queue, as the backlog is read once.
_QUEUES = """
SELECT queue, count(*), nullif(count(*) FILTER (WHERE available_at <= now()), 0),
       CASE WHEN min(available_at) <= now() THEN extract(epoch FROM now() - min(available_at)) END
  FROM outbox_messages GROUP BY 1"""


# Each app adds its own in `apps.py`.
GAUGES = [
    Gauge("criticizer_queue_messages", "Messages in the outbox.", ("queue",), _QUEUES, 1),
    Gauge("criticizer_queue_due_messages", "Messages that are due and wait for a worker.", ("queue",),
        _QUEUES, 2),
    Gauge("criticizer_queue_oldest_due_seconds", "Age of the message that has waited longest.", ("queue",),
        _QUEUES, 3),
    Gauge("criticizer_circuit_state",
        "Circuit breakers: 0 closed, 1 half-open, 2 open, 3 forced open, 4 forced closed.", ("dependency",),
        """SELECT name, array_position(ARRAY['closed', 'half_open', 'open', 'forced_open', 'forced_closed'],
                                       state::text) - 1
             FROM circuits ORDER BY state = 'closed', name LIMIT 200"""),
    Gauge("criticizer_waiting_messages", "Messages that wait for a dependency.", ("dependency",),
        """SELECT waiting_for, count(*) FROM outbox_messages WHERE waiting_for <> ''
            GROUP BY 1 ORDER BY 2 DESC LIMIT 200"""),
    Gauge("criticizer_paused_seconds", "Seconds left of a pause that a dependency asked for.",
        ("dependency",),
        """SELECT name, extract(epoch FROM paused_until - now()) FROM paces
            WHERE paused_until > now() ORDER BY 2 DESC LIMIT 200"""),
    Gauge("criticizer_maintenance_hanging", "Clusters that skip a maintenance function because it hung.",
        ("function",),
        """SELECT name, count(*) FROM worker_clusters, jsonb_array_elements_text(hanging) name
            WHERE beat_at > now() - interval '15 seconds' GROUP BY 1"""),
]  # fmt: skip
COUNTED_TABLES = ["security_events"]
# PostgreSQL's own statistics: constant cost. Rolled-back inserts are included.
ROWS_INSERTED = Gauge(
    "criticizer_rows_inserted", "Rows ever inserted, from pg_stat_user_tables.", ("table",),
    "SELECT relname, n_tup_ins FROM pg_stat_user_tables WHERE relname = ANY(%s)",
)  # fmt: skip
# Not read by a query of their own.
WORKERS_ALIVE = Gauge("criticizer_workers_alive", "Workers with a recent heartbeat.", ("queue",), "")
SCRAPE_SUCCESS = Gauge("criticizer_scrape_success", "1 when every number came from the database.", (), "")
EXTRA = (WORKERS_ALIVE, SCRAPE_SUCCESS)


class DatabaseCollector(Collector):
    """A few bounded queries. `workers_alive` returns workers per queue."""

    def __init__(self, workers_alive: Callable[[], Mapping[str, int]]) -> None:
        self._workers_alive = workers_alive

    def collect(self) -> Iterator[Metric]:
        """Yield one family per metric; `criticizer_scrape_success` is 0 when a query failed.

        A query that runs into its time limit takes only its own metrics with it: a backlog that is slow to
        count does not hide the rest.
        """
        families: list[Metric] = []
        success = 1.0
        try:
            queries = list(dict.fromkeys(gauge.query for gauge in GAUGES if not gauge.by_index))
            while queries:
                try:
                    with transaction.atomic():
                        bound_queries()
                        while queries:
                            rows = _answer(queries[0])
                            asked = queries.pop(0)
                            families += [_family(gauge, rows) for gauge in GAUGES if gauge.query == asked]
                except OperationalError as error:
                    if sqlstate_of(error) != _CANCELLED:
                        raise
                    log.warning("metrics_too_slow", query=" ".join(queries.pop(0).split())[:200])
                    success = 0.0
            with transaction.atomic():
                bound_queries("SET LOCAL enable_seqscan = off")
                families.append(_family(ROWS_INSERTED, _answer(ROWS_INSERTED.query, [COUNTED_TABLES])))
                families.append(_family(WORKERS_ALIVE, self._workers_alive().items()))
                families += [_family(gauge, _answer(gauge.query)) for gauge in GAUGES if gauge.by_index]
        except (DatabaseError, InterfaceError) as error:
            log.warning("metrics_incomplete", error=type(error).__name__)
            success = 0.0
        yield from families
        yield GaugeMetricFamily(SCRAPE_SUCCESS.name, SCRAPE_SUCCESS.documentation, success)


def bound_queries(also: str = "") -> None:
    """Cancel any statement of the current transaction that runs longer than QUERY_SECONDS.

    `also`: what else to set for it.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = '{QUERY_SECONDS}s'; {also}")


def _answer(query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return list(cursor.fetchall())


def _family(gauge: Gauge, rows: Iterable[tuple[Any, ...]]) -> Metric:
    family = GaugeMetricFamily(gauge.name, gauge.documentation, labels=gauge.labels)
    for row in rows:
        if row[gauge.column] is not None:
            family.add_metric([str(value) for value in row[: len(gauge.labels)]], float(row[gauge.column]))
    return family


def registry(workers_alive: Callable[[], Mapping[str, int]]) -> CollectorRegistry:
    """Return a registry with the database's numbers and those of this Python process."""
    made = CollectorRegistry()
    made.register(DatabaseCollector(workers_alive))
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    GCCollector(registry=made)
    return made
