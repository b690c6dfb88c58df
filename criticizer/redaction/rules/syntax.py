"""Secrets found by the syntax around them: addresses, headers, commands, clauses.

Functions with text and two offsets are handlers (`handlers`); `HANDLERS` holds those of all modules.
"""

from __future__ import annotations

from typing import Final

from criticizer.redaction.input.document import character_start
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import addresses, arguments, blocks, commands, issuer_contexts
from criticizer.redaction.rules.characters import looks_random
from criticizer.redaction.rules.commands import literal as arguments_literal
from criticizer.redaction.rules.handlers import Handler, by_word
from criticizer.redaction.rules.issuer_contexts import WINDOW, literal, window_end
from criticizer.redaction.rules.named_values import Span, usable
from criticizer.redaction.rules.value_heuristics import (
    is_code,
    judge,
)

_HEAD: Final = 256  # bytes of a value that are judged
_SET_PASSWORD = compiled(
    rb"(?:[ \t]+(?i:for)[ \t]+[^\s=]+)?[ \t]*=[ \t]*(?:(?i:password)\()?(?:\"([^\"\n]+)\"|'([^'\n]+)')"
)
_ARGUMENT = compiled(rb"[ \t]+(?:[0-9][ \t]+)?[\"']?([^\s\"'#;][^\s\"';]{3,})")
_HEADER_VALUE = compiled(
    rb"[\"'\])]{0,3}[ \t]{0,10}[:=,>]{1,2}[ \t]{0,10}[\"'`]{0,3}(?:[bBfFuU]?[\"'])?"
    rb"((?:(?i:basic|bearer|token|digest|negotiate|ntlm|apikey|api-key|key|oauth2?|hmac|aws4-hmac-sha256|sharedkey(?:lite)?"
    rb"|googlelogin auth|zoho-oauthtoken|genie-?key|splunk|jwt|pat)[ \t:=]{1,4})?)"
)
_TO_STOP: Final = bytes(32 if c in b" \t\r\n\x0b\x0c\"'`<>" else 33 for c in range(256))
_COOKIE_HEAD = compiled(rb"2?[\"'\])]{0,3}[ \t]{0,10}[:=,][ \t]{0,10}[\"'`]?")
_COOKIE = compiled(rb"([\w.!#$%&*+^|~-]+)=([^;,\s\"'`]+)")
_COOKIE_ATTRIBUTES: Final = frozenset(
    (b"path", b"domain", b"expires", b"max-age", b"samesite", b"version", b"priority")
)
_BEARER = compiled(rb"[ \t]{0,4}[\"'`]?([A-Za-z0-9_.~+/=|-]{8,})")
_AUTH_SMTP = compiled(rb"[ \t]+(?:=[ \t]*)?([A-Za-z0-9+/=]{8,})")
_NETRC = compiled(rb"[ \t]*\S+[ \t]+(?:login|user)[ \t]+\S+[ \t]+password[ \t]+(\S+)")
_PGPASS = compiled(rb"(?m)[\w.*-]+:[\w.*-]+:([^\s:\"']{4,})[ \t\r]*$")
_IDENTIFIED = compiled(
    rb"[ \t]+(?:WITH[ \t]+[\w'\"]+[ \t]+)?(?i:by|as)[ \t]+(?:password[ \t]+)?(?:\"([^\"\n]+)\"|'([^'\n]+)')"
)
_TICKET = compiled(rb"(?:^|[^0-9A-Za-z])([0-9A-F]{32})(?:$|[^0-9A-Za-z])")
_P4_FLAG = compiled(rb"[^|;\n]*?[ \t]-P[ \t]*(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'`;|-][^\s\"'`;|]{3,}))")
_FINE_PRINT = compiled(rb"[ \t]*=[ \t]*[\"']?([A-Za-z0-9+/=_%-]{16,})")


def _value_end(text: bytes, first: int) -> int:
    """Return the end of an unquoted value; most are short, so little is read at first."""
    for window in (_HEAD, WINDOW):
        cut = text[first : first + window].translate(_TO_STOP).find(b" ")
        if cut >= 0:
            return first + cut
    return character_start(text, min(first + WINDOW, len(text)))


def header(text: bytes, start: int, end: int) -> list[Span]:
    """Find the credentials of `Authorization: scheme credentials`, in any quotes."""
    match = _HEADER_VALUE.match(text, end, window_end(text, end))
    if match is None:
        return []
    scheme = match.group(1).strip().lower()
    first = match.end()
    last = _value_end(text, first)
    value = text[first:last].rstrip(b"\\,;)}")
    if value.endswith(b"]") and b"[" not in value:
        value = value[:-1]
    last = first + len(value)
    if scheme.startswith(b"digest"):
        return [(*m.span(1), "authorization") for m in _DIGEST.finditer(text, first, window_end(text, first))]
    if scheme.startswith(b"aws4"):
        return [(*m.span(1), "authorization") for m in _SIGNED.finditer(text, first, window_end(text, first))]
    least = 6 if scheme else 12
    if (
        len(value) < least
        or not usable(value)
        or is_code(value[:_HEAD])
        or b"{" in value
        or value.startswith((b"$", b"%", b"+"))
    ):
        return []
    if not scheme and not judge(value, 2, quoted=True):
        return []
    if value.isalpha() and (value.islower() or value.isupper()) and len(value) < 20:
        return []
    return [(first, last, "authorization")]


_DIGEST = compiled(rb"(?:response|cnonce|nonce)=\"?([A-Za-z0-9+/=_-]{8,})")
_SIGNED = compiled(rb"Signature=([0-9a-fA-F]{16,})")


