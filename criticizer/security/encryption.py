"""Encryption at rest with rotating keys."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet


class VaultError(Exception):
    """A sealed value could not be opened: the keys are wrong, or the bytes were changed."""


class Vault:
    """Seals bytes with the newest of `keys` and opens them with any (Fernet: AES-CBC + HMAC)."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Raises ValueError, without the key, when there is no key or one is not a Fernet key."""
        keys = list(keys)  # read once: a Secret may return others at the next use
        self._fernet = MultiFernet([Fernet(key) for key in keys])
        self.newest = key_id(keys[0])

    def seal(self, data: bytes) -> bytes:
        return self._fernet.encrypt(zlib.compress(data, 6))

    def open(self, sealed: bytes) -> bytes:
        """Return the plain bytes. Raises VaultError."""
        try:
            return zlib.decompress(self._fernet.decrypt(sealed))
        except (InvalidToken, zlib.error) as error:
            raise VaultError("the artifact does not open with any of ARTIFACT_KEYS") from error

    def reseal(self, sealed: bytes) -> bytes:
        """Return the same content sealed with the newest key. Raises VaultError."""
        try:
            return self._fernet.rotate(sealed)
        except InvalidToken as error:
            raise VaultError("the artifact does not open with any of ARTIFACT_KEYS") from error


def key_id(key: str) -> str:
    """Return the public id of a key: 12 digits of its SHA-256.

    They reveal nothing of 256 random bits.
    """
    return hashlib.sha256(key.strip().encode()).hexdigest()[:12]
