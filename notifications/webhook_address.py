"""The one parser of webhook addresses.

Intake, preferences, the network policy and the sender use it. Two parsers that read one URL differently let a
request reach an internal host. So an address is parsed here alone, everything ambiguous is refused, and the
sender builds its request from the parts (guarantee G137).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"https": 443, "http": 80}
_URL_CHARACTERS = re.compile(r"[!-~]+")  # printable ASCII without the space
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# A last label that a resolver reads as a number: 0177.1, 2130706433, 127.0.0.0x1.
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    """Parts of an address. `host` is a lower-case name, or an IP address without brackets."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def netloc(self) -> str:
        """Return `host[:port]` as the Host header has it: no default port, IPv6 in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.target}"


def parse(text: str) -> WebhookAddress:
    """Return the parts of a webhook's address. Raises ValueError with a sentence for the user.

    `str(parse(text))` is the normal form: equal for equal receivers, and unchanged when parsed again.
    """
    if not _URL_CHARACTERS.fullmatch(text):
        raise ValueError("A webhook URL may contain only ASCII without spaces. Percent-encode the rest.")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("A webhook URL is malformed. Write webhook:https://host/path.") from None
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError("A webhook URL must start with https:// or http:// and name a host.")
    if "@" in parts.netloc:
        raise ValueError("A webhook URL must not hold a user name or password. Verify the signature instead.")
    if "#" in text or "\\" in text or port == 0:
        raise ValueError("A webhook URL must not hold a fragment (#…), a backslash or port 0. Remove it.")
    host = (
        _ipv6(parts.hostname) if "[" in parts.netloc or ":" in parts.hostname else host_name(parts.hostname)
    )
    query = f"?{parts.query}" if parts.query else ""
    return WebhookAddress(scheme, host, port or _DEFAULT_PORTS[scheme], f"{parts.path or '/'}{query}")


def host_name(name: str) -> str:
    """Return a host name in lower-case ASCII without the root dot, or an IPv4 address.

    Raises ValueError. An address must be four decimal numbers without leading zeros: `0177.0.0.1`, `0x7f.1`
    and `2130706433` are other ways to write 127.0.0.1, which readers disagree on.
    """
    try:
        normal = name.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        normal = ""
    labels = normal.split(".")
    if not normal or len(normal) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("A recipient's host name is not valid. Use letters, digits, hyphens and dots.")
    if _NUMERIC.fullmatch(labels[-1]):
        try:
            return str(IPv4Address(normal))
        except ValueError:
            raise ValueError(
                "A recipient's IPv4 address is not four decimal numbers such as 192.0.2.7, without leading"
                " zeros. Write it so, or use the host's name."
            ) from None
    return normal


def _ipv6(text: str) -> str:
    if "%" in text:
        raise ValueError("A webhook URL must not name a network interface. Remove the part after %.")
    try:
        return IPv6Address(text).compressed
    except ValueError:
        raise ValueError("A webhook URL holds a malformed IPv6 address.") from None


def hosts(recipients: Iterable[str]) -> set[str]:
    """Return the distinct `host[:port]` of the webhooks among normalised recipients."""
    return {
        parse(recipient.removeprefix("webhook:")).netloc
        for recipient in recipients
        if recipient.startswith("webhook:")
    }
