"""A step that moves one dead letter, or those of a set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from deadletters import transitions
from deadletters.models import DeadLetter
from deadletters.states import LetterAction, LetterStatus
from deadletters.types import Result, Tally

MAX_TEXT = 4000


@dataclass(frozen=True, slots=True)
class Step:
    """A move with its evidence. `refuse` returns why a letter in the right state must not move, or ""."""

    to: LetterStatus
    action: LetterAction
    actor: str
    reason: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] | None = None
    refuse: Callable[[DeadLetter], str] | None = None

    def take(
        self, letter_id: int, allowed: Collection[LetterStatus], row_version: int | None, done: str
    ) -> Result:
        """Move one letter, or add the refusal to its timeline."""
        with transaction.atomic():
            letter = transitions.locked(letter_id)
            refused = transitions.refusal(letter, allowed, row_version)
            if not refused and self.refuse and (problem := self.refuse(letter)):
                refused = Result(False, problem)
            if refused:
                return refuse(letter, self.actor, refused)
            transitions.move(
                letter, self.to, self.action, self.actor, self.reason, context=self.context, **self.changes
            )
        return Result(True, done)

    def take_many(
        self, letter_ids: Collection[int], allowed: Collection[LetterStatus], verb: str, of: int = 0
    ) -> Tally:
        """Move the letters of a set that may move; `of` as for `transitions.move_many`."""
        return transitions.move_many(
            letter_ids,
            allowed,
            self.to,
            self.action,
            self.actor,
            self.reason,
            verb=verb,
            changes=self.changes,
            refuse=self.refuse,
            context=self.context,
            of=of,
        )


def refuse(letter: DeadLetter, actor: str, refused: Result) -> Result:
    """Add a refusal to the letter's timeline and return it."""
    transitions.note(letter.pk, LetterAction.REFUSED, actor, refused.message)
    return refused
