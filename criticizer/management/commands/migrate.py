"""`manage.py migrate`: Django's own, connected as the owner of the tables.

Web and workers connect as another role. It owns nothing, so no injected statement can drop the
triggers of an audit table. Machines that migrate at once do it one after another. A change of a table that is
in use lets others go first.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.commands import migrate
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from criticizer.db import schema_locks
from criticizer.db.error_hints import refuse_pooler
from criticizer.db.folded_migrations import refuse_partly_run
from criticizer.db.privileges import as_owner, grant, harden
from criticizer.queue.advisory_locks import Holder, Lock, awaited

_SHOWN = 120  # characters of a statement


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        refuse_pooler("migrations")
        connection = connections[options["database"]]
        with (
            as_owner(connection),
            awaited(Lock.MIGRATE, self._tell),
            schema_locks.in_turns(connection, self._tell_of_a_lock),
        ):
            refuse_partly_run(MigrationLoader(connection))
            super().handle(*args, **options)
            harden(connection)
            grant(connection, settings.APPLICATION_ROLE)

    def _tell(self, other: Holder) -> None:
        origin = ""
        if other.backend_start:
            place = f"from {other.address}" if other.address else "on the machine of the database"
            origin = f", {place} since {other.backend_start:%H:%M:%S %Z}"
        self.stderr.write(f"migrate: waits for another migration{origin} (database session {other.pid}).")

    def _tell_of_a_lock(self, statement: str) -> None:
        self.stderr.write(
            f"migrate: others use the table of this statement; it is tried again until they are done: "
            f"{' '.join(statement.split())[:_SHOWN]}"
        )
