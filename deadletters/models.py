"""Dead letters: jobs that ended without success, kept for an operator (specification 000, 8.4, 8.5).

The tables say no by themselves: the FSM refuses every move that `states` does not list, CHECKs
want the evidence of each step, and a letter that somebody works on cannot be deleted.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pgtrigger
from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Length, Now, Trim
from django.db.models.lookups import GreaterThanOrEqual

from criticizer.triggers import append_only
from deadletters.states import (
    BATCH_TRANSITIONS,
    CLOSED_LETTER,
    EDIT_TRANSITIONS,
    IN_WORK,
    ITEM_TRANSITIONS,
    LETTER_TRANSITIONS,
    OPEN_LETTER,
    BatchStatus,
    Category,
    EditStatus,
    GroupAction,
    GroupStatus,
    ItemStatus,
    LetterAction,
    LetterStatus,
)

MIN_WORDS = 3  # characters of a reason, a note or a resolution, by CHECK


def _said(field: str) -> GreaterThanOrEqual:
    """Return the condition that a text says something."""
    return GreaterThanOrEqual(Length(Trim(field)), MIN_WORDS)


def _in(*statuses: models.TextChoices) -> Q:
    return Q(status__in=[status.value for status in statuses])


def _fsm(transitions: tuple[tuple[Any, Any], ...]) -> pgtrigger.FSM:
    return pgtrigger.FSM(
        name="status_fsm", field="status", transitions=[(a.value, b.value) for a, b in transitions]
    )


def _counted(*fields: str) -> pgtrigger.Trigger:
    """Return the trigger that numbers the versions of a row, for forms that looked at one of them.

    With `fields`, only changes of these count.
    """
    count = "NEW.row_version = OLD.row_version + 1;"
    if fields:
        old, new = (", ".join(f"{row}.{field}" for field in fields) for row in ("OLD", "NEW"))
        count = f"IF ({old}) IS DISTINCT FROM ({new}) THEN {count} END IF;"
    return pgtrigger.Trigger(
        name="row_version",
        when=pgtrigger.Before,
        operation=pgtrigger.Update,
        func=f"{count} RETURN NEW;",
    )


def _counts_open() -> list[pgtrigger.Trigger]:
    """Return the triggers that keep `open_count` of the groups, whoever writes letters.

    Once per statement, groups in order: many letters at once cost one update a group.
    """
    is_open = "status NOT IN ('resolved', 'discarded')"
    came = f"SELECT group_id, count(*) AS n FROM new_rows WHERE {is_open} GROUP BY 1"  # noqa: S608
    went = f"SELECT group_id, -count(*) AS n FROM old_rows WHERE {is_open} GROUP BY 1"  # noqa: S608
    apply = """
        PERFORM 1 FROM dead_letter_groups WHERE id IN (
          SELECT group_id FROM ({deltas}) d GROUP BY 1 HAVING sum(n) <> 0) ORDER BY id FOR NO KEY UPDATE;
        UPDATE dead_letter_groups g SET open_count = g.open_count + d.n
          FROM (SELECT group_id, sum(n) AS n FROM ({deltas}) s GROUP BY 1 HAVING sum(n) <> 0) d
         WHERE g.id = d.group_id;
        RETURN NULL;"""
    return [
        pgtrigger.Trigger(
            name=name,
            level=pgtrigger.Statement,
            when=pgtrigger.After,
            operation=operation,
            referencing=pgtrigger.Referencing(**rows),  # type: ignore[no-untyped-call]
            func=apply.format(deltas=deltas),
        )
        for name, operation, rows, deltas in (
            ("open_count_insert", pgtrigger.Insert, {"new": "new_rows"}, came),
            (
                "open_count_update",
                pgtrigger.Update,
                {"old": "old_rows", "new": "new_rows"},
                f"{came} UNION ALL {went}",
            ),
            ("open_count_delete", pgtrigger.Delete, {"old": "old_rows"}, went),
        )
    ]


_S = LetterStatus
_FROM_VERIFYING = (_S.VERIFYING, _S.RESOLVED)
_FROM_REPLAYING = (_S.REPLAYING, *_FROM_VERIFYING)
_FROM_VALIDATED = (_S.VALIDATED, _S.REPLAY_PENDING, *_FROM_REPLAYING)
_FROM_REMEDIATED = (_S.REMEDIATED, *_FROM_VALIDATED)
_FROM_TRIAGED = (_S.TRIAGED, *_FROM_REMEDIATED)


class DeadLetterGroup(models.Model):
    """The letters that failed in the same way: what operators look at first.

    `open_count` is kept by triggers on the letters' table, the other numbers by the commit
    that records an occurrence.
    """

    fingerprint = models.CharField(max_length=80, unique=True)  # "v1:<hex>"
    stage = models.CharField(max_length=10)
    error_class = models.CharField(max_length=32)
    source = models.CharField(max_length=128, blank=True)  # the dependency, as circuits name it
    normalized_message = models.CharField(max_length=500, blank=True)
    first_seen = models.DateTimeField(db_default=Now())
    last_seen = models.DateTimeField(db_default=Now())
    open_count = models.IntegerField(db_default=0)
    total_count = models.IntegerField(db_default=0)  # occurrences, a letter that failed again included
    status = models.CharField(max_length=12, choices=GroupStatus.choices, db_default=GroupStatus.OPEN)
    owner = models.CharField(max_length=255, blank=True, db_default="")
    note = models.TextField(blank=True, db_default="")
    runbook_url = models.CharField(max_length=500, blank=True, db_default="")
    snooze_until = models.DateTimeField(null=True, blank=True)
    row_version = models.IntegerField(db_default=0)

    class Meta:
        db_table = "dead_letter_groups"
        verbose_name = "failure group"
        indexes = [
            # The landing page: what is open, latest first; and everything, latest first.
            models.Index(
                fields=["-last_seen", "-id"],
                condition=Q(status__in=["open", "acknowledged"]),
                name="letter_groups_open",
            ),
            models.Index(fields=["-last_seen", "-id"], name="letter_groups_latest"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=GroupStatus.values), name="letter_groups_known_status"
            ),
            models.CheckConstraint(
                condition=Q(open_count__gte=0, total_count__gte=0), name="letter_groups_count_up"
            ),
        ]
        triggers = [_counted("status", "owner", "note", "runbook_url", "snooze_until")]
        permissions = [("work_deadlettergroup", "Can acknowledge, resolve, ignore and annotate groups")]

    def __str__(self) -> str:
        return f"{self.error_class} in {self.stage}"


class DeadLetterGroupDay(models.Model):
    """How often a group's failure occurred on one day (UTC), for its trend."""

    group = models.ForeignKey(DeadLetterGroup, on_delete=models.CASCADE, related_name="days", db_index=False)
    day = models.DateField()
    count = models.IntegerField(db_default=0)

    class Meta:
        db_table = "dead_letter_group_days"
        constraints = [models.UniqueConstraint(fields=["group", "day"], name="letter_group_days_one")]

    def __str__(self) -> str:
        return f"{self.count} on {self.day}"


