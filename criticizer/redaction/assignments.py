"""Secrets that show by the name beside them: assignments, headers, flags, elements, clauses.

A word such as `password` is found by the prefilter. From there the rest of the name, an
operator and a value are read by RE2 inside a bounded window of the same line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import re2

from criticizer.redaction import names
from criticizer.redaction.values import (
    is_dummy,
    is_generated,
    is_numbered_word,
    is_slug,
    is_template,
    judge,
    looks_random,
    transitions,
)
from criticizer.redaction.views import Line, character_start

WINDOW: Final = 512  # bytes that are read from a word on; a longer value is followed to its end
_KIND: Final = {names.PASSWORD: "password", names.SECRET: "secret", names.WEAK: "secret"}
_NAME: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_TO_QUOTE: Final = 64  # bytes in which a literal's opening quote has to come
_NAME_BYTES: Final = 60  # of a name that are read on either side of a word

Span = tuple[int, int, str]

_QUOTE = rb"(?:\\*[\"'`]|&quot;|&#39;)"
_HEAD = re2.compile(
    rb"((?:" + _QUOTE + rb"|[)\]}*?!]){0,3})"  # what closes it
    rb"([ \t]{0,20})"
    rb"(:=|:-|=>|->|<-|={1,3}|[!?+]={1,2}|::|:|\xef\xbc\x9a|\|\||\||\?\?|,|\("
    rb"|or[ \t]|is[ \t:]|was[ \t:]|-[ \t]|>|)"
    rb"[ \t]{0,20}"
)
_QUOTED = re2.compile(
    rb"(?:[A-Za-z_&*\[][\w.\[\]<>?|&*:' ]{0,40}=[ \t]{0,4})?"  # a type annotation
    rb"(?:[A-Za-z@$]{1,2})?"  # a string's prefix
    rb"(?:\"\"\"([^\"]*)|'''([^']*)|\\+\"([^\"\\]*)|\\+'([^'\\]*)"
    rb"|\"((?:[^\"\\]|\\.)*)|'((?:[^'\\]|\\.)*)|`([^`]*)|&quot;(.*?)(?:&quot;|$)|&#39;(.*?)(?:&#39;|$))"
)
_STRING = rb"(?:\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`([^`\n]*)`)"
_DEFAULT = re2.compile(  # getenv("NAME", "literal"), environ["NAME"] or "literal"
    rb"[A-Za-z_$][\w.:]{0,60}[(\[][ \t]{0,4}[\"'][^\"'\n]{0,120}[\"'][ \t]{0,4}"
    rb"(?:,[ \t]{0,4}(?:[A-Za-z_]\w{0,20}[ \t]{0,4}[=:][ \t]{0,4})?"
    rb"|[)\]][ \t]{0,4}(?:or|\|\||\?\?|\?:)[ \t]{0,4})" + _STRING
)
_WRAPPED = re2.compile(
    rb"(?:(?:await|new|return)[ \t]+)?(?:[A-Za-z_$][\w.:<>]{0,60}[(\[{][ \t]{0,4}){1,2}[A-Za-z@]{0,2}"
    + _STRING
)
_BYTE = rb"(?:0x[0-9a-fA-F]{1,2}|[0-9]{1,3})"
_BYTES = re2.compile(rb"[^\"'\n]{0,24}?[\[({][ \t]*(" + _BYTE + rb"(?:[ \t]*,[ \t]*" + _BYTE + rb"){7,})")
_BARE_STOPS: Final = b" \t\r\n\x0b\x0c\"'`<>,;)]}|"
# Cutting at the first stop byte without a regular expression: hostile text has many words.
_TO_STOP: Final = bytes(32 if c in _BARE_STOPS else 33 for c in range(256))
_ELEMENT = re2.compile(rb"[ \t]*([^<>\n]*[^<>\s])")
_PAIR = re2.compile(rb"[ \t]*,?[ \t]*[\"']?(?:value|val|content|default)[\"']?[ \t]*[=:][ \t]*")
_NEXT_VALUE = re2.compile(
    rb"[ \t]*-?[ \t]*[\"'<]?(?:value|val|content|default|string)[\"']?[ \t]*[=:>][ \t]*"
)
_FLAG = re2.compile(rb"(?:^|[\s\"'`=(\[,])--?[A-Za-z0-9_.-]*$")
_SETTERS: Final = (b"ENV ", b"ARG ", b"set ", b"env ", b"ort ", b"etx ", b" -x ", b"-gx ", b"-Ux ")
# variable "token" {, <key>token</key>: the value stands below.
_OPENS_BLOCK: Final = (b"{", b"</key>", b"</name>")
_MAX_BELOW: Final = 5  # lines that are looked at for it
_CELL = re2.compile(rb"(?m)[ \t]*`?([^|`\n]*[^|`\s])`?[ \t]*(?:\||$)")
_WIDE_COLON: Final = "\uff1a".encode()
_LITERAL_ENDS: Final = (b"", b"\n", b"\r", b"&", b";", b" ", b"<", b"}")
_TOKEN_BYTES: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/_=.-"
_FALLBACKS: Final = (b"||", b"??", b"->", b"::", b"or ", b"or\t")
_HIDDEN_HEAD = re2.compile(
    rb"(?i)(?:(?:name|key|id|property|param|parameter)[\"']?[ \t]*[=:>][ \t]*[\"']?|variable[ \t]+\")[\w.-]*$"
)


def _group(match: Any) -> tuple[int, int] | None:
    """Return the span of the one group that took part."""
    index = match.lastindex
    return match.span(index) if index else None


class Assignments:
    """Reads the neighbourhood of words in one text and collects spans.

    `spend` is told how many bytes were looked at (in eighths) and may refuse to go on.
    """

    __slots__ = ("ends_line", "is_own_key", "spans", "spend", "text")

    def __init__(self, text: bytes, spend: Callable[[int], None]) -> None:
        self.text = text
        self.spend = spend
        self.spans: list[Span] = []
        self.ends_line = False  # the word looked at last ends its line: a value may stand below
        self.is_own_key = False

    def word(self, start: int, end: int, word: bytes) -> int:
        """Look at one word; return how far the text is dealt with."""
        self.ends_line = False
        if self._look(start, end, word):
            return self.spans[-1][1]
        return end  # the next word may sit in the same name: keyPassword, _authToken

    def _look(self, start: int, end: int, word: bytes) -> bool:
        text = self.text
        if end >= len(text):
            return False
        if 97 <= text[end] <= 122 and text[end] != 115 and text[end - 1] >= 97 and names.WORDS[word][1]:
            return False  # path, keyboard, passing: many hits end here
        stop = text.find(b"\n", end, end + WINDOW)
        if stop < 0:
            stop = character_start(text, min(end + WINDOW, len(text)))
        tail_end = self._name_end(end, stop)
        if text[tail_end : tail_end + 1] >= b"\x80" and text[tail_end : tail_end + 3] != _WIDE_COLON:
            return False  # another word of a language without blanks
        head = _HEAD.match(text, tail_end, stop)
        if head is None:
            return False
        close_end, at = head.end(1), head.end()
        op = head.group(3)
        begin = self._begin(start)
        if not op and not self._may_go_on(begin, tail_end, close_end, at, stop):
            return False
        strength = names.strength(word, text[start:end], text[begin:start], text[end:tail_end])
        if not strength:
            return False
        close = close_end > tail_end
        # acme_key = and Key= may name a secret; key: names too many other things.
        self.is_own_key = word == b"key" and tail_end == end and (begin < start or op == b"=")
        if not op:
            return self._without_operator(begin, close_end, at, stop, strength, close=close)
        return self._with_operator(op, begin, close_end, at, stop, strength, close=close)

    def _with_operator(
        self, op: bytes, begin: int, close_end: int, at: int, stop: int, strength: int, *, close: bool
    ) -> bool:
        text = self.text
        if op == b">":
            tag = text[max(begin - 60, 0) : begin]
            opened = tag.rfind(b"<") > tag.rfind(b">") if close else tag[-1:] == b"<"
            return opened and self._element(at, stop, strength)
        if op == b"(":  # set_password("x"), but not token("bert")
            return self._quoted(at, stop, strength, careful=strength < names.PASSWORD)
        if op == b",":
            return self._after_comma(begin, at, stop, strength, close=close)
        if op in _FALLBACKS:
            return self._quoted(at, stop, strength)
        if op == b"|":
            return strength >= names.SECRET and self._cell(at, stop, strength)
        if op in (b"- ", b"-\t"):  # Password - x
            return strength >= names.PASSWORD and text[close_end] in b" \t" and self._spoken(at, stop)
        return self._right_hand_side(begin, at, stop, strength, spoken=op[:2] in (b"is", b"wa"))

    def _begin(self, start: int) -> int:
        """Return where the name that holds a word begins, at most 60 bytes before it."""
        text = self.text
        before = text[max(start - _NAME_BYTES, 0) : start]
        return start - (len(before) - len(before.rstrip(_NAME)))

    def _name_end(self, end: int, stop: int) -> int:
        """Return where the name ends that a word ending at `end` stands in, a separator excluded."""
        tail = self.text[end : min(end + _NAME_BYTES, stop)]
        return end + len(tail[: len(tail) - len(tail.lstrip(_NAME))].rstrip(b".-"))

    def _may_go_on(self, begin: int, tail_end: int, close_end: int, at: int, stop: int) -> bool:
        """Tell a name without operator that may have a value (flag, clause, attribute) from prose."""
        text = self.text
        closed = close_end > tail_end
        if at >= stop or text[at] == 13 or (closed and text[at] in b",\r"):
            self.ends_line = True
        if at >= stop:
            return False
        if text[at] in b"{<" and text[at:stop].rstrip() in _OPENS_BLOCK:
            self.ends_line = True
            return False
        if closed:
            return text[at] in b"vVcCdD"
        return at > tail_end and (
            text[at] in b"\"'`\\&@"
            or _holds_digit(text[at : at + 16])
            or text[begin] == 45
            or text[begin - 1 : begin] == b"-"
            or text[max(begin - 4, 0) : begin] in _SETTERS
        )

    def _after_comma(self, begin: int, at: int, stop: int, strength: int, *, close: bool) -> bool:
        """put("password", "x"), CURLOPT_PASSWORD, "x", and "name": "DB_PASSWORD", "value": "x"."""
        text = self.text
        if close:
            pair = _PAIR.match(text, at, stop)
            if pair is not None:
                return self._quoted(pair.end(), stop, max(strength, names.SECRET))
        elif not text[begin:at].partition(b",")[0].isupper():
            listed = strength >= names.PASSWORD and text[begin - 1 : begin] in (b",", b";")
            return listed and self._spoken(at, stop)  # bob,password,x
        return self._quoted(at, stop, strength, careful=strength < names.PASSWORD, word=True)

    def _right_hand_side(self, begin: int, at: int, stop: int, strength: int, *, spoken: bool) -> bool:
        """What follows = or : is a literal, a call with a literal inside, bytes, or a bare word."""
        text = self.text
        near = text[at : min(stop, at + 200)]
        if b'"' in near or b"'" in near or b"`" in near or b"&" in near:
            if self._quoted(at, stop, strength):
                return True
            if not spoken and (
                self._inner(_DEFAULT, at, stop, strength) or self._inner(_WRAPPED, at, stop, strength)
            ):
                return True
        near = near[:30]
        if (b"{" in near or b"[" in near or b"(" in near) and not spoken and strength >= names.SECRET:
            match = _BYTES.match(text, at, stop)
            if match is not None:
                return self._add(match.start(1), match.end(1), "key-bytes")
        return self._bare(begin, at, stop, strength, spoken=spoken)

    def _quoted(
        self, at: int, stop: int, strength: int, *, careful: bool = False, word: bool = False
    ) -> bool:
        """Take the quoted literal that begins at `at`."""
        near = self.text[at : at + _TO_QUOTE]
        if not (b'"' in near or b"'" in near or b"`" in near or b"&" in near):
            return False
        match = _QUOTED.match(self.text, at, stop)
        span = _group(match) if match is not None else None
        if span is None:
            return False
        start, end = span
        if end == stop and self._cut(stop):
            end = self._to_end(end)
        value = self.text[start:end]
        self.spend(len(value) >> 3)
        if careful and not looks_random(value, rate=0.35):
            return False
        drawn = (len(value) >= 10 and transitions(value) >= 0.36) or is_numbered_word(value)
        if word and is_slug(value) and not drawn:
            return False
        return self._judge(value, strength, quoted=True) and self._add(
            *self._trimmed(start, end), _KIND[strength]
        )

    def _judge(self, value: bytes, strength: int, *, quoted: bool) -> bool:
        if judge(value, strength, quoted=quoted):
            return True
        return self.is_own_key and strength == names.WEAK and len(value) >= 16 and is_generated(value)

    def _inner(self, pattern: Any, at: int, stop: int, strength: int) -> bool:
        """Take the literal inside a call: a default, or what is wrapped."""
        match = pattern.match(self.text, at, stop)
        span = _group(match) if match is not None else None
        if span is None:
            return False
        value = self.text[slice(*span)]
        if pattern is _WRAPPED and is_slug(value):
            return False
        return self._judge(value, strength, quoted=True) and self._add(*span, _KIND[strength])

    def _bare(self, begin: int, at: int, stop: int, strength: int, *, spoken: bool = False) -> bool:
        """Take an unquoted word. `spoken` is prose: password is x."""
        cut = self.text[at:stop].translate(_TO_STOP).find(b" ")
        end = at + cut if cut >= 0 else stop
        value = self.text[at:end]
        self.spend(len(value) >> 3)
        if end == stop and self._cut(stop) and judge(value, strength, quoted=False):
            value = self.text[at : self._to_end(end, _BARE_STOPS)]
        if self.text[end:stop].lstrip(b" \t")[:1] == b"=" and self.text[end : end + 1] in (b" ", b"\t"):
            return False  # password: Type = default
        if self.text[begin - 1 : begin] in (b"?", b"&"):
            value = value.partition(b"&")[0]
        value = value.removesuffix(b"\\n").rstrip(b"\\").removesuffix(b"*/")
        if spoken:
            value = value.removesuffix(b".")
            if strength < names.PASSWORD and not looks_random(value, rate=0.3) and not _is_uuid(value):
                return False
        good = self._judge(value, strength, quoted=False)
        if not good and strength >= names.PASSWORD:
            # In configuration a word with a number is a literal; in code more follows it.
            end = at + len(value)
            good = is_numbered_word(value) and self.text[end : end + 1] in _LITERAL_ENDS
        return good and self._add(at, at + len(value), _KIND[strength])

    def _without_operator(
        self, begin: int, close_end: int, at: int, stop: int, strength: int, *, close: bool
    ) -> bool:
        text = self.text
        strong = max(strength, names.SECRET)
        if close:  # key="password" value="x"
            match = _PAIR.match(text, close_end, stop)
            return match is not None and self._quoted(match.end(), stop, strong)
        if at == close_end:
            return False
        if _FLAG.search(text[max(begin - 24, 0) : begin]) or text[begin] == 45:  # --password x
            return self._quoted(at, stop, strong) or self._bare(begin, at, stop, strong)
        if text[max(begin - 4, 0) : begin] in _SETTERS:  # ENV PASSWORD x
            return self._quoted(at, stop, strength) or self._bare(begin, at, stop, strength)
        if strength >= names.PASSWORD:  # WITH PASSWORD 'x', #define PASSWORD "x", password x
            return self._quoted(at, stop, strength, word=True) or self._spoken(at, stop)
        defined = text[max(begin - 10, 0) : begin].rstrip().endswith(b"define")
        return (defined and self._quoted(at, stop, strength)) or (
            strength >= names.SECRET and self._beside(at, stop)
        )

    def _spoken(self, at: int, stop: int) -> bool:
        """Take a password that is named without a sign of assignment: the last word, or before a comma."""
        text = self.text
        cut = text[at:stop].translate(_TO_STOP).find(b" ")
        end = at + cut if cut >= 0 else stop
        value = text[at:end].rstrip(b".")
        end = at + len(value)
        follows = text[end:stop].lstrip(b". \t\r")[:1]
        if len(value) < 6 or b"=" in value or follows not in (b"", b",", b";", b")"):
            return False
        if value[:1] in b"#-/" or (b"@" in value[1:] and b"." in value):
            return False
        good = judge(value, names.PASSWORD, quoted=False) or is_numbered_word(value)
        return good and self._add(at, end, "password")

    def _beside(self, at: int, stop: int) -> bool:
        """Take a generated value right behind a name: the old token x."""
        piece = self.text[at : min(stop, at + _TO_QUOTE)]
        value = piece[: len(piece) - len(piece.lstrip(_TOKEN_BYTES))].rstrip(b".-")
        if len(value) < 16 or not judge(value, names.SECRET, quoted=True):
            return False
        return is_generated(value) and self._add(at, self._token_end(at), "secret")

    def _token_end(self, at: int) -> int:
        piece = self.text[at : at + 4_096]
        return at + len(piece[: len(piece) - len(piece.lstrip(_TOKEN_BYTES))].rstrip(b".-"))

    def _cell(self, at: int, stop: int, strength: int) -> bool:
        """| DB_PASSWORD | x |: the next cell of a table."""
        match = _CELL.match(self.text, at, stop)
        if match is None:
            return False
        start, end = match.span(1)
        return judge(self.text[start:end], strength, quoted=False) and self._add(start, end, _KIND[strength])

    def _element(self, at: int, stop: int, strength: int) -> bool:
        """<password>x</password>, with Jenkins' {AQAA... x} braces."""
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
        return found and self._add(start, end, _KIND[strength])

    def pair_below(self, start: int, end: int, word: bytes, following: Callable[[], Iterator[Line]]) -> None:
        """`- name: DB_PASSWORD` and, on one of the next lines of the same side, `value: x`."""
        text = self.text
        begin = self._begin(start)
        if not _HIDDEN_HEAD.search(text[max(begin - 60, 0) : begin].rpartition(b"\n")[2]):
            return
        stop = text.find(b"\n", end, end + WINDOW)
        if stop < 0:
            return
        tail_end = self._name_end(end, stop)
        tail = _HEAD.match(text, tail_end, stop)
        rest = text[tail.end(1) : stop].strip() if tail is not None else b"?"
        if rest not in (b"", b",", b"\\", b">", *_OPENS_BLOCK):
            return
        strength = names.strength(word, text[start:end], text[begin:start], text[end:tail_end])
        if not strength:
            return
        for number, line in enumerate(following()):
            if number >= 2 and rest != b"{":
                return  # further down stands the value of another name
            match = _NEXT_VALUE.match(text, line.start, min(line.end, line.start + WINDOW))
            if match is not None:
                at, stop = match.end(), min(line.end, match.end() + WINDOW)
                strong = max(strength, names.SECRET)
                if not self._quoted(at, stop, strong):
                    self._bare(line.start, at, stop, strong)
                return

    def _add(self, start: int, end: int, kind: str) -> bool:
        if end <= start:
            return False
        self.spans.append((start, end, kind))
        return True

    def _cut(self, stop: int) -> bool:
        """Return whether the window, not the line, ends at `stop`."""
        return stop < len(self.text) and self.text[stop] != 10

    def _to_end(self, at: int, stops: bytes = b"\"'\r") -> int:
        """Follow a value that is longer than the window to its end, the line's at the latest."""
        end = self.text.find(b"\n", at)
        piece = self.text[at : end if end >= 0 else len(self.text)]
        return at + min(
            (i for i in map(piece.find, (bytes([c]) for c in stops)) if i >= 0), default=len(piece)
        )

    def _trimmed(self, start: int, end: int) -> tuple[int, int]:
        """Leave blanks and an escaped line feed at the edges of a literal where they are."""
        value = self.text[start:end]
        end -= len(value) - len(value.rstrip())
        while self.text[start:end].endswith((b"\\n", b"\\r", b"\\t")):
            end -= 2
        return start + len(value) - len(value.lstrip()), end


def _holds_digit(value: bytes) -> bool:
    return len(value.translate(None, b"0123456789")) != len(value)


def _is_uuid(value: bytes) -> bool:
    return len(value) == 36 and value.count(b"-") == 4


def usable(value: bytes) -> bool:
    """Return whether a value found by syntax alone is a literal and no template or dummy."""
    value = value[:256]
    return len(value) >= 3 and not is_dummy(value) and not is_template(value)
