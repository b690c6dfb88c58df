"""`manage.py web`: the web server in the foreground until SIGTERM."""

from __future__ import annotations

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.wsgi import get_wsgi_application
from django.db import connections
from django.urls import get_resolver
from django.utils.module_loading import import_string

from criticizer.checks import TAG
from criticizer.queue.broker import connect
from criticizer.workers import web_server


class Command(BaseCommand):
    help = "Run the web server until SIGTERM."
    requires_system_checks = [TAG]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--processes", type=int, default=2)
        parser.add_argument("--threads", type=int, default=4, help="of each process: requests at once")

    def handle(self, *, host: str, port: int, processes: int, threads: int, **options: object) -> None:
        try:
            listening = web_server.listen(host, port)
        except OSError as error:
            raise CommandError(
                f"port {port} of {host} cannot be used ({error.strerror}): choose with --host and --port."
            ) from error
        # Loaded before the fork, so that all processes share the memory. The pages too: else the threads of
        # the first requests import modules that need each other at once, and find them half loaded.
        application = get_wsgi_application()
        resolver = get_resolver()
        for code in (400, 404, 500):
            resolver.resolve_error_handler(code)
        connections.close_all()
        background = import_string(settings.WEB_BACKGROUND)
        web_server.serve(application, listening, processes, threads, connect, background)
