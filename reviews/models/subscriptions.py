"""Subscriptions to changes. `reviews.recipients.subscriptions` reads them; forms write them."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from criticizer.db.triggers import audited


@audited("subscription edit")
class Subscription(models.Model):
    """A subscription to changes of files that `pattern` matches, by `author` if one is named.

    It notifies either `owner`, at the mail address of their account, who edits it on their own page; or
    `recipient`, which an administrator chose. Audited like the allow-list.
    """

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="subscriptions",
    )
    recipient = models.CharField(
        max_length=512,
        blank=True,
        db_default="",
        default="",
        help_text="Such as mail:ann@example.com; empty for a subscription of an owner.",
    )
    pattern = models.CharField(max_length=1024, help_text="Such as //depot/project/... or //depot/lib/*.c")
    author = models.CharField(
        max_length=255,
        blank=True,
        db_default="",
        default="",
        help_text="Only changes of this author, as named by the version control; empty: of any author.",
    )
    reason = models.CharField(
        max_length=255, blank=True, db_default="", default="", help_text="Why: a ticket or a sentence."
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        app_label = "reviews"
        db_table = "subscriptions"
        ordering = ["pattern", "id"]
        constraints = [
            # An owner's address is not stored: it would stay when the account's changes.
            models.CheckConstraint(
                condition=(Q(owner__isnull=True) & ~Q(recipient="")) | Q(owner__isnull=False, recipient=""),
                name="subscriptions_one_reader",
            ),
            models.CheckConstraint(condition=Q(pattern__startswith="//"), name="subscriptions_depot_path"),
            models.UniqueConstraint(
                fields=["recipient", "pattern", "author"],
                condition=Q(owner__isnull=True),
                name="subscriptions_once",
            ),
            models.UniqueConstraint(
                fields=["owner", "pattern", "author"],
                condition=Q(owner__isnull=False),
                name="subscriptions_once_an_owner",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pattern} to {self.recipient or f'account {self.owner_id}'}"
