"""Reads JSON as language models write it: in one pass, whatever is wrong with it.

Accepts what strict JSON refuses: comments, other or missing quotes, quotes inside strings,
line feeds in strings, Python's and JavaScript's words, missing commas and brackets, and an
end in the middle. Never fails and never looks far ahead, so hostile text costs time in
proportion to its length; public repair libraries take quadratic time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

MAX_DEPTH = 24
MAX_VALUES = 20_000  # of one text
MAX_STARTS = 200  # values of one text that are tried
_LOOK_AHEAD = 300

_SPACE = re.compile(r"(?:[\s,\ufeff\u200b]|//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?|#[^\n]*)*")
# The typographic marks are meant.
_CLOSING = {'"': '"”“', "'": "'\u2019\u2018", "`": "`", "“": '”"“', "”": '”"', "\u2018": "\u2019'", "«": "»"}
_STOPS = {quote: re.compile("[\\\\" + closing + "]") for quote, closing in _CLOSING.items()}
_TRIPLE = ('"""', "'''", "```")
_KEY = re.compile(r"\s*([\"'“`]?)([^\W\d][\w .-]{0,40})([\"'”`]?)\s*(?::|=>|=(?!=))")
# After a string's end: a comma, a bracket, a line end or a space, and the next field.
_NEXT_KEY = re.compile(
    r"(\s*,|\s*\n|\s*[\]}]|[ ](?=\s*[\"'“]))(?:[\s,\]}{]|//[^\n]*\n|#[^\n]*\n|/\*[^*]*\*/)*"
    r"[\"'“`]?([^\W\d][\w .-]{0,40})[\"'”`]?\s*:"
)
_NEXT_VALUE = re.compile(r"\s*,\s*(?:[\"'“{\[\d-]|true|false|null|None)")
_ENDS_OBJECT = re.compile(r"\s*,?\s*\}\s*(?:[,}\]`{]|\Z|$)", re.MULTILINE)
_ENDS_BLOCK = re.compile(r"\s*,?[ \t]*\n\s*\}|\s*\}[\s\]}`]*\Z")
_ENDS_LIST = re.compile(r"\s*,?\s*\]\s*(?:[,}\]`]|\Z|$)", re.MULTILINE)
_BARE = re.compile(r"[^,\]}\n{\[]*")
_WORDS = {
    "true": True,
    "false": False,
    **dict.fromkeys(("null", "none", "nil", "undefined", "nan", "inf", "infinity", ""), None),
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_START = re.compile(r"\{\s*(?:[\"'“`}/#\\]|[^\W\d][\w -]{0,40}\s*[:=])|\[\s*(?:[{\"'“\]/#]|\[)")
_STRICT = json.JSONDecoder(parse_constant=lambda name: None)


def values_in(text: str, is_key: Callable[[str], bool]) -> Iterator[tuple[object, int, int, bool]]:
    """Yield each object and list in a text as (value, start, end, is_cut), outermost only.

    `is_key` says whether a word is a field that the answer may have: it decides where a string
    with unescaped quotes ends.
    """
    at, budget = 0, [MAX_VALUES]
    for _ in range(MAX_STARTS):
        start = _START.search(text, at)
        if start is None:
            return
        begin = start.start()
        try:
            value, at = _STRICT.raw_decode(text, begin)
            yield value, begin, at, False
            continue
        except (ValueError, RecursionError):
            pass
        reader = _Reader(text, begin, is_key, budget)
        value = reader.value(0)
        at = max(reader.at, begin + 1)
        yield value, begin, at, reader.is_cut


class _Reader:
    """A recursive descent of bounded depth over one text. Every step moves forward."""

    def __init__(self, text: str, at: int, is_key: Callable[[str], bool], budget: list[int]) -> None:
        self.text = text
        self.at = at
        self.is_cut = False
        self._is_key = is_key
        self._budget = budget
        self._unclosed: set[str] = set()

    def value(self, depth: int, inside: str = "") -> object:
        self._budget[0] -= 1
        if self._budget[0] <= 0:
            self.at, self.is_cut = len(self.text), True
            return None
        character = self.text[self.at : self.at + 1]
        if character in ("{", "[") and depth < MAX_DEPTH:
            self.at += 1
            return self._object(depth + 1) if character == "{" else self._list(depth + 1)
        if character == "\\" and self.text[self.at + 1 : self.at + 2] in _CLOSING:
            self.at += 1
            character = self.text[self.at]
        if character in _CLOSING:
            return self._string(inside)
        return self._bare()

    def _object(self, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while not self._ended("}"):
            key = self._next_key()
            if key is None:
                begin = self.at
                self.value(depth, "{")  # text without a key says nothing
                self.at = max(self.at, begin + 1)
                continue
            self._skip()
            if self.text[self.at : self.at + 1] in ("}", "]", ""):
                found.setdefault(key, None)
                continue
            value = self.value(depth, "{")
            if found.get(key) is None:
                found[key] = value
        return found

    def _next_key(self) -> str | None:
        match = _KEY.match(self.text, self.at, self.at + _LOOK_AHEAD)
        if match is not None:
            self.at = match.end()
            return match[2].strip()
        if self.text[self.at] not in _CLOSING:
            return None
        # A key of any other form, such as a path.
        begin = self.at
        key = self._string(":")
        self._skip()
        if self.text[self.at : self.at + 1] == ":":
            self.at += 1
            return key
        self.at = max(self.at, begin + 1)
        return None

    def _list(self, depth: int) -> list[object]:
        found: list[object] = []
        while not self._ended("]"):
            begin = self.at
            found.append(self.value(depth, "["))
            self.at = max(self.at, begin + 1)
        return found

    def _ended(self, closing: str) -> bool:
        """Step over space, and over the container's bracket; return whether it ends here."""
        self._skip()
        if self.at >= len(self.text):
            self.is_cut = True
            return True
        character = self.text[self.at]
        if character == closing:
            self.at += 1
            return True
        # The bracket of an outer container: this one was never closed.
        return character in "]}"

    def _skip(self) -> None:
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at

    def _bare(self) -> object:
        match = _BARE.match(self.text, self.at)
        word = match.group() if match else ""
        self.at += max(len(word), 1)
        word = word.split("//")[0].strip().rstrip("\"'”")
        if word.casefold() in _WORDS:
            return _WORDS[word.casefold()]
        for number in (int, float):
            try:
                return number(word[:40])
            except ValueError:
                continue
        return word

    def _string(self, inside: str) -> str:
        """Read a string that starts here; it stands in `inside`: `{`, `[` or `:` (as a key)."""
        text = self.text
        opening = text[self.at]
        if (triple := text[self.at : self.at + 3]) in _TRIPLE and triple not in self._unclosed:
            if (end := text.find(triple, self.at + 3)) >= 0:
                body, self.at = text[self.at + 3 : end], end + 3
                return body.strip("\n")
            self._unclosed.add(triple)
        pieces: list[str] = []
        done = self.at = self.at + 1
        inner = 0
        stops = _STOPS[opening]
        while (stop := stops.search(text, self.at)) is not None:
            at = stop.start()
            if stop.group() == "\\":
                pieces.append(text[done:at])
                unescaped, self.at = self._escape(at)
                pieces.append(unescaped)
                done = self.at
                continue
            self.at = at + 1
            missing = self._opens_key(at)
            if missing or self._ends(at + 1, inside, inner):
                pieces.append(text[done:at])
                self.at = at if missing else at + 1
                body = "".join(pieces)
                return body.rstrip().removesuffix(",") if missing else body
            inner += 1
            self._budget[0] -= 1
            if self._budget[0] <= 0:
                break
        self.at, self.is_cut = len(text), True
        return "".join([*pieces, text[done:]])

    def _escape(self, at: int) -> tuple[str, int]:
        letter = self.text[at + 1 : at + 2]
        if letter == "u":
            digits = self.text[at + 2 : at + 6]
            if re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                point = int(digits, 16)
                return ("\ufffd" if 0xD800 <= point < 0xE000 else chr(point)), at + 6
        if letter in _ESCAPES:
            return _ESCAPES[letter], at + 2
        if letter in ('"', "'", "\\", "/", "`"):
            return letter, at + 2
        return "\\", at + 1  # no escape of JSON: the backslash belongs to the text

    def _opens_key(self, at: int) -> bool:
        """Return whether the quote at `at` begins the next field: the string's own end is missing."""
        before = self.text[max(0, at - 80) : at].rstrip(" \t")
        if not before.endswith((",", "\n", "\r")):
            return False
        key = _KEY.match(self.text, at, at + _LOOK_AHEAD)
        return key is not None and key[1] != "" and key[3] != "" and self._is_key(key[2])

    def _ends(self, after: int, inside: str, inner: int) -> bool:
        """Return whether a quote before `after` ends a string that holds `inner` quotes so far."""
        text, end = self.text, min(len(self.text), after + _LOOK_AHEAD)
        rest = text[after:end].lstrip()
        if not rest:
            return True
        if inside == ":":
            return rest[0] == ":"
        key = _NEXT_KEY.match(text, after, end)
        if key is not None and self._is_key(key[2]):
            return True
        if inside == "{":
            if _ENDS_BLOCK.match(text, after, end):
                return True
            by_form = key is not None or bool(_ENDS_OBJECT.match(text, after, end))
        else:
            by_form = bool(_ENDS_LIST.match(text, after, end) or _NEXT_VALUE.match(text, after, end))
        # Quotes inside come in pairs, apostrophes do not.
        return by_form and (inner % 2 == 0 or text[after - 1] in "'\u2019")
