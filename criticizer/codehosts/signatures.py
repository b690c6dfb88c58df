"""Proofs that a host sent exactly these bytes, compared with all secrets in constant time."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence

from criticizer.codehosts.events import NotAuthentic, Refused

_ID = re.compile(r"[!-~]{1,128}")


class ProvenWebhooks:
    """Webhooks that prove their sender by one of the `secrets`, all of which are accepted."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets


def refusal(secrets: Sequence[str], given: str) -> NotAuthentic:
    """Return the error for a webhook whose proof of its sender is not valid."""
    if not any(secrets):
        return NotAuthentic(Refused.NONE_SET)
    return NotAuthentic(Refused.WRONG if given else Refused.UNSIGNED)


def is_signed(body: bytes, given: bytes, secrets: Iterable[str], prefix: bytes = b"sha256=") -> bool:
    """Return whether `given` is the prefix and the hex HMAC-SHA256 of `body` under a secret."""
    return any_equal((prefix + _digest(secret, body) for secret in secrets if secret), given)


def any_equal(expected: Iterable[bytes], given: bytes) -> bool:
    """Return whether `given` is one of `expected`, in a time that does not depend on which."""
    matches = [hmac.compare_digest(one, given) for one in expected]
    return any(matches)


def known_id(given: object, body: bytes) -> str:
    """Return the id that the host gave a delivery; without a valid one, the digest of its bytes."""
    text = str(given or "")
    return text if _ID.fullmatch(text) else f"sha256:{hashlib.sha256(body).hexdigest()}"


def _digest(secret: str, body: bytes) -> bytes:
    return hmac.new(secret.encode("utf-8", "surrogateescape"), body, hashlib.sha256).hexdigest().encode()
