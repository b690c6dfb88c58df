"""Passwords beside users, on the lines below a word: `basicauth`, PPP's secrets (G191).

Functions with text and two offsets are handlers (`handlers`). In a diff both sides of the block are read,
one line after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from criticizer.redaction.input.document import indentation
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import issuer_contexts
from criticizer.redaction.rules.handlers import Handler, by_word, taken
from criticizer.redaction.rules.named_values import Span, group_span, usable
from criticizer.redaction.rules.value_heuristics import is_expression, judge

_LINES: Final = 60  # below the word
_LINE: Final = 512  # bytes of one that are read
_HUNK: Final = b"@@ "
_HEADS: Final = (b"diff --git", _HUNK, b"--- ", b"+++ ")
_VALUE: Final = rb"(?:\"([^\"\n]{4,128})\"|'([^'\n]{4,128})'|([^\s\"'#;{}()=]{4,128}))"
# basicauth /admin/* { of Caddy, and below it a name, a password or its hash, and a salt.
_BRACE = compiled(rb"(?:[ \t]+(?:[^\s(){}=;,\"]+|\"[^\"\n]*\")){0,3}[ \t]*\{[ \t\r]*")
_BESIDE = compiled(
    rb"[ \t]*\"?[\w.@+-]{1,64}\"?[ \t]+(?:" + _VALUE + rb"|\{[^{}\s]*\})(?:[ \t]+[A-Za-z0-9+/=]{4,})?[ \t\r]*"
)
_STATEMENTS: Final = frozenset(
    b"return import if val var let const throw new await yield use include users realm".split()
)
# basicAuth: and [….basicAuth] of Traefik, and below them "bob:x".
_LIST = compiled(rb"[\"']?[ \t]*(?:[:=][ \t]*\{?|\])[ \t\r]*")
_PAIR = compiled(
    rb"(?:-[ \t]+|[\"'])[\w.@+-]{1,64}:([^\s\"':,]{4,128})(?:[\"'][ \t]*[,\]]?|[ \t\r]*$|,[\"' ])"
)
# client server secret addresses
_NAME: Final = rb"(?:\"[^\"\n]*\"|'[^'\n]*'|[\w.@+*\\-]+)[ \t]+"
_SECRET: Final = rb"(?:\"([^\"\n]{4,128})\"|'([^'\n]{4,128})'|([^\s\"'#]{4,128}))"
_ADDRESS: Final = rb"[ \t]+(?:\"?\*\"?|-|[0-9a-fA-F]*[.:][0-9a-fA-F.:/]*)"
_END: Final = rb"[ \t\r]*(?:#[^\n]*)?"
_ROW = compiled(rb"[ \t]*" + _NAME + _NAME + _SECRET + rb"(?:" + _ADDRESS + rb")*" + _END)
_WHOLE_ROW = compiled(
    rb"[ \t]*" + _NAME + rb"(?:\*|pptpd|x?l2tpd)[ \t]+" + _SECRET + rb"(?:" + _ADDRESS + rb")+" + _END
)
_REMARK: Final = b"#"
_OF_PPP = compiled(rb"#[ \t]*(?:client[ \t]+server[ \t]+secret\b|secrets for authentication using)")
_WRITTEN = compiled(rb"(?:echo|printf)[ \t]+(?:-e[ \t]+)?[\"']([^\n]*)[\"'][ \t]*(?:\|[^\n]*|>+[^\n]*)$")


def _below(text: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield the lines below an offset, to the end of the hunk; below a path, of the first hunk."""
    at = text.find(b"\n", at, at + _LINE) + 1
    if at and text.startswith(_HUNK, at):
        at = text.find(b"\n", at, at + _LINE) + 1
    for _ in range(_LINES):
        if not at or text.startswith(_HEADS, at):
            return
        end = text.find(b"\n", at, at + _LINE)
        stop = end if end >= 0 else min(at + _LINE, len(text))
        yield at, stop
        at = end + 1


