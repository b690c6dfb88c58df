"""Criticizer's command line: `criticizer`, `manage.py` and `python -m criticizer`."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.core.management.base import BaseCommand


def main() -> None:
    """Run a management command, or end with a sentence about settings or the database."""
    if sys.argv[1:2] == ["agent"]:  # on the customer's side there are no settings
        from criticizer import reference_agent

        sys.exit(reference_agent.main(sys.argv[2:]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "criticizer.settings")
    from django.core.exceptions import ImproperlyConfigured

    from criticizer.db.embedded import EmbeddedError, for_command

    if sys.argv[1:2] == ["demo"]:
        from reviews.demo import set_environment

        set_environment(sys.argv[2:])
    gc.disable()  # until the command is loaded
    try:
        with for_command(sys.argv[1:]):
            _run()
    except (ImproperlyConfigured, EmbeddedError) as error:
        sys.exit(f"criticizer: {error}")
    finally:
        gc.enable()


def _run() -> None:
    from django.core.management import ManagementUtility
    from django.db import Error

    class Utility(ManagementUtility):
        def fetch_command(self, subcommand: str) -> BaseCommand:
            """Freeze what is loaded by now, so that no garbage collection looks at it.

            Looking took two fifths of a command without work, and memory that forks could not share.
            """
            command = super().fetch_command(subcommand)
            gc.freeze()
            gc.enable()
            return command

    try:
        Utility(sys.argv).execute()
    except Error as error:
        from criticizer.db.error_hints import why_database

        if not (why := why_database(error)):
            raise
        sys.exit(f"criticizer: {why}")


if __name__ == "__main__":
    main()
