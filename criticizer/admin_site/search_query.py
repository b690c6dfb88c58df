"""The `key:value` search of the admin's lists.

`stage:llm error:RATE_LIMITED cl:12345 state:new age:>2d -severity:low "read timed out"`: all terms
must hold; `-` negates one, a comma separates alternatives, quotes keep spaces together. Words
without a key go to the list's full text. Each key is a condition that an index serves; an unknown
key is an error that finds nothing, so that no action applies to rows outside the intended search.
See `criticizer.admin_site.keyset` for an example.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from criticizer.db.full_text import FullTextFilter

MAX_CHARACTERS = 500
MAX_TERMS = 20
_TERM = re.compile(r'\s*(-)?(?:([A-Za-z_]+):)?(?:"((?:[^"\\]|\\.)*)"|([^\s"]+))')
_AGE = re.compile(r"([<>]?)(\d{1,6})([smhdw])", re.IGNORECASE)
_NUMBER = re.compile(r"(<=|>=|<|>|)(-?\d{1,18})")
_NUMBERS = re.compile(r"\d{1,18}(?:,\d{1,18})+", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LOOKUPS = {"": "exact", "<": "lt", ">": "gt", "<=": "lte", ">=": "gte"}


class SearchProblem(Exception):
    """An invalid search; the message is shown to the user."""


def row_number(text: str) -> int | None:
    """Return the key of a row that a text names, None for what is no key."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the grammar: the condition for a value, its meaning and an example.

    `opposite` is the condition behind a minus, where it is not the plain negation. Both raise SearchProblem
    for a value that they cannot read.

    `newest` returns the row keys for a value from an index, the highest first, below a key unless it is None
    (`newest_matches`). `reads_rows`: no index serves it, so a search by it alone reads the rows of the list,
    a bounded number at once. `is_range`: its values are ranges in the order of the list.
    """

    condition: Callable[[str], Q]
    meaning: str
    example: str
    opposite: Callable[[str], Q] | None = None
    newest: Callable[[str, int | None], QuerySet[Any, Any]] | None = None
    reads_rows: bool = False
    is_range: bool = False

    def negated(self, text: str) -> Q:
        return ~self.condition(text) if self.opposite is None else self.opposite(text)


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a search. `key` is empty for words."""

    key: str
    value: str
    is_negated: bool = False


# -- keys -------------------------------------------------------------------------------------


def exact(field: str, meaning: str, *, choices: Iterable[str] = (), example: str = "") -> Key:
    """Return a key whose value is the field's; one of `choices`, in any case, when given."""
    known = {str(value).lower(): str(value) for value in choices}

    def condition(text: str) -> Q:
        values = [part.strip() for part in text.split(",")] if known else [text]
        if known and (strange := [value for value in values if value.lower() not in known]):
            raise SearchProblem(f"\u201c{strange[0]}\u201d is not one of: {', '.join(known.values())}")
        found = [known[value.lower()] if known else value for value in values]
        return Q(**{field: found[0]}) if len(found) == 1 else Q(**{f"{field}__in": found})

    return Key(condition, meaning, example or next(iter(known.values()), "value"))


def starts(field: str, meaning: str, *, example: str) -> Key:
    """Return a key whose value is how the field begins."""
    return Key(lambda text: Q(**{f"{field}__startswith": text}), meaning, example)


def number(field: str, meaning: str, *, example: str = ">3") -> Key:
    """Return a key for whole numbers: `7`, `7,9`, `>3`, `<=5`."""

    def condition(text: str) -> Q:
        if _NUMBERS.fullmatch(text):
            return Q(**{f"{field}__in": [int(part) for part in text.split(",")]})
        if (found := _NUMBER.fullmatch(text)) is None:
            raise SearchProblem(f"\u201c{text}\u201d is not a number. Enter a number, for example 7 or >3")
        return Q(**{f"{field}__{_LOOKUPS[found[1]]}": int(found[2])})

    return Key(condition, meaning, example)


