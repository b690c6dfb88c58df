"""A preview of a message in every form it is sent in.

The HTML of a message has inline styles, which the pages' content security policy forbids. So it is a
response of its own in a sandboxed frame, whose policy allows styles only: even if escaping failed, the
markup could do and reach nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse

from criticizer.admin_site.base import admin_page
from notifications.providers.base import Message
from notifications.providers.email import mime
from notifications.providers.slack import blocks
from notifications.providers.swarm import markdown
from notifications.recipients import split

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; sandbox; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'self'"
)
# Stored messages may have it in the path, as links had it earlier.
_RIGHT = re.compile(r"(/(?:verdict|unsubscribe)/(?:\?key=)?)[\w.=:%-]{40,}")
_DARK = "@media (prefers-color-scheme: dark)"
TEMPLATE = "admin/notifications/message.html"


@dataclass(frozen=True, slots=True)
class Part:
    """One form of the message, as text. `is_used`: the recipient's channel sends it."""

    name: str
    text: str
    is_used: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """The content of the page. `html_bytes`: Gmail truncates HTML at 102 KB."""

    recipient: str
    subject: str
    parts: tuple[Part, ...]
    html_bytes: int


def preview_of(recipient: str, message: Message) -> Preview:
    """Return every form of a message, those that its channel uses first."""
    channel = split(recipient)[0]
    message = _without_rights(message)
    headers = mime.headers(message, settings.MAIL_FROM)
    parts = (
        Part("Plain text", mime.text_of(message), channel == "mail"),
        Part("Mail headers", "\n".join(f"{n}: {v}" for n, v in headers.items()), channel == "mail"),
        Part("Webhook body", _json(message.payload, sort_keys=True), channel == "webhook"),
        Part("Slack blocks", _json(blocks.body(message)), channel == "slack"),
        Part("P4 Code Review comment", markdown.body(message), channel == "swarm"),
    )
    used_first = sorted(parts, key=lambda part: not part.is_used)
    return Preview(recipient, message.subject, tuple(used_first), len(mime.html_of(message).encode()))


def html_answer(request: HttpRequest, message: Message | None) -> HttpResponse:
    """Return the message's HTML as an answer with its own policy; 404 for None.

    The colours are those of the parameter `scheme`. A frame cannot emulate a dark screen, so the media query
    of the style sheet is replaced: `light` never matches, `dark` always; without `scheme` the screen decides.
    """
    if message is None:
        raise Http404
    media = {"light": "@media not all", "dark": "@media all"}.get(request.GET.get("scheme", ""), _DARK)
    answer = HttpResponse(mime.html_of(_without_rights(message)).replace(_DARK, media))
    answer["Content-Security-Policy"] = POLICY
    answer["X-Frame-Options"] = "SAMEORIGIN"
    return answer


def page(
    request: HttpRequest, recipient: str, message: Message | None, frame_address: str, **about: object
) -> HttpResponse:
    """Return the page around a preview, with what it is `about`; without a message it says so.

    `frame_address` ends where the name of a colour scheme follows.
    """
    preview = preview_of(recipient, message) if message else None
    return admin_page(request, TEMPLATE, "The message", preview=preview, frame_address=frame_address, **about)


def _without_rights(message: Message) -> Message:
    """Return the message with its recipient's rights cut out of its links.

    These are the signed parts, by which the recipient judges findings and unsubscribes.
    """
    text, html, stop = (
        _RIGHT.sub(r"\1…", part) for part in (message.text, message.html, message.unsubscribe_url)
    )
    return replace(message, text=text, html=html, unsubscribe_url=stop)


def _json(value: object, *, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=sort_keys)
