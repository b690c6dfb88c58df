"""Turns a model's text into plain text for mail, pages and terminals.

Nothing visible is deleted: a remark about `a<b && c>d` or a `<script>` tag must arrive as it
was written, and everything that shows such text escapes it. Links, images and addresses that
mail programs turn into links are broken instead. Only invisible characters are removed.
"""

from __future__ import annotations

import re

from criticizer.inert_links import break_addresses
from criticizer.invisible_characters import remove_invisible

_BRACKET = re.compile(r"[\[\]]")
# After `](`: an address that acts, or may once its entities and backslashes are read.
_ACTING = re.compile(
    r"\(\s*<?(?:[a-z][a-z0-9+.-]{0,30}\\?:|[/\\]{2}|www\.|[^\s<>]{0,200}?&(?:#\w{1,8}|\w{1,31});)",
    re.IGNORECASE,
)
# `[label]: address` at the start of a line, of a quote or of an item: what `[words][label]` points to.
_DEFINITION = re.compile(r"^([ \t>*+\d.)-]*\[(?:[^\[\]\\]|\\[\s\S]){1,999}\])(?=:)", re.MULTILINE)
# `<scheme:address>`; `<std::string>` is code.
_AUTOLINK = re.compile(r"(<[a-z][a-z0-9+.-]{1,31}):(?=[^:\s<>][^\s<>]*>)", re.IGNORECASE)
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")


def plain(text: str) -> str:
    """Return a model's text as plain text, with every visible character but without links.

    `https://evil.example/x` becomes `https[:]//evil[.]example/x`, a Markdown link `[words] (address)`,
    the definition of one `[label] : address`. Tags, comments and comparisons stay: the renderers
    escape them.
    """
    text = remove_invisible(_LINE_ENDS.sub("\n", text))
    text = _without_links(text)
    text = break_addresses(text)
    text = _AUTOLINK.sub(r"\1[:]", text)
    return _without_links(text).strip()  # a bracket of ours may stand before a parenthesis


def _without_links(text: str) -> str:
    """Put a space into each `](` and `]:` that makes a link or an image.

    `items[0](argument)` is code and stays as it is.
    """
    pieces, done = [], 0
    opened: list[tuple[int, int]] = []  # where, and how many images are open with it
    for bracket in _BRACKET.finditer(text):
        at = bracket.start()
        images = opened[-1][1] if opened else 0
        if bracket.group() == "[":
            opened.append((at, images + (text[at - 1 : at] == "!")))
            continue
        start = opened.pop()[0] if opened else 0
        is_code = bool(start and not images and re.match(r"[\w)\]]", text[start - 1]))
        if text[at + 1 : at + 2] == "(" and not (is_code and not _ACTING.match(text, at + 1)):
            pieces.append(text[done : at + 1])
            done = at + 1
    text = " ".join([*pieces, text[done:]])
    return _DEFINITION.sub(r"\1 ", text)
