"""The admin of dead letters. Autodiscovery imports this module only; nothing here writes a state."""

from deadletters.admin import archive, batches, edits, groups, letters
