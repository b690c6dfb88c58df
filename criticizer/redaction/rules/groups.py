"""Values below a name of several secrets: `secrets:`, `[passwords]`, chpasswd (G191)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from criticizer.redaction.input.document import Document, indentation
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import key_names, near_secret_words
from criticizer.redaction.rules.named_values import Span, span_kind

_ENTRIES: Final = 40  # below the name
_OPENER_BYTES: Final = 120  # from the name to the end of its line
_OPENERS: Final = (b"]", b":", b"{", b"(", b"[", b"|")
_WINDOW: Final = 512
# The text from the name to the end of its line: secrets:, PASSWORDS = {, [credentials], list: |, or a call
# that takes a map: jsonencode with both of its brackets.
_OPENS = compiled(
    rb"[\w.-]*[\"'\])]{0,2}[ \t]*(?:=>|:?=|:)?[ \t]*(?:[\w.<>\[\], ]*(?:[{(\[|]|\(\{)|)[ \t\r]*"
)
_ENTRY = compiled(
    rb"[ \t]*(?:-[ \t]+)?:?[\"']?([\w.@-]{1,48})[\"']?[ \t]*(?:=>|:?=|:)[ \t]*"
    rb"(?:\"([^\"\n]{4,128})\"|'([^'\n]{4,128})'|([^\s\"'#,{}\[\]|>&*!][^\s\"',{}\[\]]{3,127}))"
    rb"[ \t]*[,;]?[ \t\r]*(?:#[^\n]*)?"
)
# passwd bob <<EOF: lines of values alone, as below `password:`.
_FED = compiled(rb"[^\n<]{0,80}<<-?[ \t]*\\?[\"']?([A-Za-z_]\w*)[\"']?[ \t\r]*")
_LONE = compiled(rb"[ \t]*(?:-[ \t]+)?(?:[\w.-]+:)?[\"']?([^\s\"'=:,;{}()\[\]<>]{6,128})[\"']?[ \t\r]*")
_DESCRIBES: Final = frozenset(
    b"name id key ref version image file path url uri host arn namespace type kind issuer expires".split()
)


def spans(
    document: Document, start: int, end: int, stop: int, strength: int, spend: Callable[[int], None]
) -> Iterable[Span]:
    """Return the values on the lines below a word that names a group of secrets.

    The word is from `start` to `end`, and its line ends at `stop`.
    """
    text = document.text
    rest = text[end:stop] if stop - end < _OPENER_BYTES else b""
    sign = rest[-2:].rstrip()[-1:]
    is_fed = b"<<" in rest and _FED.fullmatch(rest) is not None
    if not is_fed and (sign not in _OPENERS or _OPENS.fullmatch(rest) is None):
        return ()
    is_password = strength >= key_names.PASSWORD
    if not is_fed and not is_password and not text[start:end].lower().startswith((b"secret", b"credential")):
        return ()
    return _below(document, start, sign, strength, spend, is_fed=is_fed)


def _below(
    document: Document, start: int, sign: bytes, strength: int, spend: Callable[[int], None], *, is_fed: bool
) -> Iterator[Span]:
    text, is_password = document.text, strength >= key_names.PASSWORD
    for here in document.sides(start):
        depth = indentation(text[here.start : min(here.end, here.start + _WINDOW)])
        for number, line in enumerate(document.following(here, _ENTRIES)):
            spend(16)
            body = text[line.start : min(line.end, line.start + _WINDOW)]
            if not body.strip():
                continue
            is_alone = is_password and (
                is_fed or (sign == b":" and (number == 0 or body.lstrip()[:1] == b"-"))
            )
            entry = _LONE.fullmatch(text, line.start, line.start + len(body)) if is_alone else None
            if entry is not None and near_secret_words.is_value(entry.group(1), strength, quoted=False):
                yield *entry.span(1), span_kind(strength)
                continue
            if is_fed or (body.lstrip()[:1] == b"[" if sign == b"]" else indentation(body) <= depth):
                break
            entry = _ENTRY.fullmatch(text, line.start, line.start + len(body))
            if entry is None or entry.group(1).lower() in _DESCRIBES:
                continue
            group = next(i for i in (2, 3, 4) if entry.group(i) is not None)
            if near_secret_words.is_value(entry.group(group), 3, quoted=group < 4):
                yield *entry.span(group), "secret"
