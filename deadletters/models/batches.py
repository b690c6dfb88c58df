"""Replay batches: frozen selections of letters, replayed at a rate.

Each item has its own outcome.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

import pgtrigger
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from criticizer.db.triggers import fsm
from deadletters.models.letters import DeadLetter
from deadletters.models.shared import TimelineEvent, has_text, row_version_trigger, status_in
from deadletters.states import BATCH_TRANSITIONS, ITEM_TRANSITIONS, BatchStatus, Category, ItemStatus

# Events whose actors are barred from approving the batch.
MAKING = ("drafted", "configured", BatchStatus.AWAITING.value)
# Columns that stay as they were submitted and approved.
_SUBMITTED = (
    "filter", "item_count", "reason", "category", "evidence_link", "evidence_note", "override_reason",
    "is_restart", "resolves_verified", "needs_approval", "canary_size", "requested_by", "requested_at",
)  # fmt: skip


# Columns that count a version: forms opened before a change of these are refused.
_READ = (
    "status", "approved_by", "rate_per_minute", "max_in_flight", "canary_size", "category", "evidence_link",
    "evidence_note", "override_reason", "is_restart",
)  # fmt: skip


def _changes(*fields: str) -> pgtrigger.Q:
    return reduce(or_, (pgtrigger.Q(**{f"old__{name}__df": pgtrigger.F(f"new__{name}")}) for name in fields))


def _decided_by_two() -> list[pgtrigger.Trigger]:
    """Return the triggers that keep a batch as it was submitted and approved."""
    update, was_draft = pgtrigger.Update, pgtrigger.Q(old__status=BatchStatus.DRAFT.value)
    starts = pgtrigger.Q(old__status=BatchStatus.AWAITING.value, new__status=BatchStatus.RUNNING.value)
    makers = ", ".join(f"'{action}'" for action in MAKING)
    return [
        pgtrigger.Protect(
            name="born_a_draft",
            operation=pgtrigger.Insert,
            condition=~pgtrigger.Q(new__status=BatchStatus.DRAFT.value) | ~pgtrigger.Q(new__approved_by=""),
        ),
        pgtrigger.Protect(
            name="as_submitted", operation=update, condition=~was_draft & _changes(*_SUBMITTED)
        ),
        pgtrigger.Protect(
            name="approval_stays_needed",
            operation=update,
            condition=pgtrigger.Q(old__needs_approval=True, new__needs_approval=False),
        ),
        pgtrigger.Protect(
            name="approved_once", operation=update, condition=~starts & _changes("approved_by", "approved_at")
        ),
        pgtrigger.Trigger(
            name="other_eyes",
            when=pgtrigger.Before,
            operation=update,
            condition=_changes("approved_by"),
            func=f"""
                IF EXISTS (SELECT FROM public.replay_batch_events e WHERE e.batch_id = NEW.id
                              AND e.actor = NEW.approved_by AND e.action IN ({makers})) THEN
                  RAISE EXCEPTION 'replay batch %: who made it cannot approve it', NEW.id;
                END IF;
                RETURN NEW;""",
        ),
        pgtrigger.Protect(name="stays", operation=pgtrigger.Delete),
    ]


# Once a statement: a draft may have thousands of letters. The lock excludes a concurrent submit.
_OF_A_DRAFT = """
    PERFORM 1 FROM public.replay_batches WHERE id IN (SELECT batch_id FROM new_rows) ORDER BY id FOR SHARE;
    IF EXISTS (SELECT FROM public.replay_batches b
                JOIN new_rows n ON n.batch_id = b.id WHERE b.status <> 'draft') THEN
      RAISE EXCEPTION 'letters join a replay batch only while it is a draft';
    END IF;
    RETURN NULL;"""


class ReplayBatch(models.Model):
    """A replay of a frozen selection of letters, run by a worker."""

    status = models.CharField(max_length=12, choices=BatchStatus.choices, db_default=BatchStatus.DRAFT)
    status_reason = models.TextField(blank=True, db_default="")  # why it stopped, paused or was cancelled
    filter = models.JSONField(db_default={})  # how the selection was made, for people
    item_count = models.IntegerField(db_default=0)
    report = models.JSONField(db_default={})  # {"verdicts": {verdict: count}, "checked_at": …}
    reason = models.TextField()
    category = models.CharField(max_length=12, choices=Category.choices, blank=True, db_default="")
    evidence_link = models.CharField(max_length=500, blank=True, db_default="")
    evidence_note = models.TextField(blank=True, db_default="")
    override_reason = models.TextField(blank=True, db_default="")
    is_restart = models.BooleanField(db_default=False)
    resolves_verified = models.BooleanField(db_default=False)  # its letters, and their groups with the last
    needs_approval = models.BooleanField(db_default=False)
    canary_size = models.IntegerField(db_default=3)
    rate_per_minute = models.IntegerField(db_default=60)
    max_in_flight = models.IntegerField(db_default=20)
    next_item_at = models.DateTimeField(null=True, blank=True)
    requested_by = models.CharField(max_length=255)
    requested_at = models.DateTimeField(db_default=Now())
    approved_by = models.CharField(max_length=255, blank=True, db_default="")
    approved_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    row_version = models.IntegerField(db_default=0)

    class Meta:
        db_table = "replay_batches"
        verbose_name_plural = "replay batches"
        constraints = [
            models.CheckConstraint(
                condition=Q(approved_by="") | ~Q(approved_by=F("requested_by")),
                name="replay_batches_four_eyes",
            ),
            models.CheckConstraint(
                condition=status_in(BatchStatus.DRAFT, BatchStatus.AWAITING, BatchStatus.CANCELLED)
                | Q(needs_approval=False, is_restart=False, override_reason="")
                | ~Q(approved_by="") & Q(approved_at__isnull=False),
                name="replay_batches_approved",
            ),
            models.CheckConstraint(
                condition=~status_in(BatchStatus.AWAITING) | Q(needs_approval=True),
                name="replay_batches_awaiting",
            ),
            models.CheckConstraint(condition=has_text("reason"), name="replay_batches_reason"),
            models.CheckConstraint(
                condition=Q(rate_per_minute__gte=1, canary_size__gte=0, max_in_flight__gte=1),
                name="replay_batches_pace",
            ),
        ]
        indexes = [
            # Maintenance: batches that need a message.
            models.Index(
                fields=["id"],
                condition=~status_in(BatchStatus.DRAFT, BatchStatus.AWAITING, BatchStatus.FINISHED),
                name="replay_batches_live",
            )
        ]
        triggers = [fsm(BATCH_TRANSITIONS), row_version_trigger(*_READ), *_decided_by_two()]
        permissions = [("approve_replaybatch", "Can approve replay batches")]

    def __str__(self) -> str:
        return f"batch {self.pk}: {self.item_count} letters"


class ReplayBatchEvent(TimelineEvent):
    """One line of a batch's timeline: append-only."""

    batch = models.ForeignKey(ReplayBatch, on_delete=models.DO_NOTHING, related_name="events")
    action = models.CharField(max_length=16)  # the status it went to, or the change: "pace", "drafted"

    class Meta(TimelineEvent.Meta):
        db_table = "replay_batch_events"


