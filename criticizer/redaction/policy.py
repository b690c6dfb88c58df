"""Policy for removals besides secrets: mail addresses, internal hosts and networks."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any

import re2

from criticizer.redaction.redacted_text import RedactionBlocked

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

POLICY_KINDS = frozenset({"email", "internal-host", "internal-ip"})

_DOMAIN = re2.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
_EMAIL = re2.compile(
    rb"(?:[A-Za-z0-9._%+-]|[^\x00-\x7f]|\\?')+@(?:(?:[A-Za-z0-9-]|[^\x00-\x7f])+\.)+(?:[A-Za-z0-9-]|[^\x00-\x7f]){2,}"
)
_IPV4 = re2.compile(rb"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_IPV6 = re2.compile(rb"[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]{1,38}(?:\.[0-9]{1,3}){0,3}")
_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_LIMIT = 1_000  # entries per list: a policy is written by hand


@dataclass(frozen=True)
class Policy:
    """A checked policy. With `public_pem`, bodies of certificates are removed as well."""

    emails: bool = False
    internal_domains: tuple[str, ...] = ()
    internal_nets: tuple[Network, ...] = ()
    public_pem: bool = True

    @cached_property
    def digest(self) -> str:
        """Digest of the policy's content, the same in every process."""
        nets = [str(net) for net in self.internal_nets]
        content = [self.emails, list(self.internal_domains), nets, self.public_pem]
        return sha256(json.dumps(content).encode()).hexdigest()[:16]

    @cached_property
    def _hosts(self) -> Any:
        if not self.internal_domains:
            return None
        names = "|".join(re2.escape(name) for name in self.internal_domains)
        return re2.compile(rf"(?i)(?:[a-z0-9_*-]+\.)*(?:{names})".encode())

    def spans(self, data: bytes) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, kind) of each span that this policy removes from `data`."""
        if self.emails and b"@" in data:
            for match in _EMAIL.finditer(data):
                # git@host is the user name of every git server, not a person.
                top = match.group().rpartition(b".")[2]
                if not match.group().startswith(b"git@") and not top[:1].isdigit():
                    yield (*match.span(), "email")
        if self._hosts is not None:
            for match in self._hosts.finditer(data):
                start, end = match.span()
                if _stands_alone(data, start, end):
                    yield start, end, "internal-host"
        if self.internal_nets:
            yield from self._addresses(data)

    def _addresses(self, data: bytes) -> Iterator[tuple[int, int, str]]:
        for pattern in (_IPV4, _IPV6):
            for match in pattern.finditer(data):
                text = match.group().rstrip(b":")
                if self._is_internal(text):
                    yield match.start(), match.start() + len(text), "internal-ip"

    def _is_internal(self, text: bytes) -> bool:
        try:
            address = ipaddress.ip_address(text.decode())
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in net for net in self.internal_nets if net.version == address.version)


def _stands_alone(data: bytes, start: int, end: int) -> bool:
    before = data[start - 1] if start else 0
    after = data[end] if end < len(data) else 0
    if before in _WORD or after in _WORD or after == ord("-"):
        return False
    # corp.internal.example.com belongs to another domain; a full stop ends a sentence.
    return not (after == ord(".") and end + 1 < len(data) and data[end + 1] in _WORD)


def parse(policy: Mapping[str, object]) -> Policy:
    """Return the checked policy of a mapping; its keys are the fields of `Policy`.

    Raises RedactionBlocked(`bad_policy`) for an unknown key, a wrong type, an invalid domain or
    network: a policy is never applied in part.
    """
    if not isinstance(policy, Mapping):
        raise RedactionBlocked("bad_policy")
    unknown = set(policy) - {"emails", "internal_domains", "internal_nets", "public_pem"}
    emails, public_pem = policy.get("emails", False), policy.get("public_pem", True)
    if unknown or type(emails) is not bool or type(public_pem) is not bool:
        raise RedactionBlocked("bad_policy")
    domains = _strings(policy.get("internal_domains", ()))
    nets = _strings(policy.get("internal_nets", ()))
    return _checked(emails, domains, nets, public_pem)


@lru_cache(maxsize=64)
def _checked(emails: bool, domains: tuple[str, ...], nets: tuple[str, ...], public_pem: bool) -> Policy:
    names = [name.lower().removeprefix("*").strip(".") for name in domains]
    if not all(_DOMAIN.fullmatch(name) for name in names):
        raise RedactionBlocked("bad_policy")
    try:
        networks = tuple(ipaddress.ip_network(net, strict=False) for net in nets)
    except ValueError:
        raise RedactionBlocked("bad_policy") from None
    # Longest first, so that the alternation prefers a.corp.internal over corp.internal.
    ordered = tuple(sorted(set(names), key=lambda name: (-len(name), name)))
    return Policy(emails, ordered, networks, public_pem)


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple, set, frozenset)) or len(value) > _LIMIT:
        raise RedactionBlocked("bad_policy")
    if not all(isinstance(entry, str) and 0 < len(entry) <= 253 for entry in value):
        raise RedactionBlocked("bad_policy")
    return tuple(sorted(value)) if isinstance(value, (set, frozenset)) else tuple(value)
