"""Dead letters: one failed stage of one job, its payload and its timeline.

The FSM trigger refuses every move that `states` does not list, CHECKs require the evidence of each step, and
a letter is deleted only once it is archived, and never while it is in work.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pgtrigger
from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from criticizer.db import prepared
from criticizer.db.triggers import fsm
from deadletters.models.groups import DeadLetterGroup
from deadletters.models.shared import TimelineEvent, has_text, row_version_trigger, status_in
from deadletters.states import (
    CLOSED_LETTER,
    IN_WORK,
    LETTER_TRANSITIONS,
    OPEN_LETTER,
    Category,
    LetterAction,
    LetterStatus,
)

# The last `archived` or `restored` line of a timeline says where the letter is.
_PLACE = """
                SELECT e.action INTO place FROM public.dead_letter_events e
                 WHERE e.letter_id = {row}.id AND e.action IN ('archived', 'restored')
                 ORDER BY e.id DESC LIMIT 1;"""


def insert_and_delete_triggers() -> list[pgtrigger.Trigger]:
    """Return the triggers that keep inserts and deletes from bypassing the steps."""
    not_archived = f"place IS DISTINCT FROM '{LetterAction.ARCHIVED.value}'"
    return [
        pgtrigger.Trigger(
            name="born_new",
            when=pgtrigger.Before,
            operation=pgtrigger.Insert,
            condition=~pgtrigger.Q(new__status=LetterStatus.NEW.value),
            declare=[("place", "text")],
            func=f"""{_PLACE.format(row="NEW")}
                IF NEW.status NOT IN {prepared.sql_list(CLOSED_LETTER)} OR {not_archived} THEN
                  RAISE EXCEPTION 'a dead letter is born new, not %', NEW.status;
                END IF;
                RETURN NEW;""",
        ),
        pgtrigger.Trigger(
            name="archived_first",
            when=pgtrigger.Before,
            operation=pgtrigger.Delete,
            declare=[("place", "text")],
            func=f"""{_PLACE.format(row="OLD")}
                IF {not_archived} THEN
                  RAISE EXCEPTION 'dead letter % goes only once it is archived', OLD.id;
                END IF;
                RETURN OLD;""",
        ),
    ]


def _counts_open() -> list[pgtrigger.Trigger]:
    """Return the triggers that keep `open_count` of the groups.

    Once a statement, groups in order: many letters at once cost one update a group.
    """
    is_open = "WHERE status NOT IN ('resolved', 'discarded') GROUP BY 1"
    came = " ".join(("SELECT group_id, count(*) AS n FROM new_rows", is_open))
    went = " ".join(("SELECT group_id, -count(*) AS n FROM old_rows", is_open))
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


_FROM_VERIFYING = (LetterStatus.VERIFYING, LetterStatus.RESOLVED)
_FROM_REPLAYING = (LetterStatus.REPLAYING, *_FROM_VERIFYING)
_FROM_VALIDATED = (LetterStatus.VALIDATED, LetterStatus.REPLAY_PENDING, *_FROM_REPLAYING)
_FROM_REMEDIATED = (LetterStatus.REMEDIATED, *_FROM_VALIDATED)
_FROM_TRIAGED = (LetterStatus.TRIAGED, *_FROM_REMEDIATED)


class DeadLetter(models.Model):
    """One failed stage of one job, and the operators' steps with it. All text is redacted.

    The columns of the steps are those of the current round: a replay that fails again clears them, and the
    events keep what they held.
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
    kept_until = models.DateTimeField(null=True, blank=True)  # retention spares it until then
    row_version = models.IntegerField(db_default=0)
    # A letter whose data was edited is replaced by its next generation.
    generation = models.IntegerField(db_default=1)
    parent = models.ForeignKey(
        "self",
        on_delete=models.DO_NOTHING,
        null=True,
        blank=True,
        related_name="generations",
        db_constraint=False,  # it may be in the archive
        db_index=False,  # the constraint's index
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
    validation = models.JSONField(db_default=[])  # stored `types.Check`s of the last validation
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
                fields=["job", "stage"],
                condition=status_in(*OPEN_LETTER),
                name="dead_letters_one_open_per_stage",
            ),
            # A letter has one next generation.
            models.UniqueConstraint(
                fields=["parent"], condition=Q(parent__isnull=False), name="dead_letters_one_successor"
            ),
            models.CheckConstraint(
                condition=Q(generation=1, parent__isnull=True) | Q(generation__gt=1, parent__isnull=False),
                name="dead_letters_generation",
            ),
            models.CheckConstraint(
                condition=Q(failed_replay_count__gte=0), name="dead_letters_replays_counted_up"
            ),
            models.CheckConstraint(condition=status_in(*LetterStatus), name="dead_letters_known_status"),
            models.CheckConstraint(
                condition=status_in(*CLOSED_LETTER) & Q(closed_at__isnull=False)
                | status_in(*OPEN_LETTER) & Q(closed_at__isnull=True),
                name="dead_letters_closed_has_time",
            ),
            models.CheckConstraint(
                condition=~status_in(*_FROM_TRIAGED)
                | Q(category__in=Category.values, triaged_at__isnull=False) & ~Q(triaged_by=""),
                name="dead_letters_triaged",
            ),
            models.CheckConstraint(
                condition=~status_in(*_FROM_REMEDIATED)
                | Q(remediated_at__isnull=False)
                & ~Q(remediated_by="")
                & (Q(has_text("evidence_link")) | Q(has_text("evidence_note"))),
                name="dead_letters_remediated",
            ),
            models.CheckConstraint(
                condition=~status_in(*_FROM_VALIDATED)
                | Q(validated_at__isnull=False)
                & ~Q(validated_by="")
                & (Q(validation_ok=True) & Q(validation_ok__isnull=False) | Q(has_text("override_reason"))),
                name="dead_letters_validated",
            ),
            models.CheckConstraint(
                condition=~status_in(*_FROM_REPLAYING)
                | Q(replayed_at__isnull=False) & ~Q(replayed_by="") & Q(has_text("replay_reason")),
                name="dead_letters_replayed",
            ),
            models.CheckConstraint(
                condition=~status_in(LetterStatus.RESOLVED)
                | Q(verified_at__isnull=False)
                & ~Q(verified_by="")
                & ~Q(resolved_by="")
                & Q(has_text("resolution")),
                name="dead_letters_resolved",
            ),
        ]
        indexes = [
            # The list of open letters, and retention's query for the oldest new ones.
            models.Index(
                fields=["-last_failure_at", "-id"],
                condition=status_in(*OPEN_LETTER),
                name="dead_letters_open",
            ),
            models.Index(fields=["-last_failure_at", "-id"], name="dead_letters_latest"),
            # Retention's query for those that were closed first.
            models.Index(
                fields=["closed_at", "id"], condition=status_in(*CLOSED_LETTER), name="dead_letters_closed"
            ),
            # A group's letters: the open ones, and all.
            models.Index(
                fields=["group", "-last_failure_at", "-id"],
                condition=status_in(*OPEN_LETTER),
                name="dead_letters_open_in_group",
            ),
            models.Index(fields=["group", "-last_failure_at", "-id"], name="dead_letters_in_group"),
        ]
        triggers = [
            fsm(LETTER_TRANSITIONS),
            row_version_trigger(),
            *_counts_open(),
            *insert_and_delete_triggers(),
            # The stage is not among these: a restarted job may fail earlier, as the same letter.
            pgtrigger.ReadOnly(name="as_it_began", fields=["job", "parent", "generation", "created_at"]),
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
    def is_verified(self) -> bool:
        """Return whether its effect was verified and only its resolution is missing."""
        return self.status == LetterStatus.VERIFYING and self.verified_at is not None

    @property
    def state_word(self) -> str:
        """Return its state for people: "Verified" once nothing is left to be verified."""
        return "Verified" if self.is_verified else self.get_status_display()

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
        """Return when retention removes it for its age, or None while it is in work or escalated.

        Its age counts from its last failure, or from when it was closed.
        """
        if self.status in IN_WORK or (self.status in OPEN_LETTER and self.is_escalated):
            return None
        end = (self.closed_at or self.last_failure_at) + timedelta(days=settings.DLQ_MAX_AGE_DAYS)
        return max(end, self.kept_until) if self.kept_until else end


class DeadLetterPayload(models.Model):
    """The large columns of a letter, in a table that lists never read."""

    letter = models.OneToOneField(
        DeadLetter, on_delete=models.CASCADE, primary_key=True, related_name="payload"
    )
    last_stack = models.TextField(blank=True, db_default="")
    sanitized_context = models.JSONField(db_default={})

    class Meta:
        db_table = "dead_letter_payloads"
        # The rest changes when a replay fails again.
        triggers = [pgtrigger.ReadOnly(name="of_its_letter", fields=["letter"])]

    def __str__(self) -> str:
        return f"payload of dead letter {self.letter_id}"


class DeadLetterEvent(TimelineEvent):
    """One line of a letter's timeline: append-only, and kept when the letter is removed."""

    letter = models.ForeignKey(
        DeadLetter, on_delete=models.DO_NOTHING, related_name="events", db_constraint=False
    )
    action = models.CharField(max_length=16, choices=LetterAction.choices)
    context = models.JSONField(db_default={})

    class Meta(TimelineEvent.Meta):
        db_table = "dead_letter_events"
