"""`manage.py demo`: review the newest commits of a git repository, end to end, on this machine."""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from criticizer.embedded import EmbeddedError, EmbeddedServer
from criticizer.supervisor import Supervisor, clusters, web
from reviews import demo

_MARK = {"critical": "!!", "high": "! ", "medium": "- ", "low": ". "}
_SHOWN_FINDINGS = 12


class Command(BaseCommand):
    help = "Post the newest commits of a git repository and show their reviews."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--repo", default=str(demo.BASE_DIR), help="a git repository (default: this one)")
        parser.add_argument("--commits", type=int, default=demo.COMMITS)

    def handle(self, *, repo: str, commits: int, **options: object) -> None:
        # `manage.py` has set the demo's environment before settings were read.
        repository = Path(repo).expanduser().absolute()
        server = EmbeddedServer(settings.DATA_DIR)
        try:
            chosen = demo.newest_commits(repository, commits)
            self._fresh_data(server)
            self._say(f"Database starts in {settings.DATA_DIR}")
            server.start()
            call_command("migrate", verbosity=0)
            self._review(repository, chosen)
        except (demo.DemoError, EmbeddedError) as error:
            raise CommandError(f"The demo failed: {error}") from error
        finally:
            connections.close_all()
            server.stop()

    def _fresh_data(self, server: EmbeddedServer) -> None:
        server.stop("immediate")
        # Only what a demo before this one wrote; secrets stay, settings have read them already.
        for name in ("postgres", "artifacts", "mail", "logs"):
            shutil.rmtree(settings.DATA_DIR / name, ignore_errors=True)

    def _review(self, repository: Path, commits: list[str]) -> None:
        port = demo.free_port()
        base_url = f"http://127.0.0.1:{port}"
        environment = {**os.environ, "BASE_URL": base_url, "DJANGO_SETTINGS_MODULE": "criticizer.settings"}
        key = io.StringIO()
        call_command("create_api_key", name="demo", role="trigger", stdout=key, stderr=io.StringIO())
        queues = sorted({queue for _, queue in settings.STAGES.values()})
        supervisor = Supervisor(
            [web("127.0.0.1", port, environment), *clusters(queues, environment)], settings.DATA_DIR / "logs"
        )
        client = demo.Client(base_url, key.getvalue().strip())
        try:
            self._say(f"Web and workers start; their logs are in {supervisor.output}")
            client.wait_until_ready(supervisor.tend)
            jobs = [client.post(commit) for commit in commits]
            self._say(f"Posted {len(jobs)} commits of {repository} to {base_url}/api/v1/reviews/")
            if settings.LLM_PROVIDER == "none":
                self._say("Only deterministic checks run: LLM_PROVIDER is not set.")
            bad = 0
            for number, job in enumerate(client.follow(jobs, supervisor.tend), start=1):
                self._show(number, len(jobs), job)
                bad += job["status"] != "succeeded"
        finally:
            self._say("Stopping.")
            supervisor.stop()
        if bad:
            raise demo.DemoError(f"{bad} of {len(jobs)} reviews did not succeed; see {supervisor.output}.")
        self._say(f"All {len(jobs)} reviews succeeded and were delivered.")

    def _show(self, number: int, total: int, job: dict[str, Any]) -> None:
        read = sum(entry["status"] != "skipped" for entry in job["coverage"])
        out = self.stdout.write
        out(f"\n[{number}/{total}] {job['changelist_id']}   {job['status']}")
        out(f"      {len(job['findings'])} findings; {read} of {len(job['coverage'])} files read")
        for finding in job["findings"][:_SHOWN_FINDINGS]:
            where = finding["file"] + (f":{finding['line']}" if finding["line"] else "")
            out(f"      {_MARK[finding['severity']]} {finding['severity']:8} {where}")
            out(f"         {finding['title']}")
        if len(job["findings"]) > _SHOWN_FINDINGS:
            out(f"         … and {len(job['findings']) - _SHOWN_FINDINGS} more")
        for entry in job["coverage"]:
            if entry["status"] == "skipped":
                out(f"      not read: {entry['file']} ({entry['reason']})")
        for delivery in job["deliveries"]:
            out(f"      mail: {self._mail_path(delivery['notification_id']) or delivery['status']}")

    def _mail_path(self, notification_id: str) -> str:
        if settings.SMTP_HOST:
            return notification_id
        found = sorted(settings.MAILDIR.rglob(f"*{notification_id}*")) if notification_id else []
        return str(found[0]) if found else ""

    def _say(self, text: str) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(text) if sys.stdout.isatty() else text)
        self.stdout.flush()
