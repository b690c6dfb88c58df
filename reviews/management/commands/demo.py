"""`manage.py demo`: review the newest commits of a git repository on this machine."""

from __future__ import annotations

import io
import os
import secrets
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from criticizer.db.embedded import EmbeddedError, EmbeddedServer
from criticizer.queue import outbox
from criticizer.wording import plural_count
from criticizer.workers.ports import port_problem
from criticizer.workers.supervisor import Supervisor, clusters, web
from reviews import demo
from reviews.demo import report as demo_report
from reviews.demo import story
from reviews.models import FindingRow


class Command(BaseCommand):
    help = "Post two commits made for the demo, or the newest ones of a repository, and show their reviews."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--repo", type=Path, help="a git repository (default: the demo's own)")
        parser.add_argument("--commits", type=int, default=demo.COMMITS)
        parser.add_argument("--port", type=int, help="the port of the web server (default: a free one)")
        parser.add_argument("--keep", action="store_true", help="leave everything running until Ctrl-C")

    def handle(
        self, *, repo: Path | None, commits: int, keep: bool, port: int | None = None, **options: object
    ) -> None:
        if port is not None and (problem := port_problem("127.0.0.1", port)):
            raise CommandError(problem)
        # `manage.py` has set the demo's environment before settings were read.
        repository = repo and repo.expanduser().absolute()
        server = EmbeddedServer(settings.DATA_DIR)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupt)
        with server.held() as is_ours:
            if not is_ours:
                raise CommandError(f"A demo already runs in {settings.DATA_DIR}: stop that one first.")
            try:
                chosen = demo.newest_commits(repository, commits) if repository else []
                chosen += demo.example_commits(settings.DATA_DIR, 1 if repository else 3)
                self._fresh_data(server)
                self._say(f"Database starts in {settings.DATA_DIR}")
                server.start()
                call_command("migrate", verbosity=0)
                self._run(repository, chosen, port or demo.free_port(), keep=keep)
            except (demo.DemoError, EmbeddedError) as error:
                raise CommandError(f"The demo failed: {error}") from error
            except KeyboardInterrupt:
                raise CommandError("The demo was stopped before its end.") from None
            finally:
                connections.close_all()
                server.stop()

    def _fresh_data(self, server: EmbeddedServer) -> None:
        server.stop("immediate")
        # Only what a demo before this one wrote; secrets stay, settings have read them already.
        for name in ("postgres", "artifacts", "mail", "logs"):
            shutil.rmtree(settings.DATA_DIR / name, ignore_errors=True)

    def _run(self, repository: Path | None, commits: list[demo.Commit], port: int, *, keep: bool) -> None:
        base_url = f"http://127.0.0.1:{port}"
        environment = {**os.environ, "BASE_URL": base_url, "DJANGO_SETTINGS_MODULE": "criticizer.settings"}
        key = io.StringIO()
        call_command("create_api_key", name="demo", role="trigger", stdout=key, stderr=io.StringIO())
        supervisor = Supervisor(
            [web("127.0.0.1", port, environment), *clusters(outbox.queues(), environment)],
            settings.DATA_DIR / "logs",
        )
        try:
            self._say(f"Web and workers start; their logs are in {supervisor.output}")
            self._review(repository, commits, demo.Client(base_url, key.getvalue().strip()), supervisor)
            self._say(demo_report.closing(settings.MAILDIR / "new", keep=keep))
            if keep:
                self._keep(base_url, supervisor)
        finally:
            self._say("Stopping.")
            supervisor.stop()

    def _review(
        self, repository: Path | None, commits: list[demo.Commit], client: demo.Client, supervisor: Supervisor
    ) -> None:
        client.wait_until_ready(supervisor.tick)
        if repository is None:
            self._play(commits, client, supervisor)
            return
        jobs = {client.post(commit): commit for commit in commits}
        self._say(
            f"Posted {len(jobs) - 1} commits of {repository}\n"
            f"and one commit made for this demo to {client.base_url}/api/v1/reviews/"
        )
        if settings.LLM_PROVIDER == "none":
            self._say("Deterministic checks alone: no language model is configured (LLM_PROVIDER).")
        done = {job["id"]: job for job in client.follow(list(jobs), supervisor.tick)}
        for number, (job_id, commit) in enumerate(jobs.items(), start=1):
            self._show(f"[{number}/{len(jobs)}] {commit.subject}", done[job_id])
        bad = sum(job["status"] != "succeeded" for job in done.values())
        if bad:
            raise demo.DemoError(f"{bad} of {len(jobs)} reviews did not succeed; see {supervisor.output}.")
        found = sum(len(job["findings"]) for job in done.values())
        findings = plural_count(found, "finding", zero="no")
        self._say(f"\nAll {len(jobs)} reviews succeeded and were delivered; {findings}.")

    def _play(self, commits: list[demo.Commit], client: demo.Client, supervisor: Supervisor) -> None:
        self._say(f"Posted two commits made for this demo to {client.base_url}/api/v1/reviews/")
        self._say(story.RECORDED)
        for heading, job in story.play(client, commits, supervisor.tick, self._say):
            self._show(heading, job)
            if job["status"] != "succeeded":
                raise demo.DemoError(f"review {job['id']} ended as {job['status']}; see {supervisor.output}.")
        self._say(story.OVERVIEW)

    def _show(self, heading: str, job: dict[str, Any]) -> None:
        # The API has no excerpts, which the page and the mail take from the same rows.
        rows = FindingRow.objects.filter(job_id=job["id"]).order_by("pk").values_list("excerpt", flat=True)
        mails = [self._mail_path(delivery) for delivery in job["deliveries"]]
        for line in demo_report.lines(heading, job, list(rows), mails):
            self.stdout.write(line)
        self.stdout.flush()

    def _mail_path(self, delivery: dict[str, Any]) -> str:
        notification_id = delivery["notification_id"]
        found = sorted(settings.MAILDIR.rglob(f"*{notification_id}*")) if notification_id else []
        return str(found[0]) if found else str(delivery["status"])

    def _keep(self, base_url: str, supervisor: Supervisor) -> None:
        password = secrets.token_urlsafe(12)
        get_user_model().objects.create_superuser("admin", demo.RECIPIENT.partition(":")[2], password)
        connections.close_all()
        self._say(demo_report.welcome(base_url, "admin", password))
        try:
            while True:
                supervisor.tick()
                time.sleep(0.3)
        except KeyboardInterrupt:
            self._say("")

    def _say(self, text: str) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(text) if sys.stdout.isatty() else text)
        self.stdout.flush()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End the demo once; a second Ctrl-C does not interrupt the stopping."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
