"""Counts in words and servers' words, for texts that people read."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"\S+@\S+")
_NOT_PRINTABLE = re.compile(r"[^ -~]+")


def plural_count(count: int, noun: str, *, zero: str = "0") -> str:
    """Return a text such as `1 finding`, `3 findings`, `2 deliveries`; `zero` stands for 0."""
    if count == 1:
        return f"1 {noun}"
    is_ies = noun.endswith("y") and noun[-2] not in "aeiou"  # deliveries, but replays
    return f"{count or zero} {noun[:-1]}ies" if is_ies else f"{count or zero} {noun}s"


def server_words(words: object) -> str:
    """Return a server's words for operators, without addresses.

    They are one line of at most 200 characters.
    """
    return _ADDRESS.sub("[address]", _NOT_PRINTABLE.sub(" ", str(words)))[:200].strip()
