"""Dead letters: jobs that ended without success, kept for an operator (specification 000, 8.4)."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from criticizer.triggers import append_only
from deadletters.states import LETTER_TRANSITIONS, OPEN_LETTER, LetterAction, LetterStatus


class DeadLetter(models.Model):
    """The 8.4 payload of one failed stage of one job. All text is redacted."""

    job = models.ForeignKey("reviews.ReviewJob", on_delete=models.CASCADE, related_name="dead_letters")
    stage = models.CharField(max_length=10)
    status = models.CharField(max_length=10, choices=LetterStatus.choices, db_default=LetterStatus.OPEN)
    error_class = models.CharField(max_length=32)
    code = models.CharField(max_length=20)
    severity = models.CharField(max_length=8)
    detail = models.TextField(blank=True)
    last_stack = models.TextField(blank=True)
    sanitized_context = models.JSONField(db_default={})
    payload_reference = models.CharField(max_length=255, blank=True)
    attempts = models.IntegerField()
    first_failure_at = models.DateTimeField()
    last_failure_at = models.DateTimeField()
    failed_replay_count = models.IntegerField(db_default=0)
    is_escalated = models.BooleanField(db_default=False)
    created_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "dead_letters"
        constraints = [
            models.UniqueConstraint(
                fields=["job", "stage"],
                condition=Q(status__in=[status.value for status in OPEN_LETTER]),
                name="dead_letters_one_open_per_stage",
            )
        ]
        indexes = [
            models.Index(
                fields=["-last_failure_at", "-id"],
                condition=Q(status__in=[status.value for status in OPEN_LETTER]),
                name="dead_letters_open",
            )
        ]
        triggers = [
            pgtrigger.FSM(
                name="status_fsm",
                field="status",
                transitions=[(a.value, b.value) for a, b in LETTER_TRANSITIONS],
            )
        ]
        permissions = [("replay_deadletter", "Can replay dead letters")]

    def __str__(self) -> str:
        return f"{self.error_class} in {self.stage} of job {self.job_id}"


class DeadLetterEvent(models.Model):
    """What happened to a letter, by whom and why: append-only."""

    letter = models.ForeignKey(DeadLetter, on_delete=models.DO_NOTHING, related_name="events")
    action = models.CharField(max_length=12, choices=LetterAction.choices)
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
