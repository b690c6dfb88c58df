"""Webhooks for mail services' reports: bounces, complaints, deliveries.

django-anymail reads the events; the sender is authenticated here, because its own check of Resend's
signature needs another library.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import structlog
from anymail.exceptions import AnymailConfigurationError
from anymail.signals import AnymailTrackingEvent, EventType
from anymail.webhooks.postmark import PostmarkTrackingWebhookView
from anymail.webhooks.resend import ResendTrackingWebhookView
from django.conf import settings
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from criticizer.security.standard_webhooks import TOLERANCE_SECONDS, decode_secret, signed_at
from notifications.models import Suppression
from notifications.providers.email.postmark import METADATA
from notifications.states import DeliveryState
from notifications.suppressions import bounces
from notifications.suppressions.bounces import MailReport

log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 262_144
_REASON = Suppression.Reason
_STATES = {
    EventType.DELIVERED: DeliveryState.DELIVERED,
    EventType.DEFERRED: DeliveryState.DEFERRED,
    EventType.BOUNCED: DeliveryState.BOUNCED,
    EventType.REJECTED: DeliveryState.BOUNCED,
    EventType.COMPLAINED: DeliveryState.COMPLAINED,
}
# Bounces after which Postmark itself suppresses the address.
_POSTMARK_PERMANENT = {"HardBounce", "BadEmailAddress", "ManuallyDeactivated"}


@csrf_exempt
@require_POST
def resend(request: HttpRequest) -> HttpResponse:
    """Take an event of Resend, signed with RESEND_WEBHOOK_SECRETS."""
    secrets = [decode_secret(secret) for secret in settings.RESEND_WEBHOOK_SECRETS]

    def is_authentic(body: bytes) -> bool:
        sent_at = signed_at(secrets, request.headers, body, prefix="Svix")
        return sent_at is not None and abs(time.time() - sent_at) <= TOLERANCE_SECONDS

    return _received("resend", request, bool(secrets), is_authentic, _resend_event, _resend_report)


@csrf_exempt
@require_POST
def postmark(request: HttpRequest) -> HttpResponse:
    """Take an event of Postmark, which authenticates with a password of POSTMARK_WEBHOOK_AUTH."""
    accepted = settings.POSTMARK_WEBHOOK_AUTH

    def is_authentic(_body: bytes) -> bool:
        return _has_password(accepted, request.headers.get("Authorization", ""))

    return _received("postmark", request, bool(accepted), is_authentic, _postmark_event, _postmark_report)


def _has_password(accepted: Sequence[str], authorization: str) -> bool:
    """Return whether a Basic `Authorization` header holds one of the accepted `user:password`."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > 4096:
        return False
    try:
        given = base64.b64decode(encoded, validate=True)
    except ValueError:  # of letters as well that are not ASCII
        return False
    matches = [hmac.compare_digest(given, item.encode()) for item in accepted]
    return any(matches)


def _received(
    provider: str,
    request: HttpRequest,
    is_configured: bool,
    is_authentic: Callable[[bytes], bool],
    event_of: Callable[[HttpRequest, dict[str, Any]], AnymailTrackingEvent],
    report_of: Callable[[AnymailTrackingEvent, DeliveryState], MailReport],
) -> HttpResponse:
    if not is_configured:
        raise Http404
    body = request.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        return HttpResponse(status=413)
    if not is_authentic(body):
        log.error("mail_event_refused", provider=provider, path=request.path)
        return HttpResponse(status=401)
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return HttpResponse(status=400)
    try:
        event = event_of(request, content)
        state = _STATES.get(event.event_type)
        # Opened, clicked and unknown kinds are ignored.
        if state is not None:
            event.event_id = event.event_id or hashlib.sha256(body).hexdigest()
            bounces.record(report_of(event, state))
    except (AnymailConfigurationError, AttributeError, DataError, KeyError, TypeError, ValueError) as error:
        # Authentic but of an unknown form: repeating it would not help.
        log.warning("mail_event_unreadable", provider=provider, error=type(error).__name__)
    return HttpResponse(status=204)


# anymail's basic authentication is not used; without a value it would warn.
_UNUSED = {"webhook_secret": "unused:unused"}


def _resend_event(request: HttpRequest, content: dict[str, Any]) -> AnymailTrackingEvent:
    return ResendTrackingWebhookView(**_UNUSED).esp_to_anymail_event(content, request)


def _postmark_event(request: HttpRequest, content: dict[str, Any]) -> AnymailTrackingEvent:
    return PostmarkTrackingWebhookView(**_UNUSED).esp_to_anymail_event(content)


def _resend_report(event: AnymailTrackingEvent, state: DeliveryState) -> MailReport:
    data = event.esp_event.get("data") or {}
    reason = None
    if event.event_type == EventType.COMPLAINED:
        reason = _REASON.COMPLAINED
    elif event.event_type == EventType.BOUNCED:
        # Documented as a permanent refusal, unless its type says otherwise.
        kind = (data.get("bounce") or {}).get("type", "Permanent")
        reason = _REASON.BOUNCED if kind == "Permanent" else None
    token = next(
        (
            header.get("value")
            for header in data.get("headers") or []
            if str(header.get("name", "")).lower() == "x-criticizer-token"
        ),
        None,
    )
    return _report("resend", event, state, reason, token)


def _postmark_report(event: AnymailTrackingEvent, state: DeliveryState) -> MailReport:
    reason = None
    kinds = {event.esp_event.get("Type"), event.esp_event.get("SuppressionReason")}
    if event.event_type == EventType.COMPLAINED:
        reason = _REASON.COMPLAINED
    elif event.event_type in {EventType.BOUNCED, EventType.REJECTED} and kinds & _POSTMARK_PERMANENT:
        reason = _REASON.BOUNCED
    return _report("postmark", event, state, reason, (event.metadata or {}).get(METADATA))


def _report(
    provider: str,
    event: AnymailTrackingEvent,
    state: DeliveryState,
    reason: Suppression.Reason | None,
    token: object,
) -> MailReport:
    try:
        known = UUID(str(token))
    except ValueError:
        known = None
    return MailReport(
        provider=provider,
        event_id=str(event.event_id),
        state=state,
        notification_id=str(event.message_id or "")[:512],
        token=known,
        address=str(event.recipient or ""),
        reason=reason,
        detail=str(event.description or event.mta_response or "")[:1000],
    )
