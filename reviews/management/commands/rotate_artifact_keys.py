"""`manage.py rotate_artifact_keys`: encrypt artifacts with the newest of ARTIFACT_KEYS."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from reviews.artifacts import integrity


class Command(BaseCommand):
    help = "Encrypt artifacts with the newest of ARTIFACT_KEYS. Can be stopped and started again at any time."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--limit", type=int, help="stop after this many artifacts")
        parser.add_argument("--batch", type=int, default=100, help="artifacts looked up at once")

    def handle(self, *, limit: int | None, batch: int, **options: Any) -> None:
        if batch < 1 or (limit is not None and limit < 1):
            raise CommandError("--limit and --batch must be at least 1.")
        done = integrity.rotate_keys(limit, batch)
        self.stdout.write(
            f"{done.resealed} resealed, {done.skipped} changed by others, {done.failed} failed, "
            f"{done.left} left under older keys."
        )
        if done.failed:
            reasons = "; ".join(f"{reason} ({number})" for reason, number in done.reasons.most_common())
            rest = " Stopped because the storage is not available: run it again." if done.is_cut else ""
            raise CommandError(
                f"Not resealed: {reasons}.{rest} Which ones: artifact_not_resealed in the log."
            )
        if done.left == 0:
            self.stdout.write("The older keys can be removed from ARTIFACT_KEYS.")
