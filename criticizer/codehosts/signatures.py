"""Proofs that a host sent exactly these bytes: all secrets are compared, each in constant time."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence

from criticizer.codehosts.events import NotAuthentic, Refused

_ID = re.compile(r"[!-~]{1,128}")


class ProvenWebhooks:
    """Webhooks that prove their sender by a secret. `secrets`: newest first, each of them accepted."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets


def refusal(secrets: Sequence[str], given: str) -> NotAuthentic:
    """Return why a webhook's proof of its sender is not valid."""
    if not any(secrets):
        return NotAuthentic(Refused.NONE_SET)
    return NotAuthentic(Refused.WRONG if given else Refused.UNSIGNED)


def is_signed(body: bytes, given: bytes, secrets: Iterable[str], prefix: bytes = b"sha256=") -> bool:
    """Say whether `given` is the prefix and the HMAC-SHA256 in hex of the bytes under one of the secrets."""
    return any_equal((prefix + _digest(secret, body) for secret in secrets if secret), given)


def any_equal(expected: Iterable[bytes], given: bytes) -> bool:
    """Compare in constant time: which of them it is, or how far it fits, takes no longer."""
    matches = [hmac.compare_digest(one, given) for one in expected]
    return any(matches)


def known_id(given: object, body: bytes) -> str:
    """Return the id of a delivery that its host gave it; where it has none, the digest of its bytes."""
    text = str(given or "")
    return text if _ID.fullmatch(text) else f"sha256:{hashlib.sha256(body).hexdigest()}"


def _digest(secret: str, body: bytes) -> bytes:
    return hmac.new(secret.encode("utf-8", "surrogateescape"), body, hashlib.sha256).hexdigest().encode()
