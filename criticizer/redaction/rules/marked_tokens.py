"""Kinds of tokens whose issuer shows only in their form, length and neighbouring text."""

from __future__ import annotations

from typing import Final

from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules.characters import looks_random

LONGEST: Final = 46  # bytes of the longest token that `kind_of` knows
HEX: Final = b"0123456789abcdefABCDEF-"
_TICKET_LINE = compiled(rb"=[^\s:=]+:$")


def kind_of(text: bytes, start: int, token: bytes) -> str | None:
    """Return the kind of a token whose form is certain only with its length, or None."""
    if len(token) == 24 and text[max(start - 2, 0) : start] == b"s." and token.isalnum():
        lone = start < 3 or not (text[start - 3 : start - 2].isalnum() or text[start - 3] in b"._")
        return "vault-token" if lone and looks_random(token, rate=0.3) else None
    if (
        len(token) <= 30
        and text[start - 1 : start] == b"|"
        and _FACEBOOK.search(text[max(start - 18, 0) : start])
    ):
        return "facebook-token"
    if len(token) == 34 and token[:2] == b"SK" and not token[2:].translate(None, HEX):
        return "twilio-key"
    if 36 <= len(token) <= 37 and token[32:35] == b"-us" and not token[:32].translate(None, HEX):
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


def hex_kind(text: bytes, start: int, token: bytes) -> str | None:
    """Return the kind of a hexadecimal token with a mark of its issuer, else None.

    Most others are hashes.
    """
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
