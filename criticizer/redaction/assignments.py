"""Secrets that show by the name beside them: assignments, headers, flags, elements, clauses.

A word such as `password` is found by the prefilter. From there the rest of the name, an
operator and a value are read by RE2 inside a bounded window of the same line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import re2

from criticizer.redaction import names
from criticizer.redaction.values import is_dummy, is_template, judge, looks_random, transitions
from criticizer.redaction.views import Line

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
    rb"(?:,[ \t]{0,4}(?:[A-Za-z_]\w{0,20}[ \t]{0,4}[=:][ \t]{0,4})?|[)\]][ \t]{0,4}(?:or|\|\||\?\?|\?:)[ \t]{0,4})" + _STRING
)
_WRAPPED = re2.compile(rb"(?:(?:await|new|return)[ \t]+)?(?:[A-Za-z_$][\w.:<>]{0,60}[(\[{][ \t]{0,4}){1,2}[A-Za-z@]{0,2}" + _STRING)
_BYTES = re2.compile(
    rb"[^\"'\n]{0,24}?[\[({][ \t]*((?:0x[0-9a-fA-F]{1,2}|[0-9]{1,3})(?:[ \t]*,[ \t]*(?:0x[0-9a-fA-F]{1,2}|[0-9]{1,3})){7,})"
)
_BARE_STOPS: Final = b" \t\r\n\x0b\x0c\"'`<>,;)]}|"
# Cutting at the first stop byte without a regular expression: hostile text has many words.
_TO_STOP: Final = bytes(32 if c in _BARE_STOPS else 33 for c in range(256))
_ELEMENT = re2.compile(rb"[ \t]*([^<>\n]*[^<>\s])")
_PAIR = re2.compile(rb"[ \t]*,?[ \t]*[\"']?(?:value|val|content|default)[\"']?[ \t]*[=:][ \t]*")
_NEXT_VALUE = re2.compile(rb"[ \t]*-?[ \t]*[\"'<]?(?:value|val|content|default|string)[\"']?[ \t]*[=:>][ \t]*")
_FLAG = re2.compile(rb"(?:^|[\s\"'`=(\[,])--?[A-Za-z0-9_.-]*$")
_HIDDEN_HEAD = re2.compile(rb"(?i)(?:name|key|id|property|param|parameter)[\"']?[ \t]*[=:>][ \t]*[\"']?[\w.-]*$")


def _group(match: Any) -> tuple[int, int] | None:
    """Return the span of the one group that took part."""
    index = match.lastindex
    return match.span(index) if index else None


class Assignments:
    """Reads the neighbourhood of words in one text and collects spans."""

    __slots__ = ("ends_line", "spans", "spend", "text")

    def __init__(self, text: bytes, spend: Callable[[int], None]) -> None:
        self.text = text
        self.spend = spend
        self.spans: list[Span] = []
        self.ends_line = False  # the word looked at last ends its line: a value may stand below

    def add(self, start: int, end: int, kind: str) -> None:
        if end > start:
            self.spans.append((start, end, kind))

    def line(self, at: int) -> tuple[int, int]:
        """Return the window of the line round `at`: at most 512 bytes back and 2048 ahead."""
        start = self.text.rfind(b"\n", max(at - 512, 0), at) + 1 or max(at - 512, 0)
        end = self.text.find(b"\n", at, at + WINDOW)
        return start, end if end >= 0 else min(at + WINDOW, len(self.text))

    def word(self, start: int, end: int, word: bytes) -> int:
        """Look at one word; return how far the text is dealt with."""
        text = self.text
        self.ends_line = False
        if end >= len(text):
            return end
        if 97 <= text[end] <= 122 and text[end] != 115 and text[end - 1] >= 97 and names.WORDS[word][1]:
            return end  # path, keyboard, passing: many hits end here
        stop = text.find(b"\n", end, end + WINDOW)
        if stop < 0:
            stop = min(end + WINDOW, len(text))
        head = _HEAD.match(text, end, stop)
        if head is None:
            return end
        tail_end, close_end, at = head.end(1), head.end(2), head.end()
        op = head.group(4)
        begin = self._begin(start)
        if not op and not self._may_go_on(begin, tail_end, close_end, at, stop):
            return end
        strength = names.strength(word, text[start:end], text[begin:start], text[end:tail_end])
        if not strength:
            return end
        if not op:
            return self._without_operator(begin, at, stop, strength, text[close_end:at], close=close_end > tail_end)
        return self._read(begin, at, op, stop, strength, close=close_end > tail_end)

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
        if at >= stop or text[at] == 13 or (close_end > tail_end and text[at] in b",\r"):
            self.ends_line = True
        if at >= stop:
            return False
        following = text[at]
        if close_end > tail_end:
            return following in b"vVcCdD" or (following == 44 and stop - at > 4)
        return at > tail_end and (following in b"\"'`\\&" or text[begin] == 45 or text[begin - 1 : begin] == b"-")

    def _read(self, begin: int, at: int, op: bytes, stop: int, strength: int, *, close: bool) -> int:
        text = self.text
        if op == b">":
            return self._element(at, stop, strength) if text[max(begin - 1, 0) : begin] == b"<" and not close else at
        if op == b"(":
            # set_password("x"), but not token("bert") and not a call with other arguments.
            return self._quoted(at, stop, strength, careful=strength < names.PASSWORD) or at
        word_op = op.strip() in (b"or", b"is", b"was", b"is:", b"was:")
        if op in (b",", b"||", b"??", b"->", b"::") or op.startswith(b"or"):
            if op == b"," and not close and not text[begin:at].partition(b",")[0].isupper():
                return at
            return self._quoted(at, stop, strength, careful=op == b"," and strength < names.PASSWORD, word=op == b",") or at
        near = min(stop, at + 200)
        has_quote = text.find(b'"', at, near) >= 0 or text.find(b"'", at, near) >= 0 or text.find(b"`", at, near) >= 0
        has_quote = has_quote or text.find(b"&", at, near) >= 0
        done = self._quoted(at, stop, strength) if has_quote else 0
        if done:
            return done
        if not word_op and has_quote:
            for pattern, limit in ((_DEFAULT, strength), (_WRAPPED, min(strength, names.SECRET))):
                done = self._literal(pattern, at, stop, limit)
                if done:
                    return done
        if not word_op and strength >= names.SECRET:
            if any(text.find(c, at, at + 30) >= 0 for c in (b"{", b"[", b"(")):
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
        self.spend(len(value) >> 3)
        if careful and not looks_random(value, rate=0.35):
            return 0
        if word and value.isalpha() and not (len(value) >= 16 and transitions(value) >= 0.42):
            return 0
        if judge(value, strength, quoted=True):
            start, end = self._trim(start, end)
            self.add(start, end, _KIND[strength])
            return end
        return 0

    def _literal(self, pattern: Any, at: int, stop: int, strength: int) -> int:
        match = pattern.match(self.text, at, stop)
        span = _group(match) if match is not None else None
        if span is None or not judge(self.text[slice(*span)], strength, quoted=True):
            return 0
        if pattern is _WRAPPED and self.text[slice(*span)].isalpha():
            return 0
        self.add(*span, _KIND[strength])
        return span[1]

    def _bare(self, begin: int, at: int, stop: int, strength: int, *, spoken: bool = False, sure: bool = False) -> int:
        start = at
        cut = self.text[at:stop].translate(_TO_STOP).find(b" ")
        end = at + cut if cut >= 0 else stop
        if end == start:
            return at
        value = self.text[start:end]
        self.spend(len(value) >> 3)
        if end == stop and judge(value, strength, quoted=False, sure=sure):
            end = self._to_end(end, _BARE_STOPS)
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

    def _without_operator(self, begin: int, at: int, stop: int, strength: int, gap: bytes, *, close: bool) -> int:
        text = self.text
        if close:
            match = _PAIR.match(text, at - len(gap), stop)
            if match is not None and (gap or match.group().lstrip().startswith(b",")):
                return self._quoted(match.end(), stop, max(strength, names.SECRET)) or at
            return at
        if not gap:
            return at
        if _FLAG.search(text[max(begin - 24, 0) : begin]) or text[begin] == 45:
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

    def pair_below(self, start: int, end: int, word: bytes, following: Callable[[], Iterator[Line]]) -> None:
        """`- name: DB_PASSWORD` and, on one of the next lines of the same side, `value: x`."""
        text = self.text
        begin = self._begin(start)
        line_start, stop = self.line(start)
        if not _HIDDEN_HEAD.search(text[max(line_start, begin - 60) : begin]):
            return
        tail = _HEAD.match(text, end, stop)
        if tail is None or text[tail.end(2) : stop].strip() not in (b"", b",", b"\\", b">"):
            return
        strength = names.strength(word, text[start:end], text[begin:start], tail.group(1))
        if not strength:
            return
        for line in following():
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
