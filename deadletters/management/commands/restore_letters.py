"""`manage.py restore_letters`: put removed dead letters back from the archive."""

from __future__ import annotations

import getpass

from django.core.management.base import BaseCommand, CommandError, CommandParser

from deadletters.models import LetterArchive
from deadletters.retention.letter_archive import ArchiveDamaged, restore


class Command(BaseCommand):
    help = "Put removed dead letters back as they were, from one file of the archive."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the file, as read_letter_archive lists it")
        parser.add_argument("--letter", type=int, action="append", default=[], help="only this letter")
        parser.add_argument("--reason", required=True, help="a ticket or a sentence, for the timelines")
        parser.add_argument("--actor", default="", help="who asked for it, beside this account")

    def handle(self, *, name: str, letter: list[int], reason: str, actor: str, **options: object) -> None:
        found = LetterArchive.objects.filter(name=name).first()
        if found is None:
            raise CommandError(f"not in the archive: {name}")
        account = getpass.getuser()
        by = f"{actor} (restore_letters, account {account})" if actor else f"{account} (restore_letters)"
        try:
            back = restore(found, actor=by, reason=reason, letters=letter)
        except (ArchiveDamaged, ValueError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{len(back.letters)} restored, {len(back.skipped)} skipped.")
        for letter_id, why in sorted(back.skipped.items()):
            self.stdout.write(f"  dead letter {letter_id}: {why}")
