"""Signatures of sent and received webhooks, as Standard Webhooks describes them.

A secret is `whsec_` and the base64 of its key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping

KEY_PREFIX = "whsec_"
TOLERANCE_SECONDS = 300.0
_MAX_SIGNATURES_CHARS = 4096


def key_of(secret: str) -> bytes:
    """Return the key of a secret, with or without its prefix; b"" for other text."""
    try:
        return base64.b64decode(secret.removeprefix(KEY_PREFIX), validate=True)
    except ValueError:  # also raised for letters that are not ASCII
        return b""


def decode_secret(secret: str) -> bytes:
    """Return the key of a secret. Raises ValueError, which does not repeat the text."""
    if key := key_of(secret):
        return key
    raise ValueError("a webhook secret is not whsec_ followed by base64")


def signature(key: bytes, identifier: str, timestamp: str, body: bytes) -> bytes:
    """Return `v1,` and the base64 of the HMAC-SHA256 over id, time and body."""
    signed = f"{identifier}.{timestamp}.".encode("utf-8", "surrogateescape") + body
    return b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))


def signed_at(
    keys: Iterable[bytes], headers: Mapping[str, str], body: bytes, *, prefix: str = "Webhook"
) -> int | None:
    """Return the time, in seconds, at which one of the keys signed these bytes, or None.

    The headers are `<prefix>-Id`, `-Timestamp` (whole seconds) and `-Signature` (several separated by
    spaces). The caller checks that the time is near ours (TOLERANCE_SECONDS).
    """
    identifier, timestamp, signatures = (
        str(headers.get(f"{prefix}-{name}") or "") for name in ("Id", "Timestamp", "Signature")
    )
    if not re.fullmatch(r"[0-9]{1,12}", timestamp):
        return None
    expected = [signature(key, identifier, timestamp, body) for key in keys if key]
    given = signatures[:_MAX_SIGNATURES_CHARS].encode("utf-8", "surrogateescape").split()
    # Every pair is compared, so that the time taken reveals nothing.
    matches = [hmac.compare_digest(mine, theirs) for mine in expected for theirs in given]
    return int(timestamp) if any(matches) else None
