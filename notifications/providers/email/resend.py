"""Mail through Resend: the same request with the same key is one mail for a day.

An uncertain attempt is repeated with its key. When the key has expired, the list of sent mails is read:
it holds no field of ours, so it can prove that a mail was sent, never that none was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from anymail.backends.resend import EmailBackend
from anymail.message import AnymailMessage

from criticizer.http_client import Answer
from criticizer.resilience.failures import ErrorClass, Failure
from criticizer.wording import server_words
from notifications.providers.base import Capabilities, Evidence, LookUp, LookUpBy, Message, Question
from notifications.providers.email import mime
from notifications.providers.email.esp_base import (
    HostedMail,
    HttpxBackendMixin,
    failure_of,
)
from notifications.providers.failures import misconfigured, uncertain

_PAGES = 20  # of 100 mails each
_CLOCKS_DIFFER_SECONDS = 60.0
_RUNNING_SECONDS = 5.0  # until a running request with the same key should be over
_SEND_ONLY = "restricted_api_key"

# Resend's own error names, where the status alone does not tell.
_CODES = {
    "invalid_api_key": ErrorClass.AUTH_DENIED,
    "missing_api_key": ErrorClass.AUTH_DENIED,
    _SEND_ONLY: ErrorClass.PERMISSION_DENIED,
    "invalid_idempotency_key": ErrorClass.INTERNAL_BUG,
    "invalid_idempotent_request": ErrorClass.INTERNAL_BUG,
    "invalid_from_address": ErrorClass.CONFIG_INVALID,
    "missing_required_field": ErrorClass.INTERNAL_BUG,
    "method_not_allowed": ErrorClass.CONFIG_INVALID,
    "security_error": ErrorClass.POLICY_REJECTED,
}


class _Backend(HttpxBackendMixin, EmailBackend):  # type: ignore[misc]
    """anymail's backend with the header that it does not offer."""

    def build_message_payload(self, message: AnymailMessage, defaults: Any) -> Any:
        payload = super().build_message_payload(message, defaults)
        payload.headers["Idempotency-Key"] = message.idempotency_key
        return payload


class Resend(HostedMail):
    """Sends one message to one recipient by one request, with an idempotency key."""

    service = "Resend"
    backend = _Backend
    key_argument = "api_key"
    name = "resend"
    capabilities = Capabilities(
        # An hour less than the day that Resend keeps a key: clocks, and requests under way.
        key_window_seconds=23 * 3600,
        look_up=frozenset({LookUpBy.ID, LookUpBy.KEY}),
        resends_after_absence=0,
        absence="nothing: the list of sent mails has no field for our key",
        max_bytes=40_000_000,
    )

    def _authorization(self, key: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {key}"}

    def _mail(self, message: Message) -> AnymailMessage:
        mail = super()._mail(message)
        # A resend by an operator has a notice, and other bytes need another key.
        mail.idempotency_key = f"{message.token}-again" if message.repeat_notice else str(message.token)
        return mail

    def look_up(self, question: Question) -> LookUp:
        """Ask for the id, then read the list of sent mails over the time since the attempt."""
        if question.notification_id:
            known = self._get(f"emails/{quote(question.notification_id, safe='')}")
            if known is not None and known.get("id") == question.notification_id:
                return LookUp(Evidence.FOUND, question.notification_id, "known by its id")
        message = question.message
        ours = self._mail(message)
        since = question.attempted_at_epoch - _CLOCKS_DIFFER_SECONDS
        for entry in self._sent_since(since):
            identifier = str(entry.get("id") or "")
            if not _is_to(entry, message.address) or entry.get("subject") != ours.subject or not identifier:
                continue
            # Two versions may share a subject; they do not share their text, which links to the version.
            whole = self._get(f"emails/{quote(identifier, safe='')}") or {}
            if str(whole.get("text") or "").split() == str(ours.body).split():
                return LookUp(Evidence.FOUND, identifier, "in the list of sent mails")
        return LookUp(Evidence.UNKNOWN, detail="not in the list of sent mails, which is no proof")

    def probe(self) -> str:
        """Read the list of domains.

        Raises AUTH_DENIED for a bad key, CONFIG_INVALID where the sender's domain is not verified.
        """
        domain = mime.envelope_sender(self._config.sender).rpartition("@")[2].lower()
        answer = self._probe("domains", accepts=lambda answer: _code(answer) == _SEND_ONLY)
        if _code(answer) == _SEND_ONLY:
            return "Resend accepts the key, which may only send: mails older than a day cannot be looked up."
        for entry in _entries(answer):
            if entry.get("name") == domain and entry.get("status") == "verified":
                return f"Resend accepts the key and sends for {domain}."
        raise misconfigured(f"Resend accepts the key; the domain {domain} of MAIL_FROM is not verified there")

    def _sent_since(self, epoch: float) -> Iterator[dict[str, Any]]:
        """Yield the mails sent since then, newest first. Raises RetryableFailure, as `_ask` does."""
        after = ""
        for _ in range(_PAGES):
            page = self._get("emails?" + urlencode({"limit": 100} | ({"after": after} if after else {})))
            entries = page.get("data") if page else None
            if page is None or not isinstance(entries, list):
                return
            for entry in entries:
                if isinstance(entry, dict):
                    if _epoch(entry.get("created_at")) < epoch:
                        return
                    yield entry
                    after = str(entry.get("id") or "")
            if not page.get("has_more"):
                return

    def judge(self, answer: Answer) -> Failure:
        code, words = _code(answer), str((answer.json() or {}).get("message") or "")
        if code == "concurrent_idempotent_requests":
            # The first request with this key is still running: its outcome is unknown.
            detail, context = (
                "Resend is still working on the same message",
                {"status": answer.status, "code": code},
            )
            return uncertain(ErrorClass.UPSTREAM_UNAVAILABLE, detail, context, _RUNNING_SECONDS)
        refusal = _CODES.get(code)
        if answer.status == 422 and "`to`" in words:
            refusal = ErrorClass.RECIPIENT_REJECTED
        return failure_of(answer, self.service, code=code, words=words, refusal=refusal)


def _is_to(entry: dict[str, Any], address: str) -> bool:
    named = entry.get("to")
    return isinstance(named, list) and [str(item).lower() for item in named] == [address.lower()]


def _code(answer: Answer) -> str:
    return server_words((answer.json() or {}).get("name") or "")[:64]


def _entries(answer: Answer) -> Iterator[dict[str, Any]]:
    entries = (answer.json() or {}).get("data")
    yield from (entry for entry in entries if isinstance(entry, dict)) if isinstance(entries, list) else ()


def _epoch(text: object) -> float:
    """Return the seconds of one of Resend's times; what cannot be read counts as new."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return float("inf")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
