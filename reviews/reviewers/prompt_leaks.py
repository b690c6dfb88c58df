"""Marks of a request, and findings that repeat one because they are steered (guarantee G97).

The user part of a request is fenced by a random boundary, which the change cannot know. An honest
answer never repeats the boundary or the canary: a finding that does was steered by text of the
change, or copies the request. The words of a request are there to be repeated, see `truncation`.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from reviews.reviewers.truncation import words_of

_MARKS = re.compile(r"^BEGIN (\S{4,100}) description$", re.MULTILINE)
_WORD = re.compile(r"^Word: (\w+)$", re.MULTILINE)
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}")
_TELLING = 8  # characters of a mark, of sixteen


def draw_boundary() -> str:
    return f"data-{secrets.token_hex(6)}"


def canary_of(boundary: str) -> str:
    """Return the canary of a request, which cannot be derived without its boundary."""
    return "canary-" + hashlib.sha256(f"canary of {boundary}".encode()).hexdigest()[:16]


def marks_of(request: str) -> tuple[str, ...]:
    """Return the boundary and the canary of a request made by `prompt.request_text`."""
    # The first fence is ours: text of the change stands behind it only.
    found = _MARKS.search(request)
    return (found.group(1), canary_of(found.group(1))) if found else ()


def words_in(system: str, request: str) -> tuple[str, ...]:
    """Return the words that an answer repeats if the model read all rules and all the request."""
    marks = marks_of(request)
    own = (word for word in words_of(marks[0]) if f"Word: {word}\n" in request) if marks else ()
    return (*_WORD.findall(system), *own) if marks else ()


def without_leaks(answer: Mapping[str, Any], marks: tuple[str, ...]) -> tuple[dict[str, Any], int]:
    """Return the answer without findings that repeat a mark, and the number of these.

    They are among the `dropped` of the answer then.
    """
    findings = answer["findings"]
    places = answer.get("places", range(len(findings)))
    kept = [(place, f) for place, f in zip(places, findings, strict=True) if not repeats(f, marks)]
    leaked = sorted(set(places) - {place for place, _ in kept})
    dropped = [*answer.get("dropped", ()), *([place, "repeats_request"] for place in leaked)]
    split = {"findings": [f for _, f in kept], "places": [place for place, _ in kept]}
    return {**answer, **split, "dropped": dropped}, len(leaked)


def repeats(finding: Mapping[str, Any], marks: tuple[str, ...]) -> bool:
    """Return whether a mark stands in a finding.

    It may be whole, split up, backwards, in base64 or in hexadecimal.
    """
    text = " ".join(value for value in finding.values() if isinstance(value, str))
    plain = [text, *(decoded for word in _ENCODED.findall(text) for decoded in _decoded(word))]
    read = [_letters(form) for form in plain]
    pieces = {piece for mark in marks for piece in _pieces(_letters(mark.rpartition("-")[2]))}
    return any(piece in form or piece in form[::-1] for form in read for piece in pieces)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _pieces(mark: str) -> Iterator[str]:
    """Yield the runs of a mark that are so long that no honest text holds them by chance."""
    length = min(len(mark), _TELLING)
    yield from (mark[at : at + length] for at in range(len(mark) - length + 1))


def _decoded(word: str) -> Iterator[str]:
    for start in range(4):  # a piece of base64 may begin anywhere
        piece = word[start:]
        with suppress(ValueError):
            yield base64.b64decode(piece[: len(piece) // 4 * 4], altchars=b"-_").decode("latin-1")
    with suppress(ValueError):
        yield bytes.fromhex(word).decode("latin-1")
