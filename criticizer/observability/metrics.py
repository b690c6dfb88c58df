"""The numbers of `/metrics`, computed from PostgreSQL at scrape time: the same from every process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import structlog
from django.db import DatabaseError, InterfaceError, connection, transaction
from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CollectorRegistry, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

log = structlog.get_logger(__name__)

QUERY_SECONDS = 2

# Each query is bounded: by a partial index over open rows, or by the newest rows of a table.
# They name the tables of the rooms above by their SQL names because the kernel imports none.

# name, help, labels, query (the labels' columns, then the value)
_GAUGES: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("criticizer_jobs_active", "Jobs at work, exactly.", ("status",),
     """SELECT status, count(*) FROM jobs
         WHERE status IN ('queued', 'in_progress', 'retryable_failed') GROUP BY 1"""),
    ("criticizer_jobs_recent", "Jobs of the last 15 minutes (newest 10000) by status.",
     ("status",),
     """SELECT status, count(*) FROM (SELECT status, created_at FROM jobs ORDER BY created_at DESC, id DESC
           LIMIT 10000) j WHERE created_at > now() - interval '15 minutes' GROUP BY 1"""),
    ("criticizer_queue_messages", "Messages in the outbox.", ("queue",),
     "SELECT queue, count(*) FROM outbox_messages GROUP BY 1"),
    ("criticizer_queue_due_messages", "Messages that are due and wait for a worker.", ("queue",),
     "SELECT queue, count(*) FROM outbox_messages WHERE available_at <= now() GROUP BY 1"),
    ("criticizer_queue_oldest_due_seconds", "Age of the message that has waited longest.", ("queue",),
     """SELECT queue, extract(epoch FROM now() - min(available_at)) FROM outbox_messages
         WHERE available_at <= now() GROUP BY 1"""),
    ("criticizer_attempts_recent",
     "Attempts of the last 15 minutes (newest 10000) by outcome.",
     ("outcome", "error_class"),
     """SELECT outcome, error_class, count(*) FROM (SELECT outcome, error_class, started_at FROM attempts
           ORDER BY id DESC LIMIT 10000) a WHERE started_at > now() - interval '15 minutes' GROUP BY 1, 2"""),
    ("criticizer_deliveries_open", "Deliveries that are not finished, exactly.", ("status",),
     """SELECT status, count(*) FROM deliveries
         WHERE NOT (status IN ('sent', 'failed', 'superseded', 'cancelled', 'abandoned')) GROUP BY 1"""),
    ("criticizer_deliveries_recent",
     "Deliveries of the last 15 minutes (newest 10000) by status.", ("status",),
     """SELECT status, count(*) FROM (SELECT status, created_at FROM deliveries
           ORDER BY id DESC LIMIT 10000) d WHERE created_at > now() - interval '15 minutes' GROUP BY 1"""),
    ("criticizer_dead_letters_open", "Dead letters that wait for an operator or are being replayed.",
     ("error_class",),
     "SELECT error_class, count(*) FROM dead_letters"
     " WHERE status NOT IN ('resolved', 'discarded') GROUP BY 1"),
    ("criticizer_circuit_state",
     "Circuit breakers: 0 closed, 1 half-open, 2 open, 3 forced open, 4 forced closed.", ("dependency",),
     """SELECT name, array_position(ARRAY['closed', 'half_open', 'open', 'forced_open', 'forced_closed'],
                                    state::text) - 1
          FROM circuits ORDER BY state = 'closed', name LIMIT 200"""),
    ("criticizer_waiting_messages", "Messages that wait for a dependency.", ("dependency",),
     """SELECT waiting_for, count(*) FROM outbox_messages WHERE waiting_for <> ''
         GROUP BY 1 ORDER BY 2 DESC LIMIT 200"""),
    ("criticizer_paused_seconds", "What is left of the pause that a dependency asked for.", ("dependency",),
     """SELECT name, extract(epoch FROM paused_until - now()) FROM paces
         WHERE paused_until > now() ORDER BY 2 DESC LIMIT 200"""),
    ("criticizer_source_events_recent",
     "Events of triggers and polls of the last 15 minutes (newest 10000) by outcome.",
     ("origin", "outcome"),
     """SELECT origin, outcome, count(*) FROM (SELECT origin, outcome, received_at FROM source_events
           ORDER BY received_at DESC, id DESC LIMIT 10000) e
         WHERE received_at > now() - interval '15 minutes' GROUP BY 1, 2"""),
    ("criticizer_poll_found_missing", "Events that no trigger told and the poll found, ever.", ("stream",),
     "SELECT stream, missing FROM source_positions"),
    ("criticizer_poll_age_seconds", "Time since the poll last asked.", ("stream",),
     "SELECT stream, extract(epoch FROM now() - polled_at) FROM source_positions"),
    ("criticizer_poll_stopped", "1 while the last poll could not ask to the end.", ("stream",),
     "SELECT stream, (problem <> '')::int FROM source_positions"),
    ("criticizer_maintenance_hanging", "Clusters that leave a function of the maintenance out, as it hung.",
     ("function",),
     """SELECT name, count(*) FROM worker_clusters, jsonb_array_elements_text(hanging) name
         WHERE beat_at > now() - interval '15 seconds' GROUP BY 1"""),
    # PostgreSQL's own statistics: constant cost. Rolled-back inserts are included.
    ("criticizer_rows_inserted", "Rows ever inserted, from pg_stat_user_tables.", ("table",),
     """SELECT relname, n_tup_ins FROM pg_stat_user_tables
         WHERE relname IN ('jobs', 'attempts', 'deliveries', 'dead_letters', 'security_events')"""),
)  # fmt: skip


class DatabaseCollector(Collector):
    """A few bounded queries in one snapshot. `workers_alive` returns workers per queue."""

    def __init__(self, workers_alive: Callable[[], Mapping[str, int]]) -> None:
        self._workers_alive = workers_alive

    def collect(self) -> Iterator[Metric]:
        """Yield one family per query; `criticizer_scrape_success` is 0 when a query failed."""
        families: list[Metric] = []
        success = 1.0
        try:
            with transaction.atomic():
                bound_queries()
                families.extend(_query_gauge(*gauge) for gauge in _GAUGES)
                families.append(self._workers())
        except (DatabaseError, InterfaceError) as error:
            log.warning("metrics_incomplete", error=type(error).__name__)
            success = 0.0
        yield from families
        yield GaugeMetricFamily(
            "criticizer_scrape_success", "1 when every number came from the database.", success
        )

    def _workers(self) -> Metric:
        documentation = "Workers with a recent heartbeat."
        family = GaugeMetricFamily("criticizer_workers_alive", documentation, labels=["queue"])
        for queue, count in self._workers_alive().items():
            family.add_metric([queue], count)
        return family


def bound_queries() -> None:
    """Cancel any statement of the current transaction that runs longer than QUERY_SECONDS."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = '{QUERY_SECONDS}s'")


def _query_gauge(name: str, documentation: str, labels: tuple[str, ...], query: str) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=labels)
    with connection.cursor() as cursor:
        cursor.execute(query)
        for *values, number in cursor.fetchall():
            family.add_metric([str(value) for value in values], float(number))
    return family


def registry(workers_alive: Callable[[], Mapping[str, int]]) -> CollectorRegistry:
    """Return a registry with the database's numbers and those of this Python process."""
    made = CollectorRegistry()
    made.register(DatabaseCollector(workers_alive))
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    GCCollector(registry=made)
    return made
