"""Notices that a model server cut a request and answered all the same (guarantee G203).

Some servers take away what exceeds their window, silently and with status 200. Words that cannot
be guessed stand at the beginning, between the hunks and at the end of a request, and the answer
repeats those that the model read. A model that repeats none is judged by the reported tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

WORDS = 24  # of one request, at most
CHARS_BETWEEN_WORDS = 1_500
# Characters a token: more than any tokenizer reaches with code or prose.
_IMPOSSIBLE = 7.0
_UNLIKELY = 3.8
_SMALLEST_WINDOW = 1_024
_LEAST_TOKENS = 256  # our rules alone are more: a smaller number is no count


def words_of(boundary: str) -> tuple[str, ...]:
    """Return the words of the request with this boundary, in their order."""
    digest = hashlib.shake_256(f"words of {boundary}".encode()).digest(4 * WORDS)
    letters = "".join(chr(ord("a") + byte % 26) for byte in digest)
    return tuple(f"{letters[4 * n : 4 * n + 4]}{n}" for n in range(WORDS))


def was_cut(expected: Sequence[str], seen: Sequence[str], characters: int, input_tokens: int) -> bool:
    """Return whether the model read only a part of a request of so many characters."""
    said = {word.strip().casefold() for word in seen} & set(expected)
    if said:
        return len(said) < len(set(expected))
    if input_tokens < _LEAST_TOKENS:
        return False
    each = characters / input_tokens
    is_window = input_tokens >= _SMALLEST_WINDOW and input_tokens & (input_tokens - 1) == 0
    return each > _IMPOSSIBLE or (is_window and each > _UNLIKELY)
