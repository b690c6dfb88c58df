"""`manage.py read_letter_archive`: list the archive's files, or print letters as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from deadletters.models import LetterArchive
from deadletters.retention.letter_archive import ArchiveDamaged, read, read_file


class Command(BaseCommand):
    help = "List the files of removed dead letters, or print the letters of some, one JSON object a line."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", help="files to print; without one, the files are listed")
        parser.add_argument("--all", action="store_true", help="print every file")
        parser.add_argument(
            "--file",
            type=Path,
            action="append",
            default=[],
            metavar="PATH",
            help="print a local file, also one that the database does not know",
        )
        parser.add_argument("--letter", type=int, action="append", default=[], help="only this letter")

    def handle(
        self,
        *,
        names: list[str],
        all: bool,  # noqa: A002
        file: list[Path],
        letter: list[int],
        **options: object,
    ) -> None:
        if file:
            if names or all:
                raise CommandError("--file cannot be combined with names or --all")
            self.stderr.write("Files are read without the database: their digests are not checked.")
            self._print(chain.from_iterable(map(read_file, file)), letter)
            return
        files = LetterArchive.objects.order_by("pk")
        if not (files or names):
            self.stderr.write("The archive is empty: retention has removed no dead letter yet.")
        if not (names or all or letter):
            for found in files:
                self.stdout.write(
                    f"{found.name}\t{found.created_at:%Y-%m-%d %H:%M}\t{found.letter_count} dead letters"
                    f" ({found.first_letter} to {found.last_letter})"
                )
            return
        if names:
            files = files.filter(name__in=names)
            if missing := set(names) - set(files.values_list("name", flat=True)):
                raise CommandError(f"not in the archive: {', '.join(sorted(missing))}")
        self._print(chain.from_iterable(map(read, files)), letter)

    def _print(self, entries: Iterable[Mapping[str, Any]], letter: list[int]) -> None:
        printed: set[int] = set()
        try:
            for entry in entries:
                if not letter or entry["letter"]["id"] in letter:
                    self.stdout.write(json.dumps(entry, sort_keys=True))
                    printed.add(entry["letter"]["id"])
        except (ArchiveDamaged, OSError) as error:
            raise CommandError(str(error)) from error
        if absent := sorted(set(letter) - printed):
            raise CommandError(f"not in these files: dead letter {', '.join(map(str, absent))}")
