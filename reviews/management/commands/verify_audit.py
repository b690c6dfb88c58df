"""`manage.py verify_audit`: say whether audit rows are still what they were when they were sealed."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from reviews import seals


class Command(BaseCommand):
    help = "Compare audit rows with their seals. Exits 1 when a row was changed, added or taken away."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--head",
            action="append",
            default=[],
            metavar="TABLE:LINK",
            help="a link that the log's audit_sealed line showed: it must still be in the chain",
        )

    def handle(self, *, head: list[str], **options: Any) -> None:
        faults: list[str] = []
        for audit in seals.verify_all():
            self.stdout.write(
                f"{audit.table}: {audit.rows} rows under {audit.seals} seals, "
                f"{audit.unsealed} not sealed yet, head {audit.head}"
            )
            if audit.unkeyed:
                self.stdout.write(
                    f"  {audit.unkeyed} seals are of a SECRET_KEY that is no longer configured."
                )
            faults += audit.faults
        for wanted in head:
            table, _, link = wanted.partition(":")
            if not seals.has_head(table, link):
                faults.append(f"{table}: the link {link[:64]} is no longer in the chain")
        for fault in faults:
            self.stderr.write(fault)
        if faults:
            raise CommandError(f"{len(faults)} faults: audit rows are not what was written.")
        self.stdout.write("Every sealed row is as it was written.")
