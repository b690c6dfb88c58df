"""The dead-letter console: groups of the same failure, their letters, replays of many, the archive.

Autodiscovery looks for this module only. Nothing in the console writes a state: `workflow`,
`groups`, `batches` and `edits` do.
"""

from deadletters.admin import archive_admin as admin_archives
from deadletters.admin import batches as admin_batches
from deadletters.admin import edits as admin_edits
from deadletters.admin import groups as admin_groups
from deadletters.admin import letters as admin_letters

__all__ = ["admin_archives", "admin_batches", "admin_edits", "admin_groups", "admin_letters"]
