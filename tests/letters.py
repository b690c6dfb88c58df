"""An operator's steps with a dead letter, for tests that are about something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.utils import timezone

from criticizer.db import prepared
from deadletters import transitions, workflow
from deadletters.states import LetterAction
from deadletters.types import LetterDraft, Result


def draft_of_a_letter(**other: Any) -> LetterDraft:
    """Return what a failed stage says of itself, but for what a test gives."""
    now = timezone.now()
    facts: dict[str, Any] = {
        "job_id": 1, "stage": "llm", "source": "llm:openai", "error_class": "AUTH_DENIED",
        "code": "CRITICIZER_E209", "severity": "high", "retryable": False, "detail": "the key was refused",
        "last_stack": "", "sanitized_context": {"status": 401}, "payload_reference": "", "attempts": 1,
        "first_failure_at": now, "last_failure_at": now,
    }  # fmt: skip
    return LetterDraft(**{**facts, **other})


def walk(letter_id: int, *, actor: str = "ann", override_reason: str = "OPS-1: known") -> None:
    """Triage, remediate and validate a new letter as `actor` would."""
    assert (done := workflow.triage(letter_id, actor=actor, category="transient", note="seen")).ok, done
    assert (done := workflow.remediate(letter_id, actor=actor, evidence_note="OPS-1: mended")).ok, done
    checked = workflow.validate(letter_id, actor=actor, override_reason=override_reason)
    assert checked.ok, checked


def walk_and_replay(
    letter_id: int, *, actor: str = "ann", reason: str = "OPS-1", restart: bool = False
) -> Result:
    """Take a new letter through all its steps up to the replay; return what the replay answered."""
    walk(letter_id, actor=actor)
    return workflow.replay(letter_id, actor=actor, reason=reason, restart=restart)


def remove(letter_id: int) -> None:
    """Remove a letter as retention does, although none of its conditions is checked.

    No file of the archive holds it.
    """
    transitions.note(letter_id, LetterAction.ARCHIVED, "criticizer")
    prepared.rows("DELETE FROM dead_letter_payloads WHERE letter_id = %(id)s", {"id": letter_id})
    prepared.rows("DELETE FROM dead_letters WHERE id = %(id)s", {"id": letter_id})


def archive_in(directory: Path, settings: Any) -> None:
    """Have the archive of letters keep its files in a directory of the test."""
    archive = settings.STORAGES["letter_archive"]
    options = {**archive["OPTIONS"], "location": directory}
    settings.STORAGES = {**settings.STORAGES, "letter_archive": {**archive, "OPTIONS": options}}
