#!/usr/bin/env python
"""Criticizer's command line."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "criticizer.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    from criticizer.embedded import EmbeddedError, for_command

    if sys.argv[1:2] == ["demo"]:
        from reviews.demo import set_environment

        set_environment(sys.argv[2:])
    try:
        with for_command(sys.argv[1:]):
            execute_from_command_line(sys.argv)
    except (ImproperlyConfigured, EmbeddedError) as error:
        sys.exit(f"criticizer: {error}")


if __name__ == "__main__":
    main()
