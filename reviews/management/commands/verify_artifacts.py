"""`manage.py verify_artifacts`: find overdue, lost, orphaned and unreadable artifacts now."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from reviews.artifacts import integrity
from reviews.models import Artifact


class Command(BaseCommand):
    help = "Verify stored artifacts now. Workers verify a few every 30 s."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--limit", type=int, default=10_000, help="the most artifacts to open")

    def handle(self, *, limit: int, **options: Any) -> None:
        seen = integrity.verify(limit, all_now=True)
        walked = integrity.find_orphans()
        unsealed = integrity.find_unsealed()
        self.stdout.write(f"{seen.opened} artifacts opened, {walked.files} files checked.")
        known = Artifact.objects.filter(deleted_at=None).exclude(fault="").count()
        if seen.faults or walked.faults or known or unsealed:
            raise CommandError(
                f"{known} artifacts with a fault, {walked.orphaned} new files without a row, "
                f"{unsealed} findings with code in plain text: "
                "see the security events of kind artifact_fault."
            )
        self.stdout.write("Nothing is overdue, lost, orphaned, unreadable or in plain text.")
