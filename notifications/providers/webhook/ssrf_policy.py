"""The policy on which addresses webhooks may reach (protection against SSRF).

Callers of the API choose recipients, so a webhook must not give access to the internal network: a host
is resolved once, each of its addresses is checked, and the connection goes to a checked address.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Resolve = Callable[[str, int], Sequence[str]]
_NAT64 = IPv6Network("64:ff9b::/96")


class AddressRefusedError(Exception):
    """The host has an address that may not be reached."""


@dataclass(frozen=True, slots=True)
class OutboundPolicy:
    """Public addresses, and what `OUTBOUND_ALLOW` names besides."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[IPv4Network | IPv6Network, ...] = field(default=())

    @classmethod
    def parse(cls, items: Sequence[str]) -> OutboundPolicy:
        """Make the policy from host names, addresses and networks."""
        hosts: set[str] = set()
        networks: list[IPv4Network | IPv6Network] = []
        for item in items:
            try:
                networks.append(ip_network(item.strip("[]"), strict=False))
            except ValueError:
                hosts.add(item.lower().removesuffix("."))
        return cls(frozenset(hosts), tuple(networks))

    def judge(self, host: str, addresses: Sequence[str]) -> None:
        """Raise `AddressRefusedError` unless every address may be reached."""
        if host in self.hosts:
            return
        for text in addresses:
            address = ip_address(text.partition("%")[0])
            if not any(address in network for network in self.networks) and not _is_public(address):
                raise AddressRefusedError


def resolve(host: str, port: int) -> Sequence[str]:
    """Return the host's addresses in the system's order.

    Raises socket.gaierror.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        # An IPv4 address embedded in an IPv6 one is judged as the IPv4 address.
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return _is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved
