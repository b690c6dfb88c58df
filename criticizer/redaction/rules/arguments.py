"""Passwords without a name in commands and calls: as input, encoded, or by their position.

Functions with text and two offsets are handlers (`handlers`).
"""

from __future__ import annotations

from typing import Final

from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules.characters import holds, looks_random
from criticizer.redaction.rules.commands import (
    WORD,
    flag,
    line_end,
    line_start,
    literal,
    printed_before,
    user_flag,
)
from criticizer.redaction.rules.handlers import (
    Handler,
    by_word,
    is_likely_literal,
    is_likely_word,
    is_password,
    taken,
)
from criticizer.redaction.rules.named_values import Span, from_base64, group_span, usable

_PAIR = compiled(rb"[ \t]*[bu]?[\"'`][^\"'`:\s]{1,64}:([^\"'`\n]{4,128})[\"'`]")
# A command that names a user may have a password beside it: -u bob -p x, /user:bob /p:x.
_OF_USER = compiled(
    rb"[ \t](?:-u|-U|-l|-user|--user(?:name)?|--login|/[uU](?:ser)?|-D)[ \t=:]*[\"']?[\w.@\\-]+"
)
_BESIDE_USER = compiled(rb"[ \t](?:-p|-P|-w|-pw|-pass|--pass|/p(?:w|ass)?)(?:[ \t=:]+|:)" + WORD)


