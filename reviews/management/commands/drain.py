"""`manage.py drain HOST`: let one machine's workers finish and take nothing new."""

from __future__ import annotations

import time

from django.core.management.base import BaseCommand, CommandError, CommandParser

from criticizer.observability.health import beating
from reviews.models import Attempt

POLL_SECONDS = 0.5


class Command(BaseCommand):
    help = "Let the workers of one machine finish their work and take nothing new, until they are restarted."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("host", help="the machine, as the admin's list of workers names it")
        parser.add_argument(
            "--wait", type=float, default=120.0, help="seconds to wait for running stages (default: 120)"
        )

    def handle(self, *, host: str, wait: float, **options: object) -> None:
        clusters = beating().filter(host=host)
        if not clusters.update(draining=True):
            known = sorted(set(beating().values_list("host", flat=True)))
            raise CommandError(
                f"no worker runs on {host}. Workers run on: {', '.join(known) or 'no machine'}."
            )
        until = time.monotonic() + wait
        # A cluster reads its row with each heartbeat: before that it may still take something. Beats are read
        # after the update: one between them would count for what came before it.
        before = dict(clusters.values_list("pk", "beat_at"))
        while unaware := [pk for pk, at in clusters.values_list("pk", "beat_at") if before.get(pk) == at]:
            if time.monotonic() > until:
                raise CommandError(f"{len(unaware)} clusters of {host} have not read it within {wait:g} s.")
            time.sleep(POLL_SECONDS)
        # With that beat a cluster has given back what it had not begun. What a driver claimed just before it
        # begins within a moment: two counts of zero in a row.
        running = Attempt.objects.filter(worker__startswith=f"{host}:", finished_at=None)
        quiet = 0
        while quiet < 2:
            stages = running.count()
            quiet = 0 if stages else quiet + 1
            if stages and time.monotonic() > until:
                raise CommandError(
                    f"{host} still works on {stages} stages after {wait:g} s. It takes nothing new: wait "
                    "longer, or stop it; what is cut off goes on elsewhere when its lease ends."
                )
            time.sleep(POLL_SECONDS)
        self.stdout.write(f"{host} is drained: it takes nothing new until its workers are restarted.")
