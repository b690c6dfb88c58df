"""`manage.py sweep`: queue again what is due and has no message."""

from __future__ import annotations

from django.core.management.base import BaseCommand

from reviews import pipeline


class Command(BaseCommand):
    help = "Queue all due work that has no message. Safe at any time; workers do it every 30 s."

    def handle(self, **options: object) -> None:
        made = pipeline.sweep(is_whole=True)
        self.stdout.write(f"{made} lost message(s) queued again.")
