"""The page behind the link "Unsubscribe"; the signed link replaces a login."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from criticizer.security.headers import keeps_query_out_of_referrer
from notifications.preferences import policy
from notifications.preferences import unsubscribe as links


# Mail programs post without a CSRF token (RFC 8058, 3.1); a forged request would need the signed link.
@csrf_exempt
@never_cache
@keeps_query_out_of_referrer
@require_http_methods(["GET", "HEAD", "POST"])
def unsubscribe(request: HttpRequest, signed: str = "") -> HttpResponse:
    """Ask on GET, because programs follow links; stop the mail on POST, with one click.

    POST with `resume` undoes it. 404 for a link that is not ours or whose delivery is gone.
    """
    recipient = links.recipient_of(signed or request.GET.get("key", ""))
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
    """Return enough of the address for its owner to recognise: messages are forwarded."""
    name, _, domain = recipient.partition(":")[2].rpartition("@")
    return f"{name[:1]}…@{domain}"
