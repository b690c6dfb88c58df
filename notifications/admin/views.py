"""Admin pages of messages and providers."""

from __future__ import annotations

from django.contrib.auth.decorators import permission_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from criticizer.admin_site.base import admin_page
from criticizer.resilience.failures import PermanentFailure
from notifications.admin import preview, test_message
from notifications.admin import providers as provider_page
from notifications.admin.test_message import TestMessageForm
from notifications.delivery import snapshot
from notifications.digests import lifecycle
from notifications.models import Delivery
from notifications.providers.base import Message

# A message quotes code, so its reader must be allowed to see the files of every review.
_reads_messages = permission_required(
    ["notifications.view_delivery", "reviews.view_all_files"], raise_exception=True
)
READS_PROVIDERS = ("notifications.view_delivery",)
_reads_providers = permission_required(READS_PROVIDERS, raise_exception=True)
_tests_providers = permission_required("notifications.test_provider", raise_exception=True)


@require_safe
@_reads_messages
def delivery_message(request: HttpRequest, delivery_id: int) -> HttpResponse:
    """Show the frozen message of a delivery in every form."""
    delivery = get_object_or_404(Delivery, pk=delivery_id)
    frame = f"{reverse('delivery-message-html', args=[delivery_id])}?scheme="
    return preview.page(request, delivery.recipient, _frozen(delivery), frame, delivery=delivery)


@require_safe
@_reads_messages
def delivery_message_html(request: HttpRequest, delivery_id: int) -> HttpResponse:
    """Return the HTML of a delivery's message, for the frame of the page above."""
    return preview.html_answer(request, _frozen(get_object_or_404(Delivery, pk=delivery_id)))


def _frozen(delivery: Delivery) -> Message | None:
    """Return the stored message; None where there is none or it was changed.

    For a delivery that waits for a digest, the digest as it would be sent now.
    """
    try:
        return lifecycle.preview(delivery) or snapshot.thaw(delivery)
    except PermanentFailure:
        return None


@require_safe
@_reads_providers
def providers(request: HttpRequest) -> HttpResponse:
    """Show each channel's provider: capabilities, circuits, last error and a test form."""
    return _providers(request)


@require_POST
@_tests_providers
def provider_test(request: HttpRequest, channel: str) -> HttpResponse:
    """Check a provider, send a test message and show the steps."""
    form = TestMessageForm(request.POST, channel=channel)
    if channel not in provider_page.CHANNELS:
        raise Http404
    if not form.is_valid():
        return _providers(request, tested=channel, form=form)
    steps = test_message.run(form.cleaned_data["address"], request.user.get_username())
    return _providers(request, tested=channel, form=form, steps=steps)


def _providers(
    request: HttpRequest,
    *,
    tested: str = "",
    form: TestMessageForm | None = None,
    steps: list[test_message.TestStep] | None = None,
) -> HttpResponse:
    return admin_page(
        request,
        "admin/notifications/providers.html",
        "Providers",
        providers=[
            (view, form if form and view.channel == tested else TestMessageForm(channel=view.channel))
            for view in provider_page.views(request.user)
        ],
        problem=provider_page.problem(),
        tested=tested,
        steps=steps,
        may_test=request.user.has_perm("notifications.test_provider"),
    )
