"""Application configuration of the dead letters."""

from django.apps import AppConfig


class DeadLettersConfig(AppConfig):
    name = "deadletters"
    verbose_name = "Dead letters"

    def ready(self) -> None:
        from criticizer.observability.metrics import COUNTED_TABLES, GAUGES
        from deadletters import metrics

        GAUGES.extend(metrics.GAUGES)
        COUNTED_TABLES.extend(metrics.COUNTED_TABLES)
