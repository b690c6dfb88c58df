"""Application configuration of `reviews`."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ReviewsConfig(AppConfig):
    name = "reviews"
    verbose_name = "Reviews"

    def ready(self) -> None:
        from criticizer.admin_site import viewing_scope
        from criticizer.checks import OUTSIDE
        from criticizer.observability.metrics import COUNTED_TABLES, GAUGES
        from criticizer.resilience.health_checks import CHECKS, PENDING
        from criticizer.security.expired_copies import COPIES, Copy
        from reviews import health_checks, metrics
        from reviews.recipients.viewing_scopes import visible_to
        from reviews.roles import after_migrate

        viewing_scope.PROVIDERS[:] = [visible_to]
        GAUGES.extend(metrics.GAUGES)
        COUNTED_TABLES.extend(metrics.COUNTED_TABLES)
        COPIES.append(Copy("review_units", "made_at < %(before)s", key="key"))
        held = "created_at < %(before)s AND (payload <> '' OR result <> '')"
        COPIES.append(Copy("agent_tasks", held, "payload = '', result = ''"))

        CHECKS.update({"p4": health_checks.perforce, "llm": health_checks.model})
        CHECKS["embeddings"] = health_checks.embeddings
        OUTSIDE.append(health_checks.small_windows)
        PENDING.append(health_checks.dependencies_to_retry)

        post_migrate.connect(after_migrate, sender=self, dispatch_uid="reviews.roles")
