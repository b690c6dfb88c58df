"""Signs between a name and its value: closing quotes, blanks, and assignments."""

from __future__ import annotations

from typing import Final

from criticizer.redaction.input.document import MASK
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import key_names

_EMOJI = compiled("[\u2600-\u27bf\U0001f300-\U0001faff][\ufe0f\u200d\U0001f3fb-\U0001f3ff]{0,2}".encode())
_WIDE_COLON: Final = "\uff1a".encode()
_QUOTE = rb"(?:\\*[\"'`]|&quot;|&#39;)"
HEAD = compiled(
    rb"((?:" + _QUOTE + rb"|[)\]}*?!]){0,3})"  # what closes it
    rb"([ \t]{0,20})"
    rb"(:=|:-|=>|->|<-|={1,3}|[!?+.~]={1,2}|::=|::|:|\|\||\||\?\?|,|\("
    rb"|or[ \t]|is[ \t:]|was[ \t:]|-[ \t]|>|)"
    rb"[ \t]{0,20}"
)
PLACEHOLDER: Final = bytes((60, MASK))
_TO_PLACEHOLDER: Final = 16  # bytes of a sign with what may stand around it
_JOINS: Final = b" \t\"'`:="
_CLOSINGS: Final = (b'"', b"'", b"`")
_VALUE_ENDS: Final = (b"", b"\n", b"\r", b",", b";", b")", b"}")
_PLAIN_BYTES: Final = 20  # fewer than blanks may stand around a sign
_PLAIN_QUOTES: Final = (b'"', b"'")
_LONGER_SIGN: Final = (b"=", b">", b":", b"-")
_ALONE: Final = (b",", b"(")  # no longer sign begins with these
SPEAKS: Final = frozenset(bytes([c]) for c in range(97, 123) if c not in b"oiw")  # no or, is, was
# Bytes with which no sign of an assignment, quote or bracket begins, and bytes that must follow two signs.
NONE: Final = frozenset(c for c in range(128) if c not in b" \t\r\n{<\\\"'`&)]}*?!:=-+.~|,(oiw>")
_SIGNS: Final = {b".": (b"=",), b"-": (b">", b" ", b"\t")}


def read(text: bytes, begin: int, at: int, stop: int, strength: int) -> tuple[int, int, bytes] | None:
    """Return the end of a name's closing quotes, the beginning of its value, and the sign.

    None where no value can follow. The name is from `begin` to `at`, and nothing is read from `stop` on.
    `strength` is that of `key_names`.
    """
    follows, second = text[at : at + 1], text[at + 1 : at + 2]
    if follows >= b"\x80" and text[at : at + 3] != _WIDE_COLON:
        emoji = _EMOJI.match(text, at, stop)
        if emoji is None:
            return None  # part of another word, in a language without blanks
        at = emoji.end()
        follows, second = text[at : at + 1], text[at + 1 : at + 2]
    # The results of HEAD for most names, without its cost.
    if at >= stop:
        return at, at, b""
    if follows == b" " and second in SPEAKS:
        return at, at + 1, b""
    if second not in _SIGNS.get(follows, second):
        return None
    if follows == b"," and not _is_column(text, begin, at, strength):
        return None
    plain = _plain(text, at, stop)
    if plain is not None:
        return plain
    head = HEAD.match(text, at, stop)
    return None if head is None else (head.end(1), head.end(), text[slice(*head.span(3))])


def _plain(text: bytes, at: int, stop: int) -> tuple[int, int, bytes] | None:
    """Return the result of `read` for a sign = : , ( with at most a quote and blanks around.

    None for all others.
    """
    piece = text[at : min(stop, at + _PLAIN_BYTES)]
    close = 1 if piece[:1] in _PLAIN_QUOTES and piece[1:2] in (b":", b"=", b" ", b",") else 0
    rest = piece[close:].lstrip(b" \t")
    value = rest[1:].lstrip(b" \t")
    sign = rest[:1]
    if not value or (sign not in _ALONE and (sign not in (b":", b"=") or rest[1:2] in _LONGER_SIGN)):
        return None
    return at + close, at + len(piece) - len(value), sign


def _is_column(text: bytes, begin: int, end: int, strength: int) -> bool:
    """Return whether the value may follow a name and a comma: `NAME, "x"` or `bob,password,x`."""
    return text[begin:end].rpartition(b".")[2].isupper() or (
        strength >= key_names.PASSWORD and text[begin - 1 : begin] in (b",", b";")
    )


def was_taken(text: bytes, at: int) -> bool:
    """Return whether the whole value after a name that ends at `at` is a placeholder of ours."""
    near = text[at : at + _TO_PLACEHOLDER]
    first = near.find(PLACEHOLDER)
    if first < 0 or near[:first].strip(_JOINS):
        return False
    end = text.find(b">", at + first) + 1
    closing = text[end : end + 1]
    if closing in _CLOSINGS:
        if text[at + first - 1 : at + first] != closing:
            return False
        closing = text[end + 1 : end + 2]
    return closing in _VALUE_ENDS
