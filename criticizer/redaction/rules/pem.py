"""PEM blocks: a state machine over the lines of one side of a diff, or over plain text.

It reads bodies with diff prefixes, indentation, quotes, escaped line feeds and string concatenation; a
BEGIN without END, an END without BEGIN, a key that continues in the next hunk, and runs of key material
that lost both. Marker lines are kept, bodies are removed, line by line.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

from criticizer.redaction.input.document import BOTH, HEADER, NEW, OLD, Document, SourceLine, line_end
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules.characters import kinds, transitions

_BEGIN = compiled(rb"-{2,5} ?BEGIN ([A-Z0-9 ]{0,60}?) ?-{2,5}|(PuTTY-User-Key-File-[0-9]):")
_END = compiled(rb"-{2,5} ?END ([A-Z0-9 ]{0,60}?) ?-{2,5}|(Private-MAC):")
_RUN = rb"(?:[A-Za-z0-9+/=]|\\+[nr/]|\x01)"
_BODY = compiled(
    rb"[\s\"'`#*>|(\[,;.]*(?://[ \t]+|\+[ \t]+|[a-z]?[\"'])?[\"'`]?"  # signs of a language before it
    rb"([A-Za-z0-9/+\\\x01]" + _RUN + rb"*|<\x01+>)"
    rb"[\"'`\s,;+.\\)&|}\]]*"  # ... and after
)
# Every line with a mark of a block matches it.
_MARKED = compiled(rb"-- ?(?:BEGIN|END) |PuTTY-User-Key-File-[0-9]:|Private-MAC:")
# Every line of key material without marks holds one.
_LONG = compiled(rb"[A-Za-z0-9/+=\\]{56,}")
_INLINE = compiled(rb"[A-Za-z0-9+/]" + _RUN + rb"{15,}")
_SKIP = compiled(
    rb"[\s\"'`#*>|+\\]*(?:(?:Proc-Type|DEK-Info|Comment|Version|Hash|Subject|X-[\w-]+|MIIE-?|Encryption|Public-Lines|Private-Lines"
    rb"|Key-Derivation|Argon2-[\w-]+)\b.*|\\+[nr]|[\"'`,;+\\]*)[\s\"'`,+\\]*"
)
# Beginnings of files in base64: PNG, JPEG, GIF, PDF, RIFF, WOFF, zip, gzip, SVG, ICO.
FILES: Final = tuple(
    b"iVBORw0KGgo /9j/4 R0lGOD JVBERi0 UklGR d09GR d09GMg UEsDB H4sI PHN2Zy AAABAA T1RUTw".split()
)
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_TICKS = compiled(rb"\\+[nr]")
_LEAST_LINES: Final = 3  # of key material that lost its marks
_MAX_GAP: Final = 2  # lines that are neither body nor header and still do not end a block


class Block(NamedTuple):
    """The spans to remove of one PEM block, by line, and their kind."""

    spans: tuple[tuple[int, int], ...]
    kind: str


def _kind(label: bytes | None) -> str | None:
    if (
        label is None
        or b"PRIVATE" in label
        or (label.endswith((b"KEY", b"KEY BLOCK")) and b"PUBLIC" not in label)
    ):
        return "private-key"
    return None if label in (b"PGP MESSAGE", b"PGP SIGNED MESSAGE") else "certificate"


def blocks(document: Document, *, public: bool) -> Iterator[Block]:
    """Yield the blocks of every side; with `public`, those of certificates too."""
    pieces = document.unread
    marks = [match.start() for piece in pieces for match in _MARKED.finditer(document.text, *piece)]
    if not marks:
        return
    lines = document.lines_of_files(marks)
    sides: Iterable[int] = (OLD, NEW) if document.is_diff else (BOTH,)
    seen: set[tuple[tuple[int, int], ...]] = set()
    for side in sides:
        view = [line for line in lines if line.side & side or line.side == HEADER]
        for block in _side(document.text, view, marks):
            if block.spans and block.spans not in seen and (public or block.kind != "certificate"):
                seen.add(block.spans)
                yield block


def _side(text: bytes, view: list[SourceLine], marks: list[int]) -> Iterator[Block]:
    index = 0
    for mark in marks:
        at = bisect.bisect_right(view, mark, key=itemgetter(0)) - 1
        if at < index or mark > view[at].end:
            continue  # read already, or on a line of the other side
        index = at
        line = view[index]
        if text.find(b"--", line.start, line.end) < 0 and text.find(b"PuTTY", line.start, line.end) < 0:
            continue
        begin = _BEGIN.search(text, line.start, line.end)
        if begin is not None:
            index, block = _open(text, view, index, begin)
            yield block
            continue
        end = _END.search(text, line.start, line.end)
        if end is not None:
            yield _backwards(text, view, index, end)
        index += 1


def _open(text: bytes, view: list[SourceLine], index: int, begin: Any) -> tuple[int, Block]:
    """Read a block from its BEGIN on; return the index of the line after it, and the block."""
    kind = _kind(begin.group(1))
    line = view[index]
    spans: list[tuple[int, int]] = []
    is_closed = False
    while begin is not None:  # several blocks in one literal
        end = _END.search(text, begin.end(), line.end)
        spans += _inline(text, begin.end(), end.start() if end else line.end)
        begin = _BEGIN.search(text, end.end(), line.end) if end else None
        is_closed |= end is not None
    if is_closed:
        return index + 1, Block(tuple(spans) if kind else (), kind or "")
    gap = 0
    bodies = bool(spans)
    index += 1
    while index < len(view):
        line = view[index]
        if line.side == HEADER and view[index - 1].section == line.section:
            index += 1  # the head of the next hunk, in which the key may continue
            continue
        if line.section != view[index - 1].section:
            break
        end = _END.search(text, line.start, line.end)
        stop = end.start() if end else line.end
        if _BEGIN.search(text, line.start, stop) is not None:
            break
        span = _body(text, line.start, stop, short=bodies)
        if span is not None:
            spans.append(span)
            bodies = True
            gap = 0
        elif end is None and not _SKIP.fullmatch(text, line.start, line.end):
            gap += 1
            if gap > (_MAX_GAP if bodies else 0):
                break
        index += 1
        if end is not None:
            break
    return index, Block(tuple(spans) if kind else (), kind or "")


def _backwards(text: bytes, view: list[SourceLine], index: int, end: Any) -> Block:
    """Return a block whose BEGIN is missing, read backwards from its END."""
    kind = _kind(end.group(1)) or ""
    spans = _inline(text, view[index].start, end.start())
    at = index - 1
    while at >= 0 and kind and view[at].section == view[index].section:
        line = view[at]
        if line.side != HEADER:
            span = _body(text, line.start, line.end, short=at == index - 1)
            if span is None:
                break
            spans.append(span)
        at -= 1
    return Block(tuple(sorted(spans)), kind)


def _body(text: bytes, start: int, stop: int, *, short: bool) -> tuple[int, int] | None:
    """Return the span of key material on a line, or None; `short` allows a block's last line."""
    first, last = start, stop
    value = text[start:stop]
    if value.translate(None, _BASE64) or value[:1] in (b"=", b""):  # most lines are base64 only
        match = _BODY.fullmatch(text, start, stop)
        if match is None:
            return None
        first, last = match.span(1)
        value = text[first:last]
    while value.startswith((b"\\n", b"\\r")):
        value, first = value[2:], first + 2
    while value.endswith((b"\\n", b"\\r")):
        value, last = value[:-2], last - 2
    value = value.rstrip(b"\\")
    last = first + len(value)
    if not value or 1 in value:
        return (first, first) if 1 in value else None
    if len(value) < 16 and not (short and (value.endswith(b"=") or len(value) % 4 == 0 or kinds(value)[2])):
        return None
    return first, last


