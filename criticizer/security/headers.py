"""Headers that every answer carries, and a bound on what a request may bring.

The outermost middleware, so that probes, static files and error pages are covered as well.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase

# Browsers are told that no page here needs any of these.
PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in (
        *("accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "fullscreen"),
        *("geolocation", "xr-spatial-tracking", "gyroscope", "magnetometer", "microphone", "midi", "payment"),
        *(
            "picture-in-picture",
            "publickey-credentials-get",
            "screen-wake-lock",
            "usb",
            "xr-spatial-tracking",
        ),
    )
)


def policy() -> str:
    """Return the Content-Security-Policy of `settings.CONTENT_SECURITY_POLICY` as a header's value."""
    directives = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
    return "; ".join(f"{name} {' '.join(sources)}" for name, sources in directives.items())


class HardeningMiddleware:
    """Refuse bodies over the bound unread; complete the headers of every answer."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = _too_large(request) or self.get_response(request)
        headers = response.headers
        headers.setdefault("Content-Security-Policy", policy())
        headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        headers.setdefault("Referrer-Policy", settings.SECURE_REFERRER_POLICY)
        headers.setdefault("X-Content-Type-Options", "nosniff")
        headers.setdefault("X-Frame-Options", settings.X_FRAME_OPTIONS)
        headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
        headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        return response


def _too_large(request: HttpRequest) -> HttpResponse | None:
    """Answer 413 to a body over the bound. The API bounds its own, with an answer of its own form."""
    if request.path_info.startswith("/api/"):
        return None
    declared = str(request.META.get("CONTENT_LENGTH") or "0")
    # Files are not counted by Django's own bound, and no page takes one.
    if declared.isdecimal() and len(declared) < 12 and int(declared) <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        return None
    return HttpResponse("The request is too large.\n", status=413, content_type="text/plain; charset=utf-8",
                        headers={"Connection": "close"})  # fmt: skip
