"""The one door between settings and providers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from django.conf import settings

from notifications.providers import registry
from notifications.providers.base import Provider
from notifications.providers.outbound import OutboundPolicy
from notifications.providers.registry import ProvidersConfig
from notifications.providers.smtp import SmtpConfig
from notifications.providers.webhook import WebhookConfig


def from_settings() -> ProvidersConfig:
    """Return the providers' configuration as the settings have it now."""
    smtp = None
    if settings.SMTP_HOST:
        smtp = SmtpConfig(
            host=settings.SMTP_HOST,
            port=settings.SMTP_PORT,
            sender=settings.MAIL_FROM,
            security=settings.SMTP_SECURITY,
            user=settings.SMTP_USER,
            password=settings.SMTP_PASSWORD,
            password_next=settings.SMTP_PASSWORD_NEXT,
        )
    return ProvidersConfig(
        mail_from=settings.MAIL_FROM,
        maildir=settings.MAILDIR,
        smtp=smtp,
        webhook=WebhookConfig(
            secrets=tuple(settings.WEBHOOK_SECRETS), policy=OutboundPolicy.parse(settings.OUTBOUND_ALLOW)
        ),
    )


def providers() -> Mapping[str, Provider]:
    """Return channel -> provider for the current settings.

    Raises ValueError when the configuration cannot work.
    """
    return _built(from_settings())


# A provider keeps what is expensive to make (certificate authorities): once per configuration.
_built = lru_cache(maxsize=4)(registry.build)
