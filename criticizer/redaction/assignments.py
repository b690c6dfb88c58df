"""Secrets that show by the name beside them: assignments, headers, flags, elements, clauses.

A word such as `password` is found by the prefilter. From there the rest of the name, an
operator and a value are read by RE2 inside a bounded window of the same line.
"""

from __future__ import annotations

from typing import Final

import re2

from criticizer.redaction import names
from criticizer.redaction.values import is_dummy, is_template, judge, looks_random
from criticizer.redaction.views import Line

WINDOW: Final = 2048  # bytes that are read from a word on; a longer value is followed to its end
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
    rb"(?:,[ \t]{0,4}(?:[A-Za-z_]\w{0,20}[ \t]{0,4}[=:][ \t]{0,4})?|[)\]][ \t]{0,4}(?:or|\|\||\?\?|\?:)[ \t]{0,4})" + _STRING
)
_WRAPPED = re2.compile(rb"(?:(?:await|new|return)[ \t]+)?(?:[A-Za-z_$][\w.:<>]{0,60}[(\[{][ \t]{0,4}){1,2}[A-Za-z@]{0,2}" + _STRING)
_BYTES = re2.compile(
    rb"[^\"'\n]{0,24}?[\[({][ \t]*((?:0x[0-9a-fA-F]{1,2}|[0-9]{1,3})(?:[ \t]*,[ \t]*(?:0x[0-9a-fA-F]{1,2}|[0-9]{1,3})){7,})"
)
_BARE = re2.compile(rb"([^\s\"'`<>,;)\]}|]+)")
_ELEMENT = re2.compile(rb"[ \t]*([^<>\n]*[^<>\s])")
_PAIR = re2.compile(rb"[ \t]*,?[ \t]*[\"']?(?:value|val|content|default)[\"']?[ \t]*[=:][ \t]*")
_NEXT_VALUE = re2.compile(rb"[ \t]*-?[ \t]*[\"'<]?(?:value|val|content|default|string)[\"']?[ \t]*[=:>][ \t]*")
_FLAG = re2.compile(rb"(?:^|[\s\"'`=(\[,])--?[A-Za-z0-9_.-]*$")
_HIDDEN_HEAD = re2.compile(rb"(?i)(?:name|key|id|property|param|parameter)[\"']?[ \t]*[=:>][ \t]*[\"']?[\w.-]*$")


def _group(match: object) -> tuple[int, int] | None:
    spans = match._spans[1:]  # type: ignore[attr-defined]  # noqa: SLF001 - the one group that took part
    return next((span for span in spans if span[0] >= 0), None)


