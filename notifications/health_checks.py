"""Health checks of the notification providers: each bounds its own time."""

from __future__ import annotations

from dataclasses import replace

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
    """Ask the mail service or server, without sending. Raises `Failure` when it does not take part."""
    current = config.from_settings()
    if current.resend is not None:
        Resend(replace(current.resend, limits=_LIMITS)).probe()
    elif current.postmark is not None:
        Postmark(replace(current.postmark, limits=_LIMITS)).probe()
    elif current.smtp is not None:
        # Without the archive: its look-ups have a circuit of their own.
        smtp = replace(
            current.smtp,
            archive=None,
            connect_timeout_seconds=_CONNECT_SECONDS,
            read_timeout_seconds=_READ_SECONDS,
        )
        Smtp(smtp).probe()


def slack(name: str) -> None:
    """Ask Slack who we are. Raises `Failure` when it does not take part."""
    current = config.from_settings()
    if current.slack is not None:
        Slack(replace(current.slack, limits=_LIMITS)).probe()


def swarm(name: str) -> None:
    """Ask P4 Code Review for its version, with the ticket. Raises `Failure` when it does not take part."""
    current = config.from_settings()
    if current.swarm is not None:
        Swarm(replace(current.swarm, limits=_LIMITS)).probe()
