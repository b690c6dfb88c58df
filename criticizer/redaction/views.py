"""How the rules look at a text: diff prefixes masked, sides apart, disguises removed.

Everything works on UTF-8 bytes. `Document.text` has the length of the raw bytes, so offsets
are shared; a `Shadow` has its own offsets and a map back.
"""

from __future__ import annotations

import html
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import re2

from criticizer.redaction.sealed import RedactionBlocked

MAX_BYTES = 8 << 20  # one part; longer input is cut into parts by the caller
OLD, NEW, BOTH, HEADER = 1, 2, 3, 0

_HUNK = re2.compile(rb"(@{2,8})((?: -[0-9]+(?:,[0-9]+)?)+) \+[0-9]+(?:,([0-9]+))? @{2,8}")
_HUNK_OLD = re2.compile(rb" -[0-9]+(?:,([0-9]+))?")
PLACEHOLDER = re2.compile(rb"<REDACTED:([a-z][a-z0-9-]{0,30}):([1-9][0-9]{0,5})>")
MASK = 1  # stands for every byte inside a placeholder while rules look at the text


class Line(NamedTuple):
    """One line: body offsets (diff prefix and line feed outside), side, and the file it belongs to."""

    start: int
    end: int
    side: int
    section: int


@dataclass(slots=True)
class Document:
    """One text. `text` is `raw` with diff prefixes blanked and our placeholders masked."""

    raw: bytes
    text: bytes
    is_diff: bool
    lines: list[Line] = field(default_factory=list)
    binary: list[tuple[int, int]] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)

    def line_index(self, offset: int) -> int:
        """Return the index in `lines` of the line that holds `offset`."""
        if not self._starts:
            self._starts = [line.start for line in self.all_lines()]
        return max(bisect_right(self._starts, offset) - 1, 0)

    def all_lines(self) -> list[Line]:
        """Return the lines; of plain text they are cut on first use."""
        if not self.lines:
            at = 0
            for piece in self.text.split(b"\n"):
                self.lines.append(Line(at, at + len(piece), BOTH, 0))
                at += len(piece) + 1
        return self.lines

    def following(self, offset: int, limit: int) -> Iterator[Line]:
        """Yield up to `limit` lines after that of `offset` which stand beside it on the same side."""
        lines = self.all_lines()
        index = self.line_index(offset)
        here = lines[index]
        for line in lines[index + 1 : index + 1 + 2 * limit]:
            if line.section != here.section:
                return
            if line.side & here.side or line.side == here.side:
                yield line
                limit -= 1
                if not limit:
                    return

    def in_binary(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.binary)


def encode(text: str) -> bytes:
    """Return the bytes of `text`. Raises RedactionBlocked (`undecodable`, `nul_byte`, `too_large`)."""
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


def read(raw: bytes) -> Document:
    """Return the document of `raw`: a unified (or combined) diff where hunks are found, else text."""
    is_diff = raw.startswith(b"@@") or b"\n@@" in raw
    document = Document(raw, raw, is_diff)
    masked: bytearray | None = None
    if is_diff:
        masked = bytearray(raw)
        _split_diff(document, masked)
    if b"<REDACTED:" in raw:
        masked = masked or bytearray(raw)
        for match in PLACEHOLDER.finditer(raw):
            start, end = match.span()
            masked[start + 1 : end - 1] = bytes([MASK]) * (end - start - 2)
    if masked is not None:
        document.text = bytes(masked)
    _find_binary(document)
    return document


def _split_diff(document: Document, masked: bytearray) -> None:
    """Cut a diff into lines with sides. Lines outside hunks are headers, with no side."""
    append = document.lines.append
    old = new = columns = section = 0
    in_hunk = False
    at = 0
    for piece in document.raw.split(b"\n"):
        end = at + len(piece)
        first = piece[:1]
        if first == b"@" and (head := _HUNK.match(piece)) is not None:
            columns = len(head.group(1)) - 1
            new = int((head.group(3) or b"1")[:9])
            old = max(int((m.group(1) or b"1")[:9]) for m in _HUNK_OLD.finditer(head.group(2)))
            in_hunk = True
            append(Line(at, end, HEADER, section))
        elif in_hunk and first in (b" ", b"+", b"-") and not _is_header(piece, old, new):
            prefix = piece[:columns]
            side = OLD if b"-" in prefix else NEW if b"+" in prefix else BOTH
            old -= side & OLD
            new -= (side & NEW) >> 1
            masked[at : at + len(prefix)] = b" " * len(prefix)
            append(Line(at + len(prefix), end, side, section))
        elif in_hunk and (piece.strip() == b"" or first == b"\\"):
            # Editors strip the space of an empty context line; "\ No newline" belongs to the hunk.
            append(Line(at, end, BOTH, section))
        else:
            # A header line, or prose round the diff: the next file's keys are not this one's.
            if in_hunk or piece.startswith(b"diff --git"):
                section += 1
            in_hunk = False
            append(Line(at, end, HEADER, section))
        at = end + 1


def _is_header(piece: bytes, old: int, new: int) -> bool:
    """Tell a file header from a removed line that starts with "--" once the hunk is complete."""
    return old <= 0 and new <= 0 and piece[:4] in (b"--- ", b"+++ ")


def _find_binary(document: Document) -> None:
    """Note where base85 data stands: random by nature, and no secret."""
    at = document.raw.find(b"GIT binary patch")
    while at >= 0:
        end = document.raw.find(b"\ndiff --git", at)
        end = end if end >= 0 else len(document.raw)
        document.binary.append((at, end))
        at = document.raw.find(b"GIT binary patch", end)