class ReplayItem(models.Model):
    """One letter of a batch, and its outcome."""

    batch = models.ForeignKey(ReplayBatch, on_delete=models.CASCADE, related_name="items", db_index=False)
    letter = models.ForeignKey(
        DeadLetter, on_delete=models.DO_NOTHING, related_name="replay_items", db_constraint=False
    )
    job_id = models.BigIntegerField()
    group_id = models.BigIntegerField()  # when the selection was frozen
    lane = models.CharField(max_length=128)  # one of a lane is replayed at a time
    status = models.CharField(max_length=12, choices=ItemStatus.choices, db_default=ItemStatus.PENDING)
    verdict = models.CharField(max_length=32, blank=True, db_default="")  # of the dry run
    detail = models.TextField(blank=True, db_default="")
    failed_group_id = models.BigIntegerField(null=True, blank=True)  # null: without its effect
    is_canary = models.BooleanField(db_default=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "replay_items"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["batch", "letter"], name="replay_items_once"),
            # One batch at a time replays a letter.
            models.UniqueConstraint(
                fields=["letter"],
                condition=status_in(ItemStatus.READY, ItemStatus.REPLAYING),
                name="replay_items_one_batch",
            ),
            models.CheckConstraint(
                condition=Q(started_at__isnull=False)
                | ~status_in(ItemStatus.REPLAYING, ItemStatus.SUCCEEDED, ItemStatus.FAILED, ItemStatus.ENDED),
                name="replay_items_started",
            ),
            models.CheckConstraint(
                condition=Q(failed_group_id=None) | status_in(ItemStatus.FAILED),
                name="replay_items_failed_into",
            ),
        ]
        indexes = [
            models.Index(fields=["batch", "status", "id"], name="replay_items_next"),
            # Collecting: did another item of this batch fail into the same group?
            models.Index(
                fields=["batch", "failed_group_id"],
                condition=status_in(ItemStatus.FAILED),
                name="replay_items_failed",
            ),
        ]
        triggers = [
            fsm(ITEM_TRANSITIONS),
            pgtrigger.ReadOnly(name="as_frozen", fields=["batch", "letter", "job_id", "group_id", "lane"]),
            pgtrigger.Trigger(
                name="of_a_draft",
                level=pgtrigger.Statement,
                when=pgtrigger.After,
                operation=pgtrigger.Insert,
                referencing=pgtrigger.Referencing(new="new_rows"),  # type: ignore[no-untyped-call]
                func=_OF_A_DRAFT,
            ),
            pgtrigger.Protect(name="stays", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return f"dead letter {self.letter_id} of batch {self.batch_id}"
