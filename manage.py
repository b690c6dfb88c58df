#!/usr/bin/env python
"""Criticizer's command line."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "criticizer.settings")
    from django.core.exceptions import ImproperlyConfigured

    from criticizer.db.embedded import EmbeddedError, for_command

    if sys.argv[1:2] == ["demo"]:
        from reviews.demo import set_environment

        set_environment(sys.argv[2:])
    try:
        with for_command(sys.argv[1:]):
            run()
    except (ImproperlyConfigured, EmbeddedError) as error:
        sys.exit(f"criticizer: {error}")


def run() -> None:
    """Run the command; leave with a sentence when the database is not as it needs it."""
    from django.core.management import execute_from_command_line
    from django.db import Error

    try:
        execute_from_command_line(sys.argv)
    except Error as error:
        from criticizer.db.error_hints import why_database

        if not (why := why_database(error)):
            raise
        sys.exit(f"criticizer: {why}")


if __name__ == "__main__":
    main()
