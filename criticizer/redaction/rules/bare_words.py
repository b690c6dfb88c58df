"""Words of a line that may be values (G191).

They are between blanks, brackets or the letters of another script.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules.characters import DIGITS

LEAST: Final = 6  # bytes of a value
# A word between blanks, brackets or the letters of a script without blanks.
_BARE = compiled(rb"(?:^|[\s(\[{>,;]|[^\x00-\x7f]|[A-Za-z][:=]|/ |[\"'])[\"'`(]?[!-'*-+\--:=?-Z^_a-z~]+")
_IN_BARE: Final = frozenset(c for c in range(33, 127) if c not in b"(),;<>[\\]`{|}")
_NO_BLANK: Final = bytes(32 if c in b"\t\n\f\r" else c for c in range(256))
_NO_BARE: Final = bytes(c if c in _IN_BARE else 32 for c in range(256))
_LEAD: Final = 5  # bytes before a word that show that it begins
_MAY_OPEN_WORD: Final = b"\"'`("
_MAY_LEAD: Final = frozenset((*_IN_BARE, *_MAY_OPEN_WORD))  # at the beginning of a line
_LETTERS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def words(line: bytes, taken: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the words that may be values and are in none of the spans `taken`.

    `_BARE` matches the end of a run of its bytes. Where the byte before a run may belong to the run before,
    the text from blank to blank is read.
    """
    at = done = 0
    for run in line.translate(_NO_BARE).split(b" "):
        end = at + len(run)
        is_long = len(run) >= LEAST and end > done and not run.isalpha() and has_digit(run)
        if is_long and not any(first <= at and end <= last for first, last in taken):
            begin = at - _LEAD
            if b"`" in line[max(begin, 0) : at]:
                begin, end = _between_blanks(line, at)
            for first, last in _BARE.places(line, max(begin, done, 0), end):
                yield _word_in(line, first, last), last
            done = end
        at += len(run) + 1


def _word_in(line: bytes, start: int, end: int) -> int:
    """Return where the word begins in a match of `_BARE`; a group would be slower."""
    at = start
    if start or line[0] not in _MAY_LEAD:
        if line[start] >= 0x80:
            at = next(i for i in range(start + 1, end) if not 0x80 <= line[i] < 0xC0)
        else:
            at += 2 if line[start] in _LETTERS else 1
    return at + 1 if line[at] in _MAY_OPEN_WORD and at + 1 < end else at


def _between_blanks(line: bytes, at: int) -> tuple[int, int]:
    plain = line.translate(_NO_BLANK)
    end = plain.find(b" ", at)
    return plain.rfind(b" ", 0, at), end if end >= 0 else len(line)


def has_digit(piece: bytes) -> bool:
    """Return whether a piece has a digit or the dashes of a UUID, as each taken value has."""
    return len(piece.translate(None, DIGITS)) != len(piece) or piece.count(b"-") >= 4
