"""Secrets that show by the name beside them: assignments, headers, flags, elements, clauses.

A word such as `password` is found by the prefilter. From there the rest of the name and an
operator are read by RE2 inside a bounded window of the same line; `literals` reads the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from criticizer.redaction.input.document import Document, character_start
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import key_names
from criticizer.redaction.rules.literals import Literals
from criticizer.redaction.rules.value_heuristics import holds, kinds, transitions

WINDOW: Final = 512  # bytes that are read from a word on; a longer value is followed to its end
_NAME: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_NAME_BYTES: Final = 60  # of a name that are read on either side of a word
_BASE64: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/_-"
_DRAWN: Final = frozenset(bytes([c]) for c in _BASE64 if c not in b"/_-")
_DRAWN_BYTES: Final = 24
_DRAWN_RATE: Final = 0.42
_PAIR_LINES: Final = 5  # of a block in which the value of a name stands
_OPENER_BYTES: Final = 80  # of what opens a value that stands on the lines below
_OPENERS: Final = b"({|>`\"'<#/\\\r!"

_QUOTE = rb"(?:\\*[\"'`]|&quot;|&#39;)"
_HEAD = compiled(
    rb"((?:" + _QUOTE + rb"|[)\]}*?!]){0,3})"  # what closes it
    rb"([ \t]{0,20})"
    rb"(:=|:-|=>|->|<-|={1,3}|[!?+.~]={1,2}|::=|::|:|\|\||\||\?\?|,|\("
    rb"|or[ \t]|is[ \t:]|was[ \t:]|-[ \t]|>|)"
    rb"[ \t]{0,20}"
)
_PLAIN_BYTES: Final = 20  # fewer than blanks may stand around a sign
_PLAIN_QUOTES: Final = (b'"', b"'")
_LONGER_SIGN: Final = (b"=", b">", b":", b"-")
_SPEAKS: Final = frozenset(bytes([c]) for c in range(97, 123) if c not in b"oiw")  # no or, is, was
# What no sign of an assignment, no quote and no bracket begins with, and what must follow the others.
_ENDS_NAME: Final = frozenset(bytes([c]) for c in range(128) if c not in b" \t\r{<\\\"'`&)]}*?!:=-+.~|,(oiw>")
_SIGNS: Final = {b".": (b"=",), b"-": (b">", b" ", b"\t")}
_MAY_CLOSE: Final = b" \t\"'`\\)]}*?!&quot;#39"  # on a line that ends with a name
_PAIR = compiled(
    rb"[ \t]*,?[ \t]*(?:[\w:-]+=(?:\"[^\"\n]*\"|'[^'\n]*')[ \t]+){0,6}"  # other attributes of an element
    rb"[\"']?(?:value|val|content|default)[\"']?[ \t]*[=:][ \t]*"
)
_NEXT_VALUE = compiled(
    rb"(?i)[ \t]*-?[ \t]*[\"'<]?(?:(?:default|initial|plain)?[ _-]?value|val|content|default|string)[\"']?"
    rb"[ \t]*[=:>][ \t]*"
)
_FLAG = compiled(rb"(?:^|[\s\"'`=(\[,])--?[A-Za-z0-9_.-]*$")
_PACKAGE = compiled(rb"[\"'\s]@[\w.-]+/$")
_VERSION = compiled(rb"[\w./-]* v[0-9]")
_FIELDS: Final = (b"_field", b"_input", b"field", b"input")
_YAML_TAG = compiled(rb"(?:!!(?:binary|str)|!Sub|!unsafe)[ \t]+")
_GROUP: Final = (b"?<", b"P<")
_TAG = compiled(rb"<(?:[\w-]+:)?$")
_SETTERS: Final = (b"ENV ", b"ARG ", b"set ", b"env ", b"ort ", b"etx ", b" -x ", b"-gx ", b"-Ux ")
# variable "token" {, <key>token</key>: the value stands below.
_OPENS_BLOCK: Final = (b"{", b"</key>", b"</name>")
_WIDE_COLON: Final = "\uff1a".encode()
_FALLBACKS: Final = (b"||", b"??", b"->", b"::", b"or ", b"or\t")
_VALUE_BEFORE = compiled(rb"(?i)[\s{<,\"'-](?:value|val)[\"']?[ \t]*[=:][ \t]*")
_HIDDEN_HEAD = compiled(
    rb"(?i)(?:(?:name|key|id|type|property|param|parameter)[\"']?[ \t]*[=:>][ \t]*[\"']?"
    rb"|variable[ \t]+\")[\w.-]*$"
)


class Assignments:
    """Reads the surroundings of words in one text; `values` collects the spans.

    `spend` gets how many bytes were read (in eighths) and may stop the work.
    """

    __slots__ = ("begin", "ends_line", "opens", "strength", "tail_end", "text", "values")

    def __init__(self, text: bytes, spend: Callable[[int], None]) -> None:
        self.text = text
        self.values = Literals(text, spend)
        # Of the word looked at last: where its name begins and ends; it ends its line, or opens a value
        # that stands below.
        self.begin = self.tail_end = 0
        self.ends_line = self.opens = False

    def goes_on(self, end: int) -> bool:
        """Return whether a word that ends at `end` is a part of another: path, keyboard, passing."""
        return _goes_on(self.text, end)

    def is_drawn(self, start: int, end: int) -> bool:
        """Return whether a word stands inside base64, which names nothing: AAAAC3Nzpw1lZDI1."""
        text = self.text
        if text[start - 1 : start] not in _DRAWN or text[end : end + 1] not in _DRAWN or not start:
            return False
        before, after = text[max(start - _NAME_BYTES, 0) : start], text[end : end + _NAME_BYTES]
        run = (
            before[len(before.rstrip(_BASE64)) :]
            + text[start:end]
            + after[: -len(after.lstrip(_BASE64)) or None]
        )
        return len(run) >= _DRAWN_BYTES and all(kinds(run)) and transitions(run) >= _DRAWN_RATE

    def word(self, start: int, end: int, word: bytes) -> int:
        """Read around one word; return how far the text has been read."""
        self.ends_line = self.opens = self.values.goes_on = False
        text = self.text
        self.begin = begin = self._begin(start)
        self.tail_end = tail_end = self._name_end(end, min(end + WINDOW, len(text)))
        name = (text[begin:start], text[start:end], text[end:tail_end])
        strength = key_names.strength(word, name[1], name[0], name[2])
        self.strength = self._alone(end, word, name, strength)
        if self._look(end, word, strength):
            return self.values.spans[-1][1]
        return end  # the next word may sit in the same name: keyPassword, _authToken

    def _alone(self, end: int, word: bytes, name: tuple[bytes, bytes, bytes], strength: int) -> int:
        """Return the strength of the name around a word, whatever stands beside the name."""
        text, begin, tail_end = self.text, self.begin, self.tail_end
        if word in key_names.INFLECTED:
            return key_names.PASSWORD
        if _goes_on(text, end):
            return 0
        if text[begin - 1 : begin] in (b"+", b"/") and (len(word) <= 4 or _VERSION.match(text, tail_end)):
            return 0  # base64, a module of go.sum
        head, found, tail = name
        if not tail:
            return strength
        tail = tail[1:] if tail[:1] in (b"s", b"S") else tail
        if b"." in tail and text[tail_end : tail_end + 1] == b"(":
            tail = tail[: tail.rfind(b".")]  # password.compareTo(
        if text[tail_end : tail_end + 1] == b"(" and key_names.WORDS[word][0] == key_names.PASSWORD:
            tail = b""  # PasswordEncoder.encode("x"): a value is judged by itself
        return key_names.strength(word, found, head, tail) or (
            key_names.PASSWORD
            if tail.lower() in _FIELDS and key_names.strength(word, found, head, b"") >= key_names.PASSWORD
            else 0
        )

    def _look(self, end: int, word: bytes, strength: int) -> bool:
        """Read what stands beside a name; return whether a value was taken."""
        text, begin, tail_end = self.text, self.begin, self.tail_end
        if end >= len(text):
            return False
        stop = text.find(b"\n", end, end + WINDOW)
        if stop < 0:
            stop = character_start(text, min(end + WINDOW, len(text)))
        if not strength and text[tail_end:stop].translate(None, _MAY_CLOSE):
            return False
        sign = self._sign(stop, strength)
        if sign is None:
            return False
        close_end, at, op = sign
        if op == b">" and (text[begin - 2 : begin] in _GROUP or text[at : at + 1] in b"@:/"):
            return False  # (?<password>…) of a regular expression, <user>:<password>@host
        if (
            text[begin - 1 : begin] == b"/"
            and op == b":"
            and _PACKAGE.search(text[max(begin - 60, 0) : begin])
        ):
            return False  # "@scope/rule-1password": "workspace:*"
        if not op and not self._may_go_on(begin, tail_end, close_end, at, stop):
            return False
        if not strength:
            return False
        close = close_end > tail_end
        # acme_key = and Key= may name a secret; key: names too many other things.
        is_prefixed = begin + len(word) < end
        self.values.is_own_key = word == b"key" and tail_end == end and (is_prefixed or op == b"=")
        if op:
            found = self._with_operator(op, begin, close_end, at, stop, strength, close=close)
        else:
            found = self._without_operator(begin, close_end, at, stop, strength, close=close)
        # A value below is doubted more: of the weak names only acme_key, and no sentence (with this):
        firm = strength >= key_names.SECRET or is_prefixed
        sentence = op == b":" and text[close_end - 1] in b")]}"
        self.opens = firm and not found and not sentence and op != b"," and self._opens_value(at, stop)
        return found

    def _sign(self, stop: int, strength: int) -> tuple[int, int, bytes] | None:
        """Return where what closes a name ends, where its value begins, and the sign between them."""
        text, at = self.text, self.tail_end
        follows, second = text[at : at + 1], text[at + 1 : at + 2]
        if follows >= b"\x80" and text[at : at + 3] != _WIDE_COLON:
            return None  # part of another word, in a language without blanks
        # What _HEAD says of most names, and costs more.
        if at >= stop:
            return at, at, b""
        if follows == b" " and second in _SPEAKS:
            return at, at + 1, b""
        if follows in _ENDS_NAME or second not in _SIGNS.get(follows, second):
            return None
        if follows == b"," and not self._is_column(strength):
            return None
        plain = self._plain_sign(at, stop)
        if plain is not None:
            return plain
        head = _HEAD.match(text, at, stop)
        return None if head is None else (head.end(1), head.end(), text[slice(*head.span(3))])

    def _plain_sign(self, at: int, stop: int) -> tuple[int, int, bytes] | None:
        """Return what `_HEAD` says of = or : behind a name, with no more than a quote and blanks around."""
        piece = self.text[at : min(stop, at + _PLAIN_BYTES)]
        close = 1 if piece[:1] in _PLAIN_QUOTES and piece[1:2] in (b":", b"=", b" ") else 0
        rest = piece[close:].lstrip(b" \t")
        value = rest[1:].lstrip(b" \t")
        if rest[:1] not in (b":", b"=") or rest[1:2] in _LONGER_SIGN or not value:
            return None
        return at + close, at + len(piece) - len(value), rest[:1]

    def _is_column(self, strength: int) -> bool:
        """Return whether a name before a comma may have its value behind it: NAME, "x" or bob,password,x."""
        text, begin = self.text, self.begin
        return text[begin : self.tail_end].rpartition(b".")[2].isupper() or (
            strength >= key_names.PASSWORD and text[begin - 1 : begin] in (b",", b";")
        )

    def _opens_value(self, at: int, stop: int) -> bool:
        """Return whether only the opening of a value follows a name: a quick check."""
        rest = self.text[at:stop] if stop - at <= _OPENER_BYTES else b"?"
        return not rest or rest[0] in _OPENERS or rest.rstrip()[-1:] in (b"(", b"\\")

    def _with_operator(
        self, op: bytes, begin: int, close_end: int, at: int, stop: int, strength: int, *, close: bool
    ) -> bool:
        text = self.text
        if op == b">":
            tag = text[max(begin - 60, 0) : begin]
            opened = tag.rfind(b"<") > tag.rfind(b">") if close else _TAG.search(tag) is not None
            return opened and self.values.element(at, stop, strength)
        if op == b"(":  # set_password("x"), but not token("bert")
            return self.values.quoted(at, stop, strength, careful=strength < key_names.PASSWORD)
        if op == b",":
            return self._after_comma(begin, at, stop, strength, close=close)
        if op == b"::" and text[at - 1] in b" \t" and strength >= key_names.PASSWORD:
            return self.values.bare(begin, at, stop, strength)  # userPassword:: base64
        if op in _FALLBACKS:
            return self.values.quoted(at, stop, strength)
        if op == b"|":
            return strength >= key_names.SECRET and self.values.cell(at, stop, strength)
        if op in (b"- ", b"-\t"):  # Password - x
            return (
                strength >= key_names.PASSWORD and text[close_end] in b" \t" and self.values.spoken(at, stop)
            )
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
            self.opens = text[stop + 1 : stop + _OPENER_BYTES].lstrip()[:1] in (b"=", b":")
            return False
        if text[at] in b"{<" and text[at:stop].rstrip() in _OPENS_BLOCK:
            self.ends_line = True
            return False
        if closed:
            return 97 <= text[at] | 32 <= 122
        return at > tail_end and (
            text[at] in b"\"'`\\&@"
            or holds(text[at : at + 16], b"0123456789")
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
                return self.values.quoted(pair.end(), stop, max(strength, key_names.SECRET))
        elif not text[begin:at].partition(b",")[0].rpartition(b".")[2].isupper():
            listed = strength >= key_names.PASSWORD and text[begin - 1 : begin] in (b",", b";")
            return listed and self.values.spoken(at, stop)  # bob,password,x
        return self.values.quoted(at, stop, strength, careful=strength < key_names.PASSWORD, word=True)

    def _right_hand_side(self, begin: int, at: int, stop: int, strength: int, *, spoken: bool) -> bool:
        """Take the value after = or :, a literal, a call with one, bytes, or a bare word."""
        text = self.text
        if text[at : at + 1] == b"!" and (tag := _YAML_TAG.match(text, at, stop)) is not None:
            at = tag.end()
        if text[at : at + 1] == b"(" and strength >= key_names.SECRET:  # password = ("x")
            at += 1
            at += len(text[at:stop]) - len(text[at:stop].lstrip(b" \t"))
        near = text[at : min(stop, at + 200)]
        if b'"' in near or b"'" in near or b"`" in near or b"&" in near:
            if self.values.quoted(at, stop, strength):
                return True
            if not spoken and self.values.inner(at, stop, strength):
                return True
        near = near[:30]
        opened = b"{" in near or b"[" in near or b"(" in near
        if opened and not spoken and strength >= key_names.SECRET and self.values.key_bytes(at, stop):
            return True
        return self.values.bare(begin, at, stop, strength, spoken=spoken)

    def _without_operator(
        self, begin: int, close_end: int, at: int, stop: int, strength: int, *, close: bool
    ) -> bool:
        text = self.text
        strong = max(strength, key_names.SECRET)
        if close:  # key="password" value="x"
            match = _PAIR.match(text, close_end, stop)
            return match is not None and self.values.quoted(match.end(), stop, strong)
        if at == close_end:
            return False
        if _FLAG.search(text[max(begin - 24, 0) : begin]) or text[begin] == 45:  # --password x
            return self.values.quoted(at, stop, strong) or self.values.bare(begin, at, stop, strong)
        if text[max(begin - 4, 0) : begin] in _SETTERS:  # ENV PASSWORD x
            return self.values.quoted(at, stop, strength) or self.values.bare(begin, at, stop, strength)
        if strength >= key_names.PASSWORD:  # WITH PASSWORD 'x', #define PASSWORD "x", password x
            return self.values.quoted(at, stop, strength, word=True) or self.values.spoken(at, stop)
        defined = text[max(begin - 10, 0) : begin].rstrip().endswith(b"define")
        return (defined and self.values.quoted(at, stop, strength)) or (
            strength >= key_names.SECRET and self.values.beside(at, stop)
        )

    def pair_below(self, start: int, end: int, word: bytes, document: Document) -> None:
        """`- name: DB_PASSWORD` and, on one of the next lines of the same side, `value: x`."""
        text, begin, tail_end = self.text, self.begin, self.tail_end
        head = text[max(begin - 60, 0) : begin].rpartition(b"\n")[2]
        is_pair = _may_be_pair(head) and _HIDDEN_HEAD.search(head) is not None
        if is_pair:
            self._value_before(end, word)
        stop = text.find(b"\n", end, end + WINDOW)
        if stop < 0:
            return
        if not is_pair and not text[tail_end:stop].rstrip().endswith((b":", b"{")):
            return
        tail = _HEAD.match(text, tail_end, stop)
        rest = text[tail.end(1) : stop].strip() if tail is not None else b"?"
        if rest not in ((b"", b",", b"\\", b">", *_OPENS_BLOCK) if is_pair else (b":", b": {")):
            return
        strength = key_names.strength(word, text[start:end], text[begin:start], text[end:tail_end])
        if not strength or (not is_pair and strength < key_names.SECRET):
            return
        most = (
            _PAIR_LINES if rest.endswith((b"{", b":")) or rest == b"," else 2
        )  # further down stands the value of another name
        for here in document.sides(start):
            for line in document.following(here, most):
                match = _NEXT_VALUE.match(text, line.start, min(line.end, line.start + WINDOW))
                if match is not None:
                    self._value_of_pair(line.start, match.end(), line.end, max(strength, key_names.SECRET))
                    break

    def _value_before(self, end: int, word: bytes) -> None:
        """`value: x` and then `name: DB_PASSWORD`, on the same line or the one above."""
        text, begin, tail_end = self.text, self.begin, self.tail_end
        if (
            key_names.strength(
                word, text[end - len(word) : end], text[begin : end - len(word)], text[end:tail_end]
            )
            == 0
        ):
            return
        low = text.rfind(b"\n", max(begin - WINDOW, 0), begin) + 1
        above = text.rfind(b"\n", max(low - WINDOW, 0), max(low - 1, 0)) + 1
        for first, last in ((low, begin), (above, max(low - 1, above))):
            match = _VALUE_BEFORE.search(text, first, last)
            if match is not None:
                self._value_of_pair(
                    first, match.end(), last, key_names.SECRET if word == b"key" else key_names.PASSWORD
                )
                return

    def _value_of_pair(self, begin: int, at: int, stop: int, strength: int) -> None:
        stop = min(stop, at + WINDOW)
        if not self.values.quoted(at, stop, strength):
            self.values.bare(begin, at, stop, strength)


def _goes_on(text: bytes, end: int) -> bool:
    """Return whether another small letter than the plural's follows a word that ends in one."""
    after = text[end] if end < len(text) else 0
    return 97 <= after <= 122 and after != 115 and 97 <= text[end - 1] <= 122


def _may_be_pair(head: bytes) -> bool:
    """Return whether `_HIDDEN_HEAD` may match: a quick check of what stands before the name."""
    before = head.rstrip(_NAME).rstrip(b" \t\"'")
    return before.endswith((b"=", b":", b">")) or before[-8:].lower() == b"variable"
