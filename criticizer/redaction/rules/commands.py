"""Passwords in command lines and in calls that take one by position.

Handlers as in `syntax`: text and the offsets of the word found; they return spans.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import re2

from criticizer.redaction.rules.literals import Span, group_span, usable
from criticizer.redaction.rules.value_heuristics import is_code, judge, looks_random

WINDOW: Final = 2048
# One argument, as a shell or a program writes it: exactly one of three groups takes part.
_WORD: Final = rb"(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'`;|&<>()]{3,}))"
_QUOTED: Final = rb"(?:\"([^\"\n]+)\"|'([^'\n]+)')"
_USER_FLAG = re2.compile(
    rb"[ \t\"',]+(?:-u|-U|--user|--proxy-user|--basic-auth|--auth|--creds?|-a|--credentials?)"
    rb"[\"',=\s]+[\"']?([^\s:\"'=]+):(?:([^\s\"']*))"
)
_HTPASSWD = re2.compile(
    rb"(?m)[^|;\n]*?[ \t]-[a-zA-Z]*b[a-zA-Z]*[ \t]+(?:[^\s\"'|;]+[ \t]+){1,2}"
    + _WORD
    + rb"[ \t\r]*(?:$|[|;&\n>])"
)
_NET_USE = re2.compile(rb"[^\n]*?\\\\[^\s]+[ \t]+" + _WORD + rb"[ \t]+/(?i:user)")
_NET_USER = re2.compile(rb"(?m)[ \t]+[^\s/]+[ \t]+" + _WORD + rb"(?:[ \t]+/|[ \t\r]*$)")
_ECHOED = re2.compile(rb"(?:echo|printf)[ \t]+(?:-[neE]+[ \t]+)?" + _WORD + rb"[ \t]*\|[^|;\n]{0,80}$")
_HERE_STRING = re2.compile(rb"[ \t]*<<<[ \t]*" + _WORD)
_LOGIN = re2.compile(
    rb"[ \t]{0,4}(?:[a-z_]+[ \t]*=[ \t]*)?[\"'][^\"'\n]*[\"'][ \t]*,[ \t]*"
    rb"(?:[a-zA-Z_]+[ \t]*=[ \t]*)?[bru]?" + _QUOTED
)
_THIRD = re2.compile(
    rb"[ \t]{0,4}(?:[^,()\"'\n]{0,80}|\"[^\"\n]*\"|'[^'\n]*')[ \t]*,[ \t]*"
    rb"(?:[a-zA-Z_]+[ \t]*=[ \t]*)?[\"'][^\"'\n]*[\"'][ \t]*,[ \t]*(?:[a-zA-Z_]+[ \t]*=[ \t]*)?[bru]?"
    + _QUOTED
)


def _flags(names: bytes, between: bytes = rb"[ \t=]*") -> Any:
    """Compile the argument of a flag anywhere on the rest of a command."""
    return re2.compile(rb"[^|;\n]*?[ \t](?:" + names + rb")" + between + _WORD)


_MYSQL = re2.compile(rb"[^|;\n]*?[ \t](?:-p|--password=)(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'`;|]{3,}))")
_SSHPASS = re2.compile(rb"[ \t]+-p[ \t]*(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"']+))")
_LOGIN_FLAG = _flags(rb"-p|-P|--password|--pass|--token", rb"[ \t=]+")
_SECURE_STRING = re2.compile(
    rb"(?:[ \t]+-(?:AsPlainText|Force|String|Key[ \t]+\S+))*[ \t]+"
    rb"(?:\\*\"([^\"\\\n]+)|\\*'([^'\\\n]+)|([^\s\"'$(-][^\s\"']{3,}))"
)


def _line_end(text: bytes, at: int) -> int:
    end = text.find(b"\n", at, at + WINDOW)
    return end if end >= 0 else min(at + WINDOW, len(text))


def _literal(text: bytes, match: Any, kind: str = "cli-password") -> list[Span]:
    span = group_span(match)
    if span is None:
        return []
    value = text[slice(*span)]
    if value[:1] in b"$%-/" or not usable(value) or is_code(value):
        return []
    return [(*span, kind)]


def _flag(pattern: Any, text: bytes, start: int, end: int) -> list[Span]:
    return _literal(text, pattern.match(text, end, _line_end(text, end)))


def user_flag(text: bytes, start: int, end: int) -> list[Span]:
    """curl -u user:password, and -u token: with nothing behind the colon; every such flag of the line."""
    found: list[Span] = []
    for match in _USER_FLAG.finditer(text, end, _line_end(text, end)):
        user, value = match.groups()
        if not value:
            if len(user) >= 16 and (looks_random(user, rate=0.3) or judge(user, 2, quoted=True)):
                found.append((*match.span(1), "cli-password"))
        elif usable(value) and not value.startswith((b"$", b"%", b"/")) and not is_code(value):
            found.append((*match.span(2), "cli-password"))
    return found


def echoed(text: bytes, start: int, end: int) -> list[Span]:
    """echo PASSWORD | sudo -S, | docker login --password-stdin, | chpasswd (user:password)."""
    low = max(text.rfind(b"\n", max(start - 300, 0), start) + 1, start - 300, 0)
    match = _ECHOED.search(text[low:start])
    spans: list[Span] = []
    if match is not None:
        first, last = (low + at for at in match.span(match.lastindex))
        spans = [(first, last, "cli-password")]
    elif (span := group_span(_HERE_STRING.match(text, end, _line_end(text, end)))) is not None:
        spans = [(*span, "cli-password")]
    if text[start:end].lower() == b"chpasswd":
        spans = [(a + text[a:b].find(b":") + 1, b, kind) for a, b, kind in spans if b":" in text[a:b]]
    return [span for span in spans if _is_password(text[span[0] : span[1]])]


def _is_password(value: bytes) -> bool:
    return value[:1] not in b"$%-/" and judge(value, 3, quoted=True) and not is_code(value)


def login(text: bytes, start: int, end: int) -> list[Span]:
    """login("user", "password") and the like."""
    span = group_span(_LOGIN.match(text, end, _line_end(text, end)))
    if span is None or not judge(text[slice(*span)], 3, quoted=True):
        return []
    return [(*span, "smtp-credential" if text[start:end].lower() == b"login(" else "password")]


def third(text: bytes, start: int, end: int) -> list[Span]:
    """getConnection(url, "user", "password") and other calls whose third argument is one."""
    span = group_span(_THIRD.match(text, end, _line_end(text, end)))
    good = span is not None and judge(text[slice(*span)], 3, quoted=True)
    return [(*span, "password")] if span is not None and good else []


def mysql(text: bytes, start: int, end: int) -> list[Span]:
    """mysql -uroot -pX."""
    return _flag(_MYSQL, text, start, end)


def login_flag(text: bytes, start: int, end: int) -> list[Span]:
    """docker login -p X and the like."""
    return _flag(_LOGIN_FLAG, text, start, end)


def secure_string(text: bytes, start: int, end: int) -> list[Span]:
    """ConvertTo-SecureString X."""
    return _literal(text, _SECURE_STRING.match(text, end, _line_end(text, end)), "password")


Handler = Callable[[bytes, int, int], list[Span]]
# Command -> the flags whose argument is a password.
_FLAGS: Final[dict[bytes, Any]] = {
    b"sshpass": _SSHPASS,
    b"htpasswd": _HTPASSWD,
    b"net use ": _NET_USE,
    b"net user": _NET_USER,
    b"openssl": _flags(rb"-k[ \t]+|-pass(?:in|out)?[ \t]+pass:", b""),
    b"lftp": _flags(rb"-u[ \t]*[^,\s]+,", b""),
    b"redis-cli": _flags(rb"-a|--pass"),
    b"smbclient": _flags(rb"-U[ \t]*[^%\s\"']+%", b""),
    b"zip -": re2.compile(rb"(?:[^|;\n]*?[ \t]-)?P[ \t]*" + _WORD),
    b"7z ": _flags(rb"-p", b""),
    b"7za ": _flags(rb"-p", b""),
    **dict.fromkeys((b"ldapsearch", b"ldapadd", b"ldapmodify", b"ldapdelete", b"ldapwhoami"), _flags(rb"-w")),
    **dict.fromkeys((b"useradd", b"usermod"), _flags(rb"-p|--password")),
}
_WORDS: Final[tuple[tuple[Handler, bytes], ...]] = (
    (user_flag, b"curl|wget"),
    (mysql, b"mysql|mysqldump|mysqladmin|mariadb"),
    (login_flag, b"docker login|podman login|helm registry login|az login"),
    (echoed, b"sudo -s|--password-stdin|chpasswd"),
    (login, b"login(|basicauth(|basic_auth(|auth=(|auth = (|credentials(|credential("),
    (login, b"authenticate(|authentication(|.auth("),
    (third, b"plainauth(|getconnection(|mysqli_connect(|mysql_connect(|create_user(|create_superuser("),
    (secure_string, b"securestring"),
)
HANDLERS: Final[dict[bytes, Handler]] = {
    **{command: partial(_flag, pattern) for command, pattern in _FLAGS.items()},
    **{word: handler for handler, words in _WORDS for word in words.split(b"|")},
}
# These read their whole window, with everything of their kind in it.
READ_ALL: Final = frozenset((user_flag, mysql, login_flag, secure_string, *(HANDLERS[c] for c in _FLAGS)))
