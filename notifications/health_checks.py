"""Health checks of the notification providers; each bounds its own time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from criticizer.codehosts.registry import HOSTS
from criticizer.http_client import Limits
from notifications import config
from notifications.providers.email.postmark import Postmark
from notifications.providers.email.resend import Resend
from notifications.providers.email.smtp import Smtp
from notifications.providers.slack.provider import Slack
from notifications.providers.swarm.provider import Swarm

_CONNECT_SECONDS = 3.0
_READ_SECONDS = 5.0
_LIMITS = Limits(_CONNECT_SECONDS, _READ_SECONDS, _CONNECT_SECONDS + _READ_SECONDS)


def mail(name: str) -> None:
    """Check the mail service or server. Raises `Failure` when it does not work."""
    current = config.from_settings()
    _check(Resend, current.resend)
    _check(Postmark, current.postmark)
    if current.smtp is not None:
        # Without the archive: its look-ups have a circuit of their own.
        smtp = replace(
            current.smtp,
            archive=None,
            connect_timeout_seconds=_CONNECT_SECONDS,
            read_timeout_seconds=_READ_SECONDS,
        )
        Smtp(smtp).probe()


def slack(name: str) -> None:
    """Check Slack. Raises `Failure` when it does not work."""
    _check(Slack, config.from_settings().slack)


def swarm(name: str) -> None:
    """Check P4 Code Review. Raises `Failure` when it does not work."""
    _check(Swarm, config.from_settings().swarm)


def code_host(name: str) -> None:
    """Check a code host with the App's key or the account's token.

    Raises `Failure` when it does not work.
    """
    host = name.partition(":")[0]
    _check(HOSTS[host], dict(config.from_settings().hosts).get(host))


def _check(kind: type[Any], provider_config: Any | None) -> None:
    if provider_config is not None:
        kind(replace(provider_config, limits=_LIMITS)).probe()
