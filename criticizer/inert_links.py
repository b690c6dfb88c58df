"""Breaks addresses in other people's text, so that mail programs make no links of them.

Every character stays readable: `https://evil.example/x` becomes `https[:]//evil[.]example/x`.
"""

from __future__ import annotations

import re

_HOST = r"(?:(?!://)[^\s<>\"'`)/?#])*"
_DOTTED_HOST = r"(?=\w)[^\s<>\"'`()\[\]/\\?#.]+\.\w[^\s<>\"'`()\[\]/\\?#]*"
# Each up to the end of its host.
_ADDRESSES = (
    re.compile(rf"(?<=[a-z0-9+.-]):(?P<rest>//{_HOST})", re.IGNORECASE),
    re.compile(rf"(?<=[a-z][a-z0-9+.-]):(?P<rest>[/\\]{{2,}}{_DOTTED_HOST})", re.IGNORECASE),
    re.compile(rf"(?P<rest>(?<![\w:/\\])[/\\]{{2,}}{_DOTTED_HOST})", re.IGNORECASE),
    re.compile(rf"(?P<rest>(?<![a-z0-9])www\.{_HOST})", re.IGNORECASE),
    re.compile(r"(?<=(?<![a-z0-9])mailto):(?P<rest>(?=\S)[^\s:]*)", re.IGNORECASE),
)
_DOT = "[.\N{IDEOGRAPHIC FULL STOP}\N{FULLWIDTH FULL STOP}\N{HALFWIDTH IDEOGRAPHIC FULL STOP}]"
_DOMAIN = rf"(?:[\w-]+{_DOT})+"
# Without a scheme: a mail address; a host with a path, a query or a port; a host in a domain that no file
# name and no attribute of a program ends in. `os.path` and `app.py:12` stay as they are.
_BARE = (
    re.compile(rf"(?<![\w.+%-])(?P<rest>[\w.+%-]+@{_DOMAIN}[^\W\d_][\w-]+)"),
    re.compile(
        rf"(?<![\w.@/\\-])(?P<rest>{_DOMAIN}(?:xn--[\w-]+|[^\W\d_]{{2,}}))(?=/|[?#]\w|:\d{{1,5}}[/?#])"
    ),
    re.compile(
        rf"(?<![\w.@/\\-])(?P<rest>{_DOMAIN}(?:com|net|org|biz|ru|cn|xyz|top|example))(?![\w-]|{_DOT}\w)",
        re.IGNORECASE,
    ),
)


def break_addresses(text: str) -> str:
    """Return a text with broken addresses: those with a scheme, `//` or `www.` only."""
    for address in _ADDRESSES:
        text = address.sub(_broken, text)
    return text


def break_links(text: str) -> str:
    """Return prose, a name or a path with broken addresses, those without a scheme included."""
    text = break_addresses(text)
    for address in _BARE:
        text = address.sub(_broken, text)
    return text


def _broken(address: re.Match[str]) -> str:
    colon = "[:]" if address.group().startswith(":") else ""
    return colon + re.sub(_DOT, "[.]", address["rest"])
