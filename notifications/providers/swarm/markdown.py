"""A message as a comment on a P4 Code Review: Markdown without mentions.

A word that starts with @ or @@ makes a person or a group a participant of the review. The last line is
the marker that look-ups search for; Markdown does not show it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from notifications.providers.base import Message
from notifications.providers.payload import (
    ReviewPayload,
    linkable,
    not_read,
    review_payload,
    shortened,
)
from notifications.rendering.report import MAX_RULE_NOTE, MAX_TEXT, ReportFinding
from notifications.rendering.selection import fitting

MAX_CHARACTERS = 12_000
_MESSAGE, _SUGGESTION, _SHORT = 2000, 1000, 300
_RESERVED = 3000  # for what stands after the findings
_LINE_MARKER = re.compile(r"\[//\]: # \(criticizer [0-9a-f-]{36} finding ([0-9a-f-]{36})\)")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>~#|!])")
_MENTION = re.compile(r"@(?=[^\s])")
_NO_MENTION = "@\N{ZERO WIDTH SPACE}"


def marker(message: Message) -> str:
    """Return the line that names the message: a Markdown link definition, which is not shown."""
    return f"[//]: # (criticizer {message.token})"


def body(message: Message) -> str:
    """Return the comment: the same for the same message, at most MAX_CHARACTERS long."""
    notice = [f"**{_plain(message.repeat_notice, _SHORT)}**"] if message.repeat_notice else []
    found = review_payload(message)
    parts = [_text(message)] if found is None else _review(found)
    return "\n\n".join([*notice, *parts, marker(message)])


def line_marker(message: Message, identity: str) -> str:
    """Return the line that names the comment on one finding, whichever version it was made for."""
    return f"[//]: # (criticizer {message.token} finding {identity})"


def identity_of(body: object) -> str:
    """Return the finding that a comment of ours is on, "" of any other comment."""
    found = _LINE_MARKER.fullmatch(last_line(body))
    return found[1] if found else ""


def last_line(body: object) -> str:
    """Return a comment's last line, the only one that may be its marker.

    Code of a change that a comment shows may hold other markers.
    """
    return body.rstrip().rpartition("\n")[2].strip() if isinstance(body, str) else ""


def line_comment(message: Message, finding: ReportFinding, url: str) -> str:
    """Return the comment at a finding's line."""
    text = _finding(replace(finding, line=None, file=""))
    return "\n\n".join([text, *_link(url), line_marker(message, finding.identity)])


def _review(review: ReviewPayload) -> list[str]:
    parts = [f"**{_plain(review.headline, _SHORT)}**", *_link(review.url)]
    parts += [_plain(fact, MAX_TEXT) for fact in (review.banner, *review.status_lines) if fact]
    budget = MAX_CHARACTERS - _RESERVED - sum(map(len, parts))
    texts = (_finding(finding) for finding, _ in review.findings)
    findings = fitting(texts, lambda text: len(text) + 2, budget)
    parts += findings
    left_out = review.findings_total - len(findings)
    if left_out > 0:
        parts.append(f"{left_out} of {review.findings_total} findings are left out here.")
    if review.unread:
        parts.append(not_read(review.unread, lambda file: _plain(file, 100)))
    return parts


def _link(url: str) -> list[str]:
    return [f"<{url.replace('<', '%3C').replace('>', '%3E')}>"] if linkable(url) else []


def _finding(finding: ReportFinding) -> str:
    parts = [f"**{_plain(finding.severity.upper(), 20)}: {_plain(finding.title, _SHORT)}**"]
    if finding.location:
        parts.append(f"`{_code(finding.location, 1100)}`")
    parts += [*(_plain(note, _SHORT) for note in finding.notes), _plain(finding.message, _MESSAGE)]
    parts.append(_plain(finding.rule_note, MAX_RULE_NOTE))
    if finding.suggestion:
        parts.append(f"```\n{_code(finding.suggestion, _SUGGESTION)}\n```")
    return "\n\n".join(filter(None, parts))


def _text(message: Message) -> str:
    """Return the plain text as a code block, lines beyond the limit counted."""
    lines = _code(message.text, len(message.text) * 2).splitlines()
    shown = fitting(lines, lambda line: len(line) + 1, MAX_CHARACTERS - _RESERVED)
    text = "```\n" + "\n".join(shown) + "\n```"
    left_out = len(lines) - len(shown)
    return f"{text}\n\n{left_out} lines are left out here." if left_out else text


def _plain(text: str, limit: int) -> str:
    return _MENTION.sub(_NO_MENTION, _MARKDOWN.sub(r"\\\1", shortened(text, limit)))


def _code(text: str, limit: int) -> str:
    return _MENTION.sub(_NO_MENTION, shortened(text, limit).replace("`", "'"))
