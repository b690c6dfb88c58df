"""The tables of the dead letters. They say no by themselves; `states` has what moves a row where."""

from deadletters.models.batches import ReplayBatch, ReplayBatchEvent, ReplayItem
from deadletters.models.edits import LetterEdit
from deadletters.models.groups import DeadLetterGroup, DeadLetterGroupDay, DeadLetterGroupEvent
from deadletters.models.letters import DeadLetter, DeadLetterEvent, DeadLetterPayload
from deadletters.models.records import LetterArchive, OperatorAlert
from deadletters.models.shared import MIN_WORDS

__all__ = [
    "MIN_WORDS",
    "DeadLetter",
    "DeadLetterEvent",
    "DeadLetterGroup",
    "DeadLetterGroupDay",
    "DeadLetterGroupEvent",
    "DeadLetterPayload",
    "LetterArchive",
    "LetterEdit",
    "OperatorAlert",
    "ReplayBatch",
    "ReplayBatchEvent",
    "ReplayItem",
]
