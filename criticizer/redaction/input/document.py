"""Text as the rules see it: diff prefixes masked, sides apart.

Everything works on UTF-8 bytes. `Document.text` has the length of the raw bytes, so both have the
same offsets.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from criticizer.redaction.patterns import compiled
from criticizer.redaction.redacted_text import RedactionBlocked

MAX_BYTES = 8 << 20  # of one part; the caller cuts longer input into parts
OLD, NEW, BOTH, HEADER = 1, 2, 3, 0

_HUNK = compiled(rb"@{2,8}(?: -[0-9]+(?:,[0-9]+)?){1,7} \+[0-9]+(?:,[0-9]+)? @{2,8}[^\n]*")
_BODY_END = compiled(rb"\n[^ +\-\\\r\n]")
_FILE_HEADER = compiled(rb"\n--- [^\n]*\n\+\+\+ [^\n]*\n@@ ")
PLACEHOLDER = compiled(rb"<REDACTED:([a-z][a-z0-9-]{0,30}):([1-9][0-9]{0,5})>")
_ANY_PLACEHOLDER = compiled(rb"<REDACTED:[a-z][a-z0-9-]{0,30}:[1-9][0-9]{0,5}>")
_FILE = b"\ndiff --git "
MASK = 1  # stands for every byte inside a placeholder while rules look at the text
_MASKS = bytes([MASK]) * 64


class SourceLine(NamedTuple):
    """One line: the offsets of its body, without diff prefix and line feed."""

    start: int
    end: int
    side: int
    section: int  # the number of its file in the text


class Hunk(NamedTuple):
    """The body of a hunk, from the line feed after its head on."""

    start: int
    end: int
    columns: int  # of the prefix


@dataclass(slots=True)
class Document:
    """One text. `text` is `raw` with diff prefixes blanked and our placeholders masked.

    `unread` are the parts in which a scan looks for secrets, in order: all, or those that changed since the
    last scan.
    """

    raw: bytes
    text: bytes
    is_diff: bool
    unread: Sequence[tuple[int, int]]
    hunks: list[Hunk] = field(default_factory=list)
    binary: list[tuple[int, int]] = field(default_factory=list)

    def lines_of_files(self, places: Iterable[int]) -> list[SourceLine]:
        """Return the lines of the files of a diff that hold the places; of another text, all."""
        if not self.is_diff:
            return _cut_lines(self, 0, len(self.raw), 0)
        lines: list[SourceLine] = []
        done = 0
        for place in places:
            if place < done:
                continue
            low = max(self.raw.rfind(_FILE, 0, place) + 1, done)
            high = self.raw.find(_FILE, place)
            done = high + 1 if high >= 0 else len(self.raw) + 1
            lines += _cut_lines(self, low, done - 1, lines[-1].section + 1 if lines else 0)
        return lines

    def sides(self, offset: int) -> tuple[SourceLine, ...]:
        """Return the line of `offset` for each of its sides; in a diff, none outside hunks."""
        start = self.raw.rfind(b"\n", 0, offset) + 1
        end = line_end(self.raw, offset)
        if not self.is_diff:
            return (SourceLine(start, end, BOTH, 0),)
        hunk = self.hunk(offset)
        if hunk is None:
            return ()
        side = _side_of(self.raw[start : start + hunk.columns])
        body = min(start + hunk.columns, end)
        return tuple(SourceLine(body, end, one, 0) for one in (OLD, NEW) if side & one)

    def following(self, line: SourceLine, limit: int) -> Iterator[SourceLine]:
        """Yield up to `limit` lines below a line, of its hunk and on its side."""
        stop, columns = len(self.raw), 0
        if self.is_diff:
            hunk = self.hunk(line.end)
            if hunk is None:
                return
            stop, columns = hunk.end, hunk.columns
        at = line.end + 1
        for _ in range(2 * limit):
            if not 0 < at <= stop or not limit:
                return
            end = line_end(self.raw, at)
            side = _side_of(self.raw[at : at + columns])
            if side & line.side:
                limit -= 1
                yield SourceLine(min(at + columns, end), end, line.side, 0)
            at = end + 1

    def hunk(self, offset: int) -> Hunk | None:
        """Return the hunk whose body holds an offset."""
        index = bisect.bisect_left(self.hunks, offset, key=lambda hunk: hunk.start) - 1
        return self.hunks[index] if index >= 0 and offset <= self.hunks[index].end else None

    def in_binary(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.binary)


def line_end(text: bytes, at: int) -> int:
    """Return where the line of an offset ends: at its line feed, or with the text."""
    end = text.find(b"\n", at)
    return end if end >= 0 else len(text)


def indentation(line: bytes) -> int:
    """Return the number of blanks and tabs at the beginning of a line."""
    return len(line) - len(line.lstrip(b" \t"))


def character_start(data: bytes, at: int) -> int:
    """Return the offset, moved back to the beginning of a character."""
    while 0 < at < len(data) and 0x80 <= data[at] < 0xC0:
        at -= 1
    return at


def character_end(data: bytes, at: int) -> int:
    """Return the offset, moved on to the beginning of a character."""
    while at < len(data) and 0x80 <= data[at] < 0xC0:
        at += 1
    return at


def encode(text: str) -> bytes:
    """Return the bytes of `text`.

    Raises RedactionBlocked (`not_text`, `undecodable`, `nul_byte`, `too_large`).
    """
    if not isinstance(text, str):
        raise RedactionBlocked("not_text")
    if len(text) > MAX_BYTES:
        raise RedactionBlocked("too_large")
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        raise RedactionBlocked("undecodable") from None
    if len(data) > MAX_BYTES:
        raise RedactionBlocked("too_large")
    if b"\0" in data:
        raise RedactionBlocked("nul_byte")
    return data


def read(raw: bytes, unread: Sequence[tuple[int, int]] = ()) -> Document:
    """Return the document of `raw`, a unified or combined diff if it has hunks, else text."""
    is_diff = raw.startswith(b"@@") or b"\n@@" in raw
    document = Document(raw, raw, is_diff, unread or ((0, len(raw)),))
    if is_diff:
        document.text, document.hunks = _mask_diff(raw)
    if b"<REDACTED:" in raw:
        masked = bytearray(document.text)
        for start, end in _ANY_PLACEHOLDER.places(raw):
            masked[start + 1 : end - 1] = _MASKS[: end - start - 2]
        document.text = bytes(masked)
    _find_binary(document)
    return document


def _mask_diff(raw: bytes) -> tuple[bytes, list[Hunk]]:
    """Return the text with the prefix columns of all hunk lines blanked, and the hunks.

    A hunk's body ends at the first line without a prefix, or at a file header: the two lines
    "--- a", "+++ b" and a hunk head right below them, which a body cannot hold. The counts in heads
    are not used, because the text may be cut.
    """
    hunks: list[Hunk] = []
    out: list[bytes] = []
    at = 0
    blanked = raw.replace(b"\n+", b"\n ").replace(b"\n-", b"\n ")
    headers = raw.find(b"\n--- ")
    for start in _line_starts(raw, b"@@"):
        head = _HUNK.match(raw, start) if start >= at else None
        if head is None:
            continue
        begin = head.end()  # at the line feed after the head, or the end
        signs = raw[start : start + 9]
        columns = len(signs) - len(signs.lstrip(b"@")) - 1
        ending = _BODY_END.search(raw, begin)
        end = ending.start() if ending is not None else len(raw)
        while 0 <= headers < begin:
            headers = raw.find(b"\n--- ", headers + 1)
        if begin <= headers < end - 1:
            header = _FILE_HEADER.search(raw, headers, min(end + 3, len(raw)))
            end = header.start() if header is not None else end
        body = blanked[begin:end]
        if columns > 1:
            body = b"\n".join(_blank(line, columns) for line in raw[begin:end].split(b"\n"))
        out += (raw[at:begin], body)
        at = end
        hunks.append(Hunk(begin, end, columns))
    out.append(raw[at:])
    return b"".join(out), hunks


def _line_starts(raw: bytes, mark: bytes) -> Iterator[int]:
    """Yield the beginnings of lines that begin with `mark`."""
    if raw.startswith(mark):
        yield 0
    at = raw.find(b"\n" + mark)
    while at >= 0:
        yield at + 1
        at = raw.find(b"\n" + mark, at + 1)


def _blank(line: bytes, columns: int) -> bytes:
    prefix = line[:columns]
    return prefix.replace(b"+", b" ").replace(b"-", b" ") + line[columns:]


def _side_of(prefix: bytes) -> int:
    return OLD if b"-" in prefix else NEW if b"+" in prefix else BOTH


def _cut_lines(document: Document, low: int, high: int, section: int) -> list[SourceLine]:
    """Return the lines of a text from `low` to `high`; in a diff, headers outside hunks."""
    lines: list[SourceLine] = []
    append = lines.append
    hunks = iter(document.hunks)
    hunk = next(hunks, None)
    at = low
    inside = False
    for piece in document.raw[low:high].split(b"\n"):
        end = at + len(piece)
        while hunk is not None and at > hunk.end:
            hunk = next(hunks, None)
        if not document.is_diff:
            append(SourceLine(at, end, BOTH, 0))
        elif hunk is not None and hunk.start < at <= hunk.end:
            inside = True
            prefix = piece[: hunk.columns]
            side = _side_of(prefix)
            append(SourceLine(min(at + hunk.columns, end), end, side, section))
        else:
            # A file header begins another section, whose keys are its own; the head of a hunk does not.
            if inside and not piece.startswith(b"@@"):
                section += 1
            inside = inside and piece.startswith(b"@@")
            append(SourceLine(at, end, HEADER, section))
        at = end + 1
    return lines


def _find_binary(document: Document) -> None:
    """Note the places of base85 data, which looks random and is not secret."""
    at = document.raw.find(b"GIT binary patch")
    while at >= 0:
        end = document.raw.find(b"\ndiff --git", at)
        end = end if end >= 0 else len(document.raw)
        document.binary.append((at, end))
        at = document.raw.find(b"GIT binary patch", end)
