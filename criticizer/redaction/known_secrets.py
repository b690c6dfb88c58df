"""The deployment's own secrets, removed by exact match in every usual spelling.

They are `SECRET_KEY`, the keys of the model and of the mail server, the Perforce ticket. They are
registered once at start; every redaction, the cleaning of logs and the guard use them.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, quote_plus

import ahocorasick_rs

MIN_LENGTH = 4  # shorter values occur in any text, and protect nothing
_ANYWHERE = 8  # a value of this length or more is removed inside other words too
_generations = itertools.count(1)
_DIGEST_KEY = secrets.token_bytes(32)  # without it, digests reveal nothing about short values
_PEM_MARKS = ("-----BEGIN ", "-----END ")
_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


@dataclass(frozen=True)
class OwnSecrets:
    """A set of known values, kept as search automata of their spellings, and as digests.

    Short spellings have an automaton of their own: a short match must not hide a longer one.
    """

    automata: tuple[Any, ...] = field(default=(), repr=False)
    digests: frozenset[bytes] = field(default=frozenset(), repr=False)
    generation: int = 0  # tells one set of this process from another

    def with_values(self, values: Iterable[str]) -> OwnSecrets:
        """Return a set with these values added, but for those under 4 characters."""
        new = {_digest(value): value for value in values if len(value.strip()) >= MIN_LENGTH}
        new = {digest: value for digest, value in new.items() if digest not in self.digests}
        if not new:
            return self
        forms = {form for value in new.values() for form in _spellings(value)}
        longer = {form for form in forms if len(form) >= _ANYWHERE}
        automata = [
            ahocorasick_rs.BytesAhoCorasick(sorted(some), matchkind=ahocorasick_rs.MATCHKIND_LEFTMOST_LONGEST)
            for some in (longer, forms - longer)
            if some
        ]
        return OwnSecrets((*self.automata, *automata), self.digests | new.keys(), next(_generations))

    def spans(self, data: bytes) -> list[tuple[int, int, str]]:
        """Return (start, end, "own-secret") for each place of a value in `data`."""
        return [
            (start, end, "own-secret")
            for automaton in self.automata
            for _, start, end in automaton.find_matches_as_indexes(data)
            if end - start >= _ANYWHERE or _stands_alone(data, start, end)
        ]

    def are_in(self, data: bytes) -> bool:
        """Return whether a longer spelling is in `data`; the guard does not rely on `spans`."""
        matches = (match for one in self.automata for match in one.find_matches_as_indexes(data))
        return any(end - start >= _ANYWHERE for _, start, end in matches)


def _digest(value: str) -> bytes:
    return hashlib.blake2b(value.encode("utf-8", "surrogatepass"), key=_DIGEST_KEY).digest()


def _stands_alone(data: bytes, start: int, end: int) -> bool:
    before = start > 0 and data[start - 1] in _WORD
    after = end < len(data) and data[end] in _WORD
    return not before and not after


def _spellings(value: str) -> set[bytes]:
    """Return the value raw, stripped, by line, escaped, percent-encoded and inside base64."""
    raw = value.strip()
    forms = {raw, quote(raw, safe=""), quote(raw), quote_plus(raw), html.escape(raw), json.dumps(raw)[1:-1]}
    if "\n" in raw:
        # Each line has its placeholder, so a value of several lines is searched line by line. The first and
        # last lines of a PEM key are those of every other key, and not secret.
        lines = {line.strip() for form in forms for line in form.splitlines()}
        forms = {line for line in lines if not (line.startswith(_PEM_MARKS) and line.endswith("-----"))}
    found = {form.encode("utf-8", "surrogatepass") for form in forms if len(form) >= MIN_LENGTH}
    found |= {form.lower() for form in found if b"%" in form}  # some programs write %2f instead of %2F
    data = raw.encode("utf-8", "surrogatepass")
    if len(data) >= _ANYWHERE:
        found |= {data.hex().encode(), *_base64_cores(data)}
    return found


def _base64_cores(data: bytes) -> set[bytes]:
    """Return the base64 of `data` for each alignment, without characters shared with neighbours."""
    cores = set()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + data)
        first = (shift * 8 + 5) // 6  # the characters before this one hold bits of the data before
        last = (len(data) + shift) * 8 // 6  # those from this one on hold bits of the data after
        core = encoded[first:last]
        if len(core) >= _ANYWHERE:
            cores |= {core, core.replace(b"+", b"-").replace(b"/", b"_")}
    return cores


_registered = OwnSecrets()
_adding = threading.Lock()
# Functions that return the process's secrets as they are now, for processes that it starts.
current: list[Callable[[], Iterable[str]]] = []


def register_own_secrets(values: Iterable[str]) -> None:
    """Add values to the process's own secrets. May be called again with more values."""
    global _registered
    values = list(values)
    if _registered.with_values(values) is not _registered:
        with _adding:
            _registered = _registered.with_values(values)


def registered() -> OwnSecrets:
    """Return the own secrets of this process."""
    return _registered
