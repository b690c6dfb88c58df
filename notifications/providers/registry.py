"""The provider of each channel. A new provider is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from criticizer.codehosts.registry import HOSTS, client_of
from criticizer.resilience.failures import Component
from notifications.providers.base import Provider
from notifications.providers.email.esp_base import HostedMailConfig
from notifications.providers.email.maildir import Maildir
from notifications.providers.email.postmark import Postmark
from notifications.providers.email.resend import Resend
from notifications.providers.email.smtp import Smtp, SmtpConfig, Unarchived
from notifications.providers.pull_requests.provider import PullRequests
from notifications.providers.pull_requests.reviews import Reviews
from notifications.providers.slack.provider import Slack, SlackConfig
from notifications.providers.swarm.provider import Swarm, SwarmConfig
from notifications.providers.webhook.provider import Webhook, WebhookConfig
from notifications.recipients import inline_channel


@dataclass(frozen=True, slots=True)
class ProvidersConfig:
    """The configuration of all providers; a channel whose part is None has no provider.

    Mail goes to the first of `resend`, `postmark` and `smtp` that is set, else to `maildir`.
    """

    mail_from: str
    maildir: Path
    webhook: WebhookConfig
    smtp: SmtpConfig | None = None
    unarchived: Unarchived | None = None  # with `smtp`
    resend: HostedMailConfig | None = None
    postmark: HostedMailConfig | None = None
    slack: SlackConfig | None = None
    swarm: SwarmConfig | None = None
    hosts: tuple[tuple[str, Any], ...] = ()  # the connected code hosts by name


@dataclass(frozen=True, slots=True)
class Entry:
    """A provider of a channel. `make` returns None where it is not configured.

    Raises ValueError when the configuration cannot work: a secret or the sender is malformed.
    """

    channel: str
    kind: type[Any]
    make: Callable[[ProvidersConfig], Provider | None]


def _on_host(channel: str, kind: type[PullRequests], host: str) -> Entry:
    def make(config: ProvidersConfig) -> Provider | None:
        current = dict(config.hosts).get(host)
        if current is None:
            return None
        # One client for both channels, and for check runs: each would have tokens of its own.
        return kind(HOSTS[host](current, client=client_of(host, current, Component.PROVIDER)))

    return Entry(channel, kind, make)


# The first configured provider of a channel serves it.
PROVIDERS = (
    Entry("mail", Resend, lambda config: Resend(config.resend) if config.resend else None),
    Entry("mail", Postmark, lambda config: Postmark(config.postmark) if config.postmark else None),
    Entry("mail", Smtp, lambda config: Smtp(config.smtp, config.unarchived) if config.smtp else None),
    Entry("mail", Maildir, lambda config: Maildir(config.maildir, config.mail_from)),
    Entry("webhook", Webhook, lambda config: Webhook(config.webhook)),
    Entry("slack", Slack, lambda config: Slack(config.slack) if config.slack else None),
    Entry("swarm", Swarm, lambda config: Swarm(config.swarm) if config.swarm else None),
    *(_on_host(host, PullRequests, host) for host in HOSTS),
    *(_on_host(inline_channel(host), Reviews, host) for host in HOSTS),
)
