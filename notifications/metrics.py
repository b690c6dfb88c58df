"""Metrics of this app, registered in `apps.py`."""

from criticizer.observability.metrics import Gauge

COUNTED_TABLES = ["deliveries"]
GAUGES = [
    Gauge("criticizer_deliveries_open", "Number of unfinished deliveries.", ("status",),
        """SELECT status, count(*) FROM deliveries
            WHERE NOT (status IN ('sent', 'failed', 'superseded', 'cancelled', 'abandoned')) GROUP BY 1"""),
    Gauge("criticizer_deliveries_recent",
        "Deliveries of the last 15 minutes (newest 10000) by status.", ("status",),
        """SELECT status, count(*) FROM (SELECT status, created_at FROM deliveries
              ORDER BY id DESC LIMIT 10000) d WHERE created_at > now() - interval '15 minutes' GROUP BY 1"""),
]  # fmt: skip
