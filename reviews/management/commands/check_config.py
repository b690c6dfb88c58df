"""`manage.py check_config FILE`: print what a `.criticizer.yml` sets, and its warnings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from reviews.configuration import MAX_FILE_BYTES
from reviews.configuration.resolving import resolve
from reviews.repository_configuration import ceiling


class Command(BaseCommand):
    help = "Check a .criticizer.yml as this installation would read it. Fails where there is a warning."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="the file; it need not have that name")

    def handle(self, *, file: Path, **options: Any) -> None:
        try:
            with file.open("rb") as opened:
                raw = opened.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise CommandError(f"{file} cannot be read: {error.strerror}") from error
        resolved = resolve(raw, ceiling())
        for path, value in resolved.values.items():
            self.stdout.write(f"{path} = {json.dumps(value)}  ({resolved.sources[path]})")
        for warning in resolved.warnings:
            place = f"line {warning.line}: " if warning.line else ""
            self.stderr.write(f"{place}{warning.text}")
        if resolved.hidden:
            self.stderr.write(f"and {resolved.hidden} more")
        if resolved.warnings:
            count = len(resolved.warnings) + resolved.hidden
            raise CommandError(f"{file} has {count} warning{'s' * (count > 1)}")
        self.stdout.write(f"{file} is valid.")
