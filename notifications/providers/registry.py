"""Which provider serves which channel. A new provider is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from notifications.providers.base import Provider
from notifications.providers.maildir import Maildir
from notifications.providers.smtp import Smtp, SmtpConfig
from notifications.providers.webhook import Webhook, WebhookConfig


@dataclass(frozen=True, slots=True)
class ProvidersConfig:
    """Everything the providers need to know. Without `smtp`, mail goes to `maildir`."""

    mail_from: str
    maildir: Path
    webhook: WebhookConfig
    smtp: SmtpConfig | None = None


def build(config: ProvidersConfig) -> Mapping[str, Provider]:
    """Return channel -> provider.

    Raises ValueError when the configuration cannot work: a secret or the sender is malformed.
    """
    return {
        "mail": Smtp(config.smtp) if config.smtp else Maildir(config.maildir, config.mail_from),
        "webhook": Webhook(config.webhook),
    }
