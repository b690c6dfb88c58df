"""The base of hosted mail services: django-anymail makes the request and reads the answer.

Our own HTTP client carries both, because it knows whether a failed request was under way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from anymail.exceptions import AnymailInvalidAddress, AnymailRecipientsRefused, AnymailRequestsAPIError
from anymail.message import AnymailMessage

from criticizer.http_client import Answer, Limits, Request, retry_after
from criticizer.resilience.exchange import exchange
from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure, UncertainFailure
from criticizer.resilience.rotating_secrets import RotatingSecrets
from criticizer.wording import server_words
from notifications.providers.base import Message
from notifications.providers.email import mime
from notifications.providers.failures import (
    answered,
    misconfigured,
    permanent,
    retryable,
    temporary_failure,
    uncertain,
)

_SERVICE_WRITES = {"From", "To", "Subject", "Date", "Message-ID"}
_PERMANENT = {
    401: ErrorClass.AUTH_DENIED,
    403: ErrorClass.PERMISSION_DENIED,
    404: ErrorClass.CONFIG_INVALID,  # the service's own address is wrong
}


@dataclass(frozen=True, slots=True)
class HostedMailConfig:
    """Configuration of a hosted mail service.

    Of `keys` the next one is tried when the first is refused.
    """

    sender: str
    keys: Sequence[str] = field(repr=False)
    url: str
    limits: Limits = field(default_factory=Limits)


class HostedMail:
    """A mail service that takes one message for one recipient by one request.

    A subclass names the service and its backend, judges its answers and makes the header of its key.
    """

    service: str
    backend: type[Any]
    key_argument: str  # of the backend

    def __init__(self, config: HostedMailConfig) -> None:
        """Raises ValueError when the sender is not a mail address or no key is given."""
        mime.envelope_sender(config.sender)
        if not config.keys:
            raise ValueError(f"no key for {self.service}")
        self._config = config
        self._keys = RotatingSecrets("mail_key_refused", config.keys, "")

    def judge(self, answer: Answer) -> Failure:
        """Return the failure of an answer other than 2xx."""
        raise NotImplementedError

    def _authorization(self, key: str) -> Mapping[str, str]:
        raise NotImplementedError

    def _mail(self, message: Message) -> AnymailMessage:
        headers = mime.headers(message, self._config.sender)
        mail = AnymailMessage(
            subject=message.subject,
            body=mime.text_of(message),
            from_email=self._config.sender,
            to=[message.address],
            headers={name: value for name, value in headers.items() if name not in _SERVICE_WRITES},
        )
        mail.attach_alternative(mime.html_of(message), "text/html")
        return mail

    def send(self, message: Message) -> str:
        """Return the service's id of the mail.

        Raises RetryableFailure NETWORK_*, RATE_LIMITED; PermanentFailure AUTH_DENIED,
        PERMISSION_DENIED, RECIPIENT_REJECTED, POLICY_REJECTED, CONFIG_INVALID, INTERNAL_BUG;
        UncertainFailure NETWORK_*, UPSTREAM_* when the service may have taken it.
        """
        mail = self._mail(message)
        return self._keys.call(lambda key: self._submit(mail, key))

    def _submit(self, mail: AnymailMessage, key: str) -> str:
        backend = self.backend(**{self.key_argument: key, "api_url": self._config.url})
        backend.carry(self._config.limits, self.judge, self.service)
        try:
            backend.send_messages([mail])
        except AnymailRecipientsRefused:
            raise permanent(ErrorClass.RECIPIENT_REJECTED, f"{self.service} refused the recipient") from None
        except AnymailInvalidAddress:
            detail = "the address is not one that mail services take"
            raise permanent(ErrorClass.RECIPIENT_REJECTED, detail) from None
        except AnymailRequestsAPIError as error:
            raise self._unreadable() from error
        identifier = mail.anymail_status.message_id
        if not isinstance(identifier, str) or not 0 < len(identifier) <= 200:
            raise self._unreadable()
        return identifier

    def _unreadable(self) -> UncertainFailure:
        detail = f"{self.service} accepted the message with an answer that cannot be read"
        return uncertain(ErrorClass.UPSTREAM_INTERNAL, detail)

    def _ask(self, path: str, key: str) -> Answer:
        """Ask a question by GET. Raises RetryableFailure without an answer, also for 429 and 5xx."""
        url = httpx.URL(self._config.url.rstrip("/") + "/" + path)
        request = Request("GET", url, {"Accept": "application/json", **self._authorization(key)})
        answer = exchange(request, self._config.limits, self.service, acts=False)
        if answer.status == 429 or answer.status >= 500 or answer.status == 408:
            error_class = ErrorClass.RATE_LIMITED if answer.status == 429 else ErrorClass.UPSTREAM_UNAVAILABLE
            detail = f"{self.service} answered {answer.status} to a question"
            context = answered(answer.status, answer.headers)
            raise retryable(error_class, detail, context, retry_after(answer.headers))
        return answer

    def _probe(self, path: str, *, accepts: Callable[[Answer], bool] = lambda answer: False) -> Answer:
        """Return the answer to a question; raise a failure unless it is 200 or accepted."""

        def call(key: str) -> Answer:
            answer = self._ask(path, key)
            if answer.status != 200 and not accepts(answer):
                raise self.judge(answer)
            return answer

        return self._keys.call(call)

    def _get(self, path: str) -> dict[str, Any] | None:
        """Return the answer to a question; None where the service does not know.

        Raises RetryableFailure as `_ask` does, PermanentFailure CONFIG_INVALID when every key is refused.
        """
        try:
            answer = self._probe(path, accepts=lambda answer: answer.status not in {401, 403})
        except PermanentFailure as refused:
            # Not a refused send: the circuit of sending must not open.
            detail = f"{self.service} refused a look-up: {server_words(refused.detail)}"
            raise misconfigured(detail) from refused
        return answer.json() if answer.status == 200 else None


class HttpxBackendMixin:
    """Mixin placed before anymail's backend: sends its request with `exchange`.

    `judge` returns the failure of every answer that is not 2xx.
    """

    api_url: str
    session: object

    def carry(self, limits: Limits, judge: Callable[[Answer], Failure], who: str) -> None:
        self._limits, self._judge, self._who = limits, judge, who

    def open(self) -> bool:
        self.session = self  # anymail only asks whether there is one
        return False

    def post_to_esp(self, payload: Any, message: AnymailMessage) -> _Response:
        made = payload.get_request_params(self.api_url)
        request = Request(made["method"], httpx.URL(made["url"]), made["headers"], made["data"].encode())
        answer = exchange(request, self._limits, self._who)
        if not 200 <= answer.status <= 299:
            raise self._judge(answer)
        return _Response(answer.status, answer.body)


@dataclass(frozen=True, slots=True)
class _Response:
    """The part of a response that anymail reads."""

    status_code: int
    content: bytes
    reason: str = ""

    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


def failure_of(
    answer: Answer, who: str, *, code: str = "", words: str = "", refusal: ErrorClass | None = None
) -> Failure:
    """Return the failure of an answer to a message, other than 2xx.

    `code` and `words` are the service's own; `refusal` is the class of a refusal, where they tell it.
    """
    status = answer.status
    context = answered(status, answer.headers) | ({"code": code} if code else {})
    detail = f"{who} answered {status}" + (f": {server_words(words)}" if words else "")
    if failure := temporary_failure(status, detail, context, retry_after(answer.headers)):
        return failure
    if status < 400:
        detail += "; redirects are not followed: set the service's final address"
        refusal = ErrorClass.CONFIG_INVALID
    return permanent(refusal or _PERMANENT.get(status, ErrorClass.POLICY_REJECTED), detail, context)
