"""Preferences of recipients. `notifications.preferences.policy` is the only writer."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from criticizer.db.triggers import audited


@audited("preference edit")
class RecipientPreference(models.Model):
    """One recipient's preferences; without a row, every review is sent at once. Audited."""

    class Threshold(models.TextChoices):
        EVERYTHING = "", "Every review"
        LOW = "low", "Reviews with findings"
        MEDIUM = "medium", "Reviews with a medium finding or worse"
        HIGH = "high", "Reviews with a high finding or worse"
        CRITICAL = "critical", "Reviews with a critical finding"

    class DigestMinutes(models.IntegerChoices):
        NONE = 0, "No digest"
        FIVE = 5, "5 minutes"
        TEN = 10, "10 minutes"
        FIFTEEN = 15, "15 minutes"
        THIRTY = 30, "30 minutes"
        SIXTY = 60, "An hour"

    recipient = models.CharField(max_length=512, unique=True)  # channel-qualified, normalised
    threshold = models.CharField(max_length=8, choices=Threshold.choices, blank=True, db_default="")
    muted_until = models.DateTimeField(null=True, blank=True)
    # Reviews that end within this time are sent in one mail; 0: each at once.
    digest_minutes = models.IntegerField(
        "digest", choices=DigestMinutes.choices, db_default=DigestMinutes.NONE
    )
    actor = models.CharField(max_length=255, db_default="")  # of the last change
    reason = models.CharField(max_length=255, blank=True, db_default="")
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        app_label = "notifications"
        db_table = "recipient_preferences"
        verbose_name = "recipient's preference"
        ordering = ["recipient"]
        constraints = [
            models.CheckConstraint(
                condition=Q(threshold__in=["", "low", "medium", "high", "critical"]),
                name="recipient_preferences_threshold",
            ),
            # Other channels have no digests.
            models.CheckConstraint(
                condition=Q(digest_minutes=0)
                | Q(digest_minutes__in=[5, 10, 15, 30, 60], recipient__startswith="mail:"),
                name="recipient_preferences_digest",
            ),
        ]

    def __str__(self) -> str:
        return self.recipient