def _inline(text: bytes, start: int, stop: int) -> list[tuple[int, int]]:
    found = [match.span() for match in _INLINE.finditer(text, start, stop)]
    if not found:
        return []
    first, last = found[0][0], found[-1][1]
    head = text[first:last]
    while head.startswith(b"\\"):
        first, head = first + 2, head[2:]
    tail = text[last:stop]
    # A short last piece after an escaped line feed belongs to the body.
    if (rest := _INLINE_REST.match(tail)) is not None:
        last += rest.end(1)
    value = text[first:last]
    while value.endswith((b"\\n", b"\\r")):
        value, last = value[:-2], last - 2
    return [(first, last)] if 1 not in value and last > first else []


_INLINE_REST = compiled(rb"((?:\\+[nr]|[A-Za-z0-9+/=])*)")


def orphans(document: Document) -> Iterator[Block]:
    """Yield runs of at least three lines that hold only key-like base64."""
    text = document.text
    marks = [at for at, end in _LONG.places(text) if all(kinds(text[at:end]))]
    if len(marks) < _LEAST_LINES:
        return
    for side in (OLD, NEW) if document.is_diff else (BOTH,):
        done = 0
        for mark in marks:
            if mark < done:
                continue
            done = line_end(text, mark)
            for here in document.sides(mark):
                if here.side == side:
                    run, done = _run(document, here)
                    if _is_key(text, run):
                        yield Block(tuple(run), "key-material")


def _run(document: Document, first: SourceLine) -> tuple[list[tuple[int, int]], int]:
    """Return the key material from a line on, and the end of the last line read."""
    run: list[tuple[int, int]] = []
    end = first.end
    for line in chain((first,), document.following(first, len(document.raw))):
        end, span = line.end, None
        if 40 <= line.end - line.start <= 120 and not document.in_binary(line.start):
            span = _material(document.text, line)
        elif len(run) >= _LEAST_LINES:
            last = _body(document.text, line.start, line.end, short=True)
            if last is not None and last[1] > last[0]:
                run.append(last)
        if span is None:
            break
        run.append(span)
    return run, end


def _is_key(text: bytes, run: list[tuple[int, int]]) -> bool:
    """Return whether a run of base64 is long enough, and not a picture or an archive."""
    if len(run) < _LEAST_LINES:
        return False
    before = text[max(run[0][0] - 200, 0) : run[0][0] + 12]
    return not any(magic in before for magic in FILES if len(magic) > 4)


def _material(text: bytes, line: SourceLine) -> tuple[int, int] | None:
    span = _body(text, line.start, line.end, short=False)
    if span is None:
        return None
    value = text[slice(*span)]
    value = _TICKS.sub(b"", value) if b"\\" in value else value
    if (
        not 56 <= len(value) <= 80
        or len(set(value)) < 20
        or not all(kinds(value))
        or transitions(value) < 0.42
    ):
        return None
    return span
