"""Notices that a model server cut a request and answered all the same (guarantee G203).

Some servers take away what exceeds their window, silently and with status 200. Words that cannot
be guessed stand at the beginning, between the lines and at the end of a request, and the answer
repeats those that the model read. A model that repeats none is judged by the reported tokens.

Servers cut in front, at the end, or the middle out: the words are closer where the middle lies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

WORDS = 24  # of one request, at most
_IN_THE_MIDDLE = 10
_CHARS_BETWEEN = 1_500
_MARGIN = 200  # characters; tokens are not spread as evenly as characters
# Characters a token: more than any tokenizer reaches with code or prose.
_IMPOSSIBLE = 7.0
_UNLIKELY = 3.8
_SMALLEST_WINDOW = 1_024
LEAST_TOKENS = 256  # our rules alone are more: a smaller number is no count


def words_of(boundary: str) -> tuple[str, ...]:
    """Return the words of the request with this boundary, in their order."""
    digest = hashlib.shake_256(f"words of {boundary}".encode()).digest(4 * WORDS)
    letters = "".join(chr(ord("a") + byte % 26) for byte in digest)
    return tuple(f"{letters[4 * n : 4 * n + 4]}{n}" for n in range(WORDS))


def places(characters: int, system_characters: int) -> list[int]:
    """Return where the words between the first and the last stand, as positions in the request.

    What a server takes for the middle is that of the request, or of the instructions before it too.
    """
    if characters < _CHARS_BETWEEN:
        return []
    count = WORDS - 2 - _IN_THE_MIDDLE
    step = max(_CHARS_BETWEEN, characters // (count + 1) + 1)
    even = list(range(step, characters, step))[:count]
    first, last = (characters - system_characters) // 2 - _MARGIN, characters // 2 + _MARGIN
    near = (first + (last - first) * n // (_IN_THE_MIDDLE - 1) for n in range(_IN_THE_MIDDLE))
    return sorted({*even, *(place for place in near if 0 < place < characters)})


def may_be_window(input_tokens: int) -> bool:
    """Return whether so many tokens may be all that the server reads of any request."""
    thousands, rest = divmod(input_tokens, 1_000)
    whole = input_tokens if rest else thousands
    return input_tokens >= _SMALLEST_WINDOW and whole & (whole - 1) == 0


def was_cut(expected: Sequence[str], seen: Sequence[str], characters: int, input_tokens: int) -> bool:
    """Return whether the model read only a part of a request of so many characters."""
    said = {word.strip().casefold() for word in seen} & set(expected)
    if said:
        return len(said) < len(set(expected))
    if input_tokens < LEAST_TOKENS:
        return False
    each = characters / input_tokens
    return each > _IMPOSSIBLE or (may_be_window(input_tokens) and each > _UNLIKELY)
