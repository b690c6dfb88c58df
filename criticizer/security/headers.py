"""Middleware for the security headers of responses and the size limit of request bodies.

It is the outermost middleware, so that health checks, static files and error pages are covered as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase

# No page needs any of these.
PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in (
        *("accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "fullscreen"),
        *("geolocation", "gyroscope", "magnetometer", "microphone", "midi", "payment"),
        *("picture-in-picture", "publickey-credentials-get", "screen-wake-lock", "usb"),
        "xr-spatial-tracking",
    )
)


def policy() -> str:
    """Return `settings.CONTENT_SECURITY_POLICY` as the value of a header."""
    directives = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
    return "; ".join(f"{name} {' '.join(sources)}" for name, sources in directives.items())


def keeps_query_out_of_referrer(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorate a view whose query holds a key, so that its page sends no query as a referrer.

    Assets and forms of the page send the origin only. Not `no-referrer`: browsers then send `Origin: null`
    with forms, which the CSRF check refuses.
    """

    @wraps(view)
    def decorated(*given: Any, **named: Any) -> HttpResponse:
        response = view(*given, **named)
        response["Referrer-Policy"] = "strict-origin"
        return response

    return decorated


class HardeningMiddleware:
    """Middleware that refuses too large bodies and invalid addresses, and adds missing headers."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = _too_large(request) or _has_nul(request) or self.get_response(request)
        headers = response.headers
        headers.setdefault("Content-Security-Policy", policy())
        headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        headers.setdefault("Referrer-Policy", settings.SECURE_REFERRER_POLICY)
        headers.setdefault("X-Content-Type-Options", "nosniff")
        headers.setdefault("X-Frame-Options", settings.X_FRAME_OPTIONS)
        # A response is for one reader; without this header a proxy may store it for others (G584).
        headers.setdefault("Cache-Control", "no-store")
        headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
        headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        return response


def _has_nul(request: HttpRequest) -> HttpResponse | None:
    """Return 400 for a NUL in the address: no name holds one, and the database refuses it.

    The API checks its own parameters and has its own form of error.
    """
    if request.path_info.startswith("/api/"):
        return None
    if "\x00" not in request.path_info and "%00" not in request.META.get("QUERY_STRING", ""):
        return None
    return HttpResponse("The address is not valid.\n", status=400, content_type="text/plain; charset=utf-8")


def _too_large(request: HttpRequest) -> HttpResponse | None:
    """Return 413 for a body over the limit. The API has its own limit and its own form of error."""
    if request.path_info.startswith("/api/"):
        return None
    declared = str(request.META.get("CONTENT_LENGTH") or "0")
    # Django's own limit does not count files, and no page accepts one.
    if declared.isdecimal() and len(declared) < 12 and int(declared) <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        return None
    # The server closes a connection whose body was not read; an application may not send
    # `Connection: close` itself (PEP 3333).
    return HttpResponse("The request is too large.\n", status=413, content_type="text/plain; charset=utf-8")
