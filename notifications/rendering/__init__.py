"""Renders a review as subject, plain text, HTML and JSON: the same bytes each time.

Report ► clean (bounded, invisible characters shown) ► payload
                                  ► inert (no links) ► selection (what fits) ► text, html
"""

from __future__ import annotations

from uuid import UUID

import structlog
from django.utils.safestring import SafeString

from notifications.providers.base import Message
from notifications.recipients import split
from notifications.rendering import html
from notifications.rendering.inert import inert
from notifications.rendering.payload import payload_of
from notifications.rendering.report import (
    MAX_SUBJECT,
    SEVERITIES,
    Comparison,
    ConfigurationLine,
    EarlierFinding,
    Ending,
    ExcerptLine,
    PullRequest,
    Report,
    ReportFile,
    ReportFinding,
    clean,
    line,
    short_name,
)
from notifications.rendering.selection import MAX_BRIEF, MAX_FILES, MAX_FINDINGS, choose
from notifications.rendering.summary import summarise
from notifications.rendering.text import plain_text

log = structlog.get_logger(__name__)


def render(
    report: Report, recipient: str, token: UUID, *, unsubscribe_url: str = "", answers: UUID | None = None
) -> Message:
    """Return the message to one recipient: the same bytes for the same arguments.

    `answers` is the token of the message about an earlier version that the recipient has.
    Raises ValueError when the recipient is not a normalised one.
    """
    _, address = split(recipient)
    cleaned = clean(report)
    report, summary = inert(cleaned), summarise(cleaned)
    cards: dict[ReportFinding, SafeString] = {}

    def size(finding: ReportFinding) -> int:
        cards[finding] = html.card(report, finding)
        return len(cards[finding].encode())

    shown = choose(report, size)
    text = plain_text(report, summary, shown, unsubscribe_url)
    if left_out := sum(shown.left_out.values()):
        total = len(report.findings)
        log.warning(
            "message_truncated",
            findings_shown=total - left_out,
            findings_total=total,
            files_left_out=shown.files_left_out,
            characters=len(text),
        )
    return Message(
        token=token,
        address=address,
        subject=_subject(report),
        text=text,
        html=html.page(report, summary, shown, cards, unsubscribe_url),
        payload=payload_of(cleaned, summary),
        thread=f"changelist:{report.changelist_id}",
        created_at_epoch=int(report.reviewed_at.timestamp()),
        unsubscribe_url=unsubscribe_url,
        answers=answers,
    )


def _subject(report: Report) -> str:
    """Return the same subject for every version: mail programs break a thread where it changes."""
    name = short_name(report.changelist_id)
    return line(f"Review of {name}: {report.title}" if report.title else f"Review of {name}", MAX_SUBJECT)
