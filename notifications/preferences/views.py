"""The page behind the link "No more of these messages". It needs no login: the link is the right."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from notifications.preferences import policy
from notifications.preferences import unsubscribe as links


# Mail programs post without having seen a page, so without a token of Django's (RFC 8058, 3.1);
# whoever could forge the request would need the signed link.
@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def unsubscribe(request: HttpRequest, signed: str) -> HttpResponse:
    """Ask on GET, for programs follow links by themselves; act on POST, with one click.

    POST with `resume` undoes it. 404 for a link that was not made here or whose delivery is gone.
    """
    recipient = links.recipient_of(signed)
    if recipient is None:
        return render(request, "notifications/unsubscribe.html", {"is_unknown": True}, status=404)
    if request.method == "POST":
        if "resume" in request.POST:
            links.resume(recipient)
        else:
            links.stop(recipient)
    context = {
        "address": _masked(recipient),
        "is_stopped": policy.preference_of(recipient).muted_until is not None,
        "is_done": request.method == "POST",
    }
    return render(request, "notifications/unsubscribe.html", context)


def _masked(recipient: str) -> str:
    """Show enough for the owner to recognise: messages are forwarded."""
    name, _, domain = recipient.partition(":")[2].rpartition("@")
    return f"{name[:1]}…@{domain}"
