"""`manage.py index_documents`: re-index documents with the configured embedding model."""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandParser

from reviews.stages import semantic


class Command(BaseCommand):
    help = "Let the next review of a repository embed its documents by the model that is configured now."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("root", help="the repository's depot folder, such as //demo/; // for Perforce")

    def handle(self, *, root: str, **options: object) -> None:
        count = semantic.forget(root.rstrip("/") + "/" if root != "//" else root)
        self.stdout.write(
            f"{root} is re-indexed with its next review."
            if count
            else f"{root} is not indexed, or its index has expired: the next review makes one."
        )