def _is_password(value: bytes) -> bool:
    return (
        usable(value)
        and value[:1] not in b"$%{"
        and not is_expression(value)
        and judge(value, 3, quoted=True)
    )


def of_proxy(text: bytes, start: int, end: int) -> list[Span]:
    """Find the passwords of users below `basicauth`, or the pair beside it."""
    beside = issuer_contexts.paired(text, start, end)
    stop = text.find(b"\n", end, end + _LINE)
    if beside or stop < 0:
        return beside
    if _BRACE.fullmatch(text, end, stop) is not None:
        return list(_named(text, stop))
    if _LIST.fullmatch(text, end, stop) is not None:
        return list(_listed(text, start, stop))
    return []


def _named(text: bytes, stop: int) -> Iterator[Span]:
    for first, last in _below(text, stop):
        line = text[first:last]
        mark = line.lstrip()[:1]
        if mark in (b"", b"\r", b"#"):
            continue
        entry = _BESIDE.fullmatch(line)
        if entry is None or line.split(None, 1)[0] in _STATEMENTS:
            return  # the end, or not a list of users
        span = group_span(entry)
        if span is not None and _is_password(line[slice(*span)]):
            yield first + span[0], first + span[1], "password"


def _listed(text: bytes, start: int, stop: int) -> Iterator[Span]:
    low = text.rfind(b"\n", max(start - _LINE, 0), start) + 1
    depth, is_section = indentation(text[low:start]), text[low:stop].rstrip().endswith(b"]")
    for first, last in _below(text, stop):
        line = text[first:last]
        if not line.strip():
            continue
        if line.lstrip()[:1] == b"[" if is_section else indentation(line) <= depth:
            return
        if b"basic" in line.lower():
            return  # the handler is called for that word too
        for pair in _PAIR.finditer(line):
            if _is_password(pair.group(1)):
                yield first + pair.start(1), first + pair.end(1), "password"


def of_ppp(text: bytes, start: int, end: int) -> list[Span]:
    """Find the passwords in rows of chap-secrets: below its head or path, or written to it."""
    low = text.rfind(b"\n", max(start - _LINE, 0), start) + 1
    line = text[low : issuer_contexts.window_end(text, end, _LINE)]
    written = _WRITTEN.search(line)
    if written is not None:
        row = _ROW.fullmatch(text, low + written.start(1), low + written.end(1))
        return taken(text, row, "password", _is_password)
    is_path = line.startswith(b"+++ ") or b"<<" in line
    if not is_path and _OF_PPP.match(line.lstrip().lower()) is None:
        return []
    return list(_rows(text, end))


def of_tunnel(text: bytes, start: int, end: int) -> list[Span]:
    """Find the password in a single row of such a file: `bob pptpd x *`, `bob * "x" *`."""
    low = text.rfind(b"\n", max(start - _LINE, 0), start) + 1
    row = _WHOLE_ROW.fullmatch(text, low, issuer_contexts.window_end(text, end, _LINE))
    return taken(text, row, "password", _is_password)


def _rows(text: bytes, at: int) -> Iterator[Span]:
    for first, last in _below(text, at):
        body = text[first:last].strip()
        if _OF_PPP.match(body.lower()) is not None:
            return  # the handler is called for that head too
        if not body or body.startswith(_REMARK):
            continue
        span = group_span(_ROW.fullmatch(text, first, last))
        if span is None:
            return
        if _is_password(text[slice(*span)]):
            yield *span, "password"


_WORDS: Final[tuple[tuple[Handler, bytes], ...]] = (
    (of_proxy, b"basicauth|basic_auth"),
    (of_tunnel, b"\t*\t| pptpd|\tpptpd|l2tpd"),
    (of_ppp, b"chap-secrets|pap-secrets|# client|#client|# secrets for authentication"),
)
HANDLERS: Final = by_word(_WORDS)
