"""`manage.py metric_table`: write the page of metrics and the Grafana dashboard."""

from criticizer.management.generated import GeneratedFilesCommand
from criticizer.observability import dashboard


class Command(GeneratedFilesCommand):
    help = (
        "Write docs/operations/metrics.md and docs/deploy/grafana-dashboard.json from the table of metrics."
    )

    def files(self) -> dict[str, str]:
        return {
            "docs/operations/metrics.md": dashboard.page(),
            "docs/deploy/grafana-dashboard.json": dashboard.grafana(),
        }
