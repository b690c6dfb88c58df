"""What the hosted mail services have in common: django-anymail makes the request and reads the
answer; our own client carries both, because it knows whether a failed request was under way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import structlog
from anymail.exceptions import (
    AnymailInvalidAddress,
    AnymailRecipientsRefused,
    AnymailRequestsAPIError,
)
from anymail.message import AnymailMessage

from criticizer.http_client import Answer, Limits, Request, retry_after
from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
    UncertainFailure,
)
from criticizer.wording import server_words
from notifications.providers.base import Message
from notifications.providers.email import mime
from notifications.providers.http import exchange

log = structlog.get_logger(__name__)

T = TypeVar("T")

_SERVICE_WRITES = {"From", "To", "Subject", "Date", "Message-ID"}
_PERMANENT = {
    401: ErrorClass.AUTH_DENIED,
    403: ErrorClass.PERMISSION_DENIED,
    404: ErrorClass.CONFIG_INVALID,  # the service's own address is wrong
}
_IN_DOUBT = {
    408: ErrorClass.NETWORK_TIMEOUT,
    502: ErrorClass.UPSTREAM_UNAVAILABLE,
    503: ErrorClass.UPSTREAM_UNAVAILABLE,
    504: ErrorClass.NETWORK_TIMEOUT,
}


class HttpxBackendMixin:
    """For a class before anymail's backend: its request goes through `exchange`.

    `judge` makes the failure of every answer that is not 2xx.
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


def as_email(message: Message, sender: str) -> AnymailMessage:
    """Return the message as Django's mail, with the headers and parts that `mime` gives it."""
    headers = mime.headers(message, sender)
    mail = AnymailMessage(
        subject=message.subject,
        body=mime.text_of(message),
        from_email=sender,
        to=[message.address],
        headers={name: value for name, value in headers.items() if name not in _SERVICE_WRITES},
    )
    mail.attach_alternative(mime.html_of(message), "text/html")
    return mail


def submit(backend: Any, mail: AnymailMessage, who: str) -> str:
    """Send a mail through anymail's backend and return the service's id.

    Raises what the backend's `judge` makes of an answer, what `exchange` raises, and
    UncertainFailure UPSTREAM_INTERNAL when an accepting answer cannot be read.
    """
    try:
        backend.send_messages([mail])
    except AnymailRecipientsRefused:
        raise rejected(f"{who} refused the recipient") from None
    except AnymailInvalidAddress:
        raise rejected("the address is not one that mail services take") from None
    except AnymailRequestsAPIError as error:
        raise _unreadable(who) from error
    identifier = mail.anymail_status.message_id
    if not isinstance(identifier, str) or not 0 < len(identifier) <= 200:
        raise _unreadable(who)
    return identifier


def with_keys(keys: Sequence[str], call: Callable[[str], T]) -> T:
    """Call with one key after the other until one is not refused, so that keys rotate (001, 9.3)."""
    for position, key in enumerate(keys, start=1):
        try:
            return call(key)
        except PermanentFailure as refused:
            if refused.error_class is not ErrorClass.AUTH_DENIED or position == len(keys):
                raise
            log.warning("mail_key_refused", position=position)
    raise AssertionError("a service without a key")


def ask(url: str, headers: Mapping[str, str], limits: Limits, who: str) -> Answer:
    """Ask a question by GET. Raises RetryableFailure when it was not answered, 429 and 5xx included."""
    request = Request("GET", httpx.URL(url), {"Accept": "application/json", **headers})
    answer = exchange(request, limits, who, acts=False)
    if answer.status == 429 or answer.status >= 500 or answer.status == 408:
        error_class = ErrorClass.RATE_LIMITED if answer.status == 429 else ErrorClass.UPSTREAM_UNAVAILABLE
        raise RetryableFailure(
            error_class,
            Component.PROVIDER,
            f"{who} answered {answer.status} to a question",
            context={"status": answer.status},
            retry_after_seconds=retry_after(answer.headers),
        )
    return answer


def asked(
    keys: Sequence[str], ask_with: Callable[[str], Answer], judge: Callable[[Answer], Failure], who: str
) -> dict[str, Any] | None:
    """Return the answer to a question that the first accepted key may ask; None where it is not known.

    Raises RetryableFailure as `ask` does, PermanentFailure CONFIG_INVALID when every key is refused.
    """

    def call(key: str) -> Answer:
        answer = ask_with(key)
        if answer.status in {401, 403}:
            raise judge(answer)
        return answer

    try:
        answer = with_keys(keys, call)
    except PermanentFailure as refused:
        # Not a refused send: the circuit of sending is not opened by it.
        raise misconfigured(f"{who} refused to be asked: {server_words(refused.detail)}") from refused
    return answer.json() if answer.status == 200 else None


def failure_of(
    answer: Answer, who: str, *, code: str = "", words: str = "", permanent: ErrorClass | None = None
) -> Failure:
    """Return the failure that an answer to a message stands for, other than 2xx.

    `code` and `words` are the service's own; `permanent` is the class of a refusal, where they tell.
    """
    status = answer.status
    context: dict[str, object] = {"status": status} | ({"code": code} if code else {})
    detail = f"{who} answered {status}" + (f": {server_words(words)}" if words else "")
    wait = retry_after(answer.headers)
    if status == 429:
        return RetryableFailure(
            ErrorClass.RATE_LIMITED, Component.PROVIDER, detail, context=context, retry_after_seconds=wait
        )
    if status >= 500 or status in _IN_DOUBT:
        error_class = _IN_DOUBT.get(status, ErrorClass.UPSTREAM_INTERNAL)
        return UncertainFailure(
            error_class, Component.PROVIDER, detail, context=context, retry_after_seconds=wait
        )
    if status < 400:
        detail += "; redirects are not followed: set the service's final address"
        permanent = ErrorClass.CONFIG_INVALID
    error_class = permanent or _PERMANENT.get(status, ErrorClass.POLICY_REJECTED)
    place = Component.CONFIGURATION if error_class is ErrorClass.CONFIG_INVALID else Component.PROVIDER
    return PermanentFailure(error_class, place, detail, context=context)


def rejected(detail: str) -> PermanentFailure:
    return PermanentFailure(ErrorClass.RECIPIENT_REJECTED, Component.PROVIDER, detail)


def misconfigured(detail: str) -> PermanentFailure:
    return PermanentFailure(ErrorClass.CONFIG_INVALID, Component.CONFIGURATION, detail)


def _unreadable(who: str) -> UncertainFailure:
    return UncertainFailure(
        ErrorClass.UPSTREAM_INTERNAL,
        Component.PROVIDER,
        f"{who} accepted the message in words that cannot be read",
    )
