"""Tokens found by their randomness, without a name or a mark of an issuer."""

from __future__ import annotations

import binascii
import bisect
from collections.abc import Callable, Sequence
from typing import Final

import ahocorasick_rs

from criticizer.redaction.input.document import Document
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import marked_tokens
from criticizer.redaction.rules.characters import digit_groups, kinds, looks_random, transitions
from criticizer.redaction.rules.named_values import Span
from criticizer.redaction.rules.pem import FILES

# Runs of letters, signs and at least one digit, most of them of twenty bytes or more. The alternatives differ
# in the place of the first digit, so that words, paths and identifiers without a digit do not match.
_LEAST: Final = 20
_LONG = compiled(rb"[A-Za-z+/_-]{9,}[0-9][A-Za-z0-9+/_-]*|[A-Za-z+/_-]{0,8}[0-9][A-Za-z0-9+/_-]{11,}")
_EXEMPT = compiled(
    rb"(?i)(?:sha-?[0-9]{1,3}[\s:=\-\"'/,@(]*|integrity[\"'\s:=]*|checksums?[\"'\s:=]*(?:[0-9]+/)?|digest[\"'\s:=]*|fingerprint[\"'\s:=]*"
    rb"|h1:|md5[\"'\s:=]*|etag[\"'\s:=W/]*|base64,|mappings[\"'\s:=]*|nonce-"
    rb"|public[\w\s-]*key[\w\s\"':=-]*|publictoken[\"'\s:=]*"
    rb"|(?:image|font|audio|video)/[\w.+-]+[\"'\s:,;=]*"
    rb"|_acme-challenge[\w.-]*[\s\w]*[\"'\s:=]*|[\w-]*verification[\"'\s:=]*|\"(?:n|x|y|kid|e)\"\s*:\s*\"|node_?id[\"'\s:=]*"
    rb"|subproject commit |ssh-(?:rsa|ed25519|dss) |ecdsa-[\w-]+ |cert(?:ificate)?[\w\"'\s:=-]*"
    rb"|signature_?(?:hash)?[\"'\s:=]*|<(?:[\w-]+:)?(?:digest|signature)value>"
    rb"|(?:content|tree|commit|blob|file)?-?hash[\"'\s:=]*|[\w-]*regex[\"'\s:=]*)$"
)
# Every match of that expression holds one of these.
_PUBLIC: Final = ahocorasick_rs.BytesAhoCorasick(
    b"sha integrity checksum digest fingerprint h1: md5 etag base64, mappings nonce- public image/ font/"
    b' audio/ video/ _acme-challenge verification "n" "x" "y" "e" "kid" node subproject ssh- ecdsa- cert'
    b" signature hash regex".split()
)
# Characters before and after a literal.
_OPENS: Final = (b"", *(bytes([c]) for c in b"\"'`= \n\t>,([{"))
_CLOSES: Final = (b"", *(bytes([c]) for c in b"\"'` \n\r\t<,)]};\\&"))
_URL_BEFORE = compiled(rb"(?:://|^//|[^\s\"'`]/)[^\s\"'`?]*$")
_OF_KEY: Final = (56, 80)  # bytes of a line of a key or a file in base64
_DIGEST = compiled(rb"(?:sha(?:1|224|256|384|512)|nonce)-")
_PATH_OF_SVG: Final = b"0123456789mMhHvVlLcCsSqQtTaAzZ-"
_FILE: Final = 8_192  # bytes before a line in which the beginning of its file is looked for
_KNOWN: Final = (*FILES, b"GHSA-")  # beginnings of files, and of an advisory's number
_MAGIC: Final = ahocorasick_rs.BytesAhoCorasick([magic for magic in FILES if len(magic) > 4])
_PRINTABLE: Final = bytes(range(32, 127)) + b"\t\r\n"
_MAX_DECODED: Final = 8_192
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")  # from the alphabet of URLs to that of mail


class _Files:
    """Beginnings of base64 files in a text, which are looked up at the first call."""

    __slots__ = ("_places", "_text")

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._places: list[tuple[int, int]] | None = None

    def has_begun(self, low: int, high: int) -> bool:
        """Return whether a file begins between two offsets."""
        if self._places is None:
            found = _MAGIC.find_matches_as_indexes(self._text, overlapping=True)
            self._places = sorted((start, end) for _, start, end in found)
        for at in range(bisect.bisect_left(self._places, (low, 0)), len(self._places)):
            start, end = self._places[at]
            if end <= high or start >= high:
                return end <= high
        return False


