"""Double of Resend, as far as we use it: POST /emails with its key, GET /emails, /domains.

Origin of the wire form: documented (Resend's API reference, its pages on errors and idempotency
keys); nothing here was captured from the service.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from tests.fakes.mail_service import Asked, MailService, Reply


class ResendService(MailService):
    """Resend, which remembers idempotency keys until `forget_keys`.

    `hidden`: so many of the newest mails are not listed yet.
    """

    def __init__(self, keys: tuple[str, ...] = ("re-for-tests",)) -> None:
        super().__init__(keys)
        self.domains = [{"name": "reviews.test", "status": "verified"}]
        self.restricted: set[str] = set()  # keys that may only send
        self.hidden = 0
        self.refuse: Reply | None = None  # every mail, from now on
        self.is_running = False  # an earlier request with the same key has not ended
        self.page_size = 100
        self._seen: dict[str, tuple[str, str]] = {}

    def forget_keys(self) -> None:
        """Forget all idempotency keys, as Resend does after a day."""
        self._seen.clear()

    def tokens(self) -> list[str]:
        """Return the token of each mail that a recipient would see."""
        return [mail["headers"]["X-Criticizer-Token"] for mail in self.accepted]

    def refusal_of(self, asked: Asked) -> Reply | None:
        scheme, _, key = asked.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not key:
            return _error(401, "missing_api_key", "Missing API key in the authorization header.")
        if key not in self.keys:
            return _error(403, "invalid_api_key", "API key is invalid")
        if key in self.restricted and asked.method == "GET":
            return _error(401, "restricted_api_key", "This API key is restricted to only send emails")
        return None

    def send(self, asked: Asked) -> Reply:
        if asked.path != "/emails":
            return _error(404, "not_found", "The requested endpoint does not exist.")
        if self.refuse is not None:
            return self.refuse
        mail = asked.body
        for name in ("from", "to", "subject"):
            if not mail.get(name):
                return _error(422, "missing_required_field", f"Missing `{name}` field.")
        key, digest = asked.headers.get("idempotency-key", ""), hashlib.sha256(asked.raw).hexdigest()
        if len(key) > 256:
            return _error(400, "invalid_idempotency_key", "The key must be between 1-256 chars.")
        if key in self._seen:
            if self.is_running:
                return _error(409, "concurrent_idempotent_requests", "The same request is in progress.")
            identifier, known = self._seen[key]
            if known != digest:
                return _error(409, "invalid_idempotent_request", "The key was used with another payload.")
            return 200, {"id": identifier}
        identifier = str(uuid4())
        if key:
            self._seen[key] = (identifier, digest)
        self.accepted.append(
            {**mail, "id": identifier, "key": key, "created_at": datetime.now(UTC).isoformat()}
        )
        return 200, {"id": identifier}

    def answer(self, asked: Asked) -> Reply:
        listed = self.accepted[: len(self.accepted) - self.hidden][::-1]  # newest first
        if asked.path == "/domains":
            return 200, {"object": "list", "data": self.domains}
        if asked.path == "/emails":
            limit = min(int(asked.query.get("limit", "20")), self.page_size)
            ids = [mail["id"] for mail in listed]
            start = ids.index(asked.query["after"]) + 1 if "after" in asked.query else 0
            page = [_shown(mail) for mail in listed[start : start + limit]]
            return 200, {"object": "list", "has_more": start + limit < len(listed), "data": page}
        for mail in listed:
            if asked.path == f"/emails/{mail['id']}":
                return 200, {**_shown(mail), "text": mail.get("text"), "html": mail.get("html")}
        return _error(404, "not_found", "Email not found")


def _shown(mail: dict[str, Any]) -> dict[str, Any]:
    shown = {name: mail.get(name) for name in ("id", "to", "from", "created_at", "subject", "bcc", "cc")}
    return {"object": "email", "last_event": "sent", **shown}


def _error(status: int, name: str, message: str) -> Reply:
    return status, {"statusCode": status, "name": name, "message": message}
