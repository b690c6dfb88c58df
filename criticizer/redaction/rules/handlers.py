"""Handlers, which read the values beside a word.

The prefilter finds the word. A handler gets the text and the two offsets of the word, reads a bounded window
and returns spans (start, end, kind).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from criticizer.redaction.rules import near_secret_words
from criticizer.redaction.rules.named_values import Span, group_span
from criticizer.redaction.rules.value_heuristics import judge

Handler = Callable[[bytes, int, int], list[Span]]


def taken(
    text: bytes, match: Any, kind: str, is_good: Callable[[bytes], bool], behind: bytes = b""
) -> list[Span]:
    """Return the span of the group that matched, without the marks `behind`, if it is good."""
    span = group_span(match)
    if span is None:
        return []
    value = text[slice(*span)].rstrip(behind)
    return [(span[0], span[0] + len(value), kind)] if is_good(value) else []


def is_password(value: bytes) -> bool:
    """Return whether a literal is a password where the syntax requires one."""
    return judge(value, 3, quoted=True)


def is_likely_literal(value: bytes) -> bool:
    """Return whether a literal looks chosen or generated, where the syntax shows little."""
    return near_secret_words.is_value(value, 3, quoted=True)


def is_likely_word(value: bytes) -> bool:
    """Return whether a bare word looks chosen or generated, where the syntax shows little."""
    return near_secret_words.is_value(value, 3, quoted=False)


def by_word(rows: Iterable[tuple[Handler, bytes]]) -> dict[bytes, Handler]:
    """Return the handler of each word; a row is a handler and its words, separated by `|`."""
    return {word: handler for handler, words in rows for word in words.split(b"|")}
