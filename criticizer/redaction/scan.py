"""One pass of all rules over one text: keyword prefilter, confirmation, state machines."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

import ahocorasick_rs
import re2

from criticizer.redaction.input import concatenation, logical_lines
from criticizer.redaction.input.document import Document, character_start
from criticizer.redaction.input.normalization import Shadow, shadows
from criticizer.redaction.known_secrets import OwnSecrets
from criticizer.redaction.policy import Policy
from criticizer.redaction.redacted_text import RedactionBlocked
from criticizer.redaction.rules import entropy, kubernetes, pem, syntax
from criticizer.redaction.rules.assignments import Assignments
from criticizer.redaction.rules.issuer_tokens import TOKEN_RULES, TokenRule
from criticizer.redaction.rules.key_names import WORDS
from criticizer.redaction.rules.literals import Span
from criticizer.redaction.rules.value_heuristics import is_dummy, kinds, looks_random

_WORD: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_TOKEN_WINDOW: Final = 1_024
_JUDGED: Final = 256  # bytes of a token that say whether it is one
_BEFORE: Final = 300  # bytes before a word that are read with the lines below it
_REST = re2.compile(rb"[A-Za-z0-9_.=%+/~-]*")

# Words of the prefilter. "kind: secret" is here, PEM marks are found by plain search.
_WORDS: Final = tuple(WORDS)
_CONTEXT_WORDS: Final = tuple(syntax.HANDLERS)
_DFA: Final = ahocorasick_rs.Implementation.DFA
_WORD_AUTOMATON: Final = ahocorasick_rs.BytesAhoCorasick(
    list(_WORDS), matchkind=ahocorasick_rs.MATCHKIND_LEFTMOST_LONGEST, implementation=_DFA
)
_CONTEXT_AUTOMATON: Final = ahocorasick_rs.BytesAhoCorasick(list(_CONTEXT_WORDS), implementation=_DFA)
_TOKEN_AUTOMATON: Final = ahocorasick_rs.BytesAhoCorasick(
    [rule.mark for rule in TOKEN_RULES], implementation=_DFA
)


class Find(NamedTuple):
    """A span of the raw bytes to remove. `group` numbers the lines of one PEM block alike."""

    start: int
    end: int
    kind: str
    group: bytes | None = None


_LOOKS_AT_CLOCK: Final = 4_096  # how much work is done between two looks at the clock


class Work:
    """Counts candidates, so that a hostile text is refused instead of processed without end.

    `deadline` is the latest processor time of this thread: a busy machine blocks nothing.
    """

    __slots__ = ("_deadline", "_look_at", "left")

    def __init__(self, size: int, deadline: float = math.inf) -> None:
        self.left = 50_000 + size
        self._deadline = deadline
        self._look_at = self.left

    def spend(self, amount: int) -> None:
        """Subtract `amount` from the budget. Raises RedactionBlocked (`budget`, `too_slow`)."""
        self.left -= amount
        if self.left < 0:
            raise RedactionBlocked("budget")
        if self.left <= self._look_at:
            self._look_at = self.left - _LOOKS_AT_CLOCK
            self.look_at_clock()

    def look_at_clock(self) -> None:
        if time.thread_time() > self._deadline:
            raise RedactionBlocked("too_slow")


def scan(document: Document, policy: Policy, own: OwnSecrets, deadline: float = math.inf) -> list[Find]:
    """Return everything to remove from the document, unsorted, overlaps included.

    Raises RedactionBlocked: `budget` when the text holds more candidates than bytes allow,
    `too_slow` when the thread's processor time goes past `deadline`.
    """
    work = Work(len(document.raw), deadline)
    text = document.text
    found = [Find(*span) for span in own.spans(document.raw)]
    found += _lines(document, text, work)
    found += (Find(*span) for span in policy.spans(text))
    work.look_at_clock()
    random, key_lines = entropy.spans(document)
    found += (Find(*span) for span in random)
    work.look_at_clock()
    for shadow in shadows(document):
        work.spend(16)
        found += _shadow(document, shadow, policy, own, work)
    if (b"--" in text and (b"BEGIN " in text or b"END " in text)) or b"PuTTY-User" in text:
        found += _blocks(document.raw, pem.blocks(document, public=policy.public_pem))
    if key_lines:
        found += _blocks(document.raw, pem.orphans(document))
    # A span never swallows what is masked at its very ends (our own placeholders).
    return [find for find in found if find.end > find.start]


def _blocks(text: bytes, blocks: Iterator[pem.Block]) -> Iterator[Find]:
    for block in blocks:
        spans = [span for span in block.spans if span[1] > span[0]]
        group = b"".join(text[start:end] for start, end in spans)
        for start, end in spans:
            yield Find(start, end, block.kind, group)


def _lines(document: Document | None, text: bytes, work: Work) -> list[Find]:
    """Run the rules that need one line only (and the lines below, when there is a document)."""
    lowered = text.lower()
    places: list[tuple[int, int]] = []  # where a line begins, and where it may go on below
    spans = _tokens(text, work)
    spans += _words(document, text, lowered, work, places)
    spans += _contexts(text, lowered, work, places)
    found = [*_blocks(text, concatenation.blocks(text, spans)), *(Find(*span) for span in spans)]
    if document is not None:
        found += _joined(document, found, places, work)
        found += (Find(*span) for span in kubernetes.spans(document, lowered))
    return found


def _words(
    document: Document | None, text: bytes, lowered: bytes, work: Work, places: list[tuple[int, int]]
) -> list[Span]:
    """Find values by the names beside them, and note which may be on a line below."""
    assignments = Assignments(text, work.spend)
    values = assignments.values
    done = 0
    for index, start, end in _hits(_WORD_AUTOMATON, lowered, work, overlapping=False):
        if start < done:
            continue
        done = assignments.word(start, end, _WORDS[index])
        if assignments.opens or values.goes_on:
            places.append((start, end))
        if assignments.ends_line and document is not None:
            assignments.pair_below(start, end, _WORDS[index], document)
    return values.spans


def _contexts(text: bytes, lowered: bytes, work: Work, places: list[tuple[int, int]]) -> list[Span]:
    """Find values by the syntax around them, and note which may be on a line below."""
    spans: list[Span] = []
    reach: dict[Any, int] = {}
    for index, start, end in _hits(_CONTEXT_AUTOMATON, lowered, work, overlapping=True):
        handler = syntax.HANDLERS[_CONTEXT_WORDS[index]]
        if start < reach.get(handler, 0):
            continue
        work.spend(16)
        more = handler(text, start, end)
        if more:
            reach[handler] = max(span[1] for span in more)
            spans += more
        if handler in syntax.READ_ALL:
            reach[handler] = max(reach.get(handler, 0), syntax.window_end(text, end))
        if handler in syntax.CONTINUED and syntax.is_continued(text, end):
            places.append((start, end))
    return spans


def _hits(automaton: Any, data: bytes, work: Work, *, overlapping: bool) -> list[tuple[int, int, int]]:
    hits: list[tuple[int, int, int]] = automaton.find_matches_as_indexes(data, overlapping=overlapping)
    work.spend(len(hits))
    return hits


def _tokens(text: bytes, work: Work) -> list[Span]:
    found: list[Span] = []
    began = done = rest = 0
    size = len(text)
    for index, start, _ in _hits(_TOKEN_AUTOMATON, text, work, overlapping=True):
        rule = TOKEN_RULES[index]
        if rule.back:
            if start < done - len(rule.mark):
                continue  # inside a token that is found already
            match = _marked_inside(rule, text, start)
        else:
            if start and not rule.inside and _in_word(text, start):
                continue
            match = rule.pattern.match(text, start, min(start + _TOKEN_WINDOW, size))
        if match is None:
            continue
        first, last = match.span(1) if rule.pattern.groups else match.span()
        if last < done or (last == done and first >= began):
            continue
        if last == start + _TOKEN_WINDOW:
            if last > rest:
                rest = _REST.match(text, last).end()  # of a run without end it is looked for once
            last = rest
        judged = min(last, first + _JUDGED)
        if _is_token(rule, text[first:judged], text[match.start() : judged]):
            found.append((first, last, rule.kind))
            began, done = first, last
    return found


def _in_word(text: bytes, start: int) -> bool:
    """Return whether a token cannot begin here: the letters before belong to it."""
    last = text[start - 1]
    if last in _WORD:
        # ... unless they are the end of \\n, \\t or of an ANSI colour.
        before = text[max(start - 6, 0) : start]
        return not (before[-2:] in (b"\\n", b"\\t", b"\\r") or (last == 109 and b"[" in before))
    return last == 43 and start > 1 and text[start - 2] in _WORD  # inside base64


def _marked_inside(rule: TokenRule, text: bytes, at: int) -> Any:
    """Match a token whose mark stands inside it."""
    low = max(at - rule.back, 0)
    if at == low or (text[at - 1] not in _WORD and text[at - 1] not in b"~.-"):
        return None
    match = rule.pattern.search(text, low, min(at + 400, len(text)))
    if match is None or not match.start() < at < match.end():
        return None
    return None if match.start() and text[match.start() - 1] in _WORD else match


def _is_token(rule: TokenRule, token: bytes, whole: bytes) -> bool:
    body = token.replace(rule.mark, b"", 1)
    if not body.strip(b"xX*.-_=") or b"\x01" in token or (is_dummy(body) and body.strip(b"xX*.-_=") == b""):
        return False
    if b"..." in token or (len(set(body)) <= 2 and not rule.mark.startswith(b"AGE")):
        return False
    lower, upper, digit = kinds(body)
    if rule.needs_digit and not digit:
        return False
    if rule.needs_digits and len(body) - len(body.translate(None, b"0123456789")) < 5:
        return False
    if rule.not_hex and not body.translate(None, b"0123456789abcdefABCDEF"):
        return False
    if rule.needs_random and not looks_random(body, rate=0.3):
        return False
    if rule.needs_case and not (lower and upper and looks_random(body + b"0", rate=0.38)):
        return False
    return not (rule.is_jwt and not _is_jose(whole))


def _is_jose(token: bytes) -> bool:
    head = token.partition(b".")[0]
    return len(head) >= 12 and (kinds(head) == (True, True, True) or token.count(b".") >= 2)


def _joined(
    document: Document, found: list[Find], places: list[tuple[int, int]], work: Work
) -> Iterator[Find]:
    """Run the line rules over lines that continue below: at `places`, and after values in strings."""
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


def _shadow(
    document: Document, shadow: Shadow, policy: Policy, own: OwnSecrets, work: Work
) -> Iterator[Find]:
    """Run the line rules over a normalized line and map what they find back."""
    text = shadow.text
    found = _lines(None, text, work)
    found += (Find(*span) for span in policy.spans(text))
    found += (Find(*span) for span in own.spans(text))
    random, _ = entropy.spans(Document(text, text, is_diff=False))
    found += (Find(*span) for span in random)
    for find in found:
        start, end = shadow.origin[find.start], shadow.origin[find.end]
        yield Find(start, _whole(document.raw, end), find.kind, find.group)


def _whole(raw: bytes, at: int) -> int:
    while at < len(raw) and 0x80 <= raw[at] < 0xC0:
        at += 1
    return at
