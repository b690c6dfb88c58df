"""Builds the providers from the settings.

It is the only module that imports both settings and providers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import structlog
from django.conf import settings

from criticizer import mail
from criticizer.codehosts import registry as codehosts
from criticizer.codehosts.base import Host
from criticizer.codehosts.names import pull_request_place
from criticizer.codehosts.registry import HOSTS
from criticizer.queue.outbox import scaled
from criticizer.resilience.failures import Component
from criticizer.resilience.gate import name_of
from notifications import webhook_address
from notifications.models import UnarchivedMail
from notifications.providers.base import Provider
from notifications.providers.email.esp_base import HostedMailConfig
from notifications.providers.email.imap_archive import ArchiveConfig
from notifications.providers.email.smtp import SmtpConfig
from notifications.providers.registry import PROVIDERS, ProvidersConfig
from notifications.providers.slack.provider import SlackConfig
from notifications.providers.swarm.provider import SwarmConfig
from notifications.providers.webhook.provider import WebhookConfig
from notifications.providers.webhook.ssrf_policy import OutboundPolicy
from notifications.recipients import host_of, split

log = structlog.get_logger(__name__)


def from_settings() -> ProvidersConfig:
    """Return the providers' configuration as the settings have it now."""
    smtp = resend = postmark = None
    provider = mail.provider()
    if provider == "resend":
        resend = HostedMailConfig(settings.MAIL_FROM, settings.RESEND_API_KEY, settings.RESEND_API_URL)
    if provider == "postmark":
        postmark = HostedMailConfig(
            settings.MAIL_FROM, settings.POSTMARK_SERVER_TOKEN, settings.POSTMARK_API_URL
        )
    if provider == "smtp":
        smtp = SmtpConfig(
            host=settings.SMTP_HOST,
            port=settings.SMTP_PORT,
            sender=settings.MAIL_FROM,
            security=settings.SMTP_SECURITY,
            user=settings.SMTP_USER,
            passwords=settings.SMTP_PASSWORD,
            archive=_archive(),
        )
    return ProvidersConfig(
        mail_from=settings.MAIL_FROM,
        maildir=settings.MAILDIR,
        smtp=smtp,
        unarchived=UnarchivedMail.objects,
        resend=resend,
        postmark=postmark,
        webhook=WebhookConfig(
            secrets=settings.WEBHOOK_SECRETS,
            policy=OutboundPolicy.parse(settings.OUTBOUND_ALLOW),
            not_idempotent=settings.WEBHOOK_NOT_IDEMPOTENT,
        ),
        slack=SlackConfig(settings.SLACK_BOT_TOKEN, settings.SLACK_API_URL)
        if settings.SLACK_BOT_TOKEN
        else None,
        swarm=SwarmConfig(settings.SWARM_URL, settings.SWARM_USER, settings.SWARM_TICKET)
        if settings.SWARM_URL
        else None,
        hosts=tuple((name, HOSTS[name].configured(_setting)) for name in connected_hosts()),
    )


def host(name: str, component: Component = Component.PROVIDER) -> Host:
    """Return a code host, even without credentials and secrets.

    `component` is that of its failures.
    """
    found: Host = codehosts.made(name, _setting, component)
    return found


def connected_hosts(component: Component = Component.PROVIDER) -> dict[str, Host]:
    """Return the code hosts that we have credentials for, by name, as `host`."""
    return {name: made for name in HOSTS if (made := host(name, component)).is_connected}


def _setting(name: str) -> Any:
    return getattr(settings, name)


def _archive() -> ArchiveConfig | None:
    if not settings.IMAP_ARCHIVE_URL:
        return None
    archive = ArchiveConfig.parse(settings.IMAP_ARCHIVE_URL, settings.IMAP_ARCHIVE_ADDRESS)
    return replace(
        archive,
        passwords=settings.IMAP_ARCHIVE_PASSWORD,
        attempt_seconds=scaled(archive.attempt_seconds),
        absent_after_seconds=scaled(archive.absent_after_seconds),
    )


def providers() -> Mapping[str, Provider]:
    """Return channel -> provider for the current settings.

    A channel whose provider is not configured or cannot be made is missing: only its deliveries fail,
    with CONFIG_INVALID. `problems` has the reason.
    """
    return build(from_settings())[0]


def problems() -> Mapping[str, str]:
    """Return channel -> why its provider cannot be made, without secrets."""
    return build(from_settings())[1]


@lru_cache(maxsize=4)
def build(current: ProvidersConfig) -> tuple[Mapping[str, Provider], Mapping[str, str]]:
    """Return channel -> provider, and channel -> why it cannot be made. Once per configuration."""
    made: dict[str, Provider] = {}
    broken: dict[str, str] = {}
    for entry in PROVIDERS:
        channel = entry.channel
        if channel in made or channel in broken:
            continue
        try:
            provider = entry.make(current)
        except ValueError as error:
            broken[channel] = str(error)
            log.error("provider_not_made", channel=channel, reason=str(error))
        else:
            if provider is not None:
                made[channel] = provider
    return made, broken


def dependency_of(recipient: str, provider: Provider | None = None, *, looking: bool = False) -> str:
    """Return the dependency (circuit, rate limit) of a normalised recipient.

    `provider:webhook:<host[:port]>`, so that one dead receiver does not stop the others; mail is
    `provider:mail`, or `provider:maildir`; a pull request its host's, such as `github:<host>:<owner>`.
    `provider`: the one that serves it; unless given, the one that the settings name. `looking`: for a
    look-up, which may use another server than sending does: `provider:mail-archive`.
    """
    channel, address = split(recipient)
    if channel == "webhook":
        try:
            return name_of("provider", channel, webhook_address.parse(address).netloc)
        except ValueError:  # of an earlier version: the provider refuses it
            return name_of("provider", channel, "unusable")
    if on := host_of(recipient):
        return name_of(host(on).dependency(pull_request_place(address)[0]))
    if looking and provider is not None and provider.capabilities.looks_elsewhere:
        return name_of("provider", f"{channel}-archive")
    name = provider.name if provider is not None else mail.provider()
    return name_of("provider", mail.MAILDIR if channel == "mail" and name == mail.MAILDIR else channel)