def candidates(document: Document) -> list[tuple[int, int]]:
    """Return the spans of tokens that are long enough and have a digit, in order."""
    text = document.text
    found: list[tuple[int, int]] = []
    for start, end in (place for piece in document.unread for place in _LONG.places(text, *piece)):
        if end - start >= _LEAST:
            start = end - len(text[start:end].lstrip(b"+/-"))
            if end - start >= _LEAST:
                found.append((start, end))
    return found


def has_key_lines(places: Sequence[tuple[int, int]]) -> bool:
    """Return whether there may be lines of key-like base64 (see `pem.orphans`)."""
    return sum(_OF_KEY[0] <= end - start <= _OF_KEY[1] for start, end in places) >= 2


def spans(
    document: Document,
    places: Sequence[tuple[int, int]],
    holds_secret: Callable[[bytes], bool],
    blocks: Sequence[tuple[int, int]] = (),
    taken: Sequence[tuple[int, int]] = (),
) -> list[Span]:
    """Return the spans of those `candidates` that are random.

    `holds_secret` judges the plain text of a token in base64 or hexadecimal. Tokens in one of the `blocks`
    (of keys, in order) are removed anyway and not judged again. Tokens in one of the spans `taken` (in
    order) are judged only for a more specific kind: their issuer, or the text that they encode.
    """
    text = document.text
    found: list[Span] = []
    files = _Files(text)
    block = one = reach = 0
    for start, end in places:
        while one < len(taken) and taken[one][0] <= start:
            reach = max(reach, taken[one][1])
            one += 1
        token = text[start:end]
        while block < len(blocks) and blocks[block][1] < end:
            block += 1
        while text[end : end + 1] == b"=":
            end += 1
        is_taken = block < len(blocks) and blocks[block][0] <= start and end <= blocks[block][1]
        if is_taken and len(token) > marked_tokens.LONGEST and token.translate(None, marked_tokens.HEX):
            continue
        if reach >= end and token.translate(None, marked_tokens.HEX):
            kind = _kind_of_taken(text, start, end, token, holds_secret)
        else:
            kind = _kind(text, start, end, token, holds_secret, files)
        if kind is not None and not (document.binary and document.in_binary(start)):
            found.append((start, end, kind))
    return found


def _kind(
    text: bytes, start: int, end: int, token: bytes, holds_secret: Callable[[bytes], bool], files: _Files
) -> str | None:
    if not token.translate(None, marked_tokens.HEX):
        return marked_tokens.hex_kind(text, start, token) or _plain_hex(token, holds_secret)
    marked = marked_tokens.kind_of(text, start, token) if len(token) <= marked_tokens.LONGEST else None
    if marked is not None:
        return marked
    if not all(kinds(token)):
        return "high-entropy" if _one_case(text, start, end, token) else None
    if _is_no_token(text, end, token):
        return None
    before = text[max(start - 64, 0) : start]
    before = before[before.rfind(b"\n") + 1 :].rstrip(b"+/-")
    segment = _segment(token, before)
    plain = _decoded(token, before)
    if plain is not None:
        return "encoded-secret" if holds_secret(plain) else None
    if segment is None or not _drawn(segment) or _is_exempt(before):
        return None
    if _OF_KEY[0] <= len(token) <= _OF_KEY[1] and _in_block(text, start, end, files):
        return None  # of a file or a key, see `pem`
    if before.endswith(b"...") and text[end : end + 3] == b"...":
        return None  # an excerpt, shortened on both sides
    return "high-entropy"


def _kind_of_taken(
    text: bytes, start: int, end: int, token: bytes, holds_secret: Callable[[bytes], bool]
) -> str | None:
    """Return the kind of a token as `_kind` does, but None where it is only random."""
    marked = marked_tokens.kind_of(text, start, token) if len(token) <= marked_tokens.LONGEST else None
    if marked is not None:
        return marked
    before = text[max(start - 64, 0) : start]
    before = before[before.rfind(b"\n") + 1 :].rstrip(b"+/-")
    plain = _decoded(token, before)
    if plain is None or not all(kinds(token)) or _is_no_token(text, end, token) or not holds_secret(plain):
        return None
    return "encoded-secret"


def _is_no_token(text: bytes, end: int, token: bytes) -> bool:
    """Return whether it is the name of a function, a drawing, number, alphabet, digest or file."""
    if text[end : end + 1] == b"(" or token.startswith((b"_ZN", b"_RN", b"_Z")):
        return True
    if not token.translate(None, _PATH_OF_SVG) or _is_number(token) or _counts_up(token):
        return True
    return (token[:3] in (b"sha", b"non") and _DIGEST.match(token) is not None) or token.startswith(_KNOWN)


