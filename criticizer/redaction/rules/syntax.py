"""Secrets recognised by the syntax around them: addresses, headers, commands, clauses.

Each handler gets the text and the offsets of the word that the prefilter found, reads a
bounded window and returns spans (start, end, kind).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from criticizer.redaction.input.document import character_start
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import arguments, commands, contexts
from criticizer.redaction.rules.literals import Span, group_span, usable
from criticizer.redaction.rules.value_heuristics import (
    is_chosen,
    is_code,
    is_dummy,
    is_slug,
    is_template,
    judge,
    kinds,
    looks_random,
)

WINDOW: Final = 2048
_HEAD: Final = 256  # bytes of a value that say what it is
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
_MAIL_MAP = compiled(
    rb"(?m)(?:[0-9]{2,5}|[\w.-]+\.[a-z]{2,10})\]?(?::[0-9]{2,5})?[ \t]+[^\s:]+:([^\s:]{4,})[ \t\r]*$"
)
_NETRC = compiled(rb"[ \t]*\S+[ \t]+(?:login|user)[ \t]+\S+[ \t]+password[ \t]+(\S+)")
_PGPASS = compiled(rb"(?m)[\w.*-]+:[\w.*-]+:([^\s:\"']{4,})[ \t\r]*$")
_IDENTIFIED = compiled(
    rb"[ \t]+(?:WITH[ \t]+[\w'\"]+[ \t]+)?(?i:by|as)[ \t]+(?:password[ \t]+)?(?:\"([^\"\n]+)\"|'([^'\n]+)')"
)
_TICKET = compiled(rb"(?:^|[^0-9A-Za-z])([0-9A-F]{32})(?:$|[^0-9A-Za-z])")
_P4_FLAG = compiled(rb"[^|;\n]*?[ \t]-P[ \t]*(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'`;|-][^\s\"'`;|]{3,}))")
_QUERY = compiled(rb"(?:[A-Za-z0-9_-]*(?:sig|signature|code|key|auth|ticket|hash))=([^&?\s\"'`<>#]+)")
_FINE_PRINT = compiled(rb"[ \t]*=[ \t]*[\"']?([A-Za-z0-9+/=_%-]{16,})")


def window_end(text: bytes, at: int, window: int = WINDOW) -> int:
    """Return where the line ends, or the window."""
    end = text.find(b"\n", at, at + window)
    return end if end >= 0 else character_start(text, min(at + window, len(text)))


def _literal(text: bytes, match: Any, kind: str) -> list[Span]:
    span = group_span(match)
    if span is None:
        return []
    value = text[slice(*span)]
    return [(*span, kind)] if usable(value) and not is_code(value) else []


def uri(text: bytes, start: int, end: int) -> list[Span]:
    """scheme://user:password@host, and scheme://token@host where the token is one."""
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
        return []  # https://host:8000/@x is no address with a password
    if (
        not password.strip(b"\x01<>")
        or password.lower() in _PLACEHOLDERS
        or is_template(password)
        or (is_dummy(password) and password.strip(b"xX*.") == b"")
    ):
        return []
    if password.startswith((b"{", b"$", b"<", b"%(", b"#{")) or (
        password.endswith(b"}") and b"{" in password
    ):
        return []
    at = first + len(name) + 1
    if not name or looks_random(name, rate=0.3) or _hexish(name):
        # user and password are both generated: the pair is the credential.
        at = first if name and not is_template(name) else at
    return [(at, last, "uri-password")]


def _hexish(name: bytes) -> bool:
    return (
        len(name) >= 8 and not name.strip(b"0123456789abcdef") and not name.isalpha() and not name.isdigit()
    )


def _value_end(text: bytes, first: int) -> int:
    """Return where an unquoted value ends; most are short, so little is read at first."""
    for window in (_HEAD, WINDOW):
        cut = text[first : first + window].translate(_TO_STOP).find(b" ")
        if cut >= 0:
            return first + cut
    return character_start(text, min(first + WINDOW, len(text)))


def header(text: bytes, start: int, end: int) -> list[Span]:
    """Authorization: scheme credentials, in any quoting."""
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
    """`bearer TOKEN` in any place."""
    match = _BEARER.match(text, end, window_end(text, end))
    if match is None:
        return []
    value = match.group(1)[:_HEAD]
    good = usable(value) and (looks_random(value, rate=0.3) or judge(value, 2, quoted=True))
    return [(*match.span(1), "authorization")] if good else []


def cookie(text: bytes, start: int, end: int) -> list[Span]:
    """Cookie and Set-Cookie: every value that could be a session."""
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
    """AUTH PLAIN and AUTH LOGIN with the credentials on the same line."""
    return _literal(text, _AUTH_SMTP.match(text, end, window_end(text, end)), "smtp-credential")


def mail_map(text: bytes, start: int, end: int) -> list[Span]:
    """sasl_passwd: `[host]:587 user:password`."""
    return _literal(text, _MAIL_MAP.match(text, start + 1, window_end(text, start) + 1), "smtp-credential")


def oracle(text: bytes, start: int, end: int) -> list[Span]:
    """jdbc:oracle:thin:user/password@host."""
    return _literal(text, _ORACLE.match(text, end, window_end(text, end)), "uri-password")


