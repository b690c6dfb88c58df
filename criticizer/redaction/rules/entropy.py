"""Tokens recognised by their randomness, without a name or an issuer's mark."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

import ahocorasick_rs

from criticizer.redaction.input.document import Document
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules.literals import Span
from criticizer.redaction.rules.pem import FILES
from criticizer.redaction.rules.value_heuristics import digit_groups, kinds, looks_random, transitions

_ALPHABETIC: Final = b"A-Za-z0-9+/_-"
_LONG = compiled(b"[" + _ALPHABETIC + b"]{20,}")
_DIGITS: Final = b"0123456789"
_HEX: Final = b"0123456789abcdefABCDEF-"
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
# One of these is in whatever that expression matches.
_PUBLIC: Final = ahocorasick_rs.BytesAhoCorasick(
    b"sha integrity checksum digest fingerprint h1: md5 etag base64, mappings nonce- public image/ font/"
    b' audio/ video/ _acme-challenge verification "n" "x" "y" "e" "kid" node subproject ssh- ecdsa- cert'
    b" signature hash regex".split()
)
# Characters around a literal, on its left and on its right.
_OPENS: Final = (b"", *(bytes([c]) for c in b"\"'`= \n\t>,([{"))
_CLOSES: Final = (b"", *(bytes([c]) for c in b"\"'` \n\r\t<,)]};\\&"))
_URL_BEFORE = compiled(rb"(?:://|^//|[^\s\"'`]/)[^\s\"'`?]*$")
_ALPHABET: Final = (b"ABCDEFGHIJKLM", b"abcdefghijklm", b"0123456789abcdefgh", b"23456789AB")
_DIGEST = compiled(rb"(?:sha(?:1|224|256|384|512)|nonce)-")
_TICKET_LINE = compiled(rb"=[^\s:=]+:$")
_PATH_OF_SVG: Final = b"0123456789mMhHvVlLcCsSqQtTaAzZ-"
_FILE: Final = 8_192  # bytes before a line in which a file begins
_MAGIC: Final = ahocorasick_rs.BytesAhoCorasick([magic for magic in FILES if len(magic) > 4])
_PRINTABLE: Final = bytes(range(32, 127)) + b"\t\r\n"
_MAX_DECODED: Final = 8_192


def spans(document: Document, holds_secret: Callable[[bytes], bool]) -> tuple[list[Span], bool]:
    """Return the random tokens, and whether lines of key-like base64 occur (see `pem.orphans`).

    `holds_secret` judges what a token in base64 or hexadecimal says in plain text.
    """
    text = document.text
    found: list[Span] = []
    long_lines = 0
    for start, end in (place for piece in document.unread for place in _LONG.places(text, *piece)):
        token = text[start:end].lstrip(b"+/-")
        if len(token) < 20 or len(token.translate(None, _DIGITS)) == len(token):
            continue  # words, paths, identifiers: no digit
        start = end - len(token)
        while text[end : end + 1] == b"=":
            end += 1
        if 56 <= len(token) <= 80:
            long_lines += 1
        kind = _kind(text, start, end, token, holds_secret)
        if kind is not None and not (document.binary and document.in_binary(start)):
            found.append((start, end, kind))
    return found, long_lines >= 2


def _kind(
    text: bytes, start: int, end: int, token: bytes, holds_secret: Callable[[bytes], bool]
) -> str | None:
    if not token.translate(None, _HEX):
        return _hex_kind(text, start, token) or _plain_hex(token, holds_secret)
    core = token.rstrip(b"=")
    marked = _marked(text, start, core)
    if marked is not None:
        return marked
    lower, upper, digit = kinds(core)
    if not (lower and upper and digit):
        return "high-entropy" if _one_case(text, start, end, core) else None
    if text[end : end + 1] == b"(" or token.startswith((b"_ZN", b"_RN", b"_Z")):
        return None  # a function's name
    if not token.translate(None, _PATH_OF_SVG) or _is_number(token):
        return None
    if any(run in token for run in _ALPHABET) or b"\x01" in token:
        return None
    before = text[max(start - 64, 0) : start]
    before = before[before.rfind(b"\n") + 1 :].rstrip(b"+/-")
    if (token[:3] in (b"sha", b"non") and _DIGEST.match(token)) or token.startswith(FILES):
        return None
    segment = _segment(core, before)
    plain = _decoded(core, before)
    if plain is not None:
        return "encoded-secret" if holds_secret(plain) else None
    if segment is None or not _drawn(segment) or _is_exempt(before):
        return None
    if 56 <= len(token) <= 80 and _in_block(text, start, end):
        return None  # of a file or a key, see `pem`
    if before.endswith(b"...") and text[end : end + 3] == b"...":
        return None  # an excerpt, shortened on both sides
    return "high-entropy"


def _is_number(token: bytes) -> bool:
    """Return whether it is a number in hexadecimal as languages write it: 0x0F0F0F0F0F0F0F0FULL."""
    return token[:2] in (b"0x", b"0X") and not token[2:].rstrip(b"uUlLn").translate(None, _HEX + b"_")


def _in_block(text: bytes, start: int, end: int) -> bool:
    """Return whether a token is a line of a picture or archive: it is its line, and one beside it as long."""
    begin = text.rfind(b"\n", max(start - 80, 0), start) + 1
    stop = text.find(b"\n", end, end + 4)
    if stop < 0 or text[begin:start].strip():
        return False
    below = text.find(b"\n", stop + 1, stop + 200)
    above = text.rfind(b"\n", max(begin - 201, 0), max(begin - 1, 0))
    if below - stop != stop - begin + 1 and begin - 1 - above != stop - begin + 1:
        return False
    return bool(_MAGIC.find_matches_as_indexes(text[max(start - _FILE, 0) : start + 12]))


def _one_case(text: bytes, start: int, end: int, token: bytes) -> bool:
    """Return whether a long one-case token of digits and letters is a random literal of its own."""
    if not 30 <= len(token) <= 128 or not token.isalnum() or any(run in token for run in _ALPHABET):
        return False
    if text[start - 1 : start] not in _OPENS or text[end : end + 1] not in _CLOSES:
        return False
    groups = digit_groups(token)
    if groups < 5 or len(set(token.lower().translate(None, b"0123456789abcdef"))) < 5:
        return False
    before = text[max(start - 64, 0) : start]
    return not _is_exempt(before[before.rfind(b"\n") + 1 :]) and looks_random(token, rate=0.3)


def _is_exempt(before: bytes) -> bool:
    """Return whether what stands before a token says that it is public: a hash, a picture, a public key."""
    return bool(_PUBLIC.find_matches_as_indexes(before.lower())) and _EXEMPT.search(before) is not None


def _drawn(token: bytes) -> bool:
    """Return whether a token is random apart from its separators: identifiers have those too."""
    plain = token.translate(None, b"_-+/")
    rate = transitions(plain)
    groups = digit_groups(plain)
    mixed = (rate >= 0.42 and groups >= 2) or rate >= 0.55 or (rate >= 0.36 and groups >= 4)
    return len(plain) >= 16 and mixed


def _segment(token: bytes, before: bytes) -> bytes | None:
    """Return the part to judge: slashes and underscores separate words unless all is base64."""
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


def _marked(text: bytes, start: int, token: bytes) -> str | None:
    """Return the kind of tokens whose form needs their length as well."""
    if len(token) == 24 and text[max(start - 2, 0) : start] == b"s." and token.isalnum():
        lone = start < 3 or not (text[start - 3 : start - 2].isalnum() or text[start - 3] in b"._")
        return "vault-token" if lone and looks_random(token, rate=0.3) else None
    if (
        len(token) <= 30
        and text[start - 1 : start] == b"|"
        and _FACEBOOK.search(text[max(start - 18, 0) : start])
    ):
        return "facebook-token"
    if len(token) == 34 and token[:2] == b"SK" and not token[2:].translate(None, _HEX):
        return "twilio-key"
    if 36 <= len(token) <= 37 and token[32:35] == b"-us" and not token[:32].translate(None, _HEX):
        return "mailchimp-key"
    if len(token) == 46 and token.startswith(b"oy2") and token.isalnum() and token.islower():
        return "nuget-key"
    if (
        23 <= len(token) <= 30
        and token[:1] in b"MNO"
        and text[start + len(token) : start + len(token) + 1] == b"."
    ):
        return _discord(text, start)
    if 20 <= len(token) <= 30 and text[start - 1 : start] == b"." and _discord_tail(text, start):
        return "discord-token"
    return None


_FACEBOOK = compiled(rb"[0-9]{13,17}\|$")
_DISCORD = compiled(rb"[MNO][\w-]{22,28}\.[\w-]{5,7}\.[\w-]{20,}")


def _discord(text: bytes, start: int) -> str | None:
    return "discord-token" if _DISCORD.match(text, start, start + 120) is not None else None


def _discord_tail(text: bytes, start: int) -> bool:
    return any(
        _DISCORD.match(text, at, start + 90) is not None
        for at in range(max(start - 40, 0), max(start - 28, 0))
    )


def _hex_kind(text: bytes, start: int, token: bytes) -> str | None:
    """Hexadecimal is a hash more often than a secret: only with a mark of its issuer."""
    before = text[max(start - 80, 0) : start]
    if len(token) == 32 and token.isupper() and before.endswith(b":"):
        line = before[before.rfind(b"\n") + 1 :]
        return "perforce-ticket" if _TICKET_LINE.search(line) else None
    if len(token) == 34 and token[:2] == b"AC":
        return "twilio-key"
    if len(token) == 32 and _ZHIPU.match(text, start + 32, start + 52):
        return "zhipu-key"
    if len(token) == 50 and token[32:33] == b"-" and token[41:42] == b"-":
        return "mailgun-key"
    if len(token) == 64 and before.endswith(b".") and _AIRTABLE.search(before):
        return "airtable-token"
    return None


_ZHIPU = compiled(rb"\.[A-Za-z0-9]{16}(?:$|[^A-Za-z0-9])")
_AIRTABLE = compiled(rb"(?:^|[^A-Za-z0-9])pat[A-Za-z0-9]{14}\.$")


def _decoded(token: bytes, before: bytes) -> bytes | None:
    """Return the text that base64 stands for, None where it stands for no text."""
    if len(token) < 16 or len(token) > _MAX_DECODED or digit_groups(token) < 1 or before.endswith(b"base64,"):
        return None
    plain = token.replace(b"-", b"+").replace(b"_", b"/")
    try:
        if not _is_text(base64.b64decode(plain[:16], validate=True)):
            return None  # most are not, and the head says it
        decoded = base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return decoded if _is_text(decoded) else None


def _plain_hex(token: bytes, holds_secret: Callable[[bytes], bool]) -> str | None:
    if len(token) % 2 or len(token) < 24 or b"-" in token or len(token) > _MAX_DECODED:
        return None
    decoded = bytes.fromhex(token.decode())
    return "encoded-secret" if _is_text(decoded) and holds_secret(decoded) else None


def _is_text(data: bytes) -> bool:
    return not data.translate(None, _PRINTABLE)
