"""Snapshots of messages: the same bytes on every attempt (guarantee G48)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID, uuid5

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from notifications.models import Delivery
from notifications.providers.base import Message
from notifications.recipients import split

# Never change it: another namespace would give the same delivery another key.
_NAMESPACE = UUID("8a6e2f3c-43b1-5d0e-9c55-70b1d1a3c0de")


def token_for(changelist_id: str, recipient: str, review_version: int, series: str = "") -> UUID:
    """Return the idempotency token of a delivery, a UUIDv5 of the tuple."""
    # As JSON: no two tuples share a text, whatever characters they hold.
    return uuid5(
        _NAMESPACE, json.dumps([changelist_id, recipient, review_version, *([series] if series else [])])
    )


def token_of_all(tokens: Iterable[UUID]) -> UUID:
    """Return the idempotency token of one message about several deliveries, from theirs."""
    return uuid5(_NAMESPACE, json.dumps([str(token) for token in tokens]))


def freeze(message: Message) -> tuple[dict[str, object], str]:
    """Return a row's payload and its SHA-256."""
    content: dict[str, object] = {
        "text": message.text,
        "html": message.html,
        "payload": message.payload,
        "thread": message.thread,
        "created_at_epoch": message.created_at_epoch,
    }
    if message.unsubscribe_url:
        content["unsubscribe_url"] = message.unsubscribe_url
    if message.answers:
        content["answers"] = str(message.answers)
    return content, _digest(message)


def thaw(row: Delivery) -> Message:
    """Return the message of a row: that of its digest once closed, else its own.

    Raises PermanentFailure: INTERNAL_BUG when the stored message was changed, as repeating other bytes with
    the same token would defeat the provider's deduplication; POLICY_REJECTED when its lifetime has ended.
    """
    digest = row.digest
    if digest is None or digest.token is None:
        return thaw_own(row)
    return _thawed(row, digest.token, digest.subject, digest.payload, digest.payload_sha256)


def thaw_own(row: Delivery) -> Message:
    """Return the message about the row's own review. Raises as `thaw`."""
    return _thawed(row, row.token, row.subject, row.payload, row.payload_sha256)


def _thawed(row: Delivery, token: UUID, subject: str, content: dict[str, Any], sha256: str) -> Message:
    if not content:
        raise PermanentFailure(
            ErrorClass.POLICY_REJECTED,
            Component.INTERNAL,
            "the message was deleted at the end of its time (ARTIFACT_REDACTED_TTL_DAYS): nothing is sent;"
            " request a rerun of the review to notify its recipients",
            context={"delivery": row.pk},
        )
    try:
        message = Message(
            token=token,
            address=split(row.recipient)[1],
            subject=subject,
            text=content["text"],
            html=content["html"],
            payload=content["payload"],
            thread=content["thread"],
            created_at_epoch=content["created_at_epoch"],
            unsubscribe_url=content.get("unsubscribe_url", ""),
            answers=UUID(content["answers"]) if "answers" in content else None,
            repeat_notice=row.repeat_notice,  # not part of the frozen message
        )
    except (KeyError, TypeError, ValueError):
        message = None
    if message is None or _digest(message) != sha256:
        raise PermanentFailure(
            ErrorClass.INTERNAL_BUG,
            Component.INTERNAL,
            "the stored message is not the one that was frozen",
            context={"delivery": row.pk},
        )
    return message


def _digest(message: Message) -> str:
    content = [
        str(message.token),
        message.address,
        message.subject,
        message.text,
        message.html,
        message.payload,
        message.thread,
        message.created_at_epoch,
        # Absent from rows of earlier versions, whose digest must not change.
        *([message.unsubscribe_url] if message.unsubscribe_url else []),
        *([str(message.answers)] if message.answers else []),
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
