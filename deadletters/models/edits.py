"""Edits of letters: requested by one operator, approved by another."""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from criticizer.db.triggers import fsm
from deadletters.models.letters import DeadLetter
from deadletters.models.shared import has_text
from deadletters.states import EDIT_TRANSITIONS, EditStatus


class LetterEdit(models.Model):
    """A change of a job's data that one operator requested and another must approve."""

    letter = models.ForeignKey(
        DeadLetter, on_delete=models.DO_NOTHING, related_name="edits", db_constraint=False
    )
    status = models.CharField(max_length=12, choices=EditStatus.choices, db_default=EditStatus.REQUESTED)
    before = models.JSONField()  # {name of a `types.DataField`: [line, …]}
    after = models.JSONField()
    reason = models.TextField()
    requested_by = models.CharField(max_length=255)
    requested_at = models.DateTimeField(db_default=Now())
    decided_by = models.CharField(max_length=255, blank=True, db_default="")
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_reason = models.TextField(blank=True, db_default="")

    class Meta:
        db_table = "letter_edits"
        verbose_name = "dead letter edit"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["letter"], condition=Q(status="requested"), name="letter_edits_one_open"
            ),
            models.CheckConstraint(condition=has_text("reason"), name="letter_edits_reason"),
            models.CheckConstraint(
                condition=~Q(status="applied")
                | ~Q(decided_by="") & ~Q(decided_by=F("requested_by")) & Q(decided_at__isnull=False),
                name="letter_edits_four_eyes",
            ),
        ]
        triggers = [
            fsm(EDIT_TRANSITIONS),
            # An edit is approved as it was requested.
            pgtrigger.ReadOnly(
                name="as_asked",
                fields=["letter", "before", "after", "reason", "requested_by", "requested_at"],
            ),
        ]
        permissions = [("approve_letteredit", "Can approve edits of dead letters")]

    def __str__(self) -> str:
        return f"edit of dead letter {self.letter_id}"
