"""Readers of values beside a word: each gets the text and the offsets of the word, and returns spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from criticizer.redaction.rules.literals import Span

Handler = Callable[[bytes, int, int], list[Span]]


def by_word(rows: Iterable[tuple[Handler, bytes]]) -> dict[bytes, Handler]:
    """Return the handler of each word; a row has a handler and its words, with `|` between them."""
    return {word: handler for handler, words in rows for word in words.split(b"|")}
