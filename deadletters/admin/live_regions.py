"""Pages that follow what happens: their changing parts, sent again once they changed.

The other half is static/reviews/live.js, which asks and patches only what differs.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

LIVE_SECONDS = 2
_AGO = re.compile(r"(<time [^>]*>)[^<]*")


def drawn(request: HttpRequest, templates: tuple[str, ...], context: dict[str, Any]) -> str:
    """Return the changing parts of a page as HTML."""
    return "".join(render_to_string(template, context, request) for template in templates)


def digest(html: str) -> str:
    """Return what tells one look of the parts from another."""
    # The form's token is new in every answer, and the page itself keeps "3 s ago" true.
    seen = [_AGO.sub(r"\1", line) for line in html.splitlines() if "csrfmiddlewaretoken" not in line]
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]


def answer(request: HttpRequest, html: str, *, goes_on: bool) -> HttpResponse:
    """Return the parts, or 204 when the page has them; while it `goes_on`, with when to ask again."""
    have = digest(html)
    response = HttpResponse(status=204) if request.GET.get("have") == have else HttpResponse(html)
    response["X-Live-Have"] = have
    if goes_on:
        response["X-Live-Next"] = str(LIVE_SECONDS)
    return response
