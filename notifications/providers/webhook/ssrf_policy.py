"""The policy on which addresses webhooks may reach (protection against SSRF).

Callers of the API choose recipients, so a webhook must not give access to the internal network: a host
is resolved once, each of its addresses is checked, and the connection goes to a checked address.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from queue import Empty, SimpleQueue
from threading import Thread

RESOLVE_SECONDS = 5.0
MAX_ADDRESSES = 8  # of one host: each is tried in turn
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
    """Return the host's addresses in the system's order, a few at most.

    Raises OSError: TimeoutError after RESOLVE_SECONDS, for a name whose server does not answer.
    """
    answers: SimpleQueue[list[str] | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answers.put(list(dict.fromkeys(str(entry[4][0]) for entry in found)))
        except Exception as error:  # noqa: BLE001  raised below, in the thread that waits
            answers.put(error)

    # A caller cannot set a timeout of the system's resolver: it runs in a thread that may end later.
    Thread(target=ask, name="resolve", daemon=True).start()
    try:
        answer = answers.get(timeout=RESOLVE_SECONDS)
    except Empty:
        raise TimeoutError from None
    if isinstance(answer, Exception):
        raise answer
    return answer[:MAX_ADDRESSES]


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
