"""Mail through Postmark: no key, but every mail carries our token as metadata and can be found by it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from anymail.backends.postmark import EmailBackend

from criticizer.http_client import Answer, Limits
from criticizer.resilience.failures import Component, ErrorClass, Failure, RetryableFailure
from criticizer.wording import server_words
from notifications.providers.base import Capabilities, Evidence, LookUp, LookUpBy, Message, Question
from notifications.providers.email import mime
from notifications.providers.email.esp_base import (
    HttpxBackendMixin,
    as_email,
    ask,
    asked,
    failure_of,
    misconfigured,
    submit,
    with_keys,
)

POSTMARK_URL = "https://api.postmarkapp.com/"
METADATA = "criticizer"  # its name in the metadata of a mail
_WHO = "Postmark"
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


@dataclass(frozen=True, slots=True)
class PostmarkConfig:
    """`tokens` newest last: the next one is tried when the first is refused."""

    sender: str
    tokens: tuple[str, ...] = field(repr=False)
    url: str = POSTMARK_URL
    limits: Limits = field(default_factory=Limits)


class _Backend(HttpxBackendMixin, EmailBackend):  # type: ignore[misc]
    """anymail's backend over our own client."""


class Postmark:
    """Sends one message to one recipient by one request."""

    name = "postmark"
    capabilities = Capabilities(
        look_up=frozenset({LookUpBy.ID, LookUpBy.KEY}),
        # Three looks, 90 seconds, 8 and 15 minutes after the attempt.
        settle_seconds=90,
        looks=3,
        look_spacing_seconds=405,
        # Postmark keeps mails for 45 days unless it is told otherwise.
        retention_seconds=44 * 86_400,
        absence="three searches by metadata within 15 minutes find nothing",
        max_bytes=10_000_000,
    )

    def __init__(self, config: PostmarkConfig) -> None:
        """Raises ValueError when the sender is not a mail address or no token is given."""
        mime.envelope_sender(config.sender)
        if not config.tokens:
            raise ValueError("no server token for Postmark")
        self._config = config

    def send(self, message: Message) -> str:
        """Return Postmark's MessageID.

        Raises RetryableFailure NETWORK_*, RATE_LIMITED; PermanentFailure AUTH_DENIED,
        PERMISSION_DENIED, RECIPIENT_REJECTED, POLICY_REJECTED, CONFIG_INVALID, INTERNAL_BUG;
        UncertainFailure NETWORK_*, UPSTREAM_* when Postmark may have taken it.
        """
        mail = as_email(message, self._config.sender)
        mail.metadata = {METADATA: str(message.token)}

        def call(token: str) -> str:
            backend = _Backend(server_token=token, api_url=self._config.url)
            backend.carry(self._config.limits, _judged, _WHO)
            return submit(backend, mail, _WHO)

        return with_keys(self._config.tokens, call)

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
            raise RetryableFailure(
                ErrorClass.UPSTREAM_INTERNAL,
                Component.PROVIDER,
                "Postmark answered a search in words that cannot be read",
            )
        if total == 0 and not entries:
            return LookUp(Evidence.ABSENT, detail="no mail with the token")
        for entry in entries:
            if isinstance(entry, dict) and (entry.get("Metadata") or {}).get(METADATA) == token:
                return LookUp(Evidence.FOUND, str(entry.get("MessageID") or ""), "found by metadata")
        # A search that does not filter would otherwise find anybody's mail.
        return LookUp(Evidence.UNKNOWN, detail="the search returned a mail without the token")

    def probe(self) -> str:
        """Read the server's own entry. Raises AUTH_DENIED for a bad token."""

        def call(token: str) -> Answer:
            answer = self._ask("server", token)
            if answer.status != 200:
                raise _judged(answer)
            return answer

        server = with_keys(self._config.tokens, call).json() or {}
        if server.get("DeliveryType") == "Sandbox":
            raise misconfigured("the Postmark server is a sandbox: it takes mail and delivers none")
        return f"Postmark takes the token of its server {server_words(server.get('Name') or '')!r}."

    def _get(self, path: str) -> dict[str, Any] | None:
        """Return the answer to a question, or None where Postmark does not know."""
        return asked(self._config.tokens, lambda token: self._ask(path, token), _judged, _WHO)

    def _ask(self, path: str, token: str) -> Answer:
        headers = {"X-Postmark-Server-Token": token}
        return ask(self._config.url.rstrip("/") + "/" + path, headers, self._config.limits, _WHO)


def _judged(answer: Answer) -> Failure:
    content = answer.json() or {}
    code, words = content.get("ErrorCode"), str(content.get("Message") or "")
    permanent = None
    if answer.status == 422 and isinstance(code, int):
        permanent = _CODES.get(code)
        if code == 300 and _ABOUT_TO.match(words):
            permanent = ErrorClass.RECIPIENT_REJECTED
        elif code == 300 and "'From'" in words:
            permanent = ErrorClass.CONFIG_INVALID
    told = str(code) if isinstance(code, int) else ""
    return failure_of(answer, _WHO, code=told, words=words, permanent=permanent)
