"""Signed webhooks as Standard Webhooks describes them.

`webhook-id` is the delivery's token, the same on every attempt. By that standard receivers treat it as
an idempotency key, so an uncertain attempt is repeated with it; for receivers that do not
(`WEBHOOK_NOT_IDEMPOTENT`) an operator decides.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import httpx

from criticizer.http_client import Limits, Request, retry_after
from criticizer.resilience.exchange import exchange
from criticizer.resilience.failures import ErrorClass, PermanentFailure, RetryableFailure
from criticizer.security.standard_webhooks import decode_secret, signature
from notifications import webhook_address
from notifications.providers.base import Capabilities, Evidence, LookUp, Message, Question
from notifications.providers.failures import answered, permanent, retryable, temporary_failure
from notifications.providers.webhook import ssrf_policy
from notifications.providers.webhook.ssrf_policy import AddressRefusedError, OutboundPolicy
from notifications.webhook_address import WebhookAddress

_RECEIPT = re.compile(r"[!-~]{1,200}")
_PERMANENT = {
    401: ErrorClass.AUTH_DENIED,
    403: ErrorClass.PERMISSION_DENIED,
    404: ErrorClass.NOT_FOUND,
    410: ErrorClass.RECIPIENT_REJECTED,
}


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """Signing of webhooks and the addresses they may reach. `secrets` are newest first.

    `not_idempotent`: receivers that do not deduplicate, `host` for all its ports or `host:port`.
    `total_timeout_seconds` bounds one attempt as a whole: name, every address tried, and the answer.
    """

    secrets: Sequence[str] = field(default=(), repr=False)
    policy: OutboundPolicy = field(default_factory=OutboundPolicy)
    not_idempotent: frozenset[str] = frozenset()
    connect_timeout_seconds: float = 5.0
    total_timeout_seconds: float = 10.0
    tls: ssl.SSLContext | None = None  # None: the public certificate authorities


class Webhook:
    """Posts one message to one URL."""

    name = "webhook"
    capabilities = Capabilities(key_window_seconds=inf, absence="nothing: receivers cannot be asked")
    variants = {
        "webhook": capabilities,
        "webhook in WEBHOOK_NOT_IDEMPOTENT": Capabilities(absence=capabilities.absence),
    }

    def __init__(
        self,
        config: WebhookConfig,
        *,
        resolve: ssrf_policy.Resolve = ssrf_policy.resolve,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError when a secret is not base64 (with or without `whsec_`)."""
        self._config = config
        self._keys()
        total = config.total_timeout_seconds
        self._limits = Limits(config.connect_timeout_seconds, total, total)
        self._resolve = resolve
        self._now = now

    def capabilities_for(self, address: str) -> Capabilities:
        """Return the capabilities for one receiver: without deduplication there are none."""
        try:
            to = webhook_address.parse(address)
        except ValueError:  # of an earlier version: `send` refuses it
            return self.capabilities
        host = f"[{to.host}]" if ":" in to.host else to.host
        if self._config.not_idempotent.isdisjoint({host, f"{host}:{to.port}"}):
            return self.capabilities
        return Capabilities(absence=self.capabilities.absence)

    def send(self, message: Message) -> str:
        """Return the receiver's `X-Message-Id`, or the token where it names none.

        Raises RetryableFailure NETWORK_*, RATE_LIMITED, UPSTREAM_UNAVAILABLE;
        PermanentFailure POLICY_REJECTED (an address that may not or cannot be called), AUTH_DENIED,
        PERMISSION_DENIED, NOT_FOUND, RECIPIENT_REJECTED; UncertainFailure NETWORK_TIMEOUT,
        NETWORK_UNREACHABLE, UPSTREAM_* when the receiver may have taken it.
        """
        until = time.monotonic() + self._config.total_timeout_seconds
        try:
            to = webhook_address.parse(message.address)
        except ValueError:
            raise _unusable() from None
        body = json.dumps(_body(message), ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
        headers = {
            **self._signed(str(message.token), body),
            "Host": to.netloc,
            "Content-Type": "application/json",
            "Idempotency-Key": str(message.token),
        }
        refusal: RetryableFailure | None = None
        for address in self._addresses(to.host, to.port):
            left = until - time.monotonic()
            if left <= 0:
                refusal = retryable(ErrorClass.NETWORK_TIMEOUT, "no address of the receiver answered in time")
                break
            request = Request(
                "POST", _url(to, address), headers, body, server_name=to.host, reads_answer=False
            )
            limits = replace(self._limits, total_timeout_seconds=left)
            try:
                answer = exchange(request, limits, "the receiver", tls=self._config.tls)
            except RetryableFailure as failure:
                refusal = failure  # never connected: the next address may be reachable
                continue
            return self._outcome(answer.status, answer.headers, message)
        assert refusal is not None
        raise refusal

    def look_up(self, question: Question) -> LookUp:
        """Answer UNKNOWN: receivers offer no look-up; repeating is safe instead."""
        return LookUp(Evidence.UNKNOWN)

    def probe(self) -> str:
        """Return what is signed: there is no server to ask, each recipient has its own receiver."""
        count = len(self._config.secrets)
        signed = f"signed with {count} secrets" if count else "not signed"
        return f"Nothing to ask: each recipient has its own receiver. Webhooks are {signed}."

    def _signed(self, token: str, body: bytes) -> dict[str, str]:
        timestamp = str(int(self._now()))
        headers = {"webhook-id": token, "webhook-timestamp": timestamp}
        if keys := self._keys():
            # One signature per secret: receivers that know either accept, so secrets rotate.
            signatures = [signature(key, token, timestamp, body).decode() for key in keys]
            headers["webhook-signature"] = " ".join(signatures)
        return headers

    def _keys(self) -> list[bytes]:
        return [decode_secret(secret) for secret in self._config.secrets]

    def _addresses(self, host: str, port: int) -> Sequence[str]:
        try:
            addresses = self._resolve(host, port)
        except TimeoutError:
            detail = "the receiver's host name was not resolved in time"
            raise retryable(ErrorClass.NETWORK_TIMEOUT, detail) from None
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise retryable(ErrorClass.NETWORK_UNREACHABLE, "the receiver's host name has no address")
        try:
            self._config.policy.judge(host, addresses)
        except AddressRefusedError:
            detail = "the receiver's address is not a public one; add its host or network to OUTBOUND_ALLOW"
            raise permanent(ErrorClass.POLICY_REJECTED, detail) from None
        return addresses

    def _outcome(self, status: int, headers: httpx.Headers, message: Message) -> str:
        if 200 <= status <= 299:
            receipt = headers.get("x-message-id", "")
            return receipt if _RECEIPT.fullmatch(receipt) else str(message.token)
        wait = retry_after(headers, self._now)
        context = answered(status, headers)
        detail = f"the receiver answered {status}"
        if status == 503 and wait is not None:
            raise retryable(ErrorClass.UPSTREAM_UNAVAILABLE, detail, context, wait)
        if failure := temporary_failure(status, detail, context, wait):
            raise failure
        if status < 400:
            detail += "; redirects are not followed: give the final URL as the recipient"
        raise permanent(_PERMANENT.get(status, ErrorClass.RECIPIENT_REJECTED), detail, context)


def _url(to: WebhookAddress, address: str) -> httpx.URL:
    """Return the URL to call at one of the host's addresses."""
    try:
        return httpx.URL(str(to)).copy_with(host=address, port=to.port)
    except (httpx.InvalidURL, ValueError):
        raise _unusable() from None


def _unusable() -> PermanentFailure:
    detail = "the webhook's address cannot be called: give it as https://host/path, an IPv4 host in decimals"
    return permanent(ErrorClass.POLICY_REJECTED, detail)


def _body(message: Message) -> dict[str, object]:
    """Return the payload, with a notice where it may repeat an earlier one."""
    if not message.repeat_notice:
        return message.payload
    return {**message.payload, "repeat_notice": message.repeat_notice}
