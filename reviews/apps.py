"""Application configuration of the `reviews` room."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ReviewsConfig(AppConfig):
    name = "reviews"
    verbose_name = "Reviews"

    def ready(self) -> None:
        from reviews.roles import after_migrate

        post_migrate.connect(after_migrate, sender=self, dispatch_uid="reviews.roles")