def schemeless(text: bytes, start: int, end: int) -> list[Span]:
    """user:password@host without a scheme, and ssl:user:password@host:1666."""
    if start == 0 or text[start - 1] in b" \t\n\"'`(" or not text[end : end + 1].isalnum():
        return []
    low = max(text.rfind(b"\n", max(start - 80, 0), start) + 1, start - 80, 0)
    colon = text.rfind(b":", low, start)
    match = _SCHEMELESS.search(text[low:start]) if 0 <= colon < start - 6 else None
    if match is None or text[end : end + 6] == b"sha256":
        return []
    first, last = low + match.start(1), start
    value = text[first:last]
    good = judge(value, 3, quoted=False) and kinds(value)[2] and (not is_slug(value) or is_chosen(value))
    return [(first, last, "uri-password")] if good else []


def set_password(text: bytes, start: int, end: int) -> list[Span]:
    """SET PASSWORD FOR user = 'x'."""
    return _literal(text, _SET_PASSWORD.match(text, end, window_end(text, end)), "password")


def argument(text: bytes, start: int, end: int) -> list[Span]:
    """requirepass x."""
    return _literal(text, _ARGUMENT.match(text, end, window_end(text, end)), "password")


def _numbered(text: bytes, start: int, end: int) -> list[Span]:
    """username bob password 0 x."""
    return _device(text, start, end - 1)


def _device(text: bytes, start: int, end: int) -> list[Span]:
    """enable secret x; and not: enable password entry."""
    spans = argument(text, start, end)
    return [span for span in spans if judge(text[span[0] : span[1]].rstrip(b"."), 3, quoted=False)]


def netrc(text: bytes, start: int, end: int) -> list[Span]:
    """machine HOST login USER password X."""
    return _literal(text, _NETRC.match(text, end, window_end(text, end)), "password")


def pgpass(text: bytes, start: int, end: int) -> list[Span]:
    """host:5432:database:user:password."""
    return _literal(text, _PGPASS.match(text, end, window_end(text, end) + 1), "password")


def identified_by(text: bytes, start: int, end: int) -> list[Span]:
    """IDENTIFIED BY 'x'."""
    spans = _literal(text, _IDENTIFIED.match(text, end, window_end(text, end)), "password")
    return [span for span in spans if judge(text[span[0] : span[1]], 3, quoted=True)]


def perforce(text: bytes, start: int, end: int) -> list[Span]:
    """A ticket (32 upper-case hex digits) near p4, and p4 -P X."""
    stop = window_end(text, end, 400)
    spans = [(*match.span(1), "perforce-ticket") for match in _TICKET.finditer(text, end - 1, stop + 1)]
    return spans + _literal(text, _P4_FLAG.match(text, end - 1, stop), "perforce-ticket")


def query(text: bytes, start: int, end: int) -> list[Span]:
    """?sig=, &code=: query parameters that carry a signature or a one-time code."""
    match = _QUERY.match(text, start + 1, window_end(text, start))
    if match is None:
        return []
    value = match.group(1)[:_HEAD]
    return (
        [(*match.span(1), "secret")]
        if len(value) >= 12 and usable(value) and looks_random(value, rate=0.3)
        else []
    )


def connection(text: bytes, start: int, end: int) -> list[Span]:
    """AccountKey=...; and its relatives."""
    match = _FINE_PRINT.match(text, end, window_end(text, end))
    good = match is not None and usable(match.group(1)) and not match.group(1).isalpha()
    return [(*match.span(1), "connection-string")] if match is not None and good else []


def is_continued(text: bytes, end: int) -> bool:
    """Return whether a line goes on below: it ends in a backslash or right after an operator."""
    rest = text[end : window_end(text, end)].rstrip()
    return rest.endswith(b"\\") or not rest.strip(b"\"': =,([")


# These read their whole window, with everything of their kind in it.
READ_ALL: Final = frozenset((cookie, perforce, arguments.of_user, *commands.READ_ALL))
# The value of these may be on the lines below.
CONTINUED: Final = frozenset((header, *commands.HANDLERS.values()))
Handler = Callable[[bytes, int, int], list[Span]]


def _signature(text: bytes, start: int, end: int) -> list[Span]:
    return query(text, start - 1, end)


_WORDS: Final[tuple[tuple[Handler, bytes], ...]] = (
    (uri, b"://"),
    (header, b"authorization|http_authorization"),
    (bearer, b"bearer "),
    (cookie, b"cookie"),
    (smtp_auth, b"auth plain|auth login|auth cram-md5"),
    (mail_map, b":587|:465|:25|:2525"),
    (oracle, b"jdbc:oracle:"),
    (set_password, b"set password"),
    (argument, b"requirepass|masterauth|bindpw|rootpw"),
    (_numbered, b"password 0 |password 7 |secret 0 "),
    (_device, b"enable secret|enable password"),
    (schemeless, b"@"),
    (netrc, b"machine "),
    (pgpass, b":5432:|:3306:|:*:"),
    (identified_by, b"identified"),
    (perforce, b"p4passwd|p4 |p4tickets|p4 login|ticket"),
    (query, b"?sig=|&sig=|?code=|&code=|&signature=|?signature="),
    (_signature, b"x-amz-signature=|x-goog-signature="),
    (connection, b"accountkey|sharedaccesskey|sharedaccesssignature"),
)
HANDLERS: Final[dict[bytes, Handler]] = {
    **arguments.HANDLERS,
    **commands.HANDLERS,
    **contexts.HANDLERS,
    **{word: handler for handler, words in _WORDS for word in words.split(b"|")},
}
