"""A message as a comment on a P4 Code Review: Markdown without mentions.

A word that starts with @ or @@ makes a person or a group a participant of the review. The last line is
the marker that look-ups search for; Markdown does not show it.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from notifications.providers.base import Message
from notifications.providers.payload import ReviewPayload, review_payload
from notifications.rendering.report import ReportFinding

MAX_CHARACTERS = 12_000
_MESSAGE, _SUGGESTION, _SHORT = 2000, 1000, 300
_MAX_UNREAD = 20
_RESERVED = 3000  # for what stands after the findings
_MARKDOWN = re.compile(r"([\\`*_\[\]<>~#|!])")
_MENTION = re.compile(r"@(?=[^\s])")
_NO_MENTION = "@\N{ZERO WIDTH SPACE}"
_URL = re.compile(r"[!-~]{1,2000}")


def marker(message: Message) -> str:
    """Return the line that names the message: a Markdown link definition, which is not shown."""
    return f"[//]: # (criticizer {message.token})"


def body(message: Message) -> str:
    """Return the comment: the same for the same message, at most MAX_CHARACTERS long."""
    notice = [f"**{_plain(message.repeat_notice, _SHORT)}**"] if message.repeat_notice else []
    found = review_payload(message)
    told = [_text(message)] if found is None else _review(found)
    return "\n\n".join([*notice, *told, marker(message)])


def _review(review: ReviewPayload) -> list[str]:
    parts = [f"**{_plain(review.headline, _SHORT)}**"]
    if urlsplit(review.url).scheme in {"http", "https"} and _URL.fullmatch(review.url):
        parts.append(f"<{review.url.replace('<', '%3C').replace('>', '%3E')}>")
    parts += [_plain(fact, 512) for fact in (review.banner, *review.status_lines) if fact]
    room = MAX_CHARACTERS - _RESERVED - sum(map(len, parts))
    shown = 0
    for finding, _ in review.findings:
        text = _finding(finding)
        room -= len(text) + 2
        if room < 0:
            break
        parts.append(text)
        shown += 1
    if shown < review.findings_total:
        parts.append(
            f"{review.findings_total - shown} of {review.findings_total} findings are left out here."
        )
    if review.unread:
        lines = [f"- {_plain(file, 100)}" for file in review.unread[:_MAX_UNREAD]]
        if len(review.unread) > _MAX_UNREAD:
            lines.append(f"- and {len(review.unread) - _MAX_UNREAD} more files")
        parts.append("\n".join(["Not read completely:", "", *lines]))
    return parts


def _finding(finding: ReportFinding) -> str:
    parts = [f"**{_plain(finding.severity.upper(), 20)}: {_plain(finding.title, _SHORT)}**"]
    if finding.location:
        parts.append(f"`{_code(finding.location, 1100)}`")
    parts.append(_plain(finding.message, _MESSAGE))
    if finding.suggestion:
        parts.append(f"```\n{_code(finding.suggestion, _SUGGESTION)}\n```")
    return "\n\n".join(filter(None, parts))


def _text(message: Message) -> str:
    """Return the plain text as a code block, lines beyond the limit counted."""
    lines = _code(message.text, len(message.text) * 2).splitlines()
    room = MAX_CHARACTERS - _RESERVED
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            left_out = f"\n\n{len(lines) - number} lines are left out here."
            return "```\n" + "\n".join(lines[:number]) + "\n```" + left_out
    return "```\n" + "\n".join(lines) + "\n```"


def _plain(text: str, limit: int) -> str:
    return _MENTION.sub(_NO_MENTION, _MARKDOWN.sub(r"\\\1", _cut(text, limit)))


def _code(text: str, limit: int) -> str:
    return _MENTION.sub(_NO_MENTION, _cut(text, limit).replace("`", "'"))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
