"""Documents that are secrets as a whole or in a part: manifests, key files, inline blocks (G191)."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import ahocorasick_rs

from criticizer.redaction.input.document import HEADER, MASK, Document, SourceLine
from criticizer.redaction.patterns import Match, compiled
from criticizer.redaction.rules.literals import Span
from criticizer.redaction.rules.value_heuristics import is_dummy, is_template

_KIND = compiled(rb"(?i)[\"']?\bkind[\"']?[ \t]*:[ \t]*[\"']?Secret\b")
_MAY_BE_KIND = compiled(rb":[ \t]*[\"']?(?:s|\x{17f})ecret")  # \b is slow: it comes second
_DATA = compiled(rb"([ \t]*)(?:- )?[\"']?(?:data|stringData)[\"']?[ \t]*:[ \t]*([|>{]?[-+]?)[ \t\r]*$")
_FLOW = compiled(rb"[\"']?\b(?:data|stringData)[\"']?[ \t]*:[ \t]*\{([^{}]+)\}")
_ENTRY = compiled(
    rb"([ \t]*)[\"']?[\w.-]+[\"']?:[ \t]*(?:\"([^\"\n]+)\"|'([^'\n]+)'"
    rb"|([^\s#\"'|>{][^\s#,]*)|[|>][-+0-9]*[ \t\r]*$)"
)
_PAIR = compiled(rb"[\w.-]+[\"']?[ \t]*:[ \t]*[\"']?([^\s\"',{}]{4,})")
_LINE_VALUE = compiled(
    rb"[ \t]*(?:-[ \t]+)?(?:[\w.\" '-]+?[ \t]*[=:][ \t]*)?[\"']?([^\s\"'][^\n\"']*[^\s\"',])"
)
_PATHS = compiled(
    rb"(?im)^\+\+\+ (?:b/)?(?:[^\n]*/)?(?:master\.key|credentials/[\w-]+\.key|\.?vault[-_]?pass(?:word)?"
    rb"|\.pgpass|\.htpasswd|auth[-_]user[-_]pass(?:\.txt)?|[\w.-]*(?:passwd|password|passphrase|secret|token|api[-_]?key)s?(?:\.txt|\.key|\.secret)?|"
    rb"secrets?/[\w.-]+)[ \t\r]*$"
)
# One of these is in the documents that are looked at last. A search for the leftmost of few words
# looks at many bytes at once.
_WORDS: Final = ahocorasick_rs.BytesAhoCorasick(
    [b"auth-user-pass", b"openvpn static key", b"</tls-", b"mnemonic", b"phrase", b"seed"],
    matchkind=ahocorasick_rs.MATCHKIND_LEFTMOST_FIRST,
)
_PATH_WORDS: Final = (b"key", b"pass", b"secret", b"token")  # each of those paths has one
_LONE = compiled(rb"[ \t]*([^\s=:#/<>\"'(){}\[\];,]{6,200})[ \t\r]*")
_BLOCK = compiled(rb"(?i)<(auth-user-pass|tls-auth|tls-crypt|tls-crypt-v2|secret|key|pkcs12)>[ \t\r]*$")
_STATIC = compiled(rb"(?i)BEGIN OpenVPN Static key")
_PHRASE = compiled(
    rb"(?i)(?:mnemonic|(?:seed|recovery|backup)[ _-]?(?:phrase|words?))\w*[\"']?"
    rb"[ \t]*(?:[:=]|is)?[ \t]*[\"'`]?((?-i:[a-z]{3,8}(?: [a-z]{3,8}){11,23}))\b"
)


def spans(document: Document, lowered: bytes) -> Iterator[Span]:
    """Yield what such documents hold. `lowered` is the text in lower case."""
    if b"kind" in lowered and _MAY_BE_KIND.search(lowered) and _KIND.search(document.text):
        yield from _manifests(document)
    if b"+++ " in lowered:
        yield from _key_files(document)
    if not _WORDS.find_matches_as_indexes(lowered):
        return
    if b"auth-user-pass" in lowered or b"openvpn static key" in lowered or b"</tls-" in lowered:
        yield from _inline(document)
    if b"mnemonic" in lowered or b"phrase" in lowered or b"seed" in lowered:
        for match in _PHRASE.finditer(document.text):
            yield *match.span(1), "secret"


def _is_value(value: bytes) -> bool:
    return (
        len(value) >= 4
        and not is_dummy(value)
        and MASK not in value
        and not is_template(value)
        and value[:1] != b"$"
    )


def _manifests(document: Document) -> Iterator[Span]:
    """Yield the data of every `kind: Secret`, whatever the order of its keys, as YAML or JSON."""
    text = document.text
    lines = document.all_lines()
    edges = [
        0,
        *(
            i
            for i, line in enumerate(lines)
            if line.side == HEADER or text[line.start : line.start + 3] == b"---"
        ),
        len(lines),
    ]
    kinds = [match.start() for match in _KIND.finditer(text)]
    for first, last in pairwise(edges):
        part = lines[first:last]
        if not part:
            continue
        at = bisect.bisect_left(kinds, part[0].start)
        if at == len(kinds) or kinds[at] > part[-1].end:
            continue
        for line in part:
            for flow in _FLOW.finditer(text, line.start, line.end):
                for pair in _PAIR.finditer(text, *flow.span(1)):
                    if _is_value(pair.group(1)):
                        yield *pair.span(1), "secret"
        yield from _entries(text, part)


def _entries(text: bytes, part: list[SourceLine]) -> Iterator[Span]:
    """Yield the values below `data` and `stringData` in the lines of one document."""
    indent, block = -1, -1
    for line in part:
        body = text[line.start : line.end]
        if (head := _DATA.match(body)) is not None:
            indent, block = len(head.group(1)), -1
            continue
        depth = len(body) - len(body.lstrip(b" \t"))
        if indent < 0 or not body.strip():
            continue
        if block >= 0 and depth > block:
            match = _LINE_VALUE.match(body)
        else:
            block = -1
            match = _ENTRY.match(body)
            if match is None or depth <= indent:
                indent = -1
                continue
            if match.lastindex == 1:
                block = depth
                continue
        if match is not None and _is_value(match.group(match.lastindex)):
            first, last = match.span(match.lastindex)
            yield line.start + first, line.start + last, "secret"


def _paths(raw: bytes) -> Iterator[Match]:
    """Yield the paths of files whose names say that they hold a secret."""
    at = raw.find(b"+++ ")
    while at >= 0:
        end = raw.find(b"\n", at)
        name = raw[at : end if end >= 0 else len(raw)]
        if not name.isascii() or any(word in name.lower() for word in _PATH_WORDS):
            match = _PATHS.match(raw, at)
            if match is not None:
                yield match
        at = raw.find(b"\n+++ ", at) + 1 or -1


def _key_files(document: Document) -> Iterator[Span]:
    """Yield the words that are all of a line in a file whose path says what it holds."""
    for match in _paths(document.raw):
        stop = document.raw.find(b"\n+++ ", match.end())
        at = document.raw.find(b"\n@@", match.end(), stop if stop >= 0 else len(document.raw))
        if at < 0:
            continue
        first = document.raw.find(b"\n", at + 1) + 1
        for here in document.sides(first) if first else ():
            for line in (here, *document.following(here, 20)):
                word = _LONE.fullmatch(document.text, line.start, line.end)
                if word is not None and _is_value(word.group(1)) and not word.group(1).isalpha():
                    yield *word.span(1), "secret"


def _inline(document: Document) -> Iterator[Span]:
    """Yield the lines of an OpenVPN configuration's inline secrets."""
    inside, user = False, False
    for line in document.all_lines():
        body = document.text[line.start : line.end]
        block = _BLOCK.search(body)
        if block is not None or _STATIC.search(body):
            inside, user = True, block is not None and block.group(1).lower() == b"auth-user-pass"
        elif body.lstrip().startswith((b"</", b"-----END", b"----END")):
            inside = False
        elif inside and (word := _LONE.fullmatch(body)) is not None:
            if not user and _is_value(word.group(1)):
                yield line.start + word.start(1), line.start + word.end(1), "secret"
            user = False
        elif inside and user:
            user = False