def age(field: str, meaning: str, *, example: str = ">2d") -> Key:
    """Return a key for times, by how long ago they are.

    `>2d` is longer ago than two days, `<3h` (or `3h`) within three hours.
    """

    def condition(text: str) -> Q:
        if (found := _AGE.fullmatch(text)) is None:
            raise SearchProblem(
                f"\u201c{text}\u201d is not an age. Enter an age, for example >2d, <3h or 90m (s, m, h, d, w)"
            )
        seconds = min(int(found[2]) * _SECONDS[found[3].lower()], 100 * 365 * 86_400)
        then = timezone.now() - timedelta(seconds=seconds)
        return Q(**{f"{field}__{'lt' if found[1] == '>' else 'gte'}": then})

    return Key(condition, meaning, example)


def flags(conditions: Mapping[str, Q], meaning: str) -> Key:
    """Return a key for named conditions: `is:escalated`."""

    def condition(text: str) -> Q:
        if text.lower() not in conditions:
            raise SearchProblem(f"\u201c{text}\u201d is not one of: {', '.join(conditions)}")
        return conditions[text.lower()]

    return Key(condition, meaning, next(iter(conditions)))


# -- the grammar ------------------------------------------------------------------------------


def parse(text: str) -> list[Term]:
    """Split a search into terms. Raises SearchProblem for an open quote and for far too much."""
    if len(text) > MAX_CHARACTERS:
        raise SearchProblem(f"A search has at most {MAX_CHARACTERS} characters.")
    terms, at = [], 0
    text = text.rstrip()
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None:
            raise SearchProblem("A quote is not closed. Add the closing quote.")
        at = found.end()
        minus, key, quoted, bare = found.groups()
        value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
        terms.append(Term((key or "").lower(), value, bool(minus)))
    if len(terms) > MAX_TERMS:
        raise SearchProblem(f"A search has at most {MAX_TERMS} terms.")
    return terms


def condition_of(text: str, keys: Mapping[str, Key], words: FullTextFilter | None) -> Q:
    """Return the condition of a search. Raises SearchProblem when it is invalid."""
    wanted, free, signs = Q(), [], ""
    for term in parse(text):
        key, value = term.key, term.value
        if not key and value.endswith(":") and value[:-1].lower() in keys:
            key, value = value[:-1].lower(), ""
        if key and key not in keys:
            known = ", ".join(f"{name}:" for name in keys)
            raise SearchProblem(
                f"There is no key \u201c{key}:\u201d in this list. Use one of: {known}. "
                "Put text with a colon in quotes."
            )
        if key and not value.strip():
            raise SearchProblem(f"{key}: needs a value, for example {key}:{keys[key].example}.")
        if key:
            try:
                wanted &= keys[key].negated(value) if term.is_negated else keys[key].condition(value)
            except SearchProblem as problem:
                raise SearchProblem(f"{key}: {problem}.") from problem
            continue
        if words is None:
            raise SearchProblem(
                f"This list has no full-text search. Use {', '.join(f'{name}:' for name in keys)}."
            )
        parts = [part for part in value.split() if any(map(str.isalnum, part))]
        signs = signs if parts else value
        if not term.is_negated:
            free += parts  # looked for all at once: together they are rare
        elif parts:
            wanted &= ~words.condition(parts)
    if free and words is not None:
        wanted &= words.condition(free)
    if signs and not wanted:
        raise SearchProblem(f"Search for at least one letter or digit, not only \u201c{signs}\u201d.")
    return wanted


def range_to_read(text: str, keys: Mapping[str, Key]) -> Q | None:
    """Return the range of the list that a search without an index reads, None for others."""
    try:
        terms = parse(text)
        if not all(
            term.key in keys and (keys[term.key].reads_rows or keys[term.key].is_range) for term in terms
        ):
            return None
        ranges = [keys[term.key].condition(term.value) for term in terms if keys[term.key].is_range]
    except SearchProblem:
        return None
    if len(ranges) == len(terms) or any(term.is_negated for term in terms if keys[term.key].is_range):
        return None
    return reduce(Q.__and__, ranges, Q())
