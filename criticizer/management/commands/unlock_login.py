"""`manage.py unlock_login NAME`: end the locks that failed logins have caused."""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandParser

from criticizer.security import login_throttle


class Command(BaseCommand):
    help = "Delete failed logins, so that the account can log in at once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")

    def handle(self, *, username: str, **options: object) -> None:
        rows = login_throttle.unlock(username)
        self.stdout.write(f"{rows} locks and failure counts deleted.")
