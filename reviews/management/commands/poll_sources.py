"""`manage.py poll_sources`: poll each source now for changes that no trigger reported."""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandError, CommandParser

from reviews.intake import polling, streams


class Command(BaseCommand):
    help = "Compare each source with the recorded events and create missing jobs. Safe at any time."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="print the difference and change nothing")

    def handle(self, *, dry_run: bool, **options: object) -> None:
        if not streams.streams():
            raise CommandError("nothing to poll: set P4PORT and P4USER, or GIT_REPOSITORIES and GIT_WATCH")
        reports = polling.run(dry=dry_run)
        if reports is None:
            raise CommandError("another poll is running: try again when it has ended")
        for report in reports:
            for event, job in report.missing:
                made = "no job yet" if job is None else f"job {job}"
                self.stdout.write(f"missing: {event.kind.value} {event.changelist_id} ({made})")
            more = ", and there is more: run it again" if report.is_partial else ""
            self.stdout.write(
                f"{report.stream}: {report.looked_at} checked, {len(report.missing)} missing{more}"
            )
            if report.problem:
                self.stdout.write(f"{report.stream}: stopped: {report.problem}")
        if any(report.problem for report in reports):
            raise CommandError("not every source could be polled")
