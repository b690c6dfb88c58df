"""Base of the commands that write generated files of the repository."""

from __future__ import annotations

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from criticizer.environment import IS_CHECKOUT


class GeneratedFilesCommand(BaseCommand):
    """Writes files below the checkout; with --check, fails when one is not current."""

    requires_system_checks: list[str] = []

    def files(self) -> dict[str, str]:
        """Return the text of each generated file by its path in the repository."""
        raise NotImplementedError

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="fail when a file is not current")

    def handle(self, *, check: bool, **options: object) -> None:
        if not IS_CHECKOUT:
            raise CommandError("the files belong to the repository: run this in a checkout of it")
        command = type(self).__module__.rpartition(".")[2]
        for name, text in self.files().items():
            path = settings.BASE_DIR / name
            if not check:
                path.write_text(text)
                self.stdout.write(f"{path} written.")
            elif not path.exists() or path.read_text() != text:
                raise CommandError(f"{name} is not current: run manage.py {command}")
