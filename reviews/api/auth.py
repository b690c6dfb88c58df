"""Authentication and roles of API keys."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from criticizer.db import prepared, reconnect
from criticizer.models import SecurityEvent
from criticizer.security.client_ip import client_ip
from reviews.intake import api_keys
from reviews.recipients.viewing_scopes import EVERYTHING, Scope, scope_of_key
from reviews.roles import API

SAME_SECONDS = 60.0  # one event for equal refusals in this time
PER_MINUTE = 30  # events in all, per process
log = structlog.get_logger(__name__)
_KEY_LIMIT = 128
# The key's last use is written at most once a minute, by the database's clock.
_LOOKUP = """
SELECT id, name, role, prefixes, revoked_at IS NOT NULL AS is_revoked,
       last_used_at IS NULL OR last_used_at < now() - interval '1 minute' AS is_stale
  FROM api_keys WHERE key_sha256 = %(digest)s"""
_TOUCH = """
UPDATE api_keys SET last_used_at = now()
 WHERE id = %(id)s AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')"""


class RefusalLog:
    """Writes at most one event per distinct refusal and minute, and PER_MINUTE in all.

    The next event's context counts the refusals left out in between (`suppressed`).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._written: dict[tuple[str, str, str, str], float] = {}
        self._suppressed = 0

    def note(self, kind: SecurityEvent.Kind, reason: str, name: str, address: str) -> bool:
        """Record a refusal of the key `name` ("" when unknown); return whether a row was written."""
        same = (kind.value, reason, name, address)
        now = self._clock()
        with self._lock:
            self._written = {seen: at for seen, at in self._written.items() if now - at < SAME_SECONDS}
            if same in self._written or len(self._written) >= PER_MINUTE:
                self._suppressed += 1
                return False
            self._written[same] = now
            suppressed, self._suppressed = self._suppressed, 0
        log.error(
            "api_key_refused",
            kind=kind.value,
            reason=reason,
            key=name,
            remote_address=address,
            suppressed=suppressed,
        )
        SecurityEvent.objects.create(
            kind=kind,
            reason=reason,
            actor=name,
            context={"remote_address": address, "suppressed": suppressed},
        )
        return True

    def reset(self) -> None:
        """Empty the log (tests)."""
        with self._lock:
            self._written.clear()
            self._suppressed = 0


REFUSALS = RefusalLog()


@dataclass(frozen=True, slots=True)
class ApiClient:
    """The API key of a request (`request.auth`)."""

    key_id: int
    name: str
    role: str
    scope: Scope = EVERYTHING

    @property
    def actor(self) -> str:
        """Return the actor under which this key's actions are recorded."""
        return f"key:{self.name}"

    @property
    def series(self) -> str:
        """Return the series of the reviews that this key requests: its own, if it has prefixes."""
        return "" if self.scope.everything else f"key:{self.key_id}"

    def requested(self, requested_by: str, series: str) -> bool:
        """Return whether this key requested the review with these values."""
        return series == self.series and (bool(series) or requested_by == self.actor)


class ApiKeyAuthentication(BaseAuthentication):
    """Authentication by `Authorization: Bearer <key>`, at the cost of one query."""

    def authenticate(self, request: Request | HttpRequest) -> tuple[None, ApiClient] | None:
        """Return (None, client), or None without a key. Raises AuthenticationFailed."""
        scheme, _, key = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        key = key.strip()
        if not key.startswith(api_keys.PREFIX) or len(key) > _KEY_LIMIT or not key.isascii():
            raise self._refused(request, "malformed", "")
        # The first statement of a request: a retry absorbs a connection that the server closed
        # while it was idle.
        found = reconnect.with_retries(
            lambda: prepared.row(_LOOKUP, {"digest": api_keys.digest(key)}), waits=(0,)
        )
        if found is None:
            raise self._refused(request, "unknown", "")
        if found["is_revoked"]:
            raise self._refused(request, "revoked", found["name"])
        if found["is_stale"]:
            prepared.rows(_TOUCH, {"id": found["id"]})
        scope = scope_of_key(json.loads(found["prefixes"]))
        return None, ApiClient(found["id"], found["name"], found["role"], scope)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"

    def _refused(self, request: Request | HttpRequest, reason: str, name: str) -> AuthenticationFailed:
        REFUSALS.note(SecurityEvent.Kind.AUTH_FAILED, reason, name, client_ip(request))
        # One answer for every reason, so that it does not reveal whether a key ever existed.
        return AuthenticationFailed("the API key is not valid")


def client_of(request: Request) -> ApiClient:
    """Return the API key of a request. Raises NotAuthenticated."""
    if not isinstance(request.auth, ApiClient):
        raise NotAuthenticated
    return request.auth


class HasRole(BasePermission):
    """Allows the roles that `reviews.roles.API` lists for the address and the method.

    It allows none for an address that is not listed.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.auth is None:
            return False  # becomes 401
        address = request.resolver_match
        roles = API.get(address.url_name or "") if address else None
        if roles is None:
            return False
        method = "GET" if request.method == "HEAD" else request.method
        if method not in roles or client_of(request).role in roles[method]:
            return True  # a method that the view does not have becomes 405
        refuse_role(request)
        return False


def refuse_role(request: Request, what: str = "") -> None:
    """Record that the key did not allow the request: its role, or `what`."""
    client = client_of(request)
    reason = f"{request.method} as {client.role}{what and f', {what}'}"
    REFUSALS.note(SecurityEvent.Kind.ROLE_DENIED, reason, client.name, client_ip(request))
