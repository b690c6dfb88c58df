"""Credentials in addresses: user and password before a host, signatures and codes after it.

Functions with text and two offsets are handlers (`handlers`).
"""

from __future__ import annotations

from typing import Final

from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules.characters import kinds, looks_random
from criticizer.redaction.rules.handlers import taken
from criticizer.redaction.rules.issuer_contexts import literal, window_end
from criticizer.redaction.rules.named_values import Span, usable
from criticizer.redaction.rules.value_heuristics import is_chosen, is_slug, is_template, judge

_HEAD: Final = 256  # bytes of a value that are judged
_AUTHORITY = compiled(rb"://([^\s/?#\"'`<>\\]*)@([\w\[.-]|%|\$|\{)")
_AUTHORITY_SLASH = compiled(rb"://([A-Za-z0-9_.%@+-]*:[^\s\"'`<>]*)@[\w\[]")
_PORT = compiled(rb"[0-9]{1,5}[/?#]")
_SCHEMELESS = compiled(
    rb"(?:^|[\s\"'=(\[,]|ssl:|sips?:)[A-Za-z0-9_.+-]{1,64}:([^\s\"'`<>:@/,;(){}\[\]]{6,})$"
)
_PLACEHOLDERS: Final = frozenset(
    b"password passwd pass pwd pw secret passphrase your-password yourpassword your_password".split()
)
_ORACLE = compiled(rb"[a-z]+:[^/\s\"'@]+/([^@\s\"']+)@")
_MAIL_MAP = compiled(
    rb"(?m)(?:[0-9]{2,5}|[\w.-]+\.[a-z]{2,10})\]?(?::[0-9]{2,5})?[ \t]+[^\s:]+:([^\s:]{4,})[ \t\r]*$"
)
_QUERY = compiled(rb"(?:[A-Za-z0-9_-]*(?:sig|signature|code|key|auth|ticket|hash))=([^&?\s\"'`<>#]+)")


def uri(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `scheme://user:password@host`, or the token of `scheme://token@host`."""
    stop = window_end(text, start, 512)
    if text.find(b"@", start, stop) < 0:
        return []
    match = _AUTHORITY.match(text, start, stop) or _AUTHORITY_SLASH.match(text, start, stop)
    if match is None:
        return []
    first, last = match.span(1)
    info = text[first:last]
    name, colon, password = info.partition(b":")
    if not colon:
        secret = len(name) >= 16 and (looks_random(name) or judge(name, 2, quoted=True))
        return [(first, last, "uri-password")] if secret else []
    if _PORT.match(password):
        return []  # https://host:8000/@x has no password
    if (
        not password.strip(b"\x01<>")
        or password.lower() in _PLACEHOLDERS
        or is_template(password)
        or not password.strip(b"xX*.")
    ):
        return []
    if password.startswith((b"{", b"$", b"<", b"%(", b"#{")) or (
        password.endswith(b"}") and b"{" in password
    ):
        return []
    at = first + len(name) + 1
    if name and not is_template(name) and (looks_random(name, rate=0.3) or _hexish(name)):
        at = first  # user and password are both generated: the pair is the credential
    return [(at, last, "uri-password")]


def _hexish(name: bytes) -> bool:
    return (
        len(name) >= 8 and not name.strip(b"0123456789abcdef") and not name.isalpha() and not name.isdigit()
    )


def mail_map(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `[host]:587 user:password`, as in sasl_passwd."""
    return literal(text, _MAIL_MAP.match(text, start + 1, window_end(text, start) + 1), "smtp-credential")


def oracle(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `jdbc:oracle:thin:user/password@host`."""
    return literal(text, _ORACLE.match(text, end, window_end(text, end)), "uri-password")


def schemeless(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `user:password@host` and `ssl:user:password@host:1666`."""
    if start == 0 or text[start - 1] in b" \t\n\"'`(":
        return []
    low = max(text.rfind(b"\n", max(start - 80, 0), start) + 1, start - 80, 0)
    colon = text.rfind(b":", low, start)
    match = _SCHEMELESS.search(text[low:start]) if 0 <= colon < start - 6 else None
    if match is None or text[start + 1 : start + 7] == b"sha256":
        return []
    first, last = low + match.start(1), start
    value = text[first:last]
    good = judge(value, 3, quoted=False) and kinds(value)[2] and (not is_slug(value) or is_chosen(value))
    return [(first, last, "uri-password")] if good else []


def query(text: bytes, start: int, end: int) -> list[Span]:
    """Find the signature or one-time code in a query parameter such as `?sig=` or `&code=`."""
    return taken(text, _QUERY.match(text, start + 1, window_end(text, start)), "secret", _is_signature)


def _is_signature(value: bytes) -> bool:
    value = value[:_HEAD]
    return len(value) >= 12 and usable(value) and looks_random(value, rate=0.3)


def signature(text: bytes, start: int, end: int) -> list[Span]:
    """Find the signature after `X-Amz-Signature=` and the like, whatever precedes it."""
    return query(text, start - 1, end)