def _counts_up(token: bytes) -> bool:
    """Return whether it spells out an alphabet."""
    return (
        b"ABCDEFGHIJKLM" in token
        or b"abcdefghijklm" in token
        or b"0123456789abcdefgh" in token
        or b"23456789AB" in token
    )


def _is_number(token: bytes) -> bool:
    """Return whether it is a hexadecimal number of a language: `0x0F0F0F0F0F0F0F0FULL`."""
    return token[:2] in (b"0x", b"0X") and not token[2:].rstrip(b"uUlLn").translate(
        None, marked_tokens.HEX + b"_"
    )


def _in_block(text: bytes, start: int, end: int, files: _Files) -> bool:
    """Return whether a token is a line of a picture or an archive in base64.

    It is a whole line, the line above or below is of the same length, and a file begins before it.
    """
    begin = text.rfind(b"\n", max(start - 80, 0), start) + 1
    stop = text.find(b"\n", end, end + 4)
    if stop < 0 or text[begin:start].strip():
        return False
    below = text.find(b"\n", stop + 1, stop + 200)
    above = text.rfind(b"\n", max(begin - 201, 0), max(begin - 1, 0))
    if below - stop != stop - begin + 1 and begin - 1 - above != stop - begin + 1:
        return False
    return files.has_begun(start - _FILE, start + 12)


def _one_case(text: bytes, start: int, end: int, token: bytes) -> bool:
    """Return whether a long token of digits and letters of one case is a random literal."""
    if not 30 <= len(token) <= 128 or not token.isalnum() or _counts_up(token):
        return False
    if text[start - 1 : start] not in _OPENS or text[end : end + 1] not in _CLOSES:
        return False
    groups = digit_groups(token)
    if groups < 5 or len(set(token.lower().translate(None, b"0123456789abcdef"))) < 5:
        return False
    before = text[max(start - 64, 0) : start]
    return not _is_exempt(before[before.rfind(b"\n") + 1 :]) and looks_random(token, rate=0.3)


def _is_exempt(before: bytes) -> bool:
    """Return whether the text before a token shows that it is public: a hash, a picture."""
    return bool(_PUBLIC.find_matches_as_indexes(before.lower())) and _EXEMPT.search(before) is not None


def _drawn(token: bytes) -> bool:
    """Return whether a token is random without its separators, which identifiers have too."""
    plain = token.translate(None, b"_-+/")
    rate = transitions(plain)
    groups = digit_groups(plain)
    mixed = (rate >= 0.42 and groups >= 2) or rate >= 0.55 or (rate >= 0.36 and groups >= 4)
    return len(plain) >= 16 and mixed


def _segment(token: bytes, before: bytes) -> bytes | None:
    """Return the part of a token to judge, or None: separators divide words unless it is base64."""
    if b"/" in before and _URL_BEFORE.search(before):
        return None
    if b"/" in token:
        longest = max(token.split(b"/"), key=len)
        if len(longest) < 20 and token.count(b"/") * 12 > len(token):
            return None
        if len(longest) < 12 or before[-1:] in (b"/", b".", b"~"):
            return None
        return token if transitions(longest) >= 0.42 else None
    for separator in (b"_", b"-"):
        parts = [part for part in token.split(separator) if part]
        if len(parts) > 2 and max(map(len, parts)) < 12:
            return None  # snake_case_with_Numbers_2, kebab-case
        if len(parts) > 4:
            return max(parts, key=len)
    return token


def _decoded(token: bytes, before: bytes) -> bytes | None:
    """Return the text that base64 encodes, None where it encodes no text."""
    if len(token) > _MAX_DECODED or before.endswith(b"base64,"):
        return None
    plain = token.translate(_STANDARD)
    if not _is_text(binascii.a2b_base64(plain[:16])):
        return None  # most tokens are not text, which the head shows
    try:
        decoded = binascii.a2b_base64(plain + b"=" * (-len(plain) % 4), strict_mode=True)
    except binascii.Error:
        return None
    return decoded if _is_text(decoded) else None


def _plain_hex(token: bytes, holds_secret: Callable[[bytes], bool]) -> str | None:
    if len(token) % 2 or len(token) < 24 or b"-" in token or len(token) > _MAX_DECODED:
        return None
    decoded = bytes.fromhex(token.decode())
    return "encoded-secret" if _is_text(decoded) and holds_secret(decoded) else None


def _is_text(data: bytes) -> bool:
    return not data.translate(None, _PRINTABLE)
