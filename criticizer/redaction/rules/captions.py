"""Values below a comment or a heading that names them (G191).

For example `# password of ops`, and `x = "…"` on the next line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from criticizer.redaction.input.document import Document
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import near_secret_words
from criticizer.redaction.rules.named_values import Span, group_span, span_kind

_LINES: Final = 2  # below, the first of which may be blank
_WINDOW: Final = 320
MARKS: Final = (b"#", b"/", b"-", b";", b"<", b"*", b"%")  # one opens a comment or a heading
_LONGEST: Final = 120
# A few words before the name and its owner after it; no sentence, which would have a verb.
_OPENS = compiled(
    rb"[ \t]*(?:#+|/{2,}|--|/\*+|;+|<!--|%+|\*\*?)!?[ \t]*(?:[A-Za-z'-]+[ \t]+){0,4}[A-Za-z_-]{0,20}"
)
_CLOSES = compiled(
    rb"(?:[ \t]+(?:for|of|to|on|in)(?:[ \t]+[\w./@-]{1,24}){1,4})?"
    rb"[ \t]*[:.]?[ \t]*(?:\*/|-->|\*\*:?)?[ \t\r]*"
)
_BELOW = compiled(
    rb"[ \t]*(?:(?:#|//|--|;)[ \t]*)?"
    rb"(?:(?:[A-Za-z]+[ \t]+){0,4}\$?[A-Za-z_][\w.-]{0,40}"
    rb"(?:[ \t]*:[ \t]*&?[A-Za-z]+)?[ \t]*(?::=|=>|=|:)[ \t]*)?"
    rb"(?:\"([^\"\\\s]{6,128})\"|'([^'\\\s]{6,128})'|`([^`\s]{6,128})`"
    rb"|([^\s\"'`=:(){}\[\]]{6,128}))[,;]?[ \t\r]*"
)
_NAMED = compiled(
    rb"(?i)(?:user|name|login|id|ur[il]|host|path|file|version|type|kind|mail|label|title)s?[ \t]*[:=]"
)


def spans(document: Document, start: int, end: int, low: int, high: int, strength: int) -> Iterator[Span]:
    """Yield the value on the line below a caption.

    The caption is the line from `low` to `high`, with a name from `start` to `end`.
    """
    text = document.text
    if high - low > _LONGEST or _OPENS.fullmatch(text, low, start) is None:
        return
    if _CLOSES.fullmatch(text, end, high) is None:
        return
    for here in document.sides(start):
        for line in document.following(here, _LINES):
            stop = min(line.end, line.start + _WINDOW)
            if not text[line.start : stop].strip():
                continue
            match = _BELOW.fullmatch(text, line.start, stop)
            span = group_span(match)
            if match is None or span is None or _NAMED.search(text, line.start, span[0]) is not None:
                break
            if near_secret_words.is_value(text[slice(*span)], strength, quoted=match.lastindex != 4):
                yield *span, span_kind(strength)
            break
