"""Check that migrations and generated files are current, with one start of Django.

Generated files are those that commands write from tables.
"""

import os
import sys
from pathlib import Path

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django
from django.core.management import CommandError, call_command

django.setup()
try:
    call_command("makemigrations", check_changes=True, dry_run=True, skip_checks=False)
    for table in (
        "configuration_table",
        "environment_table",
        "failure_table",
        "metric_table",
        "provider_table",
        "role_table",
        "state_diagrams",
        "text_table",
    ):
        call_command(table, check=True)
except CommandError as error:
    sys.exit(f"CommandError: {error}")
