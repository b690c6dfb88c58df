"""Tables of the shared app: queue, clusters, security, circuits, rate limits, views."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from criticizer.db.triggers import append_only, fsm
from criticizer.resilience.states import CIRCUIT_TRANSITIONS, CircuitChange, CircuitState


class OutboxMessage(models.Model):
    """One piece of due work: the outbox is the work queue.

    The row is written in the commit that makes the work due and deleted in the commit that records
    its result; `attempts` has the history. `available_at` is both "visible at" and "leased until":
    an expired lease makes the row visible again without a sweeper.
    """

    id = models.BigAutoField(primary_key=True)
    aggregate_type = models.CharField(max_length=64)
    aggregate_id = models.BigIntegerField()
    message_type = models.CharField(max_length=64)
    payload = models.JSONField(db_default={})
    queue = models.CharField(max_length=32)
    # Who made the work: an API key, a poll, a person. Claims take turns between flows (`outbox.claim`).
    flow = models.CharField(max_length=255, db_default="system")
    available_at = models.DateTimeField(db_default=Now())
    lease_token = models.UUIDField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)  # when the worker with the lease began
    created_at = models.DateTimeField(db_default=Now())
    retry_count = models.IntegerField(db_default=0)
    error_message = models.TextField(db_default="", blank=True)
    # The dependency whose circuit breaker or rate limit this work waits for (`outbox.wake`).
    waiting_for = models.CharField(max_length=128, blank=True, db_default="")

    class Meta:
        db_table = "outbox_messages"
        indexes = [
            # Whether and when something is due (broker.py), whatever its flow.
            models.Index(fields=["queue", "available_at"], name="outbox_due"),
            # The claim: from flow to flow, in each by time; and what each has in work.
            models.Index(fields=["queue", "flow", "available_at", "id"], name="outbox_fair"),
            models.Index(
                fields=["queue", "flow"], condition=Q(lease_token__isnull=False), name="outbox_working"
            ),
            models.Index(fields=["waiting_for"], condition=~Q(waiting_for=""), name="outbox_waiting"),
        ]
        constraints = [
            # One message per piece of work: the sweep inserts missing ones without checking first.
            models.UniqueConstraint(
                fields=["aggregate_type", "aggregate_id", "message_type"], name="outbox_one_per_work"
            ),
            # The claim begins after the flow "".
            models.CheckConstraint(condition=~Q(flow=""), name="outbox_has_flow"),
        ]

    def __str__(self) -> str:
        return f"{self.message_type} {self.aggregate_type} {self.aggregate_id}"


class WorkerCluster(models.Model):
    """A running worker cluster; its watchdog updates `beat_at`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    queue = models.CharField(max_length=32)
    host = models.CharField(max_length=255)
    version = models.CharField(max_length=64, db_default="", blank=True)  # of the code that it runs
    pid = models.IntegerField()
    workers = models.IntegerField()
    started_at = models.DateTimeField(db_default=Now())
    beat_at = models.DateTimeField(db_default=Now())
    draining = models.BooleanField(db_default=False)  # finishes its work, takes nothing new
    # Maintenance functions that hung here and are skipped for now.
    hanging = models.JSONField(db_default=[], blank=True)

    class Meta:
        db_table = "worker_clusters"

    def __str__(self) -> str:
        return f"{self.queue} on {self.host} ({self.pid})"


class SecurityEvent(models.Model):
    """A structured security event: append-only."""

    class Kind(models.TextChoices):
        PATH_DENIED = "path_denied", "Path outside the allow-list"
        REDACTION_BLOCKED = "redaction_blocked", "Redaction blocked a model call"
        AUTH_FAILED = "auth_failed", "API key refused"
        ROLE_DENIED = "role_denied", "Role does not allow the request"
        ARTIFACT_READ = "artifact_read", "Artifact read"
        ARTIFACT_REFUSED = "artifact_refused", "Artifact read refused"
        ARTIFACT_FAULT = "artifact_fault", "Artifact overdue, lost, orphaned or unreadable"
        AUDIT_FAULT = "audit_fault", "Audit rows differ from what was sealed"
        LOGIN_LOCKED = "login_locked", "Logins refused for a while after failures"
        CEILING_CHANGED = "ceiling_changed", "DEPOT_ALLOW_LIST changed"
        PERSON_INVITED = "person_invited", "Person invited"
        APP_CREDENTIALS = "app_credentials", "Credentials of a new App asked for"
        PASSWORD_REFUSED = "password_refused", "Password refused before a dangerous action"

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


