"""`manage.py migrate`: Django's own, connected as the owner of the tables.

Web and workers connect as another role. It owns nothing, so no injected statement can drop the
triggers of an audit table.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.commands import migrate
from django.db import connections

from criticizer.db.privileges import as_owner, grant, harden


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        with as_owner(connection):
            super().handle(*args, **options)
            harden(connection)
            grant(connection, settings.APPLICATION_ROLE)
