"""Middleware that makes pages arrive late and in pieces.

With it a browser test fails that does not wait for what it looks at:

CRITICIZER_SLOW_PAGES=0.5 python -m pytest tests/browser
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

Answer = Callable[[HttpRequest], HttpResponseBase]
SECONDS = float(os.environ.get("CRITICIZER_SLOW_PAGES") or 0)


def slow_pages(get_response: Answer) -> Answer:
    """Hold each answer back, and a page twice more: after its first byte and in its middle."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        time.sleep(SECONDS)
        whole = get_response(request)
        is_page = whole.headers.get("Content-Type", "").startswith("text/html")
        if not is_page or not isinstance(whole, HttpResponse):
            return whole
        parts = StreamingHttpResponse(_pieces(whole.content), status=whole.status_code)
        parts.headers = whole.headers
        parts.cookies = whole.cookies
        del parts.headers["Content-Length"]
        return parts

    return answer


def _pieces(body: bytes) -> Iterator[bytes]:
    half = len(body) // 2
    for part in (b"\n", body[:half], body[half:]):
        yield part
        time.sleep(SECONDS)
