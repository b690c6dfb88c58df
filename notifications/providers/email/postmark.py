"""Mail through Postmark: no idempotency key, but our token as searchable metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from anymail.backends.postmark import EmailBackend
from anymail.message import AnymailMessage

from criticizer.http_client import Answer
from criticizer.resilience.failures import ErrorClass, Failure
from criticizer.wording import server_words
from notifications.providers.base import Capabilities, Evidence, LookUp, LookUpBy, Message, Question
from notifications.providers.email.esp_base import (
    HostedMail,
    HttpxBackendMixin,
    failure_of,
)
from notifications.providers.failures import misconfigured, retryable

METADATA = "criticizer"  # its name in the metadata of a mail
_ABOUT_TO = re.compile(r"^(?:Invalid|Error\s+parsing)\s+'To'", re.IGNORECASE)

# Postmark's own codes in 422 (its documentation's list), where the status alone does not tell.
_CODES = {
    400: ErrorClass.CONFIG_INVALID,  # sender signature not found
    401: ErrorClass.CONFIG_INVALID,  # sender signature not confirmed
    402: ErrorClass.INTERNAL_BUG,  # JSON that cannot be read
    403: ErrorClass.INTERNAL_BUG,
    405: ErrorClass.PERMISSION_DENIED,  # out of credits
    406: ErrorClass.RECIPIENT_REJECTED,  # bounced or complained before
    409: ErrorClass.INTERNAL_BUG,
    412: ErrorClass.PERMISSION_DENIED,  # account pending
    413: ErrorClass.PERMISSION_DENIED,  # account may not send
    1235: ErrorClass.CONFIG_INVALID,  # no such message stream
}


class _Backend(HttpxBackendMixin, EmailBackend):  # type: ignore[misc]
    """anymail's backend over our own client."""


class Postmark(HostedMail):
    """Sends one message to one recipient by one request."""

    service = "Postmark"
    backend = _Backend
    key_argument = "server_token"
    name = "postmark"
    capabilities = Capabilities(
        look_up=frozenset({LookUpBy.ID, LookUpBy.KEY}),
        # Three looks, 90 seconds, 8 and 15 minutes after the attempt.
        settle_seconds=90,
        looks=3,
        look_spacing_seconds=405,
        # Postmark keeps mails for 45 days unless configured otherwise.
        retention_seconds=44 * 86_400,
        absence="three searches by metadata within 15 minutes find nothing",
        max_bytes=10_000_000,
    )

    def _authorization(self, key: str) -> Mapping[str, str]:
        return {"X-Postmark-Server-Token": key}

    def _mail(self, message: Message) -> AnymailMessage:
        mail = super()._mail(message)
        mail.metadata = {METADATA: str(message.token)}
        return mail

    def look_up(self, question: Question) -> LookUp:
        """Ask for the id, then search by metadata. ABSENT is what one search said."""
        if question.notification_id:
            known = self._get(f"messages/outbound/{quote(question.notification_id, safe='')}/details")
            if known is not None and known.get("MessageID") == question.notification_id:
                return LookUp(Evidence.FOUND, question.notification_id, "known by its id")
        token = str(question.message.token)
        query = urlencode({"count": 1, "offset": 0, f"metadata_{METADATA}": token})
        page = self._get(f"messages/outbound?{query}")
        total, entries = (page or {}).get("TotalCount"), (page or {}).get("Messages")
        if page is None or not isinstance(total, int) or not isinstance(entries, list):
            raise retryable(ErrorClass.UPSTREAM_INTERNAL, "Postmark's answer to a search cannot be read")
        if total == 0 and not entries:
            return LookUp(Evidence.ABSENT, detail="no mail with the token")
        for entry in entries:
            if isinstance(entry, dict) and (entry.get("Metadata") or {}).get(METADATA) == token:
                return LookUp(Evidence.FOUND, str(entry.get("MessageID") or ""), "found by metadata")
        # A search that does not filter would otherwise find any mail.
        return LookUp(Evidence.UNKNOWN, detail="the search returned a mail without the token")

    def probe(self) -> str:
        """Read the server's own entry. Raises AUTH_DENIED for a bad token."""
        server = self._probe("server").json() or {}
        if server.get("DeliveryType") == "Sandbox":
            raise misconfigured("the Postmark server is a sandbox: it takes mail and delivers none")
        return f"Postmark accepts the token of its server {server_words(server.get('Name') or '')!r}."

    def judge(self, answer: Answer) -> Failure:
        content = answer.json() or {}
        code, words = content.get("ErrorCode"), str(content.get("Message") or "")
        refusal = None
        if answer.status == 422 and isinstance(code, int):
            refusal = _CODES.get(code)
            if code == 300 and _ABOUT_TO.match(words):
                refusal = ErrorClass.RECIPIENT_REJECTED
            elif code == 300 and "'From'" in words:
                refusal = ErrorClass.CONFIG_INVALID
        known = str(code) if isinstance(code, int) else ""
        return failure_of(answer, self.service, code=known, words=words, refusal=refusal)
