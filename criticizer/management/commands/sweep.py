"""`manage.py sweep`: find everything due again from the rows alone."""

from __future__ import annotations

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils.module_loading import import_string


class Command(BaseCommand):
    help = "Queue again whatever is due and has no message. Safe at any time; workers do it every 30 s."

    def handle(self, **options: object) -> None:
        made = import_string(settings.SWEEP)()
        self.stdout.write(f"{made} lost message(s) queued again.")
