"""Documents that are, or hold, secrets: manifests, key files, inline blocks (G191)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import ahocorasick_rs

from criticizer.redaction.input.document import MASK, Document, indentation, line_end
from criticizer.redaction.patterns import Match, compiled
from criticizer.redaction.rules.named_values import Span
from criticizer.redaction.rules.value_heuristics import is_dummy, is_template

_KIND = compiled(rb"(?i)[\"']?\bkind[\"']?[ \t]*:[ \t]*[\"']?Secret\b")
_MAY_BE_KIND = compiled(rb"kind[\"']?[ \t]*:[ \t]*[\"']?(?:s|\x{17f})ecret")  # \b is slow: it comes second
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
# Documents with inline blocks or recovery phrases hold one of these. A search for the leftmost of a few
# words reads many bytes at once.
_WORDS: Final = ahocorasick_rs.BytesAhoCorasick(
    [b"auth-user-pass", b"openvpn static key", b"</tls-", b"mnemonic", b"seed", b"recovery", b"backup"],
    matchkind=ahocorasick_rs.MATCHKIND_LEFTMOST_FIRST,
)
_OF_BLOCKS: Final = 3  # so many of them, the first ones, are of inline blocks
# A path that `_PATHS` matches holds one.
_PATH_WORDS: Final = ahocorasick_rs.BytesAhoCorasick([b"key", b"pass", b"secret", b"token"])
_LONE = compiled(rb"[ \t]*([^\s=:#/<>\"'(){}\[\];,]{6,200})[ \t\r]*")
_BLOCK = compiled(
    rb"(?im)<(auth-user-pass|tls-auth|tls-crypt|tls-crypt-v2|secret|key|pkcs12)>[ \t\r]*$"
    rb"|BEGIN OpenVPN Static key"
)
_PHRASE = compiled(
    rb"(?i)(?:mnemonic|(?:seed|recovery|backup)[ _-]?(?:phrase|words?))\w*[\"']?"
    rb"[ \t]*(?:[:=]|is)?[ \t]*[\"'`]?((?-i:[a-z]{3,8}(?: [a-z]{3,8}){11,23}))\b"
)


def spans(document: Document, lowered: bytes) -> Iterator[Span]:
    """Yield the secrets of such documents. `lowered` is the text in lower case."""
    if b"kind" in lowered:
        yield from _manifests(document, lowered)
    if b"+++ " in lowered:
        yield from _key_files(document)
    is_inline = False
    for index, start, _ in _WORDS.find_matches_as_indexes(lowered):
        is_inline |= index < _OF_BLOCKS
        match = _PHRASE.match(document.text, start) if index >= _OF_BLOCKS else None
        if match is not None:
            yield *match.span(1), "secret"
    if is_inline:
        yield from _inline(document.text)


def _is_value(value: bytes) -> bool:
    return (
        len(value) >= 4
        and not is_dummy(value)
        and MASK not in value
        and not is_template(value)
        and value[:1] != b"$"
    )


def _manifests(document: Document, lowered: bytes) -> Iterator[Span]:
    """Yield the data of each `kind: Secret`, in YAML or JSON, with its keys in any order."""
    text, done = document.text, 0
    for kind in _MAY_BE_KIND.finditer(lowered):
        at = max(kind.start() - 1, 0)
        if at < done or _KIND.search(text, at, min(kind.end() + 1, len(text))) is None:
            continue
        lines = _manifest(document, at)
        done = lines[-1][1]
        for start, end in lines:
            for flow in _FLOW.finditer(text, start, end) if text.find(b"ata", start, end) >= 0 else ():
                for pair in _PAIR.finditer(text, *flow.span(1)):
                    if _is_value(pair.group(1)):
                        yield *pair.span(1), "secret"
        yield from _entries(text, lines)


def _manifest(document: Document, at: int) -> list[tuple[int, int]]:
    """Return the lines around an offset from one `---` to the next; in a diff, within its hunk."""
    text, end = document.text, line_end(document.text, at)
    hunk = document.hunk(at) or document.hunk(end + 1)  # below its head
    if document.is_diff and hunk is None:
        return [(text.rfind(b"\n", 0, at) + 1, end)]
    low, high, columns = hunk or (-1, len(text), 0)
    mark = b"\n" + b" " * columns + b"---"
    above, below = text.rfind(mark, max(low, 0), at), text.find(mark, max(low, at))
    begin, end = max(above, low) + 1, below if 0 <= below < high else high
    lines = [] if hunk is None or above >= 0 else [(text.rfind(b"\n", 0, low) + 1, low)]
    for line in text[begin:end].split(b"\n"):
        lines.append((min(begin + columns, begin + len(line)), begin + len(line)))
        begin += len(line) + 1
    return lines


def _entries(text: bytes, lines: list[tuple[int, int]]) -> Iterator[Span]:
    """Yield the values below `data` and `stringData` in the lines of one document."""
    indent, block = -1, -1
    for start, end in lines:
        body = text[start:end]
        if b"ata" in body and (head := _DATA.match(body)) is not None:
            indent, block = len(head.group(1)), -1
            continue
        depth = indentation(body)
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
            yield start + first, start + last, "secret"


def _paths(raw: bytes) -> Iterator[Match]:
    """Yield the paths of files whose names show that they hold a secret."""
    at = raw.find(b"+++ ")
    while at >= 0:
        name = raw[at : line_end(raw, at)]
        if not name.isascii() or _PATH_WORDS.find_matches_as_indexes(name.lower()):
            match = _PATHS.match(raw, at)
            if match is not None:
                yield match
        at = raw.find(b"\n+++ ", at + len(name)) + 1 or -1


def _key_files(document: Document) -> Iterator[Span]:
    """Yield words that are a whole line, in files whose paths show that they hold a secret."""
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


def _inline(text: bytes) -> Iterator[Span]:
    """Yield the lines of inline secrets in OpenVPN configurations."""
    done = 0
    for opener in _BLOCK.finditer(text):
        if opener.start() < done:
            continue
        at, is_user = text.rfind(b"\n", 0, opener.start()) + 1, False
        while at < len(text):
            end = line_end(text, at)
            body = text[at:end]
            block = _BLOCK.search(body)
            if block is not None:
                is_user = (block.group(1) or b"").lower() == b"auth-user-pass"
            elif body.lstrip().startswith((b"</", b"-----END", b"----END")):
                break
            else:
                word = _LONE.fullmatch(body)
                if word is not None and not is_user and _is_value(word.group(1)):
                    yield at + word.start(1), at + word.end(1), "secret"
                is_user = False
            at = end + 1
        done = at
