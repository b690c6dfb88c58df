"""A review as HTML for mail programs: tables, inline styles, nothing loaded.

The templates hold the looks. Outlook for Windows lays out mails as Word does, so widths and background
colours are attributes of tables; the dark colours are in the frame's style sheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from criticizer.inert_links import web_link
from notifications.rendering.prose import blocks
from notifications.rendering.report import Report, ReportFinding, link_to
from notifications.rendering.selection import Shown
from notifications.rendering.summary import Summary, in_words, source_in_words, status_in_words


@dataclass(frozen=True, slots=True)
class Look:
    """The light colours of a severity; its class in the style sheet has the dark ones."""

    name: str
    text: str
    ground: str


_LOOKS = {
    look.name: look
    for look in (
        Look("critical", "#b0231b", "#fdeae8"),
        Look("high", "#9a3d00", "#fdeee2"),
        Look("medium", "#7d5200", "#fcf2d9"),
        Look("low", "#2b57cf", "#e8eefc"),
    )
}
# An unknown severity must still be readable.
_OTHER = Look("other", "#555f6c", "#f0f2f5")


def card(report: Report, finding: ReportFinding) -> SafeString:
    return render_to_string(
        "notifications/_finding.html",
        {
            "finding": finding,
            "look": look_of(finding.severity),
            "link": link_to(report, finding) if finding.anchor else "",
            "by": source_in_words(finding.source),
            "message": blocks(finding.message),
            "suggestion": blocks(finding.suggestion),
            "rows": [
                {
                    "number": "" if row.line is None else row.line,
                    "sign": row.kind if row.kind in "+-" else "",
                    "text": row.text,
                    "is_meant": finding.covers(row),
                }
                for row in finding.excerpt
            ],
        },
    )


def page(
    report: Report,
    summary: Summary,
    shown: Shown,
    cards: dict[ReportFinding, SafeString],
    unsubscribe_url: str,
) -> str:
    """Return the whole message's HTML. `cards` has the HTML of each finding shown in full."""
    context: dict[str, Any] = {
        "report": report,
        "summary": summary,
        "shown": shown,
        "review_url": web_link(report.url),
        "preheader": ". ".join(filter(None, [summary.changes, summary.headline])),
        "chips": chips(summary.severities),
        "groups": [
            {
                "severity": severity,
                "look": look_of(severity),
                "count": shown.counts[severity],
                "cards": [cards[finding] for finding in findings],
            }
            for severity, findings in shown.groups
        ],
        "brief": [(finding, link_to(report, finding) if finding.anchor else "") for finding in shown.brief],
        "earlier": [(entry.finding, status_in_words(entry.status)) for entry in shown.earlier],
        "left_out": sum(shown.left_out.values()),
        "left_out_words": in_words(shown.left_out),
        "unsubscribe_url": web_link(unsubscribe_url),
    }
    return render_to_string("notifications/review.html", context)


def chips(severities: Mapping[str, int]) -> list[tuple[int, Look]]:
    """Return the counts by severity, each with its colours."""
    return [(count, look_of(severity)) for severity, count in severities.items()]


def look_of(severity: str) -> Look:
    return _LOOKS.get(severity, _OTHER)
