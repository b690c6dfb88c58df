"""The deployment's own secrets: known values, removed by exact match in every usual spelling.

`SECRET_KEY`, the model's and the mail server's keys, the Perforce ticket. Registered once at
start; every redaction, the clean-up of logs and the guard use them.
"""

from __future__ import annotations

import base64
import html
import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus

import ahocorasick_rs

MIN_LENGTH = 4  # shorter values occur in any text; they are not secrets worth the name
_ANYWHERE = 8  # from this length on, a value is taken out inside other words too
_generations = itertools.count(1)
_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


@dataclass(frozen=True)
class OwnSecrets:
    """A set of known values. `spellings` are the byte strings that are searched."""

    values: tuple[str, ...] = ()
    spellings: tuple[bytes, ...] = ()
    automaton: Any = None
    generation: int = 0  # tells one set of this process from another

    def with_values(self, values: Iterable[str]) -> OwnSecrets:
        """Return a set with these values added; ones under 4 characters are ignored."""
        known = dict.fromkeys((*self.values, *(v for v in values if len(v.strip()) >= MIN_LENGTH)))
        if tuple(known) == self.values:
            return self
        spellings = tuple(sorted({form for value in known for form in _spellings(value)}))
        automaton = ahocorasick_rs.BytesAhoCorasick(
            list(spellings), matchkind=ahocorasick_rs.MATCHKIND_LEFTMOST_LONGEST
        )
        return OwnSecrets(tuple(known), spellings, automaton, next(_generations))

    def spans(self, data: bytes) -> list[tuple[int, int, str]]:
        """Return (start, end, "own-secret") wherever one of the values stands in `data`."""
        if self.automaton is None:
            return []
        found = []
        for _, start, end in self.automaton.find_matches_as_indexes(data):
            if end - start >= _ANYWHERE or _stands_alone(data, start, end):
                found.append((start, end, "own-secret"))
        return found


def _stands_alone(data: bytes, start: int, end: int) -> bool:
    before = start > 0 and data[start - 1] in _WORD
    after = end < len(data) and data[end] in _WORD
    return not before and not after


def _spellings(value: str) -> set[bytes]:
    """Return the value raw, stripped, per line, escaped, percent-encoded and inside base64."""
    raw = value.strip()
    forms = {raw, quote(raw, safe=""), quote(raw), quote_plus(raw), html.escape(raw), json.dumps(raw)[1:-1]}
    if "\n" in raw:
        # One placeholder per line: a value of several lines is searched line by line.
        forms = {line.strip() for form in forms for line in form.splitlines()}
    found = {form.encode("utf-8", "surrogatepass") for form in forms if len(form) >= MIN_LENGTH}
    found |= {form.lower() for form in found if b"%" in form}  # %2F is written %2f by some
    data = raw.encode("utf-8", "surrogatepass")
    if len(data) >= _ANYWHERE:
        found |= {data.hex().encode(), *_base64_cores(data)}
    return found


def _base64_cores(data: bytes) -> set[bytes]:
    """Return the parts of `data` in base64 that do not depend on what is around: one per alignment."""
    cores = set()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + data)
        first = (shift * 8 + 5) // 6  # characters that also carry bits of what stands before
        last = (len(data) + shift) * 8 // 6  # ... and of what stands after
        core = encoded[first:last]
        if len(core) >= _ANYWHERE:
            cores |= {core, core.replace(b"+", b"-").replace(b"/", b"_")}
    return cores


_registered = OwnSecrets()


def register_own_secrets(values: Iterable[str]) -> None:
    """Make the process know secrets of its own. May be called again with more values."""
    global _registered
    _registered = _registered.with_values(values)


def registered() -> OwnSecrets:
    """Return the process-wide set."""
    return _registered
