"""`revoke_api_key --name ci`: revoke an API key; its next request is refused."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from reviews.intake import api_keys
from reviews.models import ApiKey


class Command(BaseCommand):
    help = "Revoke an API key."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["name"]
        try:
            revoked = api_keys.revoke(name)
        except ApiKey.DoesNotExist:
            raise CommandError(f"There is no API key named {name!r}.") from None
        self.stdout.write(
            f"API key {name!r} is revoked." if revoked else f"API key {name!r} was already revoked."
        )
