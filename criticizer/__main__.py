"""Criticizer's command line: `criticizer`, `manage.py` and `python -m criticizer`."""

import os
import sys


def main() -> None:
    """Run a management command; end with a sentence when settings or the database do not allow it."""
    if sys.argv[1:2] == ["agent"]:  # on the customer's side there are no settings
        from criticizer import reference_agent

        sys.exit(reference_agent.main(sys.argv[2:]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "criticizer.settings")
    from django.core.exceptions import ImproperlyConfigured

    from criticizer.db.embedded import EmbeddedError, for_command

    if sys.argv[1:2] == ["demo"]:
        from reviews.demo import set_environment

        set_environment(sys.argv[2:])
    try:
        with for_command(sys.argv[1:]):
            _run()
    except (ImproperlyConfigured, EmbeddedError) as error:
        sys.exit(f"criticizer: {error}")


def _run() -> None:
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
