"""`manage.py failure_table`: write docs/failures.md from the tables of failures."""

from __future__ import annotations

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from reviews import failure_reference


class Command(BaseCommand):
    help = "Write docs/failures.md from the tables of failures."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="fail when the page is not current")

    def handle(self, *, check: bool, **options: object) -> None:
        path = settings.BASE_DIR / "docs" / "failures.md"
        page = failure_reference.markdown()
        if not check:
            path.write_text(page)
            self.stdout.write(f"{path} written.")
        elif not path.exists() or path.read_text() != page:
            raise CommandError("docs/failures.md is not current: run manage.py failure_table")
