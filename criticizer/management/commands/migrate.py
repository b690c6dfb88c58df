"""`manage.py migrate`: Django's own, as the owner of the tables, who is not the application's role.

Web and workers connect as a role that owns nothing: it cannot take an audit table's triggers
off, whatever statement it is made to run (specification 001, 9.1 item 5).
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