class DeadLetterGroupEvent(models.Model):
    """What operators decided about a group, and when it reopened: append-only."""

    group = models.ForeignKey(DeadLetterGroup, on_delete=models.DO_NOTHING, related_name="events")
    action = models.CharField(max_length=16, choices=GroupAction.choices)
    actor = models.CharField(max_length=255)
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dead_letter_group_events"
        ordering = ["id"]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.action} by {self.actor}"


class DeadLetter(models.Model):
    """One failed stage of one job, and how far operators are with it. All text is redacted.

    The fields of the steps are those of the present round: a replay that fails again clears
    them. What was is in the events.
    """

    job = models.ForeignKey("reviews.ReviewJob", on_delete=models.CASCADE, related_name="dead_letters")
    group = models.ForeignKey(
        DeadLetterGroup, on_delete=models.PROTECT, related_name="letters", db_index=False
    )
    stage = models.CharField(max_length=10)
    status = models.CharField(max_length=16, choices=LetterStatus.choices, db_default=LetterStatus.NEW)
    error_class = models.CharField(max_length=32)
    code = models.CharField(max_length=20)
    severity = models.CharField(max_length=8)
    retryable = models.BooleanField(db_default=False)  # its budget was used up
    detail = models.TextField(blank=True)
    payload_reference = models.CharField(max_length=255, blank=True)
    attempts = models.IntegerField()
    first_failure_at = models.DateTimeField()
    last_failure_at = models.DateTimeField()
    failed_replay_count = models.IntegerField(db_default=0)
    is_escalated = models.BooleanField(db_default=False)
    created_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True, blank=True)
    kept_until = models.DateTimeField(null=True, blank=True)  # restored from the archive: stays so long
    row_version = models.IntegerField(db_default=0)
    # A letter whose data was edited lives on as a new generation of it.
    generation = models.IntegerField(db_default=1)
    parent = models.ForeignKey(
        "self",
        on_delete=models.DO_NOTHING,
        null=True,
        blank=True,
        related_name="generations",
        db_constraint=False,  # it may be in the archive
    )

    # Triage
    category = models.CharField(max_length=12, choices=Category.choices, blank=True, db_default="")
    triage_note = models.TextField(blank=True, db_default="")
    triaged_by = models.CharField(max_length=255, blank=True, db_default="")
    triaged_at = models.DateTimeField(null=True, blank=True)
    # Remediation
    evidence_link = models.CharField(max_length=500, blank=True, db_default="")
    evidence_note = models.TextField(blank=True, db_default="")
    checklist = models.JSONField(db_default=[])  # the lines that were ticked
    remediated_by = models.CharField(max_length=255, blank=True, db_default="")
    remediated_at = models.DateTimeField(null=True, blank=True)
    # Validation
    validation = models.JSONField(db_default=[])  # [{"name", "ok", "message", …}], the last one made
    validation_ok = models.BooleanField(null=True, blank=True)
    override_reason = models.TextField(blank=True, db_default="")
    validated_by = models.CharField(max_length=255, blank=True, db_default="")
    validated_at = models.DateTimeField(null=True, blank=True)
    # Replay
    replay_reason = models.TextField(blank=True, db_default="")
    replayed_by = models.CharField(max_length=255, blank=True, db_default="")
    replayed_at = models.DateTimeField(null=True, blank=True)
    is_restart = models.BooleanField(db_default=False)
    # Verification and resolution
    verification = models.JSONField(db_default=[])
    verified_by = models.CharField(max_length=255, blank=True, db_default="")
    verified_at = models.DateTimeField(null=True, blank=True)
    resolution = models.TextField(blank=True, db_default="")
    resolved_by = models.CharField(max_length=255, blank=True, db_default="")

    class Meta:
        db_table = "dead_letters"
        constraints = [
            models.UniqueConstraint(
                fields=["job", "stage"], condition=_in(*OPEN_LETTER), name="dead_letters_one_open_per_stage"
            ),
            models.CheckConstraint(condition=_in(*LetterStatus), name="dead_letters_known_status"),
            models.CheckConstraint(
                condition=_in(*CLOSED_LETTER) & Q(closed_at__isnull=False)
                | _in(*OPEN_LETTER) & Q(closed_at__isnull=True),
                name="dead_letters_closed_has_time",
            ),
            models.CheckConstraint(
                condition=~_in(*_FROM_TRIAGED)
                | Q(category__in=Category.values, triaged_at__isnull=False) & ~Q(triaged_by=""),
                name="dead_letters_triaged",
            ),
            models.CheckConstraint(
                condition=~_in(*_FROM_REMEDIATED)
                | Q(remediated_at__isnull=False)
                & ~Q(remediated_by="")
                & (Q(_said("evidence_link")) | Q(_said("evidence_note"))),
                name="dead_letters_remediated",
            ),
            models.CheckConstraint(
                condition=~_in(*_FROM_VALIDATED)
                | Q(validated_at__isnull=False)
                & ~Q(validated_by="")
                & (Q(validation_ok=True) & Q(validation_ok__isnull=False) | Q(_said("override_reason"))),
                name="dead_letters_validated",
            ),
            models.CheckConstraint(
                condition=~_in(*_FROM_REPLAYING)
                | Q(replayed_at__isnull=False) & ~Q(replayed_by="") & Q(_said("replay_reason")),
                name="dead_letters_replayed",
            ),
            models.CheckConstraint(
                condition=~_in(_S.RESOLVED)
                | Q(verified_at__isnull=False)
                & ~Q(verified_by="")
                & ~Q(resolved_by="")
                & Q(_said("resolution")),
                name="dead_letters_resolved",
            ),
        ]
        indexes = [
            # The list of open letters, and the retention's look for the oldest.
            models.Index(
                fields=["-last_failure_at", "-id"], condition=_in(*OPEN_LETTER), name="dead_letters_open"
            ),
            models.Index(fields=["-last_failure_at", "-id"], name="dead_letters_latest"),
            # A group's letters: the open ones, and all.
            models.Index(
                fields=["group", "-last_failure_at", "-id"],
                condition=_in(*OPEN_LETTER),
                name="dead_letters_open_in_group",
            ),
            models.Index(fields=["group", "-last_failure_at", "-id"], name="dead_letters_in_group"),
        ]
        triggers = [
            _fsm(LETTER_TRANSITIONS),
            _counted(),
            *_counts_open(),
            pgtrigger.Protect(
                name="work_stays",
                operation=pgtrigger.Delete,
                condition=pgtrigger.Q(old__status__in=[status.value for status in IN_WORK]),
            ),
        ]
        permissions = [("replay_deadletter", "Can replay dead letters")]

    def __str__(self) -> str:
        return f"{self.error_class} in {self.stage} of job {self.job_id}"

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_LETTER

    @property
    def last_stack(self) -> str:
        return self._payload.last_stack

    @property
    def sanitized_context(self) -> dict[str, Any]:
        return dict(self._payload.sanitized_context)

    @property
    def _payload(self) -> DeadLetterPayload:
        try:
            return self.payload
        except DeadLetterPayload.DoesNotExist:
            return DeadLetterPayload(letter=self, last_stack="", sanitized_context={})

    @property
    def expires_at(self) -> datetime | None:
        """Return when it is archived and removed for its age; None while somebody works on it.

        Its age counts from its last failure, or from when it was closed.
        """
        if self.status in IN_WORK:
            return None
        end = (self.closed_at or self.last_failure_at) + timedelta(days=settings.DLQ_MAX_AGE_DAYS)
        return max(end, self.kept_until) if self.kept_until else end


