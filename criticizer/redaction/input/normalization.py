"""Lines without disguise: invisible, look-alike, escaped and encoded characters undone.

A `Shadow` has offsets of its own and a map from them to the raw bytes.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from criticizer.invisible_characters import INVISIBLE
from criticizer.redaction.input.document import MASK, Document, character_end
from criticizer.redaction.patterns import compiled

# Blanks of other widths, combining accents, wide and circled letters.
_WIDE = r"\x{a0}\x{2000}-\x{200a}\x{202f}\x{3000}\x{0300}-\x{036f}"
_WIDE += r"\x{ff01}-\x{ff5e}\x{1d400}-\x{1d7ff}\x{24b6}-\x{24e9}"
_FOREIGN = r"\x{0370}-\x{04ff}\x{0500}-\x{052f}\x{2c00}-\x{2c5f}"
# Only a line with one of these is read character by character.
_DISGUISED = compiled(
    rf"[{INVISIBLE}{_WIDE}]|[A-Za-z_][{_FOREIGN}]|[{_FOREIGN}][A-Za-z_]|\x1b\[|[^\s][ \t]{{100}}"
    rf"|&(?:quot|apos|amp|lt|gt|#[0-9]{{1,7}}|#[xX][0-9a-fA-F]{{1,6}});|%(?:3[aAdDfF]|2[26bBfF7]|40)|(?:%[2-7][0-9a-fA-F]){{4}}|\\u00[2-7][0-9a-fA-F]|(?:\\x[2-7][0-9a-fA-F]|\\[01][0-7]{{2}}){{4}}".encode()
)
_SOLID = compiled(rb"[^ \t]")
_INVISIBLE = compiled(f"[{INVISIBLE}]".encode())
# Colours of a terminal, foreign characters, more blanks than a rule skips.
_DRESS = compiled(rb"\x1b\[[0-9;:?]*[A-Za-z]|[^\x00-\x7f]+|[ \t]{100,}")
_ENTITY = compiled(rb"&(?:quot|apos|amp|lt|gt|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")
_PERCENT = compiled(rb"%[2-7][0-9a-fA-F]")
_ESCAPE = compiled(rb"\\+u00[2-7][0-9a-fA-F]")
_BYTE = compiled(rb"\\+(?:x[2-7][0-9a-fA-F]|[01][0-7]{2})")
_CONFUSABLE = str.maketrans(
    "аеорсухіјѕԁԛԝһвкмнтАВЕКМНОРСТУХІЅЈοανικρτυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdqwhBkMHTABEKMHOPCTYXISJoavikptuABEZHIKMNOPTYX",
)


# Between two lines of one shadow: no rule reads on after a masked byte.
_BETWEEN = bytes((10, MASK, 10))
_TOGETHER = 65_536  # bytes of a shadow, which has an offset for each byte


@dataclass(slots=True)
class Shadow:
    """Lines without their disguise."""

    text: bytes
    origin: list[int]  # the raw offset of each byte, and of the end


def shadows(document: Document) -> Iterator[Shadow]:
    """Yield the plain form of all lines with disguised characters, many lines at once."""
    texts: list[bytes] = []
    origin: list[int] = []
    for shadow in _lines(document):
        texts.append(shadow.text)
        origin += shadow.origin
        if len(origin) > _TOGETHER:
            yield Shadow(_BETWEEN.join(texts), origin)
            texts, origin = [], []
        else:
            origin += (origin[-1], origin[-1])  # offsets of _BETWEEN, with the one at the end
    if texts:
        yield Shadow(_BETWEEN.join(texts), origin)


def _lines(document: Document) -> Iterator[Shadow]:
    seen = -1
    for match in (one for piece in document.unread for one in _DISGUISED.finditer(document.text, *piece)):
        at = match.start()
        if at < seen:
            continue
        start = document.text.rfind(b"\n", 0, at) + 1 if at - seen < 4096 else max(seen, at - 4096, 0)
        start = max(start, document.text.rfind(b"\n", max(at - 4096, 0), at) + 1, seen, 0)
        solid = _SOLID.search(document.text, match.end())
        reach = (solid.start() if solid is not None else match.end()) + 16_384
        end = document.text.find(b"\n", at, reach)
        if end < 0:
            end = min(len(document.text), reach)
        # Never begin or end inside a character.
        start, end = character_end(document.text, start), character_end(document.text, end)
        seen = end
        for layer in (_undress, _decode):
            shadow = layer(document.text[start:end], start)
            if shadow is not None:
                yield shadow


def _undress(line: bytes, base: int) -> Shadow | None:
    """Return a line without invisible characters and with look-alikes as ASCII, None if equal."""
    out: list[bytes] = []
    origin: list[int] = []
    at = 0
    for start, end in _DRESS.places(line):
        out.append(line[at:start])
        origin.extend(range(base + at, base + start))
        at = end
        if line[start] == 0x1B:
            continue
        if line[start] < 0x80:
            out.append(b" ")
            origin.append(base + start)
            continue
        for char in line[start:end].decode():
            folded = _fold(char)
            out.append(folded)
            origin.extend([base + start] * len(folded))
            start += len(char.encode())
    out.append(line[at:])
    text = b"".join(out)
    if text == line:
        return None
    origin.extend(range(base + at, base + len(line) + 1))
    return Shadow(text, origin)


@lru_cache(maxsize=4_096)
def _fold(char: str) -> bytes:
    if unicodedata.category(char) in ("Cf", "Mn") or _INVISIBLE.match(char.encode("utf-8")):
        return b""
    plain = char.translate(_CONFUSABLE)
    if plain == char:
        normal = unicodedata.normalize("NFKC", char)
        plain = normal if normal.isascii() else char
    return plain.encode()


def _decode(line: bytes, base: int) -> Shadow | None:
    """Return a line without one layer of entities, percent encoding and escapes, None if equal."""
    found: list[tuple[int, int, bytes]] = []
    if b"&" in line:
        found += [(*m.span(), _entity(m.group())) for m in _ENTITY.finditer(line)]
    if b"%" in line:
        found += [(*m.span(), bytes([int(m.group()[1:], 16)])) for m in _PERCENT.finditer(line)]
    if b"\\u00" in line:
        found += [(*m.span(), bytes([int(m.group()[-2:], 16)])) for m in _ESCAPE.finditer(line)]
    if b"\\" in line:
        for match in _BYTE.finditer(line):
            code = match.group().lstrip(b"\\")
            value = int(code[1:], 16) if code[:1] == b"x" else int(code, 8)
            if 32 <= value < 127:
                found.append((*match.span(), bytes([value])))
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
    # A decoded line feed would add a line to the text.
    return plain.replace(b"\n", b" ").replace(b"\0", b" ")
