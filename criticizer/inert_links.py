"""Breaks addresses in other people's text, so that mail programs make no links of them.

Every character stays readable: `https://evil.example/x` becomes `https[:]//evil[.]example/x`. What Markdown
would make of the text besides is broken by zero-width spaces.
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

APART = "\N{ZERO WIDTH SPACE}"
# Of GitLab also !12 (merge request), %3 (milestone), $4 (snippet), &5 (epic) and ~label.
REFERENCE = re.compile(r"([@#~]|\bGH-)(?=\w)|([!%$&])(?=\d)", re.IGNORECASE)
# GitLab runs lines such as /merge; that it leaves out those in code is not relied on.
QUICK_ACTION = re.compile(r"^(\s*)(?=/[a-z])", re.MULTILINE | re.IGNORECASE)
_LINK = re.compile(r"(?<=\])(?=[(\[:])")
_TAG = re.compile(r"(?<=<)(?=[a-z!/?])", re.IGNORECASE)
_FENCE = re.compile(r"(?<![`~])(?=`{3}|~{3})")


def web_link(address: str) -> str:
    """Return an address that may stand in a link; "" for anything but http and https."""
    return address if address.startswith(("https://", "http://")) else ""


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


def break_markdown_links(text: str) -> str:
    """Return a text of which programs that know `[words](address)` make no link."""
    return _LINK.sub(APART, text)


def break_markdown(text: str) -> str:
    """Return a text that may be put into Markdown or shown as it is: other programs do either.

    It links and mentions nothing, refers to no issue, shows no image, holds no HTML, runs no quick action and
    begins no block of code, which would be one to commit.
    """
    text = _TAG.sub(APART, break_markdown_links(break_links(text)))
    text = QUICK_ACTION.sub(rf"\1{APART}", _FENCE.sub(APART, text))
    return REFERENCE.sub(rf"\g<0>{APART}", text)


def _broken(address: re.Match[str]) -> str:
    colon = "[:]" if address.group().startswith(":") else ""
    return colon + re.sub(_DOT, "[.]", address["rest"])
