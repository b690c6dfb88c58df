"""Migrations that were folded into one: a database has run all of them, or none."""

from __future__ import annotations

from django.core.management.base import CommandError
from django.db.migrations.loader import MigrationLoader


def partly_run(loader: MigrationLoader) -> list[str]:
    """Return the apps of which the database ran some of the folded migrations, but not all.

    Django then leaves their one migration out of its graph, as if the app had none, and finds nothing to run.
    """
    return sorted({key[0] for key in loader.replacements if key not in loader.graph.nodes})


def refuse_partly_run(loader: MigrationLoader) -> None:
    """Raise CommandError where `partly_run` names an app."""
    if apps := partly_run(loader):
        raise CommandError(
            f"this database is of an earlier commit: it ran some of the migrations of {', '.join(apps)} that"
            " are folded into one here, but not all. Nothing was changed. First run `manage.py migrate` of"
            ' the commit that CHANGELOG.md names under "Upgrade from an earlier commit".'
        )
