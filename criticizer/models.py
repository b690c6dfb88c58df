"""Tables of the kernel: the outbox that is the queue, worker clusters, security events."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from criticizer.triggers import append_only


class OutboxMessage(models.Model):
    """One piece of due work (specification 003, 1.2).

    The row is written in the commit that makes the work due and deleted in the commit that
    records its result; history lives in `attempts`. `available_at` is both "visible at" and
    "leased until": a lease that runs out makes the row visible again without a sweeper.
    """

    id = models.BigAutoField(primary_key=True)
    aggregate_type = models.CharField(max_length=64)
    aggregate_id = models.BigIntegerField()
    message_type = models.CharField(max_length=64)
    payload = models.JSONField(db_default={})
    queue = models.CharField(max_length=32)
    available_at = models.DateTimeField(db_default=Now())
    lease_token = models.UUIDField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)  # the leaseholder began to work
    created_at = models.DateTimeField(db_default=Now())
    retry_count = models.IntegerField(db_default=0)
    error_message = models.TextField(db_default="", blank=True)
    # The dependency whose circuit or quota this work waits for; `outbox.wake` makes it due early.
    waiting_for = models.CharField(max_length=128, blank=True, db_default="")

    class Meta:
        db_table = "outbox_messages"
        indexes = [
            # The claim: WHERE queue = … AND available_at <= now() ORDER BY available_at, id.
            # Never clock_timestamp() there: it is volatile and would walk every future retry.
            models.Index(fields=["queue", "available_at", "id"], name="outbox_claim"),
            models.Index(fields=["waiting_for"], condition=~Q(waiting_for=""), name="outbox_waiting"),
        ]
        constraints = [
            # One message per piece of work: the sweep may insert what it misses without looking twice.
            models.UniqueConstraint(
                fields=["aggregate_type", "aggregate_id", "message_type"], name="outbox_one_per_work"
            )
        ]

    def __str__(self) -> str:
        return f"{self.message_type} {self.aggregate_type} {self.aggregate_id}"


class WorkerCluster(models.Model):
    """A running worker cluster, kept alive by its heartbeat (health, banner, drain)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    queue = models.CharField(max_length=32)
    host = models.CharField(max_length=255)
    pid = models.IntegerField()
    workers = models.IntegerField()
    started_at = models.DateTimeField(db_default=Now())
    beat_at = models.DateTimeField(db_default=Now())
    draining = models.BooleanField(db_default=False)  # finishes what it has, takes nothing new

    class Meta:
        db_table = "worker_clusters"

    def __str__(self) -> str:
        return f"{self.queue} on {self.host} ({self.pid})"


class SecurityEvent(models.Model):
    """A structured security event (specification 001, 9.1): append-only."""

    class Kind(models.TextChoices):
        PATH_DENIED = "path_denied", "Path outside the allow-list"
        REDACTION_BLOCKED = "redaction_blocked", "Redaction blocked a model call"
        AUTH_FAILED = "auth_failed", "API key refused"
        ROLE_DENIED = "role_denied", "Role does not allow the request"
        ARTIFACT_READ = "artifact_read", "Artifact read"
        ARTIFACT_REFUSED = "artifact_refused", "Artifact read refused"

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=32, choices=Kind.choices)
    changelist_id = models.CharField(max_length=128, blank=True)
    path = models.CharField(max_length=2048, blank=True)
    reason = models.CharField(max_length=512, blank=True)
    actor = models.CharField(max_length=255, blank=True)
    context = models.JSONField(db_default={})
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "security_events"
        indexes = [models.Index(fields=["-created_at", "-id"], name="security_newest")]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.kind} {self.path or self.actor}"
