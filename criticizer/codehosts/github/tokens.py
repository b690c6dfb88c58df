"""GitHub App tokens: the App's signed JWT, and an installation token for each repository.

An installation token is valid for an hour. Tokens stay in memory, and the filters of logs and texts know
them. Nothing is assumed about their form: `ghs_` with 36 letters, or `ghs_<app>_<JWT>`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from criticizer.codehosts.names import Repository
from criticizer.http_client import Limits
from criticizer.redaction import register_own_secrets
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure

# The permissions of an installation token; the App may have been granted others.
PERMISSIONS: Final = {"checks": "write", "contents": "read", "metadata": "read", "pull_requests": "write"}
RENEWED_BEFORE_SECONDS = 600.0
LAG_PAUSES_SECONDS = (3.0, 10.0)
FRESH_SECONDS = 30.0  # a younger token may not be known to all of GitHub's servers
_BACKDATED_SECONDS = 60  # GitHub's clock may be behind ours ...
_VALID_SECONDS = 540  # ... or ahead of it: GitHub accepts at most 600
_REUSED_SECONDS = 300
_MAX_TOKENS = 1000


@dataclass(frozen=True, slots=True)
class AppConfig:
    """A GitHub App. `private_keys`: PEM; the next one is tried when the first is refused.

    `lag_pauses_seconds`: the waits before a new token that was refused is sent again.
    """

    app_id: str
    private_keys: Sequence[str] = field(repr=False)
    api_url: str = "https://api.github.com"
    slug: str = ""
    limits: Limits = field(default_factory=lambda: Limits(total_timeout_seconds=40.0))
    lag_pauses_seconds: tuple[float, ...] = LAG_PAUSES_SECONDS


@dataclass(frozen=True, slots=True)
class AppCredentials:
    """Credentials that GitHub returns once for an App created from a manifest."""

    app_id: int
    slug: str
    private_key: str = field(repr=False)  # PEM
    webhook_secret: str = field(repr=False)


@dataclass(slots=True)
class Token:
    """An installation's token for one repository. Times are seconds of the clock."""

    value: str = field(repr=False)
    made_at: float
    expires_at: float
    is_proven: bool = False  # GitHub has accepted it once

    def may_be_unknown(self, now: float) -> bool:
        """Return whether a refusal may only mean that not all of GitHub's servers know the token."""
        return not self.is_proven and now - self.made_at <= FRESH_SECONDS


class AppTokens:
    """The App's own tokens, in memory only: one for each private key, stored by its digest."""

    def __init__(self, app_id: str, clock: Callable[[], float]) -> None:
        self._app_id = app_id
        self._clock = clock
        self._tokens: dict[bytes, tuple[str, float]] = {}  # and the time of its signature

    def get(self, private_key: str) -> str:
        """Return a token that was signed in the last five minutes. Raises as `app_token` does."""
        now, digest = self._clock(), _digest(private_key)
        token, signed_at = self._tokens.get(digest, ("", 0.0))
        if not token or not 0 <= now - signed_at < _REUSED_SECONDS:
            token = app_token(self._app_id, private_key, now)
            self._tokens[digest] = (token, now)
        return token

    def drop(self, private_key: str) -> None:
        """Forget the refused token of a key."""
        self._tokens.pop(_digest(private_key), None)


def _digest(private_key: str) -> bytes:
    return sha256(private_key.encode()).digest()


def app_token(app_id: str, private_key: str, now: float) -> str:
    """Return the App's own token (RS256), valid for nine minutes.

    Raises PermanentFailure CONFIG_INVALID if the text is not a private key.
    """
    claims = {"iat": int(now) - _BACKDATED_SECONDS, "exp": int(now) + _VALID_SECONDS, "iss": app_id}
    try:
        signed = jwt.encode(claims, _loaded(private_key), algorithm="RS256")
    except (jwt.PyJWTError, ValueError, TypeError, UnsupportedAlgorithm):
        # Without the cause: an error may quote a part of the key.
        raise PermanentFailure(
            ErrorClass.CONFIG_INVALID,
            Component.CONFIGURATION,
            "GITHUB_PRIVATE_KEY is not an RSA key in PEM form: download a key of the App and set it whole",
        ) from None
    register_own_secrets([signed])
    return signed


@lru_cache(maxsize=4)
def _loaded(private_key: str) -> Any:
    """Return the key for the signer. Loading takes 36 ms of CPU, signing 0.3 ms."""
    return load_pem_private_key(private_key.replace("\\n", "\n").encode(), None)


class TokenCache:
    """Tokens by repository, in memory only."""

    def __init__(
        self,
        mint: Callable[[Repository], Mapping[str, object]],
        clock: Callable[[], float],
        ahead: Callable[[], float],
    ) -> None:
        """Start without tokens.

        `mint` requests a token and returns the answer; `ahead` returns by how many seconds GitHub's clock is
        ahead of ours.
        """
        self._mint = mint
        self._clock = clock
        self._ahead = ahead
        self._tokens: dict[Repository, Token] = {}
        self._lock = threading.Lock()

    def get(self, repository: Repository) -> Token:
        """Return a token, a new one where needed, valid for ten more minutes. Raises as `mint` does."""
        with self._lock:
            token = self._tokens.get(repository)
            if token is None or token.expires_at - self._clock() < RENEWED_BEFORE_SECONDS:
                if len(self._tokens) >= _MAX_TOKENS:
                    self._tokens.clear()
                token = self._tokens[repository] = self._new(repository)
            return token

    def drop(self, repository: Repository, token: Token) -> None:
        """Forget a refused token, unless it was replaced already."""
        with self._lock:
            if self._tokens.get(repository) is token:
                del self._tokens[repository]

    def _new(self, repository: Repository) -> Token:
        asked_at = self._clock()
        found = self._mint(repository)
        value, expires = found.get("token"), found.get("expires_at")
        if not isinstance(value, str) or not value.isprintable() or not isinstance(expires, str):
            raise _unusable()
        register_own_secrets([value])
        try:
            expires_at = datetime.fromisoformat(expires).timestamp() - self._ahead()
        except ValueError:
            raise _unusable() from None
        return Token(value, asked_at, expires_at)


def _unusable() -> PermanentFailure:
    detail = "GitHub's answer to a request for a token has no token or no time of expiry"
    return PermanentFailure(ErrorClass.SCHEMA_INVALID, Component.PROVIDER, detail)