def of_user(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `-u bob -p x`, in either order, or `--user bob:x`, in any command."""
    stop = line_end(text, end)
    low = line_start(text, start)
    found = user_flag(text, start, start)
    for match in _BESIDE_USER.finditer(text, low, stop) if _OF_USER.search(text, low, stop) else ():
        found += literal(text, match)
    return [span for span in found if is_likely_word(text[slice(*span[:2])])]


def user_and_password(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `btoa("user:password")`."""
    match = _PAIR.match(text, end, line_end(text, end))
    if match is None:
        return decoded(text, start, end)  # Buffer.from("…", "base64")
    return taken(text, match, "password", is_password)


_BASE64_ARGUMENT = compiled(rb"[^\"'`\n]{0,24}[\"'`]([A-Za-z0-9+/_-]{8,400}={0,2})[\"'`]")
_CALLED = compiled(rb"[^\n]{0,40}?(?:echo[ \t]+|,[ \t]*)" + WORD)


def decoded(text: bytes, start: int, end: int) -> list[Span]:
    """Find the base64 of a password or of user:password, as in `atob("dXNlcjpwYXNz")`."""
    match = _BASE64_ARGUMENT.match(text, end, line_end(text, end))
    return taken(text, match, "encoded-secret", _stands_for_password)


def _stands_for_password(encoded: bytes) -> bool:
    return is_likely_literal(from_base64(encoded).rpartition(b":")[2].strip())


def piped(text: bytes, start: int, end: int) -> list[Span]:
    """Find the base64 of a password in `echo BASE64 | base64 -d`."""
    span = printed_before(text, start)
    good = span is not None and is_likely_literal(from_base64(text[slice(*span)]).strip())
    return [(*span, "encoded-secret")] if span is not None and good else []


_FED = compiled(rb"[ \t]*(?:\"(?:PASS[ \t]+)?([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'`;|&<>()]{6,}))")
_TAKES_SECRET = compiled(rb"(?i)pass|pw|secret|ssh-add|luks|login|auth|key|token|crypt|openconnect|110|143")


def fed(text: bytes, start: int, end: int) -> list[Span]:
    """Find the input of `podman secret create db - <<< "x"`, `rsync --password-file=<(echo x)`."""
    low = line_start(text, start)
    match = _FED.match(text, end, line_end(text, end))
    if match is None or _TAKES_SECRET.search(text, low, start) is None:
        return []
    return taken(text, match, "cli-password", is_likely_literal)


def to_characters(text: bytes, start: int, end: int) -> list[Span]:
    """Find the literal of `"x".toCharArray()`, the form of a password in Java."""
    first = text.rfind(b'"', max(start - 130, 0), start) + 1
    good = first and is_password(text[first:start]) and b"\n" not in text[first:start]
    return [(first, start, "password")] if good else []


_ARGUMENTS_OF = compiled(rb"\"([^\"\n]*)\"|'([^'\n]*)'|[)\n]")
_NO_ARGUMENT: Final = b"/\\:@=?. "


def positional(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password among the arguments of a call, as in `oci_connect('bob', 'x', 'h/x')`.

    Also `ldap_bind(c, "cn=admin", "x")`, `redis->auth('x')`.
    """
    for match in _ARGUMENTS_OF.finditer(text, end, min(line_end(text, end), end + 200)):
        span = group_span(match)
        if span is None:
            break
        value = text[slice(*span)]
        if not holds(value, _NO_ARGUMENT) and is_likely_literal(value):
            return [(*span, "password")]
    return []


def called(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password in `--password-command "echo x"` and `sp_addlogin 'bob', 'x'`."""
    spans = flag(_CALLED, text, start, end)
    return [span for span in spans if is_likely_literal(text[slice(*span[:2])].strip(b"\"'"))]


_OF_CRYPT = compiled(rb"(?i)crypt\([ \t]*(?:E?'((?:[^'\\\n]|''|\\.)+)')(?:::\w+)?\s*,\s*")


def salted(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password before the salt in PostgreSQL's `crypt('x', gen_salt('bf'))`."""
    low = max(start - 300, 0)
    at = text[low:start].lower().rfind(b"crypt(")
    match = _OF_CRYPT.fullmatch(text, low + at, start) if at >= 0 else None
    return taken(text, match, "password", is_password)


# Schemes of Dovecot and LDAP, in capitals, before the password itself or its digest.
_SCHEME = compiled(
    rb"\{(?:(PLAIN|CLEAR|CLEARTEXT)|[A-Z][A-Z0-9-]{1,14})(?:\.(?:B64|BASE64|HEX))?\}([^\s:\"'`,;()<>{}\\]{4,256})"
)
_OWNER = compiled(rb"(?:^|[\s\"'])[\w.@+-]{1,64}[:=][ \t]?$")
_LEAST_DIGEST: Final = 16


def schemed(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password of `bob:{PLAIN}x` or `'{PLAIN}x'`, or the digest after `{CRAM-MD5}`."""
    match = _SCHEME.match(text, start, line_end(text, end))
    if match is None:
        return []
    value = match.group(2)
    if match.group(1) is None:
        is_digest = len(value) >= _LEAST_DIGEST and looks_random(value, rate=0.2)
        return [(*match.span(2), "password")] if is_digest and usable(value) else []
    before = text[max(start - 70, 0) : start]
    if _OWNER.search(before[before.rfind(b"\n") + 1 :]) is not None:
        good = is_password(value)
    else:  # in a literal, where braces may mean something else: it has to look chosen
        good = before[-1:] in (b'"', b"'") and is_likely_literal(value)
    return [(*match.span(2), "password")] if good else []


_WORDS: Final[tuple[tuple[Handler, bytes], ...]] = (
    (of_user, b" -u | -l | -a | --user | --username | --username=| --user=| /user| /u:| --auth=| --creds"),
    (
        called,
        b"password-command|passcommand|passwordeval|passcmd|pass_cmd|password_command|askpass|sp_addlogin ",
    ),
    (piped, b"base64 -d|base64 --d"),
    (fed, b"<<<|<(echo |<(printf "),
    (to_characters, b'".tochararray('),
    (positional, b"connect(|bind(|bind_s(|>auth(|basic(|sequelize(|logon(|sign_in(|log_in("),
    (decoded, b"b64decode(|atob(|frombase64string(|base64_decode(|decode64(|base64.decode|.decodestring("),
    (salted, b"gen_salt("),
    (
        schemed,
        b"{plain}|{plain.|{clear}|{cleartext}|{clear.|{plain-md5}|{cram-md5}|{digest-md5}|{scram-sha-|{ntlm}|"
        b"{lanman}|{md5}|{smd5}|{sha256}|{ssha256}|{sha512}|{ssha512}|{sha}|{ssha}",
    ),
    (user_and_password, b"b64encode(|btoa(|buffer.from("),
)
HANDLERS: Final = by_word(_WORDS)
