"""Values whose name is a value too: `name: DB_PASSWORD`, with `value: x` on a line near it."""

from __future__ import annotations

from typing import Final

from criticizer.redaction.input.document import Document
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import key_names, separators
from criticizer.redaction.rules.assignments import NAME, OPENS_BLOCK, WINDOW, Assignments
from criticizer.redaction.rules.named_values import Literals

_PAIR_LINES: Final = 5  # of a block, in which the value of a name is
_NEXT_VALUE = compiled(
    rb"(?i)[ \t]*-?[ \t]*[\"'<]?(?:(?:default|initial|plain)?[ _-]?value|val|content|default|string)[\"']?"
    rb"[ \t]*[=:>][ \t]*"
)
_VALUE_BEFORE = compiled(rb"(?i)[\s{<,\"'-](?:value|val)[\"']?[ \t]*[=:][ \t]*")
_HIDDEN_HEAD = compiled(
    rb"(?i)(?:(?:name|key|id|type|property|param|parameter)[\"']?[ \t]*[=:>][ \t]*[\"']?"
    rb"|variable[ \t]+\")[\w.-]*$"
)
_HEADERS: Final = (b"Content-", b"content-")  # of a part of a form
# Characters before the name of a pair, for a quick check before `_may_be_pair`.
_BEFORE_PAIR: Final = frozenset(bytes([c]) for c in NAME + b" \t\"'=:>")


def read(assignments: Assignments, start: int, end: int, word: bytes, document: Document) -> None:
    """Take the value of the pair whose name holds the word just read, from `start` to `end`."""
    text, begin, tail_end = assignments.text, assignments.begin, assignments.tail_end
    head = text[max(begin - 60, 0) : begin].rpartition(b"\n")[2] if begin else b""
    is_pair = head[-1:] in _BEFORE_PAIR and _may_be_pair(head) and _HIDDEN_HEAD.search(head) is not None
    if is_pair:
        _value_before(assignments, end, word)
    stop = text.find(b"\n", end, end + WINDOW)
    if stop < 0:
        return
    if not is_pair and not text[tail_end:stop].rstrip().endswith((b":", b"{")):
        return
    tail = separators.HEAD.match(text, tail_end, stop)
    rest = text[tail.end(1) : stop].strip() if tail is not None else b"?"
    if rest not in ((b"", b",", b"\\", b">", *OPENS_BLOCK) if is_pair else (b":", b": {")):
        return
    strength = key_names.strength(word, text[start:end], text[begin:start], text[end:tail_end])
    if not strength or (not is_pair and strength < key_names.SECRET):
        return
    if b"form-data" in head:
        _take_part(assignments.values, start, strength, document)
        return
    # Further down is the value of another name.
    most = _PAIR_LINES if rest.endswith((b"{", b":")) or rest == b"," else 2
    for here in document.sides(start):
        for line in document.following(here, most):
            match = _NEXT_VALUE.match(text, line.start, min(line.end, line.start + WINDOW))
            if match is not None:
                strong = max(strength, key_names.SECRET)
                taken = _take(assignments.values, line.start, match.end(), line.end, strong)
                if not taken and text[begin:tail_end].isupper():  # a variable's value is a literal
                    assignments.values.whole(match.end(), line.end, strong)
                break


def _take_part(values: Literals, start: int, strength: int, document: Document) -> None:
    """Take the part of a form below its `Content-Disposition: form-data; name="password"`."""
    for here in document.sides(start):
        for line in document.following(here, _PAIR_LINES):
            body = document.text[line.start : min(line.end, line.start + WINDOW)].strip()
            if body and not body.startswith(_HEADERS):
                _take(values, line.start, line.start, line.end, strength)
                break


def _value_before(assignments: Assignments, end: int, word: bytes) -> None:
    """Take the value of `value: x` before `name: DB_PASSWORD`, on its line or the one above."""
    text, begin, start = assignments.text, assignments.begin, end - len(word)
    if not key_names.strength(word, text[start:end], text[begin:start], text[end : assignments.tail_end]):
        return
    low = text.rfind(b"\n", max(begin - WINDOW, 0), begin) + 1
    above = text.rfind(b"\n", max(low - WINDOW, 0), max(low - 1, 0)) + 1
    for first, last in ((low, begin), (above, max(low - 1, above))):
        match = _VALUE_BEFORE.search(text, first, last)
        if match is not None:
            strength = key_names.SECRET if word == b"key" else key_names.PASSWORD
            _take(assignments.values, first, match.end(), last, strength)
            return


def _take(values: Literals, begin: int, at: int, stop: int, strength: int) -> bool:
    stop = min(stop, at + WINDOW)
    return values.quoted(at, stop, strength) or values.bare(begin, at, stop, strength)


def _may_be_pair(head: bytes) -> bool:
    """Return whether `_HIDDEN_HEAD` may match; a quick check of the text before the name."""
    before = head.rstrip(NAME).rstrip(b" \t\"'")
    return before.endswith((b"=", b":", b">")) or before[-8:].lower() == b"variable"
