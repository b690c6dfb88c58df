"""Metrics of this app, registered in `apps.py`."""

from criticizer.observability.metrics import Gauge
from reviews import token_counts

COUNTED_TABLES = ["jobs", "attempts"]
GAUGES = [
    Gauge("criticizer_jobs_active", "Number of unfinished jobs.", ("status",),
        "SELECT status, count(*) FROM jobs WHERE finished_at IS NULL GROUP BY 1", by_index=True),
    Gauge("criticizer_jobs_recent", "Jobs of the last 15 minutes (newest 10000) by status.",
        ("status",),
        """SELECT status, count(*) FROM (SELECT status, created_at FROM jobs ORDER BY created_at DESC, id DESC
              LIMIT 10000) j WHERE created_at > now() - interval '15 minutes' GROUP BY 1"""),
    Gauge("criticizer_attempts_recent",
        "Attempts of the last 15 minutes (newest 10000) by outcome.",
        ("outcome", "error_class"),
        """SELECT outcome, error_class, count(*)
             FROM (SELECT outcome, error_class, started_at FROM attempts
                    ORDER BY id DESC LIMIT 10000) a
            WHERE started_at > now() - interval '15 minutes' GROUP BY 1, 2"""),
    Gauge("criticizer_source_events_recent",
        "Events of triggers and polls of the last 15 minutes (newest 10000) by outcome.",
        ("origin", "outcome"),
        """SELECT origin, outcome, count(*) FROM (SELECT origin, outcome, received_at FROM source_events
              ORDER BY received_at DESC, id DESC LIMIT 10000) e
            WHERE received_at > now() - interval '15 minutes' GROUP BY 1, 2"""),
    Gauge("criticizer_characters_per_token", "Characters per token, as the server counts.", ("model",),
        f"SELECT model, ratio FROM ({token_counts.MEASURED}) m"),  # noqa: S608
    Gauge("criticizer_poll_found_missing", "Total events that only the poll found.", ("stream",),
        "SELECT stream, missing FROM source_positions"),
    Gauge("criticizer_poll_age_seconds", "Seconds since the last poll.", ("stream",),
        "SELECT stream, extract(epoch FROM now() - polled_at) FROM source_positions"),
    Gauge("criticizer_poll_stopped", "1 if the last poll stopped before its end.", ("stream",),
        "SELECT stream, (problem <> '')::int FROM source_positions"),
]  # fmt: skip
