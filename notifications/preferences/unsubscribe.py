"""Links by which recipients stop the mail themselves (RFC 8058).

A link carries the delivery's signed token: it names no person and cannot be forged. It works as long as the
delivery is stored. The token is in the query string, which our logs leave out: anyone who reads it could stop
the mail.
"""

from __future__ import annotations

import base64
from uuid import UUID

import structlog
from django.conf import settings
from django.core.signing import BadSignature, Signer
from django.urls import reverse

from notifications.models import Delivery
from notifications.preferences import policy
from notifications.recipients import split

log = structlog.get_logger(__name__)

ACTOR = "the link in a message"


def link(recipient: str, token: UUID) -> str:
    """Return the address that stops the mail to `recipient`; "" for other channels."""
    if split(recipient)[0] != "mail":
        return ""
    signed = _signer().sign(base64.urlsafe_b64encode(token.bytes).rstrip(b"=").decode())
    return settings.BASE_URL.rstrip("/") + reverse("unsubscribe", query={"key": signed})


def recipient_of(signed: str) -> str | None:
    """Return the recipient whose mail a link stops; None for a link that is not ours or too old."""
    try:
        text = _signer().unsign(signed)
        token = UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (BadSignature, ValueError):
        return None
    return Delivery.objects.filter(token=token).values_list("recipient", flat=True).first()


def stop(recipient: str) -> None:
    """Send the recipient nothing until they resume."""
    policy.mute(recipient, None, ACTOR)
    log.info("mail_stopped_by_recipient")


def resume(recipient: str) -> None:
    policy.unmute(recipient, ACTOR)
    log.info("mail_resumed_by_recipient")


def _signer() -> Signer:
    # Mail programs that detect URLs in plain text may cut one off at a colon, but not at a dot.
    return Signer(salt="notifications.preferences.unsubscribe", sep=".")
