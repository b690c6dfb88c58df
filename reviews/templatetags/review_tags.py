"""Template filters of the pages: untrusted text in, escaped HTML or plain text out."""

from __future__ import annotations

import re

from django import template
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString

from criticizer.admin_site import timestamps
from criticizer.invisible_characters import name_invisible
from notifications.rendering import Ending
from notifications.rendering.summary import status_in_words
from reviews.recipients.visibility import masked
from reviews.web import labels

register = template.Library()

_SHA = re.compile(r"(git:[^@]+@[0-9a-f]{12})[0-9a-f]{28}")
_CODE = re.compile(r"`([^`\n]{1,400})`")

register.filter(timestamps.time_ago)
register.filter(timestamps.timestamp)
register.filter(masked)
register.filter(labels.took)


@register.filter
def changelist(changelist_id: str) -> str:
    """Shorten a git changelist to twelve digits of its hash; others stay as they are."""
    return _SHA.sub(r"\1", changelist_id)


@register.filter
def state_for_readers(status: str) -> str:
    """Return the status label for reviewers."""
    return labels.state_for_readers(status)


@register.filter
def ending(value: str) -> str:
    """Show what became of an earlier finding as messages say it."""
    return status_in_words(Ending(value)).capitalize() if value else ""


@register.filter
def visible(text: str) -> str:
    """Replace characters that hide or reorder text by their code points."""
    return name_invisible(str(text))


@register.filter
def prose(text: str) -> SafeString:
    """Escape a message and mark text in backticks as code; pages.css keeps the line ends."""
    pieces = _CODE.split(name_invisible(str(text)))
    return format_html_join(
        "",
        "{}",
        (
            (format_html("<code>{}</code>", piece) if index % 2 else escape(piece),)
            for index, piece in enumerate(pieces)
        ),
    )
