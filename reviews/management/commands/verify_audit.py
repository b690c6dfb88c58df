"""`manage.py verify_audit`: verify that audit rows have not changed since they were sealed."""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from reviews.audit import hash_chain

_LINK = re.compile(r"[0-9a-f]{64}")


class Command(BaseCommand):
    help = (
        "Compare audit rows with their seals. Exits 1 when a row was changed, added or removed, "
        "2 when a --head is malformed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--head",
            action="append",
            default=[],
            metavar="TABLE:LINK",
            help="a link from an audit_sealed line of the log, which must still be in the chain",
        )

    def handle(self, *, head: list[str], **options: Any) -> None:
        faults: list[str] = []
        audits = hash_chain.verify_all()
        tables = [audit.table for audit in audits]
        for wanted in head:
            if wanted.partition(":")[0] not in tables or not _LINK.fullmatch(wanted.partition(":")[2]):
                raise CommandError(
                    f"--head {wanted[:128]}: give TABLE:LINK as an audit_sealed line shows them, "
                    f"a link of 64 hexadecimal digits and a table of {', '.join(tables)}.",
                    returncode=2,
                )
        for audit in audits:
            self.stdout.write(
                f"{audit.table}: {audit.rows} rows under {audit.seals} seals, "
                f"{audit.unsealed} not sealed yet, head {audit.head}"
            )
            if audit.unkeyed:
                self.stdout.write(
                    f"  {audit.unkeyed} seals were made with a SECRET_KEY that is no longer configured."
                )
            faults += audit.faults
        for table, _, link in (wanted.partition(":") for wanted in head):
            if not hash_chain.has_head(table, link):
                faults.append(f"{table}: the link {link[:64]} is no longer in the chain")
        for fault in faults:
            self.stderr.write(fault)
        if faults:
            raise CommandError(f"{len(faults)} faults: audit rows have changed since they were sealed.")
        self.stdout.write("Every sealed row is unchanged.")
