"""Secrets found by the name beside them: assignments, headers, flags, elements, clauses.

The prefilter finds a word such as `password`. From there RE2 reads the rest of the name and an
operator, in a bounded window of the same line; `named_values` reads the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from criticizer.redaction.input.document import character_start
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import key_names, separators
from criticizer.redaction.rules.characters import DIGITS, holds, kinds, transitions
from criticizer.redaction.rules.named_values import Literals

WINDOW: Final = 512  # bytes that are read from a word on; a longer value is read to its end
NAME: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_NAME_BYTES: Final = 60  # of a name that are read on either side of a word
_BASE64: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/_-"
_DRAWN: Final = frozenset(c for c in _BASE64 if c not in b"/_-")
_DRAWN_BYTES: Final = 24
_DRAWN_RATE: Final = 0.42
_OPENER_BYTES: Final = 80  # of the opening of a value on the lines below
_OPENERS: Final = b"({|>`\"'<#/\\\r!"

_LINE_FEED, _BLANK, _DASH = b"\n -"
_OF_BASE64: Final = (b"+", b"/")
_MAY_CLOSE: Final = b" \t\"'`\\)]}*?!&quot;#39"  # on a line that ends with a name
_PAIR = compiled(
    rb"[ \t]*,?[ \t]*(?:[\w:-]+=(?:\"[^\"\n]*\"|'[^'\n]*')[ \t]+){0,6}"  # other attributes of an element
    rb"[\"']?(?i:value|val|content|default)[\"']?[ \t]*[=:][ \t]*"
)
_FLAG = compiled(rb"(?:^|[\s\"'`=(\[,])--?[A-Za-z0-9_.-]*$")
_PACKAGE = compiled(rb"[\"'\s]@[\w.-]+/$")
_VERSION = compiled(rb"[\w./-]* v[0-9]")
_FIELDS: Final = (b"_field", b"_input", b"field", b"input")
_YAML_TAG = compiled(rb"(?:!!(?:binary|str)|!Sub|!unsafe)[ \t]+")
_GROUP: Final = (b"?<", b"P<")
_CLAUSES: Final = (b"with ", b"encrypted ")  # of SQL
_DEFINES = compiled(rb"(?i)(?:define|putenv|setenv|getenv|[^\w]env)\([ \t]*[\"']$")
_TAG = compiled(rb"<(?:[\w-]+:)?$")
_SETTERS: Final = (b"ENV ", b"ARG ", b"set ", b"env ", b"ort ", b"etx ", b" -x ", b"-gx ", b"-Ux ")
# variable "token" {, <key>token</key>: the value is below.
OPENS_BLOCK: Final = (b"{", b"</key>", b"</name>")
_SAID_BYTES: Final = 160
# Verbs between a name in another language and its value, with a few words before: lautet, est, 是, a colon.
_SAID = compiled(
    rb"(?i)[^\n.!?:=\"'`]{0,48}?(?:[ \t](?:lautet|ist|heisst|hei\x{df}t|est|es|\x{e9}|\x{e8}|\x{e4}r|er"
    rb"|jest|je|to|is|wordt)(?:[ \t]*:)?[ \t]"
    rb"|[ \t]*(?:\x{662f}|\x{4e3a}|\x{70ba}|\x{306f}|\x{ff1a}|\x{b294}|\x{c740}|:[ \t]))[ \t]*"
)
_SET_TO = compiled(rb"(?: (?:for|of|on|from) [\w. @-]{1,30}?)? to[ \t:]+")
_TO_BYTES: Final = 40  # in which a match of this expression has " to"
_CHANGES = compiled(rb"(?i)(?:chang|reset|rotat|updat|switch|renew|\bset)")
_FALLBACKS: Final = (b"||", b"??", b"->", b"::", b"or ", b"or\t")


class Assignments:
    """Reader of the surroundings of words in one text; `values` collects the spans.

    `spend` is called with the bytes read, divided by 8, and may stop the scan.
    """

    __slots__ = (
        "_is_masked", "begin", "ends_line", "is_settled", "opens", "strength", "tail_end", "text", "values"
    )  # fmt: skip

    def __init__(self, text: bytes, spend: Callable[[int], None]) -> None:
        self.text = text
        self.values = Literals(text, spend)
        # Facts about the word that was read last: where its name begins and ends; whether it ends its line,
        # or opens a value that is below.
        self.begin = self.tail_end = 0
        self.ends_line = self.opens = False
        self.is_settled = False  # its value is a placeholder of ours
        self._is_masked = separators.PLACEHOLDER in text

    def is_inside_base64(self, start: int, end: int) -> bool:
        """Return whether a word is part of base64, and so not a name: `AAAAC3Nzpw1lZDI1`."""
        text = self.text
        if not 0 < start < end < len(text) or text[start - 1] not in _DRAWN or text[end] not in _DRAWN:
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
        self.ends_line = self.opens = self.is_settled = self.values.goes_on = False
        text = self.text
        before = text[max(start - _NAME_BYTES, 0) : start]
        head = before[len(before.rstrip(NAME)) :]
        tail = text[end : end + _NAME_BYTES]
        tail = tail[: len(tail) - len(tail.lstrip(NAME))].rstrip(b".-")
        self.begin, self.tail_end = start - len(head), end + len(tail)
        found = text[start:end]
        strength = key_names.strength(word, found, head, tail)
        self.strength = self._alone(end, word, (head, found, tail), strength)
        if self._has_value(end, strength) and self._look(end, word, strength):
            return self.values.spans[-1][1]
        if strength >= key_names.PASSWORD and not self.is_settled:
            self._read_sentence(word)  # the rest of the line is read too: it may name another password
        return end  # the next word may be part of the same name: keyPassword, _authToken

    def _read_sentence(self, word: bytes) -> None:
        """Take a password stated in prose: das Passwort lautet x, changed the password to x."""
        text, at, is_inflected = self.text, self.tail_end, word in key_names.INFLECTED
        if not is_inflected and text.find(b" to", at, at + _TO_BYTES) < 0:
            return
        stop = text.find(b"\n", at, at + _SAID_BYTES)
        stop = stop if stop >= 0 else character_start(text, min(at + _SAID_BYTES, len(text)))
        if not holds(text[at:stop], DIGITS):
            return
        if is_inflected:
            match = _SAID.match(text, at, stop)
        else:
            match = _SET_TO.match(text, at, stop)
            low = max(self.begin - _SAID_BYTES, 0)
            low = max(text.rfind(b"\n", low, self.begin), low)
            if match is not None and _CHANGES.search(text, low, self.begin) is None:
                return
        if match is not None:
            self.values.stated(match.end(), stop)

    def _alone(self, end: int, word: bytes, name: tuple[bytes, bytes, bytes], strength: int) -> int:
        """Return the strength of the name around a word, whatever is beside the name."""
        text, begin, tail_end = self.text, self.begin, self.tail_end
        head, found, tail = name
        if word in key_names.INFLECTED:
            return key_names.PASSWORD
        if tail and continues_as_longer_word(text, end):
            return 0
        if text[begin - 1 : begin] in _OF_BASE64 and (len(word) <= 4 or _VERSION.match(text, tail_end)):
            return 0  # base64, a module of go.sum
        if not tail:
            return strength
        is_called = text[tail_end : tail_end + 1] == b"("
        shorter = tail[1:] if tail[:1] in (b"s", b"S") else tail
        if is_called and b"." in shorter:
            shorter = shorter[: shorter.rfind(b".")]  # password.compareTo(
        if is_called and key_names.WORDS[word][0] == key_names.PASSWORD:
            shorter = b""  # PasswordEncoder.encode("x"): the value alone is judged
        if shorter is not tail:
            strength = key_names.strength(word, found, head, shorter)
        if strength:
            return strength
        is_field = shorter.lower() in _FIELDS
        own = key_names.strength(word, found, head, b"") if is_field else 0
        return key_names.PASSWORD if own >= key_names.PASSWORD else 0

    def _has_value(self, end: int, strength: int) -> bool:
        """Return whether a name may have a value, by the next characters; most have none."""
        text, at = self.text, self.tail_end
        if at >= len(text):
            return end < at
        follows = text[at]
        if follows == _LINE_FEED:
            self.ends_line = True
            self.opens = text[at + 1 : at + _OPENER_BYTES].lstrip()[:1] in (b"=", b":")
            return False
        if follows in separators.NONE or (not strength and follows not in _MAY_CLOSE):
            return False
        if self._is_masked and separators.was_taken(text, at):
            self.is_settled = True
            return False
        # Not in prose: a word follows, and nothing shows that it is the value of a flag or an option.
        return not (
            follows == _BLANK
            and text[at + 1 : at + 2] in separators.SPEAKS
            and not holds(text[at + 1 : at + 17], DIGITS)
            and text[self.begin] != _DASH
            and text[self.begin - 1 : self.begin] != b"-"
            and text[max(self.begin - 4, 0) : self.begin] not in _SETTERS
        )

    def _look(self, end: int, word: bytes, strength: int) -> bool:
        """Read the text beside a name; return whether a value was taken."""
        text, begin, tail_end = self.text, self.begin, self.tail_end
        if end >= len(text):
            return False
        stop = text.find(b"\n", end, end + WINDOW)
        if stop < 0:
            stop = character_start(text, min(end + WINDOW, len(text)))
        if not strength and text[tail_end:stop].translate(None, _MAY_CLOSE):
            return False
        sign = separators.read(text, begin, tail_end, stop, strength)
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
        # acme_key = and Key= may name a secret; key: names many other things.
        is_prefixed = begin + len(word) < end
        self.values.is_own_key = word == b"key" and tail_end == end and (is_prefixed or op == b"=")
        if op:
            found = self._with_operator(op, begin, close_end, at, stop, strength, close=close)
        else:
            found = self._without_operator(begin, close_end, at, stop, strength, close=close)
        # A value on the next line needs a stronger name: a weak name counts only with a prefix (acme_key),
        # and a sentence that ends in "):" does not count.
        firm = strength >= key_names.SECRET or is_prefixed
        sentence = op == b":" and text[close_end - 1] in b")]}"
        self.opens = firm and not found and not sentence and op != b"," and self._opens_value(at, stop)
        return found

    def _opens_value(self, at: int, stop: int) -> bool:
        """Return whether only the opening of a value follows a name; a quick check."""
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

    def _may_go_on(self, begin: int, tail_end: int, close_end: int, at: int, stop: int) -> bool:
        """Return whether a name without operator may have a value: a flag, clause or attribute."""
        text = self.text
        closed = close_end > tail_end
        if at >= stop or text[at] == 13 or (closed and text[at] in b",\r"):
            self.ends_line = True
        if at >= stop:
            self.opens = text[stop + 1 : stop + _OPENER_BYTES].lstrip()[:1] in (b"=", b":")
            return False
        if text[at] in b"{<" and text[at:stop].rstrip() in OPENS_BLOCK:
            self.ends_line = True
            return False
        if closed:
            return 97 <= text[at] | 32 <= 122
        return at > tail_end and (
            text[at] in b"\"'`\\&@"
            or holds(text[at : at + 16], DIGITS)
            or text[begin] == 45
            or text[begin - 1 : begin] == b"-"
            or text[max(begin - 4, 0) : begin] in _SETTERS
        )

    def _after_comma(self, begin: int, at: int, stop: int, strength: int, *, close: bool) -> bool:
        """Take the value after a comma: `put("password", "x")`, `CURLOPT_PASSWORD, "x"`.

        Also `"name": "DB_PASSWORD", "value": "x"`.
        """
        text = self.text
        if close:
            pair = _PAIR.match(text, at, stop)
            if pair is not None:
                return self.values.quoted(pair.end(), stop, max(strength, key_names.SECRET))
        elif not text[begin:at].partition(b",")[0].rpartition(b".")[2].isupper():
            listed = strength >= key_names.PASSWORD and text[begin - 1 : begin] in (b",", b";")
            return listed and self.values.spoken(at, stop)  # bob,password,x
        is_defined = _DEFINES.search(text[max(begin - 24, 0) : begin]) is not None
        careful = strength < key_names.PASSWORD
        return self.values.quoted(at, stop, strength, careful=careful, word=not is_defined)

    def _right_hand_side(self, begin: int, at: int, stop: int, strength: int, *, spoken: bool) -> bool:
        """Take the value after = or `:`: a literal, a call with one, bytes, or a bare word."""
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
            return self.values.quoted(at, stop, strong) or self.values.argument(begin, at, stop, strong)
        if text[max(begin - 4, 0) : begin] in _SETTERS:  # ENV PASSWORD x
            return self.values.quoted(at, stop, strength) or self.values.bare(begin, at, stop, strength)
        if strength >= key_names.PASSWORD:  # WITH PASSWORD 'x', #define PASSWORD "x", password x
            is_clause = text[max(begin - 10, 0) : begin].lower().endswith(_CLAUSES)
            return self.values.quoted(at, stop, strength, word=not is_clause) or self.values.spoken(at, stop)
        defined = text[max(begin - 10, 0) : begin].rstrip().endswith(b"define")
        if defined and self.values.quoted(at, stop, strength):
            return True
        careful = strength < key_names.SECRET  # acme_key x: a generated value, and no hash
        return (not careful or self.values.is_own_key) and self.values.beside(at, stop, careful=careful)


def continues_as_longer_word(text: bytes, end: int) -> bool:
    """Return whether a word is part of a longer one, not its plural: keyboard, passing."""
    after = text[end] if end < len(text) else 0
    return 97 <= after <= 122 and after != 115 and 97 <= text[end - 1] <= 122