class Assignments:
    """Reads the neighbourhood of words in one text and collects spans."""

    __slots__ = ("spans", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.spans: list[Span] = []

    def add(self, start: int, end: int, kind: str) -> None:
        if end > start:
            self.spans.append((start, end, kind))

    def line(self, at: int) -> tuple[int, int]:
        """Return the window of the line round `at`: at most 512 bytes back and 2048 ahead."""
        start = self.text.rfind(b"\n", max(at - 512, 0), at) + 1 or max(at - 512, 0)
        end = self.text.find(b"\n", at, at + WINDOW)
        return start, end if end >= 0 else min(at + WINDOW, len(self.text))

    def word(self, start: int, end: int, word: bytes, following: list[Line] | None = None) -> int:
        """Look at one word; return how far the text is dealt with."""
        text = self.text
        stop = text.find(b"\n", end, end + WINDOW)
        if stop < 0:
            stop = min(end + WINDOW, len(text))
        head_match = _HEAD.match(text, end, stop)
        if head_match is None:
            return end
        tail, close, gap, op = head_match.groups()
        if not (op or gap or close):
            return end
        begin = start
        floor = max(start - 60, 0)
        while begin > floor and text[begin - 1] in _NAME:
            begin -= 1
        head = text[begin:start]
        strength = names.strength(word, text[start:end], head, tail)
        if not strength:
            return end
        return self._read(begin, head_match, strength, stop)

    def _read(self, begin: int, head: object, strength: int, stop: int) -> int:
        text = self.text
        close, gap, op = head.group(2), head.group(3), head.group(4)  # type: ignore[attr-defined]
        at = head.end()  # type: ignore[attr-defined]
        before = text[max(begin - 2, 0) : begin]
        if op == b">":
            return self._element(at, stop, strength) if b"<" in before and not close else at
        if not op:
            return self._without_operator(begin, at, stop, strength, gap, close)
        if op == b"(":
            # set_password("x"), but not token("bert") and not a call with other arguments.
            return self._quoted(at, stop, strength, careful=strength < names.PASSWORD) or at
        word_op = op.strip() in (b"or", b"is", b"was", b"is:", b"was:")
        if op in (b",", b"||", b"??", b"->", b"::") or op.startswith(b"or"):
            if op == b"," and not close:
                return at
            return self._quoted(at, stop, strength, careful=op == b"," and strength < names.PASSWORD, word=op == b",") or at
        done = self._quoted(at, stop, strength)
        if done:
            return done
        if not word_op:
            for pattern, limit in ((_DEFAULT, strength), (_WRAPPED, min(strength, names.SECRET))):
                done = self._literal(pattern, at, stop, limit)
                if done:
                    return done
            if strength >= names.SECRET or b"ecret" in text[begin:at]:
                match = _BYTES.match(text, at, stop)
                if match is not None:
                    self.add(*match.span(1), "key-bytes")
                    return int(match.end())
        return self._bare(begin, at, stop, strength, spoken=word_op)

    def _quoted(self, at: int, stop: int, strength: int, *, careful: bool = False, word: bool = False) -> int:
        """Take a quoted literal at `at`; return its end, 0 when there is none."""
        match = _QUOTED.match(self.text, at, stop)
        if match is None:
            return 0
        span = _group(match)
        if span is None:
            return 0
        start, end = span
        if end == stop:
            end = self._to_end(end)
        value = self.text[start:end]
        if careful and not looks_random(value, rate=0.35):
            return 0
        if word and value.isalpha():
            return 0
        if judge(value, strength, quoted=True):
            start, end = self._trim(start, end)
            self.add(start, end, _KIND[strength])
            return end
        return 0

    def _literal(self, pattern: object, at: int, stop: int, strength: int) -> int:
        match = pattern.match(self.text, at, stop)  # type: ignore[attr-defined]
        span = _group(match) if match is not None else None
        if span is None or not judge(self.text[slice(*span)], strength, quoted=True):
            return 0
        if pattern is _WRAPPED and self.text[slice(*span)].isalpha():
            return 0
        self.add(*span, _KIND[strength])
        return span[1]

    def _bare(self, begin: int, at: int, stop: int, strength: int, *, spoken: bool = False, sure: bool = False) -> int:
        match = _BARE.match(self.text, at, stop)
        if match is None:
            return at
        start, end = match.span(1)
        if end == stop:
            end = self._to_end(end, b" \t\r\"'`<>,;)]}|")
        value = self.text[start:end]
        if self.text[begin - 1 : begin] in (b"?", b"&") and b"&" in value:
            value = value[: value.index(b"&")]
        value = value.removesuffix(b"\\n").rstrip(b"\\").removesuffix(b".") if spoken else value.rstrip(b"\\")
        if value.endswith(b"*/"):
            value = value[:-2]
        if spoken and strength < names.PASSWORD and not looks_random(value, rate=0.3) and not _is_uuid(value):
            return at
        if not judge(value, strength, quoted=False, sure=sure):
            return at
        self.add(start, start + len(value), _KIND[strength])
        return start + len(value)

    def _without_operator(self, begin: int, at: int, stop: int, strength: int, gap: bytes, close: bytes) -> int:
        text = self.text
        if close:
            match = _PAIR.match(text, at - len(gap), stop)
            if match is not None and (gap or match.group().lstrip().startswith(b",")):
                return self._quoted(match.end(), stop, max(strength, names.SECRET)) or at
            return at
        if not gap:
            return at
        if _FLAG.search(text, max(begin - 24, 0), begin) or (begin and text[begin] == 45):
            flag_value = self._quoted(at, stop, max(strength, names.SECRET))
            return flag_value or self._bare(begin, at, stop, max(strength, names.SECRET))
        if strength >= names.PASSWORD:  # WITH PASSWORD 'x', #define PASSWORD "x"
            return self._quoted(at, stop, strength, word=True) or at
        start, _ = self.line(begin)
        if text[start:begin].lstrip()[:1] in (b"#", b"%") and b"define" in text[start:begin]:
            return self._quoted(at, stop, strength) or at
        return at

    def _element(self, at: int, stop: int, strength: int) -> int:
        """<password>x</password>, with Jenkins' {AQAA... x} braces."""
        match = _ELEMENT.match(self.text, at, stop)
        if match is None:
            return at
        start, end = match.span(1)
        value = self.text[start:end]
        inner = value[1:-1] if value[:1] == b"{" and value[-1:] == b"}" and b" " in value else value
        if any(judge(part, strength, quoted=True) for part in (inner, *inner.split())):
            self.add(start, end, _KIND[strength])
        return end

    def pair_below(self, start: int, end: int, word: bytes, following: list[Line]) -> None:
        """`- name: DB_PASSWORD` and, on one of the next lines of the same side, `value: x`."""
        text = self.text
        begin = start
        while begin > max(start - 60, 0) and text[begin - 1] in _NAME:
            begin -= 1
        line_start, stop = self.line(start)
        if not _HIDDEN_HEAD.search(text, max(line_start, begin - 60), begin):
            return
        tail = _HEAD.match(text, end, stop)
        if tail is None or text[tail.end(2) : stop].strip() not in (b"", b",", b"\\", b">"):
            return
        strength = names.strength(word, text[start:end], text[begin:start], tail.group(1))
        if not strength:
            return
        for line in following:
            match = _NEXT_VALUE.match(text, line.start, min(line.end, line.start + WINDOW))
            if match is not None:
                stop = min(line.end, match.end() + WINDOW)
                if not self._quoted(match.end(), stop, max(strength, names.SECRET)):
                    self._bare(line.start, match.end(), stop, max(strength, names.SECRET), sure=True)
                return

    def _to_end(self, at: int, stops: bytes = b"\"'\r") -> int:
        """Follow a value that is longer than the window to its end, the line's at the latest."""
        end = self.text.find(b"\n", at)
        piece = self.text[at : end if end >= 0 else len(self.text)]
        cut = min((i for i in (piece.find(bytes([c])) for c in stops) if i >= 0), default=len(piece))
        return at + cut

    def _trim(self, start: int, end: int) -> tuple[int, int]:
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
    return len(value) >= 3 and not is_dummy(value) and not is_template(value)
