"""Secrets that show by the name beside them: assignments, headers, flags, elements, clauses.

A word such as `password` is found by the prefilter. From there the rest of the name, an
operator and a value are read by RE2 inside a bounded window of the same line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import re2

from criticizer.redaction import names
from criticizer.redaction.values import is_dummy, is_slug, is_template, judge, looks_random, transitions
from criticizer.redaction.views import Line, character_start

WINDOW: Final = 512  # bytes that are read from a word on; a longer value is followed to its end
_KIND: Final = {names.PASSWORD: "password", names.SECRET: "secret", names.WEAK: "secret"}
_NAME: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")

Span = tuple[int, int, str]

_QUOTE = rb"(?:\\*[\"'`]|&quot;|&#39;)"
_HEAD = re2.compile(
    rb"((?:[\w.-]{0,60}\w)?)"  # rest of the name
    rb"((?:" + _QUOTE + rb"|[)\]}*?!]){0,3})"  # what closes it
    rb"([ \t]{0,20})"
    rb"(:=|:-|=>|->|<-|={1,3}|!={1,2}|::|:|\|\||\?\?|,|\(|or[ \t]|is[ \t:]|was[ \t:]|>|)"
    rb"[ \t]{0,20}"
)
_QUOTED = re2.compile(
    rb"(?:[A-Za-z_][\w.\[\]<>?|&*: ]{0,40}=[ \t]{0,4})?"  # a type annotation
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
_SETTERS: Final = (b"ENV ", b"ARG ", b"set ", b"env ", b"ort ")
_FALLBACKS: Final = (b"||", b"??", b"->", b"::", b"or ", b"or\t")
_HIDDEN_HEAD = re2.compile(
    rb"(?i)(?:name|key|id|property|param|parameter)[\"']?[ \t]*[=:>][ \t]*[\"']?[\w.-]*$"
)


def _group(match: Any) -> tuple[int, int] | None:
    """Return the span of the one group that took part."""
    index = match.lastindex
    return match.span(index) if index else None


class Assignments:
    """Reads the neighbourhood of words in one text and collects spans.

    `spend` is told how many bytes were looked at (in eighths) and may refuse to go on.
    """

    __slots__ = ("ends_line", "spans", "spend", "text")

    def __init__(self, text: bytes, spend: Callable[[int], None]) -> None:
        self.text = text
        self.spend = spend
        self.spans: list[Span] = []
        self.ends_line = False  # the word looked at last ends its line: a value may stand below

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
        head = _HEAD.match(text, end, stop)
        if head is None:
            return False
        tail_end, close_end, at = head.end(1), head.end(2), head.end()
        op = head.group(4)
        begin = self._begin(start)
        if not op and not self._may_go_on(begin, tail_end, close_end, at, stop):
            return False
        strength = names.strength(word, text[start:end], text[begin:start], text[end:tail_end])
        if not strength:
            return False
        close = close_end > tail_end
        if not op:
            return self._without_operator(begin, close_end, at, stop, strength, close=close)
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
        return self._right_hand_side(begin, at, stop, strength, spoken=op[:2] in (b"is", b"wa"))

    def _begin(self, start: int) -> int:
        """Return where the name that holds a word begins, at most 60 bytes before it."""
        text = self.text
        floor = max(start - 60, 0)
        while start > floor and text[start - 1] in _NAME:
            start -= 1
        return start

    def _may_go_on(self, begin: int, tail_end: int, close_end: int, at: int, stop: int) -> bool:
        """Tell a name without operator that may have a value (flag, clause, attribute) from prose."""
        text = self.text
        closed = close_end > tail_end
        if at >= stop or text[at] == 13 or (closed and text[at] in b",\r"):
            self.ends_line = True
        if at >= stop:
            return False
        if closed:
            return text[at] in b"vVcCdD"
        return at > tail_end and (
            text[at] in b"\"'`\\&"
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
            return False
        return self._quoted(at, stop, strength, careful=strength < names.PASSWORD, word=True)

    def _right_hand_side(self, begin: int, at: int, stop: int, strength: int, *, spoken: bool) -> bool:
        """What follows = or : is a literal, a call with a literal inside, bytes, or a bare word."""
        text = self.text
        near = min(stop, at + 200)
        if any(text.find(quote, at, near) >= 0 for quote in (b'"', b"'", b"`", b"&")):
            if self._quoted(at, stop, strength):
                return True
            if not spoken and (
                self._inner(_DEFAULT, at, stop, strength) or self._inner(_WRAPPED, at, stop, strength)
            ):
                return True
        opens = any(text.find(bracket, at, at + 30) >= 0 for bracket in (b"{", b"[", b"("))
        if opens and not spoken and strength >= names.SECRET:
            match = _BYTES.match(text, at, stop)
            if match is not None:
                return self._add(match.start(1), match.end(1), "key-bytes")
        return self._bare(begin, at, stop, strength, spoken=spoken)

    def _quoted(
        self, at: int, stop: int, strength: int, *, careful: bool = False, word: bool = False
    ) -> bool:
        """Take the quoted literal that begins at `at`."""
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
        if word and is_slug(value) and not (len(value) >= 10 and transitions(value) >= 0.36):
            return False
        return judge(value, strength, quoted=True) and self._add(*self._trimmed(start, end), _KIND[strength])

    def _inner(self, pattern: Any, at: int, stop: int, strength: int) -> bool:
        """Take the literal inside a call: a default, or what is wrapped."""
        match = pattern.match(self.text, at, stop)
        span = _group(match) if match is not None else None
        if span is None:
            return False
        value = self.text[slice(*span)]
        if pattern is _WRAPPED and is_slug(value):
            return False
        return judge(value, strength, quoted=True) and self._add(*span, _KIND[strength])

    def _bare(self, begin: int, at: int, stop: int, strength: int, *, spoken: bool = False) -> bool:
        """Take an unquoted word. `spoken` is prose: password is x."""
        cut = self.text[at:stop].translate(_TO_STOP).find(b" ")
        end = at + cut if cut >= 0 else stop
        value = self.text[at:end]
        self.spend(len(value) >> 3)
        if end == stop and self._cut(stop) and judge(value, strength, quoted=False):
            value = self.text[at : self._to_end(end, _BARE_STOPS)]
        if self.text[begin - 1 : begin] in (b"?", b"&"):
            value = value.partition(b"&")[0]
        value = value.removesuffix(b"\\n").rstrip(b"\\").removesuffix(b"*/")
        if spoken:
            value = value.removesuffix(b".")
            if strength < names.PASSWORD and not looks_random(value, rate=0.3) and not _is_uuid(value):
                return False
        return judge(value, strength, quoted=False) and self._add(at, at + len(value), _KIND[strength])

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
        if strength >= names.PASSWORD:  # WITH PASSWORD 'x', #define PASSWORD "x"
            return self._quoted(at, stop, strength, word=True)
        defined = text[max(begin - 10, 0) : begin].rstrip().endswith(b"define")
        return defined and self._quoted(at, stop, strength)

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
        tail = _HEAD.match(text, end, stop) if stop >= 0 else None
        if tail is None or text[tail.end(2) : stop].strip() not in (b"", b",", b"\\", b">"):
            return
        strength = names.strength(word, text[start:end], text[begin:start], tail.group(1))
        if not strength:
            return
        for line in following():
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


def _is_uuid(value: bytes) -> bool:
    return len(value) == 36 and value.count(b"-") == 4


def usable(value: bytes) -> bool:
    """Return whether a value found by syntax alone is a literal and no template or dummy."""
    value = value[:256]
    return len(value) >= 3 and not is_dummy(value) and not is_template(value)
