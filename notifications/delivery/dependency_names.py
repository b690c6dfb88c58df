"""Which dependency a delivery needs: what a circuit breaker opens for, and a limit counts."""

from __future__ import annotations

from urllib.parse import urlsplit

from criticizer.resilience.gate import name_of
from notifications.providers.base import Provider
from notifications.recipients import split


def dependency_of(recipient: str, provider: Provider, *, looking: bool = False) -> str:
    """Return the dependency's name for a normalised recipient served by `provider`.

    `provider:webhook:<host[:port]>`: one dead receiver does not hold the others. Mail is
    `provider:mail`, or `provider:maildir` where it goes to the data directory. `looking` is the
    look-up, which may need another server than the send: `provider:mail-archive`.
    """
    channel, address = split(recipient)
    if channel == "webhook":
        return name_of("provider", channel, urlsplit(address).netloc)
    if looking and provider.capabilities.looks_elsewhere:
        return name_of("provider", f"{channel}-archive")
    return name_of("provider", "maildir" if provider.name == "maildir" else channel)
