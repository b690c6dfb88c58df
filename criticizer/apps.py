"""Application configuration of the kernel."""

from django.apps import AppConfig


class CriticizerConfig(AppConfig):
    name = "criticizer"
    verbose_name = "Criticizer kernel"

    def ready(self) -> None:
        from django.conf import settings

        from criticizer import checks  # noqa: F401  registers the system checks
        from criticizer.redaction import register_own_secrets, require_policy

        require_policy(settings.REDACTION_POLICY)
        register_own_secrets(
            [
                settings.SECRET_KEY,
                settings.SMTP_PASSWORD,
                *settings.ARTIFACT_KEYS,
                *settings.LLM_API_KEYS,
                *settings.WEBHOOK_SECRETS,
            ]
        )
