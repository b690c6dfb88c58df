"""Admin of the dead letters.

Django's autodiscovery imports this module only. Nothing in this package writes a state.
"""

from deadletters.admin import archive, batches, edits, groups, letters
