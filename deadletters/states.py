"""States of dead letters, each with what moves a row there."""

from __future__ import annotations

from django.db import models


class LetterStatus(models.TextChoices):
    OPEN = "open", "Open"  # the commit that ended the job; a replay that failed again
    REPLAYING = "replaying", "Replaying"  # an operator replayed it; the job is at work again
    RESOLVED = "resolved", "Resolved"  # the replayed job succeeded
    DISCARDED = "discarded", "Discarded"  # an operator gave it up; its replayed job was ended


OPEN_LETTER = (LetterStatus.OPEN, LetterStatus.REPLAYING)

LETTER_TRANSITIONS: tuple[tuple[LetterStatus, LetterStatus], ...] = (
    (LetterStatus.OPEN, LetterStatus.REPLAYING),
    (LetterStatus.REPLAYING, LetterStatus.OPEN),
    (LetterStatus.REPLAYING, LetterStatus.RESOLVED),
    (LetterStatus.OPEN, LetterStatus.DISCARDED),
    (LetterStatus.REPLAYING, LetterStatus.DISCARDED),
)


class LetterAction(models.TextChoices):
    CREATED = "created", "Created"
    REPLAYED = "replayed", "Replayed from the failed stage"
    RESTARTED = "restarted", "Restarted from the first stage"
    FAILED_AGAIN = "failed_again", "Failed again"
    ESCALATED = "escalated", "Escalated"
    RESOLVED = "resolved", "Resolved"
    DISCARDED = "discarded", "Discarded"
    REFUSED = "refused", "Refused"
