"""Answers that keep a page up to date while work goes on; live.js asks for them.

`X-Live-Next` is the number of seconds until the next request (absent: stop), `X-Live-Have` the value to send
back as `?have=`, so that unchanged parts are not sent again.
"""

from __future__ import annotations

import hashlib

from django.http import HttpRequest, HttpResponse

# Seconds between two live requests: while a review runs, and otherwise.
BUSY_SECONDS = 2
IDLE_SECONDS = 10


def live_answer(request: HttpRequest, html: str, next_seconds: int, have: str = "") -> HttpResponse:
    """Return a live fragment, or 204 when the reader has it already.

    `next_seconds` 0 ends the updates. `have` tells what the fragment shows; unless given, it is a digest of
    the HTML.
    """
    have = have or hashlib.sha256(html.encode()).hexdigest()[:16]
    response = HttpResponse(status=204) if request.GET.get("have") == have else HttpResponse(html)
    return with_live_headers(response, have, next_seconds)


def with_live_headers(response: HttpResponse, have: str, next_seconds: int) -> HttpResponse:
    """Return a response that says what it shows, and when to ask again."""
    response["X-Live-Have"] = have
    if next_seconds:
        response["X-Live-Next"] = str(next_seconds)
    return response
