"""A model's text as plain text, fit for mail, pages and consoles.

Nothing is deleted that a reader could miss: a remark about `a<b && c>d` or a `<script>` tag
must arrive as it was written, and everything that shows such text escapes it. What would act
where text is shown as it is, or as Markdown, is broken instead: links, images and addresses
that mail programs make links of. Only characters that nobody sees are taken out.
"""

from __future__ import annotations

import re

# `[words](address)` with a scheme, and `![words](anything)`; `items[0](arg)` is code.
_LINK = re.compile(
    r"(!\[[^\]\n]{0,200}\](?=\()|\](?=\(\s{0,10}<?(?:[a-z][a-z0-9+.-]{0,30}:|//|www\.)))", re.IGNORECASE
)
_HOST = r"(?:(?!://)[^\s<>\"'`)/?#])*"
# What mail programs make links of, each up to the end of its host.
_ADDRESSES = (
    re.compile(rf"(?<=[a-z0-9+.-]):(?P<rest>//{_HOST})", re.IGNORECASE),
    re.compile(rf"(?P<rest>(?<![a-z0-9])www\.{_HOST})", re.IGNORECASE),
    re.compile(r"(?<=(?<![a-z0-9])mailto):(?P<rest>(?=\S)[^\s:]*)", re.IGNORECASE),
)
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
# Zero-width, direction control, variation and tag characters, and controls but tab and newline.
_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]"
)


def plain(text: str) -> str:
    """Return a model's text as plain text: every word of it, without a link or an unseen character.

    `https://evil.example/x` becomes `https[:]//evil[.]example/x`, and a Markdown link
    `[words] (address)`. Tags, comments and comparisons stay: who shows the text escapes it.
    """
    text = _UNSEEN.sub("", _LINE_ENDS.sub("\n", text))
    text = _LINK.sub(r"\1 ", text)
    for address in _ADDRESSES:
        text = address.sub(_broken, text)
    return _LINK.sub(r"\1 ", text).strip()  # a bracket of ours may stand before a parenthesis


def _broken(address: re.Match[str]) -> str:
    colon = "[:]" if address.group().startswith(":") else ""
    return colon + address["rest"].replace(".", "[.]")
