"""`create_api_key --name ci --role trigger`: print a new key, and only it, on stdout."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from reviews.intake import api_keys
from reviews.models import ApiKey


class Command(BaseCommand):
    help = "Create an API key and print it. It is stored hashed and cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", required=True, help="the unique name of the program that uses the key")
        parser.add_argument("--role", required=True, choices=ApiKey.Role.values)
        parser.add_argument(
            "--prefix",
            action="append",
            default=[],
            help="A depot tree such as //depot/main/...: the key sees only files below it (repeatable)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            key = api_keys.create(options["name"], options["role"], options["prefix"])
        except ValueError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(key)
        self.stderr.write(
            f"API key {options['name']!r} with role {options['role']}. Save it now: it is not shown again."
        )
