"""Recipients: channel-qualified addresses in one normal form.

`mail:ann@example.com`, `webhook:https://ci.example.com/x`, `slack:C0123ABCD` (a channel's id),
`swarm:review-123`, `swarm:change-123`.

The recipient is part of a delivery's key, so equal recipients must be equal texts: everything is
normalised first. The messages of ValueError are shown to callers of the API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator

MAX_LENGTH = 500  # of the whole text; the column holds 512
_MAX_MAIL = 254  # RFC 5321, 4.5.3.1.3 less the angle brackets
_MAX_LOCAL_PART = 64
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_URL_CHARACTERS = re.compile(r"[!-~]+")  # printable ASCII without the space
_DEFAULT_PORTS = {"https": 443, "http": 80}
_SLACK_ID = re.compile(r"[CGD][A-Z0-9]{6,20}")
_SWARM_TOPIC = re.compile(r"(review|change)s?[-/]0*([1-9][0-9]{0,9})")

_valid_mail = EmailValidator(allowlist=["localhost"])


def normalise(text: str) -> str:
    """Return the recipient as `channel:address` in its one normal form.

    A bare address means `mail:`. Raises ValueError with a sentence for the user.
    """
    text = text.strip(" ")
    if not text:
        raise ValueError(
            "A recipient is empty. Write mail:<address>, webhook:<URL>, slack:<channel id>"
            " or swarm:review-<number>."
        )
    if any(not character.isprintable() for character in text):
        raise ValueError("A recipient contains control characters. Remove them.")
    if len(text) > MAX_LENGTH:
        raise ValueError(f"A recipient is longer than {MAX_LENGTH} characters. Shorten it.")
    channel, separator, address = text.partition(":")
    if not separator:
        channel, address = "mail", text
    channel = channel.lower()
    normal = _CHANNELS.get(channel)
    if normal is None:
        known = ", ".join(CHANNELS)
        hint = f" Write webhook:{text} for a webhook." if channel in _DEFAULT_PORTS else ""
        raise ValueError(f"The channel {channel[:32]!r} is unknown. Known channels: {known}.{hint}")
    return f"{channel}:{normal(address)}"


def split(recipient: str) -> tuple[str, str]:
    """Return (channel, address) of a normalised recipient. Raises ValueError for any other text."""
    channel, separator, address = recipient.partition(":")
    if not separator or not address or channel not in _CHANNELS:
        raise ValueError(f"Not a normalised recipient. Known channels: {', '.join(CHANNELS)}.")
    return channel, address


def _mail(address: str) -> str:
    if any(character in address for character in '<>"(),;:\\[] '):
        raise ValueError(
            "A mail recipient must be the bare address, without a display name, quotes or brackets:"
            " mail:ann@example.com."
        )
    local_part, separator, domain = address.rpartition("@")
    if not separator:
        raise ValueError("A mail recipient lacks its domain. Write mail:ann@example.com.")
    normal = f"{local_part}@{_host(domain)}"
    if len(local_part) > _MAX_LOCAL_PART or len(normal) > _MAX_MAIL:
        raise ValueError(
            f"A mail address may have {_MAX_MAIL} characters, {_MAX_LOCAL_PART} of them before the @."
            " Shorten it."
        )
    try:
        _valid_mail(normal)
    except ValidationError:
        raise ValueError("A mail address is not valid. Write it as mail:ann@example.com.") from None
    return normal


def _webhook(address: str) -> str:
    if not _URL_CHARACTERS.fullmatch(address):
        raise ValueError("A webhook URL may hold ASCII without spaces only. Percent-encode the rest.")
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise ValueError("A webhook URL is malformed. Write webhook:https://host/path.") from None
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError("A webhook URL must start with https:// or http:// and name a host.")
    if "@" in parts.netloc:
        raise ValueError("A webhook URL must not hold a user name or password. Verify the signature instead.")
    if parts.fragment or "\\" in address or port == 0:
        raise ValueError("A webhook URL must not hold a fragment (#…), a backslash or port 0. Remove it.")
    host = parts.hostname
    if ":" in host:
        if "%" in host:
            raise ValueError("A webhook URL must not name a network interface. Remove the part after %.")
        try:
            host = f"[{IPv6Address(host).compressed}]"
        except ValueError:
            raise ValueError("A webhook URL holds a malformed IPv6 address.") from None
    else:
        host = _host(host)
    if port is not None and port != _DEFAULT_PORTS[scheme]:
        host = f"{host}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{scheme}://{host}{parts.path or '/'}{query}"


def _slack(address: str) -> str:
    # A channel's name, in lower case, may be given to another channel; its id, in capitals, never.
    if _SLACK_ID.fullmatch(address):
        return address
    if re.fullmatch(r"[UW][A-Z0-9]{6,20}", address):
        raise ValueError("A Slack recipient must be a channel, not a person. Write slack:C0123ABCD.")
    raise ValueError(
        "A Slack recipient is a channel's id, not its name: C or G and capitals and digits, at the end of"
        " the channel's details in Slack. Write slack:C0123ABCD."
    )


def _swarm(address: str) -> str:
    found = _SWARM_TOPIC.fullmatch(address.lower())
    if found is None:
        raise ValueError(
            "A Swarm recipient is a review or a change by its number."
            " Write swarm:review-123 or swarm:change-123."
        )
    return f"{found[1]}-{int(found[2])}"


def _host(name: str) -> str:
    """Return a host name in lower-case ASCII without the root dot; raise ValueError."""
    try:
        normal = name.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        normal = ""
    if not normal or len(normal) > 253 or not all(_LABEL.fullmatch(label) for label in normal.split(".")):
        raise ValueError("A recipient's host name is not valid. Use letters, digits, hyphens and dots.")
    return normal


_CHANNELS: Mapping[str, Callable[[str], str]] = {
    "mail": _mail,
    "webhook": _webhook,
    "slack": _slack,
    "swarm": _swarm,
}
CHANNELS = tuple(_CHANNELS)
# The variables that configure a channel.
VARIABLES = {"slack": "SLACK_BOT_TOKEN", "swarm": "SWARM_URL, SWARM_USER and SWARM_TICKET"}


def missing_provider_reason(channel: str, problem: str = "") -> str:
    """Return why nothing can be sent to a channel, and what to set.

    `problem`: what is wrong with its settings, where it is configured.
    """
    if problem:
        return f"the provider of {channel} recipients cannot be made: {problem}"
    variables = VARIABLES.get(channel)
    return f"no provider is configured for {channel} recipients" + (f": set {variables}" if variables else "")
