"""Shared parts of the crash tests and their child processes."""

from __future__ import annotations

from pathlib import Path

from notifications.providers.base import Provider
from notifications.providers.email.maildir import Maildir
from notifications.providers.email.smtp import Smtp, SmtpConfig
from notifications.providers.webhook.provider import Webhook, WebhookConfig
from notifications.providers.webhook.ssrf_policy import OutboundPolicy
from tests.notifications.samples import SECRET_NEW, SENDER


def provider_for(channel: str, argument: str) -> Provider:
    """Return the real provider: `argument` is a directory or a port."""
    if channel == "maildir":
        return Maildir(Path(argument), SENDER)
    if channel == "smtp":
        return Smtp(SmtpConfig("127.0.0.1", int(argument), SENDER))
    return Webhook(WebhookConfig(secrets=(SECRET_NEW,), policy=OutboundPolicy.parse(["127.0.0.1"])))