class Circuit(models.Model):
    """The circuit breaker of one dependency, shared by all processes.

    `generation` counts the changes of state: a report of a call that began under an older one
    changes nothing. `retry_at` is the end of the cool-down or of a forced state; half-open, the time
    from which a health check may take the place of the trial call.
    """

    name = models.CharField(max_length=128, primary_key=True)
    state = models.CharField(max_length=14, choices=CircuitState.choices, db_default=CircuitState.CLOSED)
    generation = models.BigIntegerField(db_default=0)
    changed_at = models.DateTimeField(db_default=Now())
    retry_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=512, blank=True, db_default="")
    error_class = models.CharField(max_length=32, blank=True, db_default="")  # of the failure that opened it
    actor = models.CharField(max_length=255, blank=True, db_default="")
    auth_failures = models.IntegerField(db_default=0)  # refused credentials in a row
    timeouts = models.IntegerField(db_default=0)  # in a row, of a receiver of webhooks
    # The lease of the health check (open), or of the trial call or its health check (half-open).
    probe_token = models.UUIDField(null=True, blank=True)
    probe_expires_at = models.DateTimeField(null=True, blank=True)
    probe_successes = models.IntegerField(db_default=0)
    probe_detail = models.CharField(
        max_length=512, blank=True, db_default=""
    )  # result of the last health check
    needs_call = models.BooleanField(db_default=False)  # health checks cannot close it: only a real call can

    class Meta:
        db_table = "circuits"
        triggers = [fsm(CIRCUIT_TRANSITIONS, field="state")]
        permissions = [("force_circuit", "Can force circuits open or closed")]

    def __str__(self) -> str:
        return self.name

    @property
    def why(self) -> str:
        """Return the reason of the state for operators; empty when there is none."""
        return "; ".join(filter(None, (self.reason, "only a real call closes it" if self.needs_call else "")))


class CircuitBucket(models.Model):
    """Calls to a dependency in ten seconds.

    Unlogged: a crash of PostgreSQL loses one minute of counts.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=128)
    generation = models.BigIntegerField()
    started_at = models.DateTimeField()
    calls = models.IntegerField()
    failures = models.IntegerField()
    seconds_lost = models.FloatField(db_default=0.0)  # to the failures, where calls hold a worker

    class Meta:
        db_table = "circuit_buckets"
        constraints = [
            models.UniqueConstraint(
                fields=["name", "generation", "started_at"], name="circuit_buckets_one_per_ten_seconds"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.failures} of {self.calls} failed"


class CircuitEvent(models.Model):
    """History of a circuit: append-only. Without an actor: the breaker itself."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=128)
    change = models.CharField(max_length=14, choices=CircuitChange.choices)
    generation = models.BigIntegerField()
    actor = models.CharField(max_length=255, blank=True, db_default="")
    reason = models.CharField(max_length=512, blank=True, db_default="")
    until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "circuit_events"
        indexes = [models.Index(fields=["name", "-id"], name="circuit_events_newest")]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.name} {self.change}"


class Pace(models.Model):
    """The rate limit of a dependency: a token bucket and the pause it asked for. Unlogged.

    After a pause the rate starts at `slow_rate` at `slow_since` and grows back to `base_rate`.
    """

    name = models.CharField(max_length=128, primary_key=True)
    tokens = models.FloatField(db_default=1.0)
    refilled_at = models.DateTimeField(db_default=Now())
    paused_until = models.DateTimeField(null=True, blank=True)
    # Counts the pauses: a refusal of a call from before a pause belongs to that pause.
    generation = models.BigIntegerField(db_default=0)
    refusals = models.IntegerField(db_default=0)  # pauses in a row, for those without Retry-After
    slow_rate = models.FloatField(null=True, blank=True)  # calls a second
    base_rate = models.FloatField(null=True, blank=True)  # calls a second
    slow_since = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "paces"

    def __str__(self) -> str:
        return self.name


class PaceSlot(models.Model):
    """A slot for one concurrent call to a dependency, leased. Unlogged."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=128)
    number = models.IntegerField()
    token = models.UUIDField(null=True, blank=True)
    expires_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "pace_slots"
        constraints = [models.UniqueConstraint(fields=["name", "number"], name="pace_slots_numbered")]

    def __str__(self) -> str:
        return f"{self.name} {self.number}"


class LoginTry(models.Model):
    """Failed logins of one subject in a window (`login_throttle`).

    The subject is an account, an address, or both. `subject` is a keyed digest, so the table has no names;
    `login_throttle` bounds its size.
    """

    subject = models.CharField(max_length=64, primary_key=True)
    failures = models.IntegerField()
    window_ends_at = models.DateTimeField()
    locked_until = models.DateTimeField(null=True, blank=True)
    succeeded_at = models.DateTimeField(null=True, blank=True)  # of an account from an address

    class Meta:
        db_table = "login_tries"
        indexes = [models.Index(fields=["window_ends_at"], name="login_tries_oldest")]

    def __str__(self) -> str:
        return self.subject[:12]


class SavedView(models.Model):
    """A user's saved view of a list: a search, filters and an order."""

    QUERY_LENGTH = 1000

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    page = models.CharField(max_length=100)  # the model's label, or `pages.reviews`, `pages.findings`
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=QUERY_LENGTH, blank=True)  # `saved_views.normalized_query`
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "saved_views"
        constraints = [
            models.UniqueConstraint(fields=["user", "page", "name"], name="saved_views_one_per_name")
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.page})"