def bearer(text: bytes, start: int, end: int) -> list[Span]:
    """Find the token of `bearer TOKEN`, in any place."""
    match = _BEARER.match(text, end, window_end(text, end))
    if match is None:
        return []
    value = match.group(1)[:_HEAD]
    good = usable(value) and (looks_random(value, rate=0.3) or judge(value, 2, quoted=True))
    return [(*match.span(1), "authorization")] if good else []


def cookie(text: bytes, start: int, end: int) -> list[Span]:
    """Find every value of `Cookie` and `Set-Cookie` that may be a session."""
    stop = window_end(text, end)
    head = _COOKIE_HEAD.match(text, end, stop)
    if head is None:
        return []
    found: list[Span] = []
    for match in _COOKIE.finditer(text, head.end(), stop):
        value = match.group(2)
        if (
            match.group(1).lower() in _COOKIE_ATTRIBUTES
            or len(value) < 8
            or not usable(value)
            or is_code(value)
        ):
            continue
        if judge(value, 2, quoted=True) or looks_random(value, rate=0.3):
            found.append((*match.span(2), "cookie"))
    return found


def smtp_auth(text: bytes, start: int, end: int) -> list[Span]:
    """Find the credentials after AUTH PLAIN or AUTH LOGIN, on the same line."""
    return literal(text, _AUTH_SMTP.match(text, end, window_end(text, end)), "smtp-credential")


def set_password(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `SET PASSWORD FOR user = 'x'`."""
    return literal(text, _SET_PASSWORD.match(text, end, window_end(text, end)), "password")


def argument(text: bytes, start: int, end: int) -> list[Span]:
    """Find the argument of `requirepass x` and the like."""
    return literal(text, _ARGUMENT.match(text, end, window_end(text, end)), "password")


def _numbered(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `username bob password 0 x`."""
    return _device(text, start, end - 1)


def _device(text: bytes, start: int, end: int) -> list[Span]:
    """Find the secret of `enable secret x`, but nothing in: enable password entry."""
    spans = argument(text, start, end)
    return [span for span in spans if judge(text[span[0] : span[1]].rstrip(b"."), 3, quoted=False)]


def netrc(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `machine HOST login USER password X`."""
    return arguments_literal(text, _NETRC.match(text, end, window_end(text, end)), "password")


def pgpass(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `host:5432:database:user:password`."""
    return literal(text, _PGPASS.match(text, end, window_end(text, end) + 1), "password")


def identified_by(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `IDENTIFIED BY 'x'`."""
    spans = literal(text, _IDENTIFIED.match(text, end, window_end(text, end)), "password")
    return [span for span in spans if judge(text[span[0] : span[1]], 3, quoted=True)]


def perforce(text: bytes, start: int, end: int) -> list[Span]:
    """Find a ticket (32 upper-case hex digits) near p4, and that of `p4 -P X`."""
    stop = window_end(text, end, 400)
    spans = [(*match.span(1), "perforce-ticket") for match in _TICKET.finditer(text, end - 1, stop + 1)]
    return spans + literal(text, _P4_FLAG.match(text, end - 1, stop), "perforce-ticket")


def connection(text: bytes, start: int, end: int) -> list[Span]:
    """Find the key of `AccountKey=...;` and the like."""
    match = _FINE_PRINT.match(text, end, window_end(text, end))
    good = match is not None and usable(match.group(1)) and not match.group(1).isalpha()
    return [(*match.span(1), "connection-string")] if match is not None and good else []


def is_continued(text: bytes, end: int) -> bool:
    """Return whether a line continues below: it ends in a backslash or right after an operator."""
    rest = text[end : window_end(text, end)].rstrip()
    return rest.endswith(b"\\") or not rest.strip(b"\"': =,([")


# These read their whole window, and find all secrets of their kind in it.
READ_ALL: Final = frozenset((cookie, perforce, arguments.of_user, *commands.READ_ALL))
# The value of these may be on the lines below.
CONTINUED: Final = frozenset((header, *commands.HANDLERS.values()))


_WORDS: Final[tuple[tuple[Handler, bytes], ...]] = (
    (addresses.uri, b"://"),
    (header, b"authorization|http_authorization"),
    (bearer, b"bearer "),
    (cookie, b"cookie"),
    (smtp_auth, b"auth plain|auth login|auth cram-md5"),
    (addresses.mail_map, b":587|:465|:25|:2525"),
    (addresses.oracle, b"jdbc:oracle:"),
    (set_password, b"set password"),
    (argument, b"requirepass|masterauth|bindpw|rootpw"),
    (_numbered, b"password 0 |password 7 |secret 0 "),
    (_device, b"enable secret|enable password"),
    # `@` and the first character of a host: most `@` are in the heads of hunks.
    (addresses.schemeless, b"|".join(b"@%c" % c for c in b"abcdefghijklmnopqrstuvwxyz0123456789")),
    (netrc, b"machine "),
    (pgpass, b":5432:|:3306:|:*:"),
    (identified_by, b"identified"),
    (perforce, b"p4passwd|p4 |p4tickets|p4 login|ticket"),
    (addresses.query, b"?sig=|&sig=|?code=|&code=|&signature=|?signature="),
    (addresses.signature, b"x-amz-signature=|x-goog-signature="),
    (connection, b"accountkey|sharedaccesskey|sharedaccesssignature"),
)
HANDLERS: Final[dict[bytes, Handler]] = {
    **arguments.HANDLERS,
    **commands.HANDLERS,
    **issuer_contexts.HANDLERS,
    **blocks.HANDLERS,
    **by_word(_WORDS),
}
