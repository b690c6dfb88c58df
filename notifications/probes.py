"""Harmless probes of what this room calls (settings.CIRCUIT_PROBES): each bounds its own time."""

from __future__ import annotations

from dataclasses import replace

from notifications import config
from notifications.providers.smtp import Smtp

_CONNECT_SECONDS = 3.0
_READ_SECONDS = 5.0


def mail(name: str) -> None:
    """Greet the mail server, log in and send NOOP. Raises `Failure` when it does not take part."""
    smtp = config.from_settings().smtp
    if smtp is not None:
        Smtp(
            replace(smtp, connect_timeout_seconds=_CONNECT_SECONDS, read_timeout_seconds=_READ_SECONDS)
        ).probe()
