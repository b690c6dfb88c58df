"""`manage.py provider_table`: write docs/providers.md from the providers' code."""

from __future__ import annotations

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from notifications.admin import capability_table


class Command(BaseCommand):
    help = "Write docs/providers.md from the providers' code."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="fail when the page is not current")

    def handle(self, *, check: bool, **options: object) -> None:
        path = settings.BASE_DIR / "docs" / "providers.md"
        page = capability_table.markdown()
        if not check:
            path.write_text(page)
            self.stdout.write(f"{path} written.")
        elif not path.exists() or path.read_text() != page:
            raise CommandError("docs/providers.md is not current: run manage.py provider_table")
