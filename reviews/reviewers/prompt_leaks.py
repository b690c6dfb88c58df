"""Words of a request that an honest answer never repeats: its boundary and its canary.

Both are random for each call. A finding that holds one was steered by text of the change, or
copies the frame of the request instead of the change: it says nothing about the code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

_MARKS = re.compile(r"^BEGIN (\S{4,100}) description$", re.MULTILINE)


def canary_of(boundary: str) -> str:
    """Return the canary of a request. Nobody who does not know the boundary can tell it."""
    return "canary-" + hashlib.sha256(f"canary of {boundary}".encode()).hexdigest()[:16]


def marks_of(request: str) -> tuple[str, ...]:
    """Return the boundary and the canary of a request made by `prompt.request_text`."""
    # The first fence is ours: text of the change stands behind it only.
    found = _MARKS.search(request)
    return (found.group(1), canary_of(found.group(1))) if found else ()


def without_leaks(answer: Mapping[str, Any], marks: tuple[str, ...]) -> tuple[dict[str, Any], int]:
    """Return the answer without the findings that repeat a mark, and how many those were."""
    kept = [finding for finding in answer["findings"] if not _repeats(finding, marks)]
    return {**answer, "findings": kept}, len(answer["findings"]) - len(kept)


def _repeats(finding: Mapping[str, Any], marks: tuple[str, ...]) -> bool:
    texts = (value.casefold() for value in finding.values() if isinstance(value, str))
    return any(mark.casefold() in text for text in texts for mark in marks)
