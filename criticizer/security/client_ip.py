"""Client address of a request, also behind a proxy.

`X-Forwarded-For` is only trusted from `TRUSTED_PROXIES`: the client's address is the last one in the
header that is not such a proxy.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest

_HOPS = 20
_LENGTH = 1000


def client_ip(request: HttpRequest) -> str:
    """Return the client's IP address; "" when it is not valid."""
    remote, forwarded = (request.META.get(name, "") for name in ("REMOTE_ADDR", "HTTP_X_FORWARDED_FOR"))
    return address_behind(str(remote), str(forwarded))


def address_behind(remote: str, forwarded: str) -> str:
    """Return the client's IP address; "" when it is not valid.

    It is `remote`, or the address from a trusted proxy's `X-Forwarded-For`.
    """
    address = _clean(remote)
    if not _is_proxy(address):
        return address
    for hop in reversed(_last_hops(forwarded)):
        found = _clean(hop)
        if not found:
            break
        address = found
        if not _is_proxy(found):
            break
    return address


def _last_hops(forwarded: str) -> list[str]:
    """Return the last addresses of the header, those that trusted proxies appended.

    An address that the limit of length cuts in two is left out.
    """
    hops = forwarded[-_LENGTH:].split(",")
    return hops[1 if len(forwarded) > _LENGTH else 0 :][-_HOPS:]


def rate_limit_subnet(address: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or the /64 of an IPv6 one."""
    try:
        found = ip_address(address)
    except ValueError:
        return ""
    mapped = getattr(found, "ipv4_mapped", None)
    if mapped is not None:
        return str(mapped)
    return str(found) if found.version == 4 else str(ip_network(f"{found}/64", strict=False))


def _clean(text: str) -> str:
    try:
        return str(ip_address(text.strip().strip("[]").partition("%")[0]))
    except ValueError:
        return ""


def _is_proxy(address: str) -> bool:
    if not address:
        return False
    found = ip_address(address)
    return any(found in ip_network(network) for network in settings.TRUSTED_PROXIES)
