"""Application configuration of the dead letters."""

from django.apps import AppConfig


class DeadLettersConfig(AppConfig):
    name = "deadletters"
    verbose_name = "Dead letters"

    def ready(self) -> None:
        from criticizer.observability.metrics import COUNTED_TABLES, GAUGES
        from criticizer.security.expired_copies import COPIES, Copy
        from deadletters import metrics

        GAUGES.extend(metrics.GAUGES)
        COUNTED_TABLES.extend(metrics.COUNTED_TABLES)

        old = "SELECT id FROM dead_letters WHERE last_failure_at < %(before)s"
        COPIES.extend(
            (
                Copy(
                    "dead_letter_payloads",
                    f"last_stack <> '' AND letter_id IN ({old})",
                    "last_stack = ''",
                    key="letter_id",
                ),
                Copy("operator_alerts", "text <> '' AND created_at < %(before)s", "text = '', detail = ''"),
            )
        )
