"""Application configuration of the shared app."""

import sys

from django.apps import AppConfig


class CriticizerConfig(AppConfig):
    name = "criticizer"
    verbose_name = "Criticizer"

    def ready(self) -> None:
        from django.conf import settings

        from criticizer.checks import settings as settings_checks  # noqa: F401  registers system checks
        from criticizer.redaction import known_secrets, register_own_secrets, require_policy
        from criticizer.security import reauthentication  # noqa: F401  registers a signal
        from criticizer.security.configured_secrets import own_secrets
        from criticizer.security.error_reporting import print_clean

        require_policy(settings.REDACTION_POLICY)
        register_own_secrets(own_secrets())
        known_secrets.current[:] = [own_secrets]
        sys.excepthook = print_clean
