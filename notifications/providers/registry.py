"""The provider of each channel. A new provider is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from criticizer.codehosts.client import TokenConfig
from criticizer.codehosts.github import AppConfig
from notifications.providers.base import Provider
from notifications.providers.email.maildir import Maildir
from notifications.providers.email.postmark import Postmark, PostmarkConfig
from notifications.providers.email.resend import Resend, ResendConfig
from notifications.providers.email.smtp import Smtp, SmtpConfig, Unarchived
from notifications.providers.pull_requests.provider import (
    GiteaPullRequests,
    GitHubPullRequests,
    GitLabPullRequests,
)
from notifications.providers.pull_requests.reviews import GitHubReviews
from notifications.providers.slack.provider import Slack, SlackConfig
from notifications.providers.swarm.provider import Swarm, SwarmConfig
from notifications.providers.webhook.provider import Webhook, WebhookConfig


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
    resend: ResendConfig | None = None
    postmark: PostmarkConfig | None = None
    slack: SlackConfig | None = None
    swarm: SwarmConfig | None = None
    github: AppConfig | None = None
    gitea: TokenConfig | None = None
    gitlab: TokenConfig | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """`make` returns None where the provider is not configured."""

    channel: str
    kind: type[Any]
    make: Callable[[ProvidersConfig], Provider | None]


def _of(kind: type[Any], config: object) -> Provider | None:
    return None if config is None else kind(config)


# The first configured provider of a channel serves it.
PROVIDERS = (
    Entry("mail", Resend, lambda config: Resend(config.resend) if config.resend else None),
    Entry("mail", Postmark, lambda config: Postmark(config.postmark) if config.postmark else None),
    Entry("mail", Smtp, lambda config: Smtp(config.smtp, config.unarchived) if config.smtp else None),
    Entry("mail", Maildir, lambda config: Maildir(config.maildir, config.mail_from)),
    Entry("webhook", Webhook, lambda config: Webhook(config.webhook)),
    Entry("slack", Slack, lambda config: Slack(config.slack) if config.slack else None),
    Entry("swarm", Swarm, lambda config: Swarm(config.swarm) if config.swarm else None),
    Entry("github", GitHubPullRequests, lambda config: _of(GitHubPullRequests, config.github)),
    Entry("github-review", GitHubReviews, lambda config: _of(GitHubReviews, config.github)),
    Entry("gitea", GiteaPullRequests, lambda config: _of(GiteaPullRequests, config.gitea)),
    Entry("gitlab", GitLabPullRequests, lambda config: _of(GitLabPullRequests, config.gitlab)),
)


CHANNELS = tuple(dict.fromkeys(entry.channel for entry in PROVIDERS))


def make(channel: str, config: ProvidersConfig) -> Provider | None:
    """Return the provider of one channel, or None where none is configured.

    Raises ValueError when the configuration cannot work: a secret or the sender is malformed.
    """
    for entry in PROVIDERS:
        if entry.channel == channel and (made := entry.make(config)) is not None:
            return made
    return None
