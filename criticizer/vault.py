"""Encryption at rest with rotating keys (specification 001, 9.4)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet


class VaultError(Exception):
    """A sealed value could not be opened: wrong keys, or the bytes were changed."""


class Vault:
    """Seals bytes with the newest of `keys` and opens them with any (Fernet: AES-CBC + HMAC)."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._fernet = MultiFernet([Fernet(key) for key in keys])

    def seal(self, data: bytes) -> bytes:
        return self._fernet.encrypt(zlib.compress(data, 6))

    def open(self, sealed: bytes) -> bytes:
        """Return the plain bytes. Raises VaultError."""
        try:
            return zlib.decompress(self._fernet.decrypt(sealed))
        except (InvalidToken, zlib.error) as error:
            raise VaultError("the artifact does not open with any of ARTIFACT_KEYS") from error
