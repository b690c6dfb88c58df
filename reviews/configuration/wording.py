"""Words of warnings: quotes of a file (guarantee G443), and the key that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Collection

from criticizer.redaction import clean
from reviews.configuration.loading import in_words

_QUOTABLE = re.compile(r"[A-Za-z][A-Za-z_-]{0,19}(?: [A-Za-z_-]{1,20}){0,3}")


def is_quotable(text: str) -> bool:
    """Return whether a value is a few plain words, which hide no secret."""
    return _QUOTABLE.fullmatch(text) is not None and clean(text) == text


def quoted(value: object) -> str:
    """Return a value as a warning shows it: a text only if it is quotable."""
    if isinstance(value, str):
        return f'text "{value}"' if is_quotable(value) else "text"
    return in_words(value)


def named(key: str, line: int) -> str:
    """Return a key of a file as a warning names it.

    A key that is long or may be a secret is named by its line only.
    """
    is_plain = key.isascii() and key.replace("_", "").replace(".", "").replace("-", "").isalpha()
    return f"`{key}`" if is_plain and len(key) <= 40 and clean(key) == key else f"in line {line}"


def nearest(name: str, level: Collection[str]) -> str:
    """Return the key of a level that is at most three edits away, or ""."""
    most = min(3, len(name) - 1)
    if len(name) > 30:
        return ""
    distances = sorted((_distance(name, key), key) for key in level)
    return distances[0][1] if distances and distances[0][0] <= most else ""


def _distance(one: str, other: str) -> int:
    """Return the Levenshtein distance."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        previous, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]
