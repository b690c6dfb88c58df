"""Links by which recipients stop the mail themselves (RFC 8058).

A link carries the delivery's token, signed: it names nobody, so it may stand in logs, and it
cannot be made up. It works as long as the delivery is kept.
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
    """Return the address that stops the mail to `recipient`; empty where the channel is not mail."""
    if split(recipient)[0] != "mail":
        return ""
    signed = _signer().sign(base64.urlsafe_b64encode(token.bytes).rstrip(b"=").decode())
    return settings.BASE_URL.rstrip("/") + reverse("unsubscribe", args=[signed])


def recipient_of(signed: str) -> str | None:
    """Return whose mail a link stops, or None for a link that is not ours or too old."""
    try:
        text = _signer().unsign(signed)
        token = UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (BadSignature, ValueError):
        return None
    return Delivery.objects.filter(token=token).values_list("recipient", flat=True).first()


def stop(recipient: str) -> None:
    """Tell the recipient nothing until they want it again. Repeating it changes nothing."""
    policy.mute(recipient, None, ACTOR)
    log.info("mail_stopped_by_recipient")


def resume(recipient: str) -> None:
    """Tell the recipient again."""
    policy.unmute(recipient, ACTOR)
    log.info("mail_resumed_by_recipient")


def _signer() -> Signer:
    # A dot ends no address in the eyes of programs that make links of plain text; a colon may.
    return Signer(salt="notifications.preferences.unsubscribe", sep=".")
