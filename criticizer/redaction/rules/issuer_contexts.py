"""Secrets without a name or a mark, found by the words around them.

For example the issuer's name, a place in an address, a clause of a router. Functions with text and two
offsets are handlers (`handlers`).
"""

from __future__ import annotations

from typing import Any, Final

from criticizer.redaction.input.document import character_start
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import issuer_tokens, near_secret_words
from criticizer.redaction.rules.characters import looks_random
from criticizer.redaction.rules.handlers import Handler, by_word, is_likely_word, taken
from criticizer.redaction.rules.named_values import Span, from_base64, group_span, usable
from criticizer.redaction.rules.value_heuristics import is_code, is_generated, judge

WINDOW: Final = 2048
# creds: bob / x, log in as admin // x, login bob:x
_PAIRED = compiled(
    rb"[^\n\"'`={}]{0,50}?(?:[\s:>(]|[\"']?[ \t]*[:=][ \t]*[\"']?)[\w.@-]{2,40}"
    rb"[ \t]*(?:/{1,2}|:|\|)[ \t]*([^\s\"'`<>(),;/:|]{6,64})"
)
_BOTH = compiled(
    rb"[^\n]{0,40}?[\"'`][\w.@-]{2,40}[\"'`][ \t]*(?:and|und|et|y|e|/|,)[ \t]*[\"'`]([^\s\"'`]{6,64})[\"'`]"
)
_SAID = compiled(rb"[^\n]{0,40}?(?:\bis|:|=)[ \t]+[\"'`]?([^\s\"'`<>(),;]{6,64})")
_KEY_OF_WIFI = compiled(
    rb"[^\n]{0,60}?\b(?i:key|code|psk|pw)[ \t]*(?:[:=]|is)?[ \t]+[\"'`]?([^\s\"'`<>(),;]{6,64})"
)
# Tokens in the paths of hooks and APIs.
_IN_PATH = compiled(
    rb"(?i:infura\.io/v3|alchemy\.com/v2|alchemyapi\.io/v2|quiknode\.pro|rpc\.ankr\.com(?:/[a-z0-9_]+)?|\.p2pify\.com|getblock\.io"
    rb"|blastapi\.io|/hooks/catch/[0-9]+|/token|/webhooks?|/incomingwebhook|/hooks?|/with/key|/bot)/"
    rb"([A-Za-z0-9_@/-]{10,})"
)
_OF_DEVICE = compiled(
    rb"(?i)(?:key(?:-string)?(?:[ \t]+[0-9])?|secret(?:[ \t]+[0-9])?|md5|community|rocommunity6?"
    rb"|rwcommunity6?|pre-shared-key|message-digest-key|sha|aes|des|eap|psk|xauth|on)"
    rb"[ \t]+(?:(?:md5|local|remote|ascii-text|hexadecimal|[0-9]{1,3})[ \t]+)*"
    rb"(?:\"([^\"\n]{6,64})\"|'([^'\n]{6,64})'|>?([^\s\"'<>]{6,64}))"
)
_OF_ISSUER = compiled(
    rb"(?i:[\w.-]{0,30}[\"'\])]{0,2}[ \t]*(?:::=|:=|=>|=|:|[ \t]"
    rb"(?:auth|login|key|token)[ \t])[ \t]*[\"'`]?)"
    rb"([A-Za-z0-9_/+-]{20,128})(?:[\"'`\s,;]|$)"
)
_CALL_OF_ISSUER = compiled(rb"(?i:client|search|api|sdk|service|rest)?\([ \t]*([^()\n]{20,300})")
_DRAWN_LITERAL = compiled(rb"[\"'`]([A-Za-z0-9_/+-]{20,128})[\"'`]")
_WITH_USER = compiled(rb"[ \t]*(?:is|:|=)?[ \t]*[\"'`]?([^\s\"'`<>(),;]{6,64})")
_BUNDLE = compiled(
    rb"(?i:[a-z0-9_]*__[a-z0-9_]+[ \t]*[=:][ \t]*[\"']?([\w.%+-]{4,}:[\w.%+-]{4,})"
    rb"|[ \t]*=[ \t]*([0-9a-f]{40}))"
)
_TO_STOP: Final = bytes(32 if c in b" \t\r\n\"'`\\;|" else 33 for c in range(256))
_BEFORE_COMMAND: Final = (b"", b" ", b"\n", b'"', b"'")
_BASIC = compiled(rb"[ \t]*([A-Za-z0-9+/]{8,}={0,2})(?:[^A-Za-z0-9+/=]|$)")


