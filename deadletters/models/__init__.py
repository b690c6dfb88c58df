"""Tables of the dead letters, with the constraints and triggers that guard them."""

from deadletters.models.batches import ReplayBatch, ReplayBatchEvent, ReplayItem
from deadletters.models.edits import LetterEdit
from deadletters.models.groups import DeadLetterGroup, DeadLetterGroupDay, DeadLetterGroupEvent
from deadletters.models.letters import DeadLetter, DeadLetterEvent, DeadLetterPayload
from deadletters.models.records import LetterArchive, OperatorAlert
from deadletters.models.shared import MIN_REASON_CHARS