class DeadLetterPayload(models.Model):
    """The heavy part of a letter (8.4), apart so that lists never read it."""

    letter = models.OneToOneField(
        DeadLetter, on_delete=models.CASCADE, primary_key=True, related_name="payload"
    )
    last_stack = models.TextField(blank=True, db_default="")
    sanitized_context = models.JSONField(db_default={})

    class Meta:
        db_table = "dead_letter_payloads"

    def __str__(self) -> str:
        return f"payload of letter {self.letter_id}"


class DeadLetterEvent(models.Model):
    """What happened to a letter, by whom and why: append-only, and longer-lived than the letter."""

    letter = models.ForeignKey(
        DeadLetter, on_delete=models.DO_NOTHING, related_name="events", db_constraint=False
    )
    action = models.CharField(max_length=16, choices=LetterAction.choices)
    actor = models.CharField(max_length=255)
    reason = models.TextField(blank=True)
    context = models.JSONField(db_default={})
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "dead_letter_events"
        ordering = ["id"]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.action} by {self.actor}"


class ReplayBatch(models.Model):
    """A replay of many letters as a stored object: a frozen selection that a worker works through."""

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
                condition=_in(BatchStatus.DRAFT, BatchStatus.AWAITING, BatchStatus.CANCELLED)
                | Q(needs_approval=False)
                | ~Q(approved_by="") & Q(approved_at__isnull=False),
                name="replay_batches_approved",
            ),
            models.CheckConstraint(condition=_said("reason"), name="replay_batches_reason"),
            models.CheckConstraint(
                condition=Q(rate_per_minute__gte=1, canary_size__gte=0, max_in_flight__gte=1),
                name="replay_batches_pace",
            ),
        ]
        indexes = [
            # Maintenance: batches that should have a message.
            models.Index(
                fields=["id"],
                condition=~_in(BatchStatus.DRAFT, BatchStatus.AWAITING, BatchStatus.FINISHED),
                name="replay_batches_live",
            )
        ]
        triggers = [_fsm(BATCH_TRANSITIONS), _counted("status", "approved_by", "rate_per_minute")]
        permissions = [("approve_replaybatch", "Can approve replay batches")]

    def __str__(self) -> str:
        return f"batch {self.pk}: {self.item_count} letters"