# --- shadows -------------------------------------------------------------------------------

_ZERO_WIDTH = r"\x{00ad}\x{034f}\x{061c}\x{180e}\x{200b}-\x{200f}\x{202a}-\x{202e}\x{2060}-\x{206f}\x{feff}"
_WIDE = r"\x{ff01}-\x{ff5e}\x{1d400}-\x{1d7ff}\x{24b6}-\x{24e9}"
_FOREIGN = r"\x{0370}-\x{04ff}\x{0500}-\x{052f}\x{2c00}-\x{2c5f}"
# One question decides whether a text is looked at character by character at all.
_DISGUISED = re2.compile(
    rf"[{_ZERO_WIDTH}{_WIDE}]|[A-Za-z_][{_FOREIGN}]|[{_FOREIGN}][A-Za-z_]|\x1b\["
    rf"|&(?:quot|apos|amp|lt|gt|#[0-9]{{1,7}}|#[xX][0-9a-fA-F]{{1,6}});|%(?:3[aAdDfF]|2[26bBfF7]|40)|\\u00[2-7][0-9a-fA-F]".encode()
)
_ANSI = re2.compile(rb"\x1b\[[0-9;:?]*[A-Za-z]")
_ENTITY = re2.compile(rb"&(?:quot|apos|amp|lt|gt|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")
_PERCENT = re2.compile(rb"%[2-7][0-9a-fA-F]")
_ESCAPE = re2.compile(rb"\\+u00[2-7][0-9a-fA-F]")
_CONFUSABLE = str.maketrans(
    "аеорсухіјѕԁԛԝһвкмнтАВЕКМНОРСТУХІЅЈοανικρτυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdqwhBkMHTABEKMHOPCTYXISJoavikptuABEZHIKMNOPTYX",
)


@dataclass(slots=True)
class Shadow:
    """A line without its disguise. `origin[i]` is the raw offset of byte i (one more at the end)."""

    text: bytes
    origin: list[int]


def shadows(document: Document) -> Iterator[Shadow]:
    """Yield the undisguised form of every line that wears zero-width, look-alike or escaped characters."""
    seen = -1
    for match in _DISGUISED.finditer(document.text):
        at = match.start()
        if at < seen:
            continue
        start = document.text.rfind(b"\n", 0, at) + 1 if at - seen < 4096 else max(seen, at - 4096, 0)
        start = max(start, document.text.rfind(b"\n", max(at - 4096, 0), at) + 1, seen, 0)
        end = document.text.find(b"\n", at, at + 16_384)
        if end < 0:
            end = min(len(document.text), at + 16_384)
        # Never begin or end inside a character.
        while start < len(document.text) and 0x80 <= document.text[start] < 0xC0:
            start += 1
        while end < len(document.text) and 0x80 <= document.text[end] < 0xC0:
            end += 1
        seen = end
        for layer in (_undress, _decode):
            shadow = layer(document.text[start:end], start)
            if shadow is not None:
                yield shadow


def _undress(line: bytes, base: int) -> Shadow | None:
    """Drop what cannot be seen, fold look-alikes to ASCII."""
    ansi = {match.start(): match.end() for match in _ANSI.finditer(line)} if b"\x1b" in line else {}
    if not ansi and line.isascii():
        return None
    out = bytearray()
    origin: list[int] = []
    at = skip = 0
    for char in line.decode("utf-8", "replace"):
        size = len(char.encode("utf-8"))
        if at in ansi:
            skip = ansi[at]
        if at >= skip:
            plain = char if char < "\x80" else _fold(char)
            folded = plain.encode("utf-8")
            out += folded
            origin.extend([base + at] * len(folded))
        at += size
    origin.append(base + len(line))
    return Shadow(bytes(out), origin)


def _fold(char: str) -> str:
    if unicodedata.category(char) in ("Cf", "Mn"):
        return ""
    plain = char.translate(_CONFUSABLE)
    if plain == char:
        normal = unicodedata.normalize("NFKC", char)
        plain = normal if normal.isascii() else char
    return plain


def _decode(line: bytes, base: int) -> Shadow | None:
    """Undo one layer of HTML entities, percent encoding and \\u escapes."""
    found: list[tuple[int, int, bytes]] = []
    if b"&" in line:
        found += [(*m.span(), _entity(m.group())) for m in _ENTITY.finditer(line)]
    if b"%" in line:
        found += [(*m.span(), bytes([int(m.group()[1:], 16)])) for m in _PERCENT.finditer(line)]
    if b"\\u00" in line:
        found += [(*m.span(), bytes([int(m.group()[-2:], 16)])) for m in _ESCAPE.finditer(line)]
    if not found:
        return None
    out = bytearray()
    origin: list[int] = []
    at = 0
    for start, end, plain in sorted(found):
        if start < at:
            continue
        out += line[at:start]
        origin.extend(range(base + at, base + start))
        out += plain
        origin.extend([base + start] * len(plain))
        at = end
    out += line[at:]
    origin.extend(range(base + at, base + len(line) + 1))
    return Shadow(bytes(out), origin)


def _entity(text: bytes) -> bytes:
    plain = html.unescape(text.decode()).encode("utf-8", "replace")
    # A decoded line feed would make a line that is not there.
    return plain.replace(b"\n", b" ").replace(b"\0", b" ")
