"""Application configuration of the kernel."""

import sys

from django.apps import AppConfig


class CriticizerConfig(AppConfig):
    name = "criticizer"
    verbose_name = "Criticizer kernel"

    def ready(self) -> None:
        from django.conf import settings

        from criticizer import checks, reauth  # noqa: F401  register system checks, a signal
        from criticizer.error_reports import print_clean
        from criticizer.redaction import register_own_secrets, require_policy
        from criticizer.secret_values import own_secrets

        require_policy(settings.REDACTION_POLICY)
        register_own_secrets(own_secrets())
        sys.excepthook = print_clean
