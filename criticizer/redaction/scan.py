"""Scan of one text by all rules: keyword prefilter, confirmation, state machines."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

import ahocorasick_rs

from criticizer.redaction.input import concatenation, logical_lines
from criticizer.redaction.input.document import Document, character_end, character_start
from criticizer.redaction.input.normalization import Shadow, shadows
from criticizer.redaction.known_secrets import OwnSecrets
from criticizer.redaction.policy import Policy
from criticizer.redaction.rules import (
    documents,
    entropy,
    issuer_contexts,
    key_names,
    near_secret_words,
    pairs,
    pem,
    syntax,
    tables,
)
from criticizer.redaction.rules.assignments import Assignments, continues_as_longer_word
from criticizer.redaction.rules.key_names import WORDS
from criticizer.redaction.rules.named_values import Span
from criticizer.redaction.rules.token_matching import tokens
from criticizer.redaction.work import Work

_BEFORE: Final = 300  # bytes before a word that are read with the lines below it

# Words of the prefilter; PEM marks are found by plain search.
_WORDS: Final = tuple(WORDS)
_IS_OWN: Final = [key_names.WORDS[word][1] for word in _WORDS]
_CONTEXT_WORDS: Final = tuple(syntax.HANDLERS)
_DFA: Final = ahocorasick_rs.Implementation.DFA
_WORD_AUTOMATON: Final = ahocorasick_rs.BytesAhoCorasick(
    list(_WORDS), matchkind=ahocorasick_rs.MATCHKIND_LEFTMOST_LONGEST, implementation=_DFA
)
_CONTEXT_AUTOMATON: Final = ahocorasick_rs.BytesAhoCorasick(list(_CONTEXT_WORDS), implementation=_DFA)
_PEM_WORDS: Final = ahocorasick_rs.BytesAhoCorasick(
    [b"BEGIN ", b"END ", b"PuTTY-User"], matchkind=ahocorasick_rs.MATCHKIND_LEFTMOST_FIRST
)


class Find(NamedTuple):
    """A span of the raw bytes to remove.

    Spans of one `group`, such as the lines of a PEM block, get the same number.
    """

    start: int
    end: int
    kind: str
    group: bytes | None = None


Pieces = Sequence[tuple[int, int]]  # spans of a text that are read
_NEAR: Final = 120  # bytes of a line in which one search for values near a name is enough


def scan(document: Document, policy: Policy, own: OwnSecrets, deadline: float = math.inf) -> list[Find]:
    """Return all spans to remove from the document, unsorted, overlaps included.

    Raises RedactionBlocked: `budget` when the text has too many candidates for its size,
    `too_slow` when the thread's processor time passes `deadline`.
    """
    work = Work(len(document.raw), deadline)
    text = document.text
    found = [Find(*span) for span in own.spans(document.raw)]
    found += _lines(document, text, work)
    found += (Find(*span) for span in policy.spans(text))
    work.look_at_clock()
    keys: list[Find] = []
    if _PEM_WORDS.find_matches_as_indexes(text) and (b"--" in text or b"PuTTY-User" in text):
        keys += _blocks(document.raw, pem.blocks(document, public=policy.public_pem))
    candidates = entropy.candidates(document)
    if entropy.has_key_lines(candidates):
        keys += _blocks(document.raw, pem.orphans(document))
    found += keys
    blocks = sorted((find.start, find.end) for find in keys)
    taken = sorted((find.start, find.end) for find in found) if candidates else ()
    random = entropy.spans(document, candidates, partial(_holds_secret, work=work), blocks, taken)
    found += (Find(*span) for span in random)
    work.look_at_clock()
    for shadow in shadows(document):
        work.spend(16)
        found += _shadow(document, shadow, policy, own, work)
    return [find for find in found if find.end > find.start]


def _holds_secret(decoded: bytes, work: Work) -> bool:
    """Return whether a decoded text holds a secret."""
    work.spend(len(decoded))
    lowered = decoded.lower()
    return bool(
        tokens(decoded, work.spend)
        or any(_words(None, decoded, lowered, work, []))
        or _contexts(decoded, lowered, work, [], ((0, len(decoded)),))
    )


def _blocks(text: bytes, blocks: Iterator[pem.Block]) -> Iterator[Find]:
    for block in blocks:
        spans = [span for span in block.spans if span[1] > span[0]]
        group = b"".join(text[start:end] for start, end in spans)
        for start, end in spans:
            yield Find(start, end, block.kind, group)


def _lines(document: Document | None, text: bytes, work: Work) -> list[Find]:
    """Run the rules that read one line, and those for lines below when there is a document."""
    lowered = text.lower()
    places: list[tuple[int, int]] = []  # spans of words whose line may be continued below
    unread = ((0, len(text)),) if document is None else document.unread
    spans = [span for piece in unread for span in tokens(text, work.spend, *piece)]
    named, near = _words(document, text, lowered, work, places)
    spans += named
    spans += _contexts(text, lowered, work, places, unread)
    found = [*_blocks(text, concatenation.blocks(text, spans)), *(Find(*span) for span in spans)]
    found += _apart(near, found)
    if document is not None:
        for piece in unread:
            found += _glued(text, work, *piece)
        found += _joined(document, found, places, work)
        found += (Find(*span) for span in documents.spans(document, lowered))
    return found


def _apart(spans: list[Span], found: list[Find]) -> Iterator[Find]:
    """Yield the spans that do not overlap any of the finds, which have their numbers."""
    starts = sorted((find.start, find.end) for find in found)
    for start, end, kind in spans:
        at = bisect.bisect_left(starts, (end, 0))
        if not any(last > start for _, last in starts[max(at - 4, 0) : at]):
            yield Find(start, end, kind)


def _words(
    document: Document | None, text: bytes, lowered: bytes, work: Work, places: list[tuple[int, int]]
) -> tuple[list[Span], list[Span]]:
    """Return the values joined to names and those near them; add to `places`.

    `places` gets the words whose value may be on a line below.
    """
    assignments = Assignments(text, work.spend)
    values = assignments.values
    near: list[Span] = []
    done = reach = reached = 0
    unread = ((0, len(text)),) if document is None else document.unread
    for index, start, end in _hits(_WORD_AUTOMATON, lowered, work, unread, overlapping=False):
        if (
            start < done
            or (_IS_OWN[index] and continues_as_longer_word(text, end))
            or assignments.is_inside_base64(start, end)
        ):
            continue
        word = _WORDS[index]
        done = assignments.word(start, end, word)
        if assignments.is_settled:
            continue
        is_name = not (word == b"pass" and _stands_alone(text, start, end))
        strength = assignments.strength if is_name else 0
        if strength >= key_names.SECRET and (start >= reach or strength > reached):
            # One search also reads the values beside the next words of the line.
            reach, reached = min(start + _NEAR, _line_end(text, end)), strength
            work.spend(32)
            near += near_secret_words.spans(text, start, end, strength, found=done > end)
            if document is not None:
                near += tables.spans(document, start, end, strength, work.spend)
        if assignments.opens or values.goes_on:
            places.append((start, end))
        if document is not None and (assignments.ends_line or strength >= key_names.SECRET):
            pairs.read(assignments, start, end, word, document)
    return values.spans, near


def _contexts(
    text: bytes, lowered: bytes, work: Work, places: list[tuple[int, int]], unread: Pieces
) -> list[Span]:
    """Return the values found by the syntax around them; add to `places`.

    `places` gets the words whose value may be on a line below.
    """
    spans: list[Span] = []
    reach: dict[Any, int] = {}
    for index, start, end in _hits(_CONTEXT_AUTOMATON, lowered, work, unread, overlapping=True):
        handler = syntax.HANDLERS[_CONTEXT_WORDS[index]]
        if start < reach.get(handler, 0):
            continue
        work.spend(4)
        more = handler(text, start, end)
        if more:
            work.spend(16)
            reach[handler] = max(span[1] for span in more)
            spans += more
        if handler in syntax.READ_ALL:
            reach[handler] = max(reach.get(handler, 0), issuer_contexts.window_end(text, end))
        if handler in syntax.CONTINUED and syntax.is_continued(text, end):
            places.append((start, end))
    return spans


def _hits(
    automaton: Any, data: bytes, work: Work, unread: Pieces, *, overlapping: bool
) -> list[tuple[int, int, int]]:
    find = automaton.find_matches_as_indexes
    if len(unread) == 1 and unread[0] == (0, len(data)):
        hits: list[tuple[int, int, int]] = find(data, overlapping=overlapping)
    else:
        hits = [
            (index, low + start, low + end)
            for low, high in unread
            for index, start, end in find(data[low:high], overlapping=overlapping)
        ]
    work.spend(len(hits))
    return hits


def _line_end(text: bytes, at: int) -> int:
    end = text.find(b"\n", at, at + _NEAR)
    return end if end >= 0 else at + _NEAR


def _stands_alone(text: bytes, start: int, end: int) -> bool:
    """Return whether a word is part of prose: to pass something."""
    return (not start or text[start - 1] in b" \t\n*`") and text[end : end + 1] in (b"", b" ", b"\n")


def _joined(
    document: Document, found: list[Find], places: list[tuple[int, int]], work: Work
) -> Iterator[Find]:
    """Run the line rules over lines continued below, at `places` and after values in strings."""
    text = document.text
    places += ((find.start, find.end) for find in found if concatenation.goes_on(text, find.end))
    done: dict[int, int] = {}
    for start, offset in sorted(places, key=itemgetter(1)):
        work.spend(8)
        begin = character_start(text, max(start - _BEFORE, 0))
        for line in logical_lines.lines(document, begin, offset, done):
            work.spend(len(line.text))
            below = line.pieces[1][0]
            for find in _lines(None, line.text, work):
                if find.end > below or find.group:
                    group = find.group or line.text[find.start : find.end]
                    for first, last in line.back(find.start, find.end):
                        yield Find(first, last, find.kind, group)


def _glued(text: bytes, work: Work, low: int, high: int) -> Iterator[Find]:
    """Yield tokens that are written in several literals."""
    for joined in concatenation.glued(text, low, high):
        work.spend(8)
        for start, end, kind in tokens(joined.text, work.spend):
            for first, last in joined.back(start, end):
                yield Find(first, last, kind, joined.text[start:end])


def _shadow(
    document: Document, shadow: Shadow, policy: Policy, own: OwnSecrets, work: Work
) -> Iterator[Find]:
    """Run the line rules over normalized lines and map their finds to the raw text."""
    text = shadow.text
    found = _lines(None, text, work)
    found += (Find(*span) for span in policy.spans(text))
    found += (Find(*span) for span in own.spans(text))
    plain = Document(text, text, is_diff=False, unread=((0, len(text)),))
    random = entropy.spans(plain, entropy.candidates(plain), partial(_holds_secret, work=work))
    found += (Find(*span) for span in random)
    for find in found:
        start, end = shadow.origin[find.start], shadow.origin[find.end]
        yield Find(start, character_end(document.raw, end), find.kind, find.group)
