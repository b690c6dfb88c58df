"""A model's text as plain text, fit for mail, pages and consoles."""

from __future__ import annotations

import re

_TAGS = re.compile(
    r"<!--.*?(?:-->|$)|<(script|style|svg|iframe|object)\b.*?(?:</\1\s*>|$)"
    r"|</?(?:a|abbr|audio|b|base|blockquote|body|br|button|code|details|div|em|embed|font|form|h[1-6]|head|hr"
    r"|html|i|iframe|img|input|kbd|li|link|meta|object|ol|p|pre|s|script|span|strong|style|sub|summary|sup|svg"
    r"|table|tbody|td|th|thead|tr|u|ul|video)(?:\s[^<>]*)?/?>",
    re.IGNORECASE | re.DOTALL,
)
_IMAGE = re.compile(r"!\[([^\]\n]{0,200})\]\([^)\n]{0,2000}\)")
_LINK = re.compile(r"\[([^\]\n]{1,200})\]\((?:[a-z][a-z0-9+.-]*:|//|www\.)[^)\n]{0,2000}\)", re.IGNORECASE)
_ADDRESS = re.compile(
    r"\b(?:https?|ftp|file|data|javascript|mailto):(?://)?[^\s<>\"'`)]+|\bwww\.[^\s<>\"'`)]+", re.IGNORECASE
)
# Zero-width, direction control, variation and tag characters, and controls but tab and newline.
_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
)


def plain(text: str) -> str:
    """Return a model's text as plain text: no markup, images, addresses or invisible characters.

    Known HTML tags go; `List<String>` stays. A link keeps its words, a bare address becomes
    "(address removed)": mail programs make links of them.
    """
    text = _UNSEEN.sub("", text)
    # Removing one tag can make another out of what was around it.
    for _ in range(5):
        stripped = _TAGS.sub("", text)
        if stripped == text:
            break
        text = stripped
    text = _LINK.sub(r"\1", _IMAGE.sub(r"\1", text))
    return _ADDRESS.sub("(address removed)", text).strip()