class ReplayBatchEvent(models.Model):
    """What operators, and the rules that stop it, did with a batch: append-only."""

    batch = models.ForeignKey(ReplayBatch, on_delete=models.DO_NOTHING, related_name="events")
    action = models.CharField(max_length=16)  # the status it went to, or the change: "pace", "drafted"
    actor = models.CharField(max_length=255)
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "replay_batch_events"
        ordering = ["id"]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.action} by {self.actor}"


class ReplayItem(models.Model):
    """One letter of a batch and what became of it."""

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
    is_canary = models.BooleanField(db_default=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "replay_items"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["batch", "letter"], name="replay_items_once"),
            # A letter is in the hands of one batch at a time.
            models.UniqueConstraint(
                fields=["letter"],
                condition=_in(ItemStatus.READY, ItemStatus.REPLAYING),
                name="replay_items_one_batch",
            ),
            models.CheckConstraint(
                condition=Q(started_at__isnull=False)
                | ~_in(ItemStatus.REPLAYING, ItemStatus.SUCCEEDED, ItemStatus.FAILED, ItemStatus.ENDED),
                name="replay_items_started",
            ),
        ]
        indexes = [models.Index(fields=["batch", "status", "id"], name="replay_items_next")]
        triggers = [_fsm(ITEM_TRANSITIONS)]

    def __str__(self) -> str:
        return f"letter {self.letter_id} of batch {self.batch_id}"


