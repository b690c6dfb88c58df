"""Filters of the review mail's templates."""

from __future__ import annotations

import textwrap

from django import template

from notifications.messages import ExcerptLine, ReportFinding

register = template.Library()


@register.filter
def place(finding: ReportFinding) -> str:
    """Return `path`, `path:12` or `path:12-14`, saying so where it is the old side."""
    if finding.line is None:
        return finding.file
    end = f"-{finding.end_line}" if finding.end_line and finding.end_line != finding.line else ""
    side = " (before the change)" if finding.side == "old" else ""
    return f"{finding.file}:{finding.line}{end}{side}"


@register.filter
def code_line(row: ExcerptLine) -> str:
    """Return one line of an excerpt with its number and its sign."""
    number = "" if row.line is None else str(row.line)
    return f"{number:>6} {row.kind or ' '} {row.text}"


@register.filter
def wrapped(text: str, indent: str) -> str:
    """Wrap prose to 76 columns under an indent, keeping its own line ends."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += textwrap.wrap(
            line,
            width=76,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines)


@register.filter
def indented(text: str, indent: str) -> str:
    """Indent code without wrapping it."""
    return textwrap.indent(text, indent)


@register.filter
def is_web_link(url: str) -> bool:
    """Say whether a link may be made of it: nothing but http and https is one."""
    return url.startswith(("https://", "http://"))
