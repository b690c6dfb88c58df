"""The dead-letter console: groups of the same failure, their letters, and replays of many.

Autodiscovery looks for this module only. Nothing in the console writes a state: `workflow`,
`groups`, `batches` and `edits` do.
"""

from deadletters import admin_batches, admin_edits, admin_groups, admin_letters

__all__ = ["admin_batches", "admin_edits", "admin_groups", "admin_letters"]
