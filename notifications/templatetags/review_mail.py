"""Filters of the review mail's templates. All of them escape."""

from __future__ import annotations

import re

from django import template
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString

register = template.Library()

_MONO = "font-family:Consolas,Menlo,monospace;font-size:.93em"
_LINE_END = format_html("<br>{}", "\n")
_CODE = re.compile(r"`([^`\n]{1,400})`")


@register.filter
def prose(text: str) -> SafeString:
    """Escape a paragraph: line ends stay, `code` in backticks is set as code."""
    pieces = _CODE.split(text)
    return format_html_join(
        "",
        "{}",
        (
            (
                format_html('<code class="mono" style="{}">{}</code>', _MONO, piece)
                if index % 2
                else _with_line_ends(piece),
            )
            for index, piece in enumerate(pieces)
        ),
    )


@register.filter
def code(text: str) -> SafeString:
    """Escape a line of code; an empty one keeps its height."""
    return escape(text if text.strip() else "\N{NO-BREAK SPACE}")


def _with_line_ends(text: str) -> SafeString:
    return format_html_join(_LINE_END, "{}", ((line,) for line in text.split("\n")))
