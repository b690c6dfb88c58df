"""`manage.py generate_artifact_key`: print a new key for ARTIFACT_KEYS on stdout.

It prints nothing else.
"""

from __future__ import annotations

from cryptography.fernet import Fernet
from django.core.management.base import BaseCommand

from criticizer.security.encryption import key_id


class Command(BaseCommand):
    help = "Generate a key for ARTIFACT_KEYS and print it. It is not saved."
    requires_system_checks: list[str] = []

    def handle(self, **options: object) -> None:
        key = Fernet.generate_key().decode()
        self.stdout.write(key)
        self.stderr.write(f"Artifact key {key_id(key)}. Put it first in ARTIFACT_KEYS; see docs/rotation.md.")
