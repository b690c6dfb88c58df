"""`manage.py lost_requests LOG...`: name accepted reviews that the database lacks.

For requests whose web server forgot them (`reviews.intake.kept_requests`): its logs still show them as
accepted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from criticizer.wording import plural_count
from reviews.models import ReviewJob
from reviews.sources.paths import printable

_AT_ONCE = 500
Accepted = tuple[int, str, int, str, str]  # number, changelist, version, idempotency key, when


class Command(BaseCommand):
    help = "Name the reviews that log lines (job_created) show as accepted and the database lacks."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "logs", nargs="+", help="files with JSON lines of web servers; - reads standard input"
        )

    def handle(self, *, logs: Sequence[str], **options: Any) -> None:
        seen = missing = 0
        for name in logs:
            try:
                with nullcontext(sys.stdin) if name == "-" else Path(name).open(errors="replace") as lines:
                    accepted = _accepted(lines)
                    while some := list(islice(accepted, _AT_ONCE)):
                        seen += len(some)
                        for one, now in _lost(some):
                            missing += now is None
                            self._write(one, now)
            except OSError as error:
                raise CommandError(f"{printable(name)} cannot be read: {error.strerror}.") from error
        if not seen:
            raise CommandError("No line of a log says job_created: give the logs of the web servers.")
        if missing:
            raise CommandError(
                f"{plural_count(missing, 'review')} of {seen} accepted missing. Post the requests again with "
                "their idempotency keys."
            )
        self.stdout.write(f"None of {plural_count(seen, 'accepted review')} is missing.")

    def _write(self, one: Accepted, now: int | None) -> None:
        number, changelist, version, key, at = one
        what = f"review {number} of {changelist}, version {version}, key {key or 'unknown'}, accepted {at}"
        self.stdout.write(f"{printable(what)}: " + ("missing" if now is None else f"is review {now} now"))


def _accepted(lines: Iterable[str]) -> Iterator[Accepted]:
    """Yield what was accepted. Lines may begin with what a log's collector puts there."""
    for line in lines:
        if '"job_created"' not in line:
            continue
        try:
            found = json.loads(line[line.index("{") :])
            if found["event"] == "job_created":
                yield (
                    int(found["job"]),
                    str(found["changelist"]),
                    int(found["version"]),
                    str(found.get("key", "")),
                    str(found.get("timestamp", "")),
                )
        except (ValueError, KeyError, TypeError):
            continue  # cut off, or of something else


def _lost(some: Sequence[Accepted]) -> Iterator[tuple[Accepted, int | None]]:
    """Yield the reviews that are gone, with the number of the one that took their place."""
    jobs = ReviewJob.objects.filter(changelist_id__in={one[1] for one in some}).order_by("pk")
    there = list(jobs.values_list("pk", "changelist_id", "review_version", "idempotency_key"))
    numbers = {(number, changelist, version) for number, changelist, version, _ in there}
    under_key = {(changelist, version, key): number for number, changelist, version, key in there}
    under_any = {(changelist, version): number for number, changelist, version, _ in there}
    for one in some:
        number, changelist, version, key, _ = one
        if (number, changelist, version) not in numbers:
            # Earlier versions logged no key.
            yield (
                one,
                under_key.get((changelist, version, key)) if key else under_any.get((changelist, version)),
            )
