"""Metrics of this app, registered in `apps.py`."""

from criticizer.observability.metrics import Gauge

COUNTED_TABLES = ["dead_letters"]
GAUGES = [
    Gauge("criticizer_dead_letters_open", "Dead letters that wait for an operator or are being replayed.",
        ("error_class",),
        "SELECT error_class, count(*) FROM dead_letters"
        " WHERE status NOT IN ('resolved', 'discarded') GROUP BY 1"),
]  # fmt: skip
