"""`manage.py secrets_status`: show the source, age and use of each secret."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from reviews import secret_inventory


class Command(BaseCommand):
    help = (
        f"Show each secret's source and age, never its value; warn past {secret_inventory.MAX_AGE_DAYS} days."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--fail", action="store_true", help="exit 1 when a secret is too old (for cron)")

        parser.add_argument("--ask", action="store_true", help="ask the model server which keys it accepts")

    def handle(self, *, fail: bool, ask: bool, **options: Any) -> None:
        old = []
        for status in secret_inventory.statuses(ask=ask):
            if not status.is_set:
                self.stdout.write(f"{status.name:26} not set")
                continue
            age = "age unknown" if status.age_days is None else f"{status.age_days} days"
            self.stdout.write(f"{status.name:26} {status.source:16} {age:12} {status.use}")
            if status.is_old:
                old.append(status.name)
        for name in old:
            self.stderr.write(
                f"WARNING: {name} is older than {secret_inventory.MAX_AGE_DAYS} days: see docs/rotation.md."
            )
        if old and fail:
            raise CommandError(f"{len(old)} secrets are too old.")
