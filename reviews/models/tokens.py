"""Token ledger: the estimated and the reported tokens of each call to a language model."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now

from reviews.models.jobs import Attempt, ReviewJob
from reviews.states import LedgerState


class LedgerEntry(models.Model):
    """One call to a language model, written before it starts.

    `reviews.token_ledger` is its only writer. `tokens` is what counts towards the limits: what the provider
    reported, until then the estimate.
    """

    job = models.ForeignKey(ReviewJob, on_delete=models.CASCADE, related_name="token_ledger")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="+", db_index=False)
    call = models.CharField(max_length=64)  # as in the log and in `X-Request-Id`
    dependency = models.CharField(max_length=128)
    model = models.CharField(max_length=128)
    source = models.CharField(max_length=128)
    state = models.CharField(max_length=8, choices=LedgerState.choices, db_default=LedgerState.RESERVED)
    reserved_tokens = models.IntegerField()
    input_tokens = models.IntegerField(null=True, blank=True)
    output_tokens = models.IntegerField(null=True, blank=True)
    cached_tokens = models.IntegerField(null=True, blank=True)  # of the input, as the next
    cache_write_tokens = models.IntegerField(null=True, blank=True)
    tokens = models.GeneratedField(
        expression=Coalesce(F("input_tokens") + F("output_tokens"), F("reserved_tokens")),
        output_field=models.IntegerField(),
        db_persist=True,
    )
    started_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "token_ledger"
        verbose_name = "token ledger entry"
        verbose_name_plural = "token ledger"
        constraints = [
            models.CheckConstraint(
                condition=Q(state=LedgerState.SETTLED.value, input_tokens__isnull=False)
                | (~Q(state=LedgerState.SETTLED.value) & Q(input_tokens__isnull=True)),
                name="token_ledger_settled_is_reported",
            ),
        ]
        indexes = [
            models.Index(
                fields=["-started_at", "-id"], name="token_ledger_newest"
            ),  # the list, the sums of a day
            # Maintenance: calls whose attempt is over.
            models.Index(
                fields=["attempt"],
                condition=Q(state=LedgerState.RESERVED.value),
                name="token_ledger_reserved",
            ),
        ]

    def __str__(self) -> str:
        return f"call {self.call} ({self.state})"


class TokenUse(models.Model):
    """The tokens that the calls of a day (UTC) count, by source: the sum of their entries.

    Each change of an entry changes it in the same statement (`reviews.token_ledger`). A source has a row for
    each `shard` of its jobs, so that calls at once do not wait for one row.
    """

    pk = models.CompositePrimaryKey("day", "source", "shard")
    day = models.DateField()
    source = models.CharField(max_length=128)
    shard = models.SmallIntegerField()
    tokens = models.BigIntegerField()

    class Meta:
        db_table = "token_uses"

    def __str__(self) -> str:
        return f"{self.day} {self.source}: {self.tokens}"
