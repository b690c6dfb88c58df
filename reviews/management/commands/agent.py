"""`manage.py agent --url --key`: the reference agent (`criticizer.reference_agent`)."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from criticizer import reference_agent


class Command(BaseCommand):
    """Known to `help`; the command line runs the agent itself before it reads settings."""

    help = "Take tasks of an installation, answer them by a command or a model, and submit the answers."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        reference_agent.arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        raise SystemExit(reference_agent.run(argparse.Namespace(**options)))
