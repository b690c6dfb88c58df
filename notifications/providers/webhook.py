"""Signed webhooks as Standard Webhooks describes them.

`webhook-id` is the delivery's token, the same on every attempt. A receiver treats it as an
idempotency key by that standard, so an attempt that ended in doubt is repeated with it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx

from criticizer.failures import (
    ErrorClass,
    Failure,
    PermanentFailure,
    Place,
    RetryableFailure,
    UncertainFailure,
)
from notifications.providers import outbound
from notifications.providers.base import Capabilities, Evidence, LookUp, Message
from notifications.providers.outbound import AddressRefusedError, OutboundPolicy

_RECEIPT = re.compile(r"[!-~]{1,200}")
_PERMANENT = {
    401: ErrorClass.AUTH_DENIED,
    403: ErrorClass.PERMISSION_DENIED,
    404: ErrorClass.NOT_FOUND,
    410: ErrorClass.RECIPIENT_REJECTED,
}
_IN_DOUBT = {
    408: ErrorClass.NETWORK_TIMEOUT,
    502: ErrorClass.UPSTREAM_UNAVAILABLE,
    503: ErrorClass.UPSTREAM_UNAVAILABLE,
    504: ErrorClass.NETWORK_TIMEOUT,
}


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """How webhooks are signed and whom they may reach. `secrets` are newest first.

    `total_timeout_seconds` bounds one attempt as a whole, so that a receiver that answers a
    byte at a time cannot hold a worker.
    """

    secrets: tuple[str, ...] = field(default=(), repr=False)
    policy: OutboundPolicy = field(default_factory=OutboundPolicy)
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 30.0
    total_timeout_seconds: float = 60.0
    tls: ssl.SSLContext | None = None  # None: the public certificate authorities


class Webhook:
    """Posts one message to one URL."""

    name = "webhook"
    capabilities = Capabilities(deduplicates=True, can_look_up=False)

    def __init__(
        self,
        config: WebhookConfig,
        *,
        resolve: outbound.Resolve = outbound.resolve,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError when a secret is not base64 (with or without `whsec_`)."""
        self._config = config
        self._keys = [decode_secret(secret) for secret in config.secrets]
        self._resolve = resolve
        self._now = now
        self._tls = config.tls

    def send(self, message: Message) -> str:
        """Return the receiver's `X-Message-Id`, or the token where it names none.

        Raises RetryableFailure NETWORK_*, RATE_LIMITED, UPSTREAM_UNAVAILABLE;
        PermanentFailure POLICY_REJECTED (an address that may not be reached), AUTH_DENIED,
        PERMISSION_DENIED, NOT_FOUND, RECIPIENT_REJECTED; UncertainFailure NETWORK_TIMEOUT,
        NETWORK_UNREACHABLE, UPSTREAM_* when the receiver may have taken it.
        """
        parts = urlsplit(message.address)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        body = json.dumps(message.payload, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
        headers = {
            **self._signed(str(message.token), body),
            "Host": parts.netloc,
            "Content-Type": "application/json",
            "Idempotency-Key": str(message.token),
            "User-Agent": "Criticizer",
            "Accept-Encoding": "identity",
        }
        refusal: RetryableFailure | None = None
        for address in self._addresses(host, port):
            url = httpx.URL(message.address).copy_with(host=address, port=port)
            try:
                status, answer = asyncio.run(self._post(url, host, headers, body))
            except RetryableFailure as failure:
                refusal = failure  # never connected: the next address may be reachable
                continue
            return self._outcome(status, answer, message)
        assert refusal is not None
        raise refusal

    def look_up(self, message: Message, notification_id: str) -> LookUp:
        """Answer UNKNOWN: receivers offer no way to ask; repeating is safe instead."""
        return LookUp(Evidence.UNKNOWN)

    def _signed(self, token: str, body: bytes) -> dict[str, str]:
        timestamp = str(int(self._now()))
        content = f"{token}.{timestamp}.".encode() + body
        headers = {"webhook-id": token, "webhook-timestamp": timestamp}
        if self._keys:
            # One signature a secret: receivers that know either accept, so secrets rotate.
            headers["webhook-signature"] = " ".join(
                "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
                for key in self._keys
            )
        return headers

    def _addresses(self, host: str, port: int) -> Sequence[str]:
        try:
            addresses = self._resolve(host, port)
        except (socket.gaierror, UnicodeError):
            addresses = ()
        if not addresses:
            raise RetryableFailure(
                ErrorClass.NETWORK_UNREACHABLE, Place.PROVIDER, "the receiver's host name has no address"
            )
        try:
            self._config.policy.judge(host, addresses)
        except AddressRefusedError:
            raise PermanentFailure(
                ErrorClass.POLICY_REJECTED,
                Place.PROVIDER,
                "the receiver's address is not a public one; name its host or network in OUTBOUND_ALLOW",
            ) from None
        return addresses

    async def _post(
        self, url: httpx.URL, host: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, httpx.Headers]:
        """Return status and headers; the body is not needed and so never read."""
        config = self._config
        timeouts = httpx.Timeout(config.read_timeout_seconds, connect=config.connect_timeout_seconds)
        connected = False

        async def trace(event: str, info: object) -> None:
            nonlocal connected
            connected = connected or event.endswith("send_request_headers.started")

        try:
            async with (
                asyncio.timeout(config.total_timeout_seconds),
                # A client of its own for each message: the pool knows connections by address
                # alone and would hand one host's TLS connection to another.
                httpx.AsyncClient(
                    timeout=timeouts, follow_redirects=False, trust_env=False, verify=self._context(url)
                ) as client,
                client.stream(
                    "POST",
                    url,
                    headers=headers,
                    content=body,
                    extensions={"sni_hostname": host, "trace": trace},
                ) as response,
            ):
                return response.status_code, response.headers
        except (httpx.TimeoutException, TimeoutError) as error:
            raise _failed(connected, ErrorClass.NETWORK_TIMEOUT, error) from error
        except (httpx.TransportError, OSError) as error:
            raise _failed(connected, ErrorClass.NETWORK_UNREACHABLE, error) from error

    def _context(self, url: httpx.URL) -> ssl.SSLContext | bool:
        if url.scheme != "https":
            return False
        if self._tls is None:
            self._tls = httpx.create_ssl_context()  # costs tens of milliseconds: once a process
        return self._tls

    def _outcome(self, status: int, headers: httpx.Headers, message: Message) -> str:
        if 200 <= status <= 299:
            receipt = headers.get("x-message-id", "")
            return receipt if _RECEIPT.fullmatch(receipt) else str(message.token)
        retry_after = _retry_after(headers.get("retry-after", ""), self._now)
        context = {"status": status}
        detail = f"the receiver answered {status}"
        if status == 429 or (status == 503 and retry_after is not None):
            error_class = ErrorClass.RATE_LIMITED if status == 429 else ErrorClass.UPSTREAM_UNAVAILABLE
            raise RetryableFailure(
                error_class, Place.PROVIDER, detail, context=context, retry_after_seconds=retry_after
            )
        if status >= 500 or status in _IN_DOUBT:
            raise UncertainFailure(
                _IN_DOUBT.get(status, ErrorClass.UPSTREAM_INTERNAL),
                Place.PROVIDER,
                detail,
                context=context,
                retry_after_seconds=retry_after,
            )
        if status < 400:
            detail += "; redirects are not followed: give the final URL as the recipient"
        raise PermanentFailure(
            _PERMANENT.get(status, ErrorClass.RECIPIENT_REJECTED), Place.PROVIDER, detail, context=context
        )


def decode_secret(secret: str) -> bytes:
    """Return the key of a Standard Webhooks secret, base64 with or without `whsec_`.

    Raises ValueError, which does not repeat the secret.
    """
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ValueError("a webhook secret is not whsec_ followed by base64")
    return key


def _failed(connected: bool, error_class: ErrorClass, error: Exception) -> Failure:
    context = {"cause": type(error).__name__}
    if connected:
        return UncertainFailure(
            error_class,
            Place.PROVIDER,
            "the receiver did not answer the request it was sent",
            context=context,
        )
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, ssl.SSLCertVerificationError):
        seen = seen.__cause__ or seen.__context__
    detail = "no connection to the receiver"
    if seen is not None:
        detail = f"the receiver's certificate is not trusted: {seen.verify_message}"
    return RetryableFailure(error_class, Place.PROVIDER, detail, context=context)


def _retry_after(value: str, now: Callable[[], float]) -> float | None:
    """Return the seconds of a Retry-After header in either of its forms, or None."""
    value = value.strip()
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(moment.timestamp() - now(), 0.0)