class LetterEdit(models.Model):
    """A change of a letter's data that one operator asked for and another one must approve."""

    letter = models.ForeignKey(
        DeadLetter, on_delete=models.DO_NOTHING, related_name="edits", db_constraint=False
    )
    status = models.CharField(max_length=12, choices=EditStatus.choices, db_default=EditStatus.REQUESTED)
    before = models.JSONField()  # {field: value}
    after = models.JSONField()
    reason = models.TextField()
    requested_by = models.CharField(max_length=255)
    requested_at = models.DateTimeField(db_default=Now())
    decided_by = models.CharField(max_length=255, blank=True, db_default="")
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_reason = models.TextField(blank=True, db_default="")

    class Meta:
        db_table = "letter_edits"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["letter"], condition=Q(status="requested"), name="letter_edits_one_open"
            ),
            models.CheckConstraint(condition=_said("reason"), name="letter_edits_reason"),
            models.CheckConstraint(
                condition=~Q(status="applied")
                | ~Q(decided_by="") & ~Q(decided_by=F("requested_by")) & Q(decided_at__isnull=False),
                name="letter_edits_four_eyes",
            ),
        ]
        triggers = [_fsm(EDIT_TRANSITIONS)]
        permissions = [("approve_letteredit", "Can approve edits of dead letters")]

    def __str__(self) -> str:
        return f"edit of letter {self.letter_id}"


class LetterArchive(models.Model):
    """One encrypted file of removed letters: where it lies and what it must be."""

    name = models.CharField(max_length=255, unique=True)  # within the storage
    sha256 = models.CharField(max_length=64)  # of the plain lines
    key_id = models.CharField(max_length=12)  # `vault.key_id` of what seals it
    letter_count = models.IntegerField()
    first_letter = models.BigIntegerField()
    last_letter = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "letter_archives"
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.name


class OperatorAlert(models.Model):
    """One thing that operators are told, once for each key (mail and webhook; OPERATOR_ALERTS)."""

    dedup_key = models.CharField(max_length=255, unique=True)
    kind = models.CharField(max_length=32)
    title = models.CharField(max_length=200)
    text = models.TextField(blank=True)  # redacted
    path = models.CharField(max_length=255, blank=True)  # of the page that shows more
    created_at = models.DateTimeField(db_default=Now())
    attempts = models.IntegerField(db_default=0)
    sent_to = models.JSONField(db_default=[])  # recipients who have it
    sent_at = models.DateTimeField(null=True, blank=True)  # when everybody had it, or nobody else could
    detail = models.TextField(blank=True, db_default="")  # why somebody has it not

    class Meta:
        db_table = "operator_alerts"
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.title
