"""Configuration of the `notifications` app."""

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    name = "notifications"
    verbose_name = "Notifications"

    def ready(self) -> None:
        from criticizer.codehosts.registry import HOSTS
        from criticizer.observability.metrics import COUNTED_TABLES, GAUGES
        from criticizer.resilience import rate_limit
        from criticizer.resilience.health_checks import CHECKS
        from criticizer.security.expired_copies import COPIES, Copy
        from notifications import checks, health_checks, metrics  # noqa: F401  registers system checks

        GAUGES.extend(metrics.GAUGES)
        COUNTED_TABLES.extend(metrics.COUNTED_TABLES)

        for name, host in HOSTS.items():
            if host.calls_at_once:
                rate_limit.CONCURRENCY[name] = host.calls_at_once
            if host.calls_per_second:
                rate_limit.RATES[name] = host.calls_per_second

        frozen = "payload <> '{}' AND created_at < %(before)s"
        COPIES.extend(
            (
                Copy("deliveries", frozen, "payload = '{}'"),
                Copy("digests", frozen, "payload = '{}'"),
                # Without its message a delivery is not sent again, whatever the archive says.
                Copy("unarchived_mails", "created_at < %(before)s", key="token"),
            )
        )

        CHECKS.update(
            {
                "provider:mail": health_checks.mail,
                "provider:slack": health_checks.slack,
                "provider:swarm": health_checks.swarm,
                **dict.fromkeys(HOSTS, health_checks.code_host),
            }
        )
