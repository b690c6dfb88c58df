"""`manage.py diffsettings`: Django's own, with secrets masked."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import diffsettings

from criticizer.security.error_reporting import mask


class Command(diffsettings.Command):
    def handle(self, **options: Any) -> str:
        return mask(super().handle(**options))
