"""Tokens of issuers: all marks of `issuer_tokens` are found at once, each body confirmed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final

import ahocorasick_rs

from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules.characters import DIGITS, kinds, looks_random
from criticizer.redaction.rules.issuer_tokens import TOKEN_RULES, TokenRule
from criticizer.redaction.rules.named_values import Span

_WORD: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_HEX: Final = b"0123456789abcdef"
_BASE62: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TOKEN_WINDOW: Final = 1_024
_JUDGED: Final = 256  # bytes of a token that are judged
# Texts of documentation in place of a token.
_EXAMPLE = compiled(rb"(?i)your[_-]|[_-]here|_key_|placeholder|[x]{8}")
_REST = compiled(rb"[A-Za-z0-9_.=%+/~-]*")
_AUTOMATON: Final = ahocorasick_rs.BytesAhoCorasick(
    [rule.mark for rule in TOKEN_RULES], implementation=ahocorasick_rs.Implementation.DFA
)


def tokens(text: bytes, spend: Callable[[int], None], low: int = 0, high: int = -1) -> list[Span]:
    """Return the tokens in a text; `spend` gets the number of marks and may stop the work."""
    found: list[Span] = []
    began = done = rest = 0
    size = len(text)
    hits = _AUTOMATON.find_matches_as_indexes(text[low:high] if high >= 0 else text, overlapping=True)
    spend(len(hits))
    for index, start, _ in hits:
        start += low
        rule = TOKEN_RULES[index]
        if rule.mark == b"test_" and text[start + 5 : start + 9].strip(_HEX) not in (b"", b"pub_"):
            continue  # the name of a test, as most hits are
        if rule.back:
            if start < done - len(rule.mark):
                continue  # inside a token that is found already
            match = _marked_inside(rule, text, start)
        else:
            if start and not rule.inside and _in_word(text, start, len(rule.mark)):
                continue
            match = rule.pattern.match(text, start, min(start + _TOKEN_WINDOW, size))
        if match is None:
            continue
        first, last = match.span(1) if rule.pattern.groups else match.span()
        if last < done or (last == done and first >= began):
            continue
        if last == start + _TOKEN_WINDOW:
            if last > rest:
                run = _REST.match(text, last)  # the end of a very long run is looked for once
                rest = run.end() if run is not None else last
            last = rest
        judged = min(last, first + _JUDGED)
        if _is_token(rule, text[first:judged], text[match.start() : judged]):
            found.append((first, last, rule.kind))
            began, done = first, last
    return found


def _in_word(text: bytes, start: int, size: int) -> bool:
    """Return whether no token can begin here, because the characters before belong to the word."""
    last = text[start - 1]
    if last == 95 and size >= 5:
        return False  # MY_tskey-…: a name comes before
    if last in _WORD:
        # ... unless they are the end of \\n, \\t or of an ANSI colour.
        before = text[max(start - 6, 0) : start]
        return not (before[-2:] in (b"\\n", b"\\t", b"\\r") or (last == 109 and b"[" in before))
    return last == 43 and start > 1 and text[start - 2] in _WORD  # inside base64


def _marked_inside(rule: TokenRule, text: bytes, at: int) -> Any:
    """Return the match of a token whose mark is inside it, or None."""
    low = max(at - rule.back, 0)
    if at == low or (text[at - 1] not in _WORD and text[at - 1] not in b"~.-"):
        return None
    match = rule.pattern.search(text, low, min(at + 400, len(text)))
    if match is None or not match.start() < at < match.end():
        return None
    return None if match.start() and text[match.start() - 1] in _WORD else match


def _is_token(rule: TokenRule, token: bytes, whole: bytes) -> bool:
    body = token.replace(rule.mark, b"", 1)
    if rule.checksum and has_checksum(body):
        return True
    if not body.strip(b"xX*.-_=") or b"\x01" in token:
        return False
    if b"..." in token or (len(set(body)) <= 2 and not rule.mark.startswith(b"AGE")):
        return False
    if _EXAMPLE.search(body) is not None and not looks_random(body, rate=0.4):
        return False
    return _has_what_it_needs(rule, body, token, whole)


def _has_what_it_needs(rule: TokenRule, body: bytes, token: bytes, whole: bytes) -> bool:
    needs = rule.needs
    lower, upper, digit = kinds(body)
    return not (
        ("digit" in needs and not digit)
        or ("digits" in needs and len(body) - len(body.translate(None, DIGITS)) < 5)
        or ("not-hex" in needs and not body.translate(None, b"0123456789abcdefABCDEF"))
        or ("random" in needs and len(token) < rule.length and not looks_random(body, rate=0.3))
        or ("case" in needs and not (lower and upper and looks_random(body + b"0", rate=0.38)))
        or ("jose" in needs and not _is_jose(whole))
    )


def has_checksum(body: bytes) -> bool:
    """Return whether the last six characters are GitHub's checksum of those before."""
    number = 0
    for c in body[-6:]:
        number = number * 62 + _BASE62.find(c)
    return len(body) > 12 and number == zlib.crc32(body[:-6])


def _is_jose(token: bytes) -> bool:
    head = token.partition(b".")[0]
    return len(head) >= 12 and (kinds(head) == (True, True, True) or token.count(b".") >= 2)
