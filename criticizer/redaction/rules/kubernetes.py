"""Secrets of Kubernetes: a state machine over the lines of a manifest, whole or in a diff."""

from __future__ import annotations

from typing import Final

import re2

from criticizer.redaction.input.document import MASK, Document
from criticizer.redaction.rules.literals import Span
from criticizer.redaction.rules.value_heuristics import is_dummy

_KIND = re2.compile(rb"(?i)^[ \t+-]*[\"']?kind[\"']?:[ \t]*[\"']?Secret\b")
_KINDS: Final = (b"kind: secret", b'kind": "secret', b'kind: "secret', b"kind: 'secret")
_DATA = re2.compile(rb"([ \t]*)[\"']?(data|stringData)[\"']?:[ \t\r]*$")
_ENTRY = re2.compile(
    rb"([ \t]*)[\"']?[\w.-]+[\"']?:[ \t]*(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s#\"'|>][^\s#]*))"
)


def spans(document: Document, lowered: bytes) -> list[Span]:
    """Return every value in the data of a `kind: Secret`. `lowered` is the text in lower case."""
    if not any(kind in lowered for kind in _KINDS):
        return []
    text = document.text
    found: list[Span] = []
    secret = False
    indent = -1
    for line in document.all_lines():
        body = text[line.start : line.end]
        if body.startswith(b"---") or line.side == 0:
            secret, indent = False, -1
            continue
        if b"kind" in body and _KIND.search(body):
            secret = True
        elif secret and (head := _DATA.match(body)) is not None:
            indent = len(head.group(1))
        elif secret and indent >= 0:
            entry = _ENTRY.match(body)
            if entry is None or len(entry.group(1)) <= indent:
                indent = -1 if body.strip() else indent
                continue
            index = entry.lastindex
            first, last = entry.span(index)
            value = body[first:last].rstrip()
            if (
                len(value) >= 4
                and not is_dummy(value)
                and MASK not in value
                and b"{{" not in value
                and b"$" not in value[:1]
            ):
                found.append((line.start + first, line.start + first + len(value), "secret"))
    return found
