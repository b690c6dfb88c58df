"""Values beside a name that suggests a secret: a literal, bare word, element, table cell.

Every reader gets the beginning of the value and the end of its line (or of the window), judges the
value and adds a span. A literal to which strings are joined is judged as a whole.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final

from criticizer.redaction.input import concatenation
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import key_names, settings_lines
from criticizer.redaction.rules.characters import DIGITS, holds, is_hex, looks_random, transitions
from criticizer.redaction.rules.value_heuristics import (
    is_choice,
    is_chosen,
    is_code,
    is_dummy,
    is_expression,
    is_generated,
    is_numbered_word,
    is_phrase,
    is_reference,
    is_slug,
    is_template,
    judge,
)

Span = tuple[int, int, str]

_KIND: Final = {key_names.PASSWORD: "password", key_names.SECRET: "secret", key_names.WEAK: "secret"}


def span_kind(strength: int) -> str:
    """Return the kind of a value beside a name of this strength."""
    return _KIND[strength]


_MARKS: Final = b"\"'`*_ \t"
_OTHER_SCRIPT = compiled(rb"[\x{3000}-\x{ffff}]")  # of a script without blanks
_MARKS_BEHIND: Final = b".*?:"
_JUDGED: Final = 256  # bytes of a value that are judged
_TO_QUOTE: Final = 64  # bytes in which a literal's opening quote has to come
_QUOTED = compiled(
    rb"(?:[A-Za-z_&*\[][\w.\[\]<>?|&*:' ]{0,40}=[ \t]{0,4}\(?[ \t]{0,4})?"  # a type annotation
    rb"(?:\(?[a-z][\w ]{1,20}\*?\)[ \t]*)?"  # a cast
    rb"(?:[A-Za-z@$]{1,2})?"  # a string's prefix
    rb"(?:\"\"\"([^\"]*)|'''([^']*)|\\+\"([^\"\\]*)|\\+'([^'\\]*)"
    rb"|\"([^\"\\]*(?:\\.[^\"\\]*)*)|'([^'\\]*(?:\\.[^'\\]*)*)|`([^`]*)|&quot;(.*?)(?:&quot;|$)|&#39;(.*?)(?:&#39;|$))"
)
_OPENS_LITERAL: Final = b"\"'`\\&"
_OF_TYPE: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]<>?|&*:' \t("
_CAST_BYTES: Final = 28  # in which a cast is closed
_CALLED: Final = 80  # bytes in which a call's bracket has to come
_STRING = rb"(?:\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`([^`\n]*)`)"
_DEFAULT = compiled(  # getenv("NAME", "literal"), environ["NAME"] or "literal"
    rb"[A-Za-z_$][\w.:]{0,60}[(\[][ \t]{0,4}[\"'][^\"'\n]{0,120}[\"'][ \t]{0,4}"
    rb"(?:,[ \t]{0,4}(?:[A-Za-z_]\w{0,20}[ \t]{0,4}[=:][ \t]{0,4})?"
    rb"|[)\]][ \t]{0,4}(?:or|\|\||\?\?|\?:)[ \t]{0,4})" + _STRING
)
_WRAPPED = compiled(
    rb"(?:(?:await|new|return)[ \t]+)?(?:[A-Za-z_$][\w.:<>]{0,60}[(\[{][ \t]{0,4}){1,2}[A-Za-z@]{0,2}"
    + _STRING
)
_BYTE = rb"(?:0x[0-9a-fA-F]{1,2}|[0-9]{1,3})"
_BYTES = compiled(rb"[^\"'\n]{0,24}?[\[({][ \t]*(" + _BYTE + rb"(?:[ \t]*,[ \t]*" + _BYTE + rb"){7,})")
_BARE_STOPS: Final = b" \t\r\n\x0b\x0c\"'`<>,;)]}|"
# Cutting at the first stop byte without a regular expression: hostile text has many words.
_TO_STOP: Final = bytes(32 if c in _BARE_STOPS else 33 for c in range(256))
_ELEMENT = compiled(rb"[ \t]*([^<>\n]*[^<>\s])")
_CELL = compiled(rb"(?m)[ \t]*`?([^|`\n]*[^|`\s])`?[ \t]*(?:\||$)")
_LITERAL_ENDS: Final = (b"", b"\n", b"\r", b"&", b";", b" ", b"<", b"}")
_TOKEN_BYTES: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/_=.-"


class Literals:
    """Reader of values in one text, which collects their spans.

    `spend` gets the bytes read, divided by 8, and may stop the work. `is_own_key` is set by the caller:
    the name can only be that of a key.
    """

    __slots__ = ("goes_on", "is_own_key", "spans", "spend", "text")

    def __init__(self, text: bytes, spend: Callable[[int], None]) -> None:
        self.text = text
        self.spend = spend
        self.spans: list[Span] = []
        self.goes_on = False  # the literal read last is not closed on its line, or joined to one below
        self.is_own_key = False

    def quoted(self, at: int, stop: int, strength: int, *, careful: bool = False, word: bool = False) -> bool:
        """Take the quoted literal that begins at `at`."""
        near = self.text[at : at + _TO_QUOTE]
        if near.startswith(b"return"):
            return False
        if not (b'"' in near or b"'" in near or b"`" in near or b"&" in near):
            return False
        span = self._plain(at, stop)
        if span is None and _may_open(near):
            span = group_span(_QUOTED.match(self.text, at, stop))
        if span is None:
            return False
        start, end = span
        if end == stop and self._cut(stop):
            end = self._to_end(end)
        value, start, end = self._joined(start, end, stop)
        self.spend(len(value) >> 3)
        good = self._is_taken(value, strength, careful=careful, word=word) or (
            len(value) > end - start
            and self._is_taken(self.text[start:end], strength, careful=careful, word=word)
        )
        return good and self.add(*self._trimmed(start, end), _KIND[strength])

    def _plain(self, at: int, stop: int) -> tuple[int, int] | None:
        """Return the span of a closed literal's value, None if it has a prefix or escapes."""
        quote = self.text[at : at + 1]
        if quote not in (b'"', b"'") or self.text[at + 1 : at + 3] == quote * 2:
            return None
        end = self.text.find(quote, at + 1, stop)
        return (at + 1, end) if end >= 0 and self.text.find(b"\\", at, end) < 0 else None

    def _is_taken(self, value: bytes, strength: int, *, careful: bool, word: bool) -> bool:
        if careful and not (looks_random(value, rate=0.35) or is_chosen(value)):
            return False
        drawn = (len(value) >= 10 and transitions(value) >= 0.36) or is_numbered_word(value)
        if word and is_slug(value) and not (drawn or is_phrase(value)):
            return False
        return self._judge(value, strength, quoted=True)

    def _joined(self, start: int, end: int, stop: int) -> tuple[bytes, int, int]:
        """Return a literal with those joined to it on its line, and its first non-empty span."""
        text = self.text
        value = text[start:end]
        if text[end : end + 1] == b"\\" and text[end + 1 : stop].rstrip(b"\r") == b"":
            self.goes_on = True
        elif concatenation.goes_on(text, end) or concatenation.may_follow(text, end):
            pieces = concatenation.pieces(text, start, end)
            value = b"".join((value, *(text[a:b] for a, b in pieces)))
            self.goes_on = concatenation.goes_on(text, pieces[-1][1] if pieces else end)
            if start == end and pieces:
                start, end = pieces[0]
        return value, start, end

    def _judge(self, value: bytes, strength: int, *, quoted: bool) -> bool:
        if judge(value, strength, quoted=quoted):
            return True
        is_likely = self.is_own_key and strength == key_names.WEAK and len(value) >= 16
        if not is_likely or is_reference(value) or (not quoted and is_code(value)):
            return False
        return is_generated(value)

    def inner(self, at: int, stop: int, strength: int) -> bool:
        """Take the literal inside a call: a default, or the wrapped value."""
        first = self.text[at : at + 1]
        if not (first.isalpha() or first in (b"_", b"$")) or not holds(self.text[at : at + _CALLED], b"([{"):
            return False
        for pattern in (_DEFAULT, _WRAPPED):
            match = pattern.match(self.text, at, stop)
            span = group_span(match)
            if span is None:
                continue
            value, start, end = self._joined(*span, stop)
            if pattern is _WRAPPED and is_slug(value):
                continue
            if self._judge(value, strength, quoted=True):
                return self.add(start, end, _KIND[strength])
        return False

    def key_bytes(self, at: int, stop: int) -> bool:
        """Take a list of numbers that are the bytes of a key."""
        match = _BYTES.match(self.text, at, stop)
        return match is not None and self.add(match.start(1), match.end(1), "key-bytes")

    def bare(self, begin: int, at: int, stop: int, strength: int, *, spoken: bool = False) -> bool:
        """Take an unquoted word after the name from `begin` on. `spoken`: password is x."""
        end = self._word_end(at, stop)
        value = self.text[at:end]
        self.spend(len(value) >> 3)
        if end == stop and self._cut(stop) and judge(value, strength, quoted=False):
            value = self.text[at : self._to_end(end, _BARE_STOPS)]
        if self.text[end:stop].lstrip(b" \t")[:1] == b"=" and self.text[end : end + 1] in (b" ", b"\t"):
            return False  # password: Type = default
        if self.text[begin - 1 : begin] in (b"?", b"&"):
            value = value.partition(b"&")[0]
        value = value.removesuffix(b"\\n").rstrip(b"\\").removesuffix(b"*/")
        if holds(value[:_JUDGED], b"([{"):
            return False  # an expression
        if spoken:
            value = value.removesuffix(b".")
            if strength < key_names.PASSWORD and not looks_random(value, rate=0.3) and not _is_uuid(value):
                return False
        good = self._judge(value, strength, quoted=False)
        if not good and strength >= key_names.PASSWORD:
            # In configuration a word with a number is a literal; in code more text follows it.
            end = at + len(value)
            good = (is_numbered_word(value) and self.text[end : end + 1] in _LITERAL_ENDS) or (
                not spoken
                and self._judge(value, strength, quoted=True)
                and settings_lines.is_literal(self.text, begin, at, end, self.spend)
            )
        return good and self.add(at, at + len(value), _KIND[strength])

    def argument(self, begin: int, at: int, stop: int, strength: int) -> bool:
        """Take the argument of an option: `--password x`; a word with a digit is not an expression."""
        if self.bare(begin, at, stop, strength):
            return True
        end = self._word_end(at, stop)
        value = self.text[at:end]
        good = strength >= key_names.PASSWORD and holds(value, DIGITS) and not is_expression(value)
        return good and self._judge(value, strength, quoted=True) and self.add(at, end, _KIND[strength])

    def whole(self, at: int, stop: int, strength: int) -> bool:
        """Take the word that is the rest of a line, where no expression is possible."""
        end = self._word_end(at, stop)
        good = end > at and not self.text[end:stop].strip() and strength >= key_names.PASSWORD
        return (
            good and self._judge(self.text[at:end], strength, quoted=True) and self.add(at, end, "password")
        )

    def stated(self, at: int, stop: int) -> bool:
        """Take a password that a sentence names, without the marks around it."""
        at += len(self.text[at:stop]) - len(self.text[at:stop].lstrip(_MARKS))
        end = self._word_end(at, stop)
        value = self.text[at:end]
        other = _OTHER_SCRIPT.search(value)
        value = (value[: other.start()] if other is not None else value).rstrip(_MARKS_BEHIND)
        if len(value) < 5 or not holds(value, DIGITS) or value.isdigit() or not is_choice(value):
            return False
        good = judge(value, key_names.PASSWORD, quoted=False) or is_numbered_word(value)
        return good and self.add(at, at + len(value), "password")

    def _word_end(self, at: int, stop: int) -> int:
        cut = self.text[at:stop].translate(_TO_STOP).find(b" ")
        return at + cut if cut >= 0 else stop

    def spoken(self, at: int, stop: int) -> bool:
        """Take a password without an equals sign: the last word of a line, or one before a comma."""
        text = self.text
        end = self._word_end(at, stop)
        value = text[at:end].rstrip(b".")
        end = at + len(value)
        follows = text[end:stop].lstrip(b". \t\r")[:1]
        if len(value) < 6 or b"=" in value or follows not in (b"", b",", b";", b")"):
            return False
        if value[:1] in b"#-/" or (b"@" in value[1:] and b"." in value):
            return False
        good = judge(value, key_names.PASSWORD, quoted=False) or is_numbered_word(value)
        return good and self.add(at, end, "password")

    def beside(self, at: int, stop: int, *, careful: bool = False) -> bool:
        """Take a generated value right after a name: the old token x. `careful`: no hash."""
        piece = self.text[at : min(stop, at + _TO_QUOTE)]
        value = piece[: len(piece) - len(piece.lstrip(_TOKEN_BYTES))].rstrip(b".-")
        if len(value) < 16 or (careful and is_hex(value)) or not judge(value, key_names.SECRET, quoted=True):
            return False
        return is_generated(value) and self.add(at, self._token_end(at), "secret")

    def _token_end(self, at: int) -> int:
        piece = self.text[at : at + 4_096]
        return at + len(piece[: len(piece) - len(piece.lstrip(_TOKEN_BYTES))].rstrip(b".-"))

    def cell(self, at: int, stop: int, strength: int) -> bool:
        """Take the next cell of a table: `| DB_PASSWORD | x |`."""
        match = _CELL.match(self.text, at, stop)
        if match is None:
            return False
        start, end = match.span(1)
        return judge(self.text[start:end], strength, quoted=False) and self.add(start, end, _KIND[strength])

    def element(self, at: int, stop: int, strength: int) -> bool:
        """Take the text of `<password>x</password>`, also in braces as Jenkins writes it."""
        match = _ELEMENT.match(self.text, at, stop)
        if match is None:
            return False
        start, end = match.span(1)
        value = self.text[start:end]
        if self.text[end : end + 2] != b"</" and (end < stop - 1 or b" " in value):
            return False  # prose with <password> in it
        inner = value[1:-1] if value[:1] == b"{" and value[-1:] == b"}" and b" " in value else value
        found = not is_template(inner) and any(
            judge(part, strength, quoted=True) for part in (inner, *inner.split())
        )
        return found and self.add(start, end, _KIND[strength])

    def add(self, start: int, end: int, kind: str) -> bool:
        """Add a span; return whether it is not empty."""
        if end <= start:
            return False
        self.spans.append((start, end, kind))
        return True

    def _cut(self, stop: int) -> bool:
        """Return whether the window, not the line, ends at `stop`."""
        return stop < len(self.text) and self.text[stop] != 10

    def _to_end(self, at: int, stops: bytes = b"\"'\r") -> int:
        """Return the end of a value that is longer than the window: that of the line at the latest."""
        end = self.text.find(b"\n", at)
        piece = self.text[at : end if end >= 0 else len(self.text)]
        return at + min(
            (i for i in map(piece.find, (bytes([c]) for c in stops)) if i >= 0), default=len(piece)
        )

    def _trimmed(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of a literal without blanks and escaped line feeds at its ends."""
        value = self.text[start:end]
        end -= len(value) - len(value.rstrip())
        while self.text[start:end].endswith((b"\\n", b"\\r", b"\\t")):
            end -= 2
        return start + len(value) - len(value.lstrip()), end


def _may_open(near: bytes) -> bool:
    """Return whether `_QUOTED` may match: a quote comes first, or after a type or a cast."""
    if holds(near[:3], _OPENS_LITERAL):
        return True
    typed, sign, _ = near.partition(b"=")
    return bool(sign and not typed.translate(None, _OF_TYPE)) or b")" in near[:_CAST_BYTES]


def group_span(match: Any) -> tuple[int, int] | None:
    """Return the span of the one group that matched, None without a match."""
    index = match.lastindex if match is not None else None
    return match.span(index) if index else None


def from_base64(token: bytes) -> bytes:
    """Return the text that base64 encodes, b"" where it encodes none."""
    try:
        plain = base64.b64decode(
            token.replace(b"-", b"+").replace(b"_", b"/") + b"=" * (-len(token) % 4), validate=True
        )
    except (binascii.Error, ValueError):
        return b""
    return plain if plain.isascii() and all(31 < c < 127 or c in b"\t\r\n" for c in plain) else b""


def _is_uuid(value: bytes) -> bool:
    return len(value) == 36 and value.count(b"-") == 4


def usable(value: bytes) -> bool:
    """Return whether a value found by syntax alone is a literal, not a template or a dummy."""
    value = value[:256]
    return len(value) >= 3 and not is_dummy(value) and not is_template(value)
