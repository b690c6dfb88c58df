"""Versioned fingerprint of a failure: equal for failures that belong to one group.

A new version of the algorithm makes new groups from then on; existing groups stay.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from deadletters.types import LetterDraft

VERSION = "v1"
FRAMES = 3
MAX_MESSAGE = 500
_MAX_READ = 4_000
_STATUS = ("status", "upstream_status", "reply_code")  # in a context: the upstream's code or HTTP status

# Parts that differ between occurrences. The order matters: the widest pattern comes first.
_VOLATILE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<REDACTED:[^>]{0,40}>"), "<secret>"),
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s\"'<>]+", re.IGNORECASE), "<url>"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<address>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<uuid>"),
    (re.compile(r"\"[^\"\n]{0,400}\"|'[^'\n]{1,400}'|`[^`\n]{1,400}`"), "<quoted>"),
    (re.compile(r"//[^\s,;:)]+"), "<path>"),
    (re.compile(r"(?<![\w/])(?:/[\w.@%+-]+){2,}"), "<path>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)
# A frame of `redaction.clean_stack`: `  reviews/stages/llm.py:41 run`. Own code only.
_FRAME = re.compile(r"  (\S+):\d+ (\S+)")
_OURS = re.compile(r"(?:criticizer|deadletters|notifications|reviews)/[\w/]+\.py")
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Fingerprint of a failure, with the normalised text that groups show.

    `id` reads `v1:<32 hexadecimal digits>`.
    """

    id: str
    message: str


def fingerprint(draft: LetterDraft) -> Fingerprint:
    """Return the fingerprint of one failure."""
    message, context = normalize(draft.detail), draft.sanitized_context
    status = next((context[key] for key in _STATUS if key in context), None)
    parts = [
        draft.stage,
        draft.source,
        draft.error_class,
        exception_of(draft.last_stack),
        draft.code,
        "" if status is None else str(status)[:64],
        message,
        *frames_of(draft.last_stack),
    ]
    digest = hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()
    return Fingerprint(f"{VERSION}:{digest[:32]}", message)


def normalize(text: str) -> str:
    """Return a message without what differs between occurrences, at most 500 characters."""
    text = text[:_MAX_READ]
    for pattern, placeholder in _VOLATILE:
        text = pattern.sub(placeholder, text)
    return text.strip()[:MAX_MESSAGE]


def exception_of(stack: str) -> str:
    """Return the class of the newest exception of a chain, or ""."""
    found = _EXCEPTION.match(stack)
    return found[1] if found else ""


def frames_of(stack: str) -> list[str]:
    """Return the deepest frames of own code in the newest exception, as `module:function`.

    Without line numbers: an edit above a frame must not make a new group.
    """
    found: list[str] = []
    seen = False
    for line in stack.splitlines():
        frame = _FRAME.fullmatch(line)
        if frame is None:
            if seen:
                break  # the frames of its cause follow
            continue
        seen = True
        if _OURS.fullmatch(frame[1]):
            found.append(f"{frame[1].removesuffix('.py').replace('/', '.')}:{frame[2]}")
    return found[-FRAMES:]