def window_end(text: bytes, at: int, window: int = WINDOW) -> int:
    """Return where the line or the window ends."""
    end = text.find(b"\n", at, at + window)
    return end if end >= 0 else character_start(text, min(at + window, len(text)))


def literal(text: bytes, match: Any, kind: str) -> list[Span]:
    """Return the span of a match's value, unless it is code, a template or a dummy."""
    span = group_span(match)
    if span is None:
        return []
    value = text[slice(*span)]
    return [(*span, kind)] if usable(value) and not is_code(value) else []


def basic(text: bytes, start: int, end: int) -> list[Span]:
    """Find the base64 of user:password after `Basic`, in any place."""
    match = _BASIC.match(text, end, window_end(text, end, 300) + 1)
    if match is None:
        return []
    plain = from_base64(match.group(1))
    user, colon, password = plain.partition(b":")
    good = bool(colon and user and password) and plain.isascii() and usable(password)
    return [(*match.span(1), "authorization")] if good else []


def paired(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `creds: bob / x`, where no word names it."""
    stop = window_end(text, end, 160)
    match = _PAIRED.match(text, end - 1, stop)
    if match is None:
        of_wifi = text[start : start + 2].lower() in (b"wi", b"ss")
        match = (_KEY_OF_WIFI if of_wifi else _BOTH).match(text, end, stop)
    return taken(
        text, match, "password", lambda value: is_likely_word(value) and not value.endswith(b"@"), b".,"
    )


def stated(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `the pass for the vpn is x`."""
    match = _SAID.match(text, end - 4, window_end(text, end, 120))
    return taken(text, match, "password", is_likely_word, b".!")


def spoken_to_server(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `PASS x` (POP3, FTP) or `AUTH x` (Redis), a whole line or literal."""
    if text[start:end] not in (b"PASS ", b"AUTH ") or text[start - 1 : start] not in _BEFORE_COMMAND:
        return []
    cut = (text[end : end + 65] + b" ").translate(_TO_STOP).find(b" ")
    value = text[end : end + cut] if 6 <= cut <= 64 else b""
    return [(end, end + cut, "password")] if value and is_likely_word(value) else []


def in_path(text: bytes, start: int, end: int) -> list[Span]:
    """Find the token in the path of `https://mainnet.infura.io/v3/x`, `…/hooks/catch/1/x`."""
    low = max(text.rfind(b"\n", max(start - 200, 0), start) + 1, start - 200, 0)
    scheme = text.rfind(b"://", low, start)
    if scheme < 0 or b" " in text[scheme:start]:
        return []
    begin = max(start - 40, 0)
    match = _IN_PATH.search(text, begin, window_end(text, end, 400))
    if match is None:
        return []
    first, last = match.span(1)
    value = text[first:last].rstrip(b"/-_")
    drawn = any(
        (len(part) >= 10 and looks_random(part, rate=0.25)) or judge(part, 2, quoted=True)
        for part in value.split(b"/")
        if len(part) >= 10
    )
    return [(first, first + len(value), "secret")] if drawn else []


def issuer(text: bytes, start: int, end: int) -> list[Span]:
    """Find a generated value beside the name of an issuer: `deepgram = x`."""
    if text[start - 1 : start].isalnum():
        return []
    match = _OF_ISSUER.match(text, end, window_end(text, end, 200) + 1)
    if match is None:
        return _constructed(text, end)
    return taken(text, match, "issuer-key", is_generated)


def _constructed(text: bytes, end: int) -> list[Span]:
    """Find the generated arguments of an issuer's client: `algoliasearch("id", "x")`."""
    match = _CALL_OF_ISSUER.match(text, end, window_end(text, end, 400))
    if match is None:
        return []
    literals = _DRAWN_LITERAL.finditer(text, *match.span(1))
    return [(*found.span(1), "issuer-key") for found in literals if is_generated(found.group(1))]


def with_user(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `user bob / pass x`, `admin, pw x`."""
    match = _WITH_USER.match(text, end, window_end(text, end, 120))
    return taken(text, match, "password", is_likely_word, b".!")


def device(text: bytes, start: int, end: int) -> list[Span]:
    """Find the keys of routers and daemons: `snmp-server community x`, `tacacs-server key x`.

    Also `user bob on >x`.
    """
    stop = window_end(text, end, 200)
    found: list[Span] = []
    for match in _OF_DEVICE.finditer(text, start, stop):
        span = group_span(match)
        if span is not None and near_secret_words.is_value(
            text[slice(*span)], 3, quoted=match.lastindex != 3
        ):
            found.append((*span, "password"))
    return found


def bundle(text: bytes, start: int, end: int) -> list[Span]:
    """Find the secret of `BUNDLE_GEMS__ACME__COM=user:password` and `sonar.login=token`."""
    match = _BUNDLE.match(text, end, window_end(text, end, 200))
    span = group_span(match)
    return [(*span, "secret")] if span is not None else []


_PIN = compiled(rb"[\"'`*]{0,2}([0-9]{4,8})[\"'`*]{0,2}(?:[.,;!)]?[\s]|[.,;!)]?$)")
_SPOKEN_SIGNS: Final = (b"s ", b"t ")  # after is, ist, lautet, est there may be more than four digits


def pin(text: bytes, start: int, end: int) -> list[Span]:
    """Find the number of `the PIN is 4711`.

    Only in capitals: a pin of a chip is written in lower case, and has fewer digits.
    """
    before = text[start - 1 : start]
    if not text.startswith(b"PIN", start) or before.isalnum() or before in (b"_", b"-", b"."):
        return []
    match = _PIN.match(text, end, min(window_end(text, end, 40) + 1, len(text)))
    if match is None or (match.end(1) - match.start(1) > 4 and text[end - 2 : end] not in _SPOKEN_SIGNS):
        return []  # the PIN of an address in India has six digits
    return [(*match.span(1), "password")] if usable(match.group(1)) else []


_STATIC_MAP = compiled(rb"[^\s:]{1,64}:([^\s:]{4,128})")


def static_map(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `smtp_sasl_password_maps = static:user:password`."""
    low = max(text.rfind(b"\n", max(start - 120, 0), start), start - 120, 0)
    if b"sasl_password" not in text[low:start]:
        return []
    return literal(text, _STATIC_MAP.match(text, end, window_end(text, end)), "smtp-credential")


_WORDS: Final[tuple[tuple[Handler, bytes], ...]] = (
    (basic, b"basic "),
    (
        paired,
        b"creds|credentials|log in|login|wifi|wi-fi|ssid|basic_auth|basicauth|basic-auth|http_auth|"
        b"auth_basic|sst_auth|auth=|auth =|auth: "
        b"|failed for|connect as|connecting as|account (|user (|admin (|login (",
    ),
    (stated, b"the pass |pass for |pass is |phrase is |secret is |login is |phrase: "),
    (with_user, b"/ pass |, pass |; pass |& pass |and pass |/ pw |, pw |; pw |and pw "),
    (spoken_to_server, b"pass |auth "),
    (
        in_path,
        b"infura.io/|alchemy.com/|alchemyapi.io/|quiknode.pro/|ankr.com/|p2pify.com/|getblock.io/|blastapi.io/"
        b"|/hook/|/hooks/|/with/key/|/token/|webhook/|webhooks/",
    ),
    (issuer, b"|".join(issuer_tokens.NAMES)),
    (bundle, b"bundle_|sonar.login"),
    (static_map, b"static:"),
    (pin, b"pin is |pin ist |pin lautet |pin est |pin: |pin = "),
    (
        device,
        b"community |rocommunity|rwcommunity|pre-shared-key|radius-server|tacacs-server|"
        b"authentication-key|createuser |isakmp | client |option key|"
        b"message-digest-key|ipsec |username |radius |key-string |bind-key ",
    ),
    (device, b": eap |: psk |: xauth |acl setuser|user "),
)
HANDLERS: Final = by_word(_WORDS)
