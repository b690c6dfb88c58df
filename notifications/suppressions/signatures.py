"""Authenticates incoming webhooks: Standard Webhooks signatures and basic authentication."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence

TOLERANCE_SECONDS = 300.0


def is_signed(
    secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: float, *, prefix: str = "webhook"
) -> bool:
    """Say whether one of `secrets` signed this body, within five minutes of `now`.

    The headers are `<prefix>-id`, `-timestamp` (whole seconds) and `-signature` (`v1,<base64>`,
    several separated by spaces). Resend's prefix is `svix`.
    """
    identifier = headers.get(f"{prefix}-id", "")
    timestamp = headers.get(f"{prefix}-timestamp", "")
    if not identifier or not timestamp.isascii() or not timestamp.isdecimal() or len(timestamp) > 12:
        return False
    if abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    signed = f"{identifier}.{timestamp}.".encode() + body
    given = [
        item.removeprefix("v1,").encode()
        for item in headers.get(f"{prefix}-signature", "")[:4096].split(" ")
        if item.startswith("v1,")
    ]
    expected = [base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)) for secret in secrets]
    # Every pair is compared: the time taken reveals nothing.
    matches = [hmac.compare_digest(mine, theirs) for mine in expected for theirs in given]
    return any(matches)


def has_password(accepted: Sequence[str], authorization: str) -> bool:
    """Say whether a header `Authorization: Basic …` holds one of the accepted `user:password`."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > 4096:
        return False
    try:
        given = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return False
    matches = [hmac.compare_digest(given, item.encode()) for item in accepted]
    return any(matches)
