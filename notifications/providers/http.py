"""One HTTP exchange with a provider, with its phase known when it fails.

The phase is what matters: a connection that was never made sent nothing; a request that was
under way when it broke may have been acted on.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache

import httpx

from criticizer.resilience.failures import Component, ErrorClass, Failure, RetryableFailure, UncertainFailure


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one exchange.

    `total_timeout_seconds` bounds it as a whole, so that a server that answers a byte at a time
    cannot hold a worker. Of an answer longer than `max_answer_bytes` nothing is kept.
    """

    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 30.0
    total_timeout_seconds: float = 60.0
    max_answer_bytes: int = 4_194_304


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked. `server_name` is for TLS where the URL names an address instead.

    `acts` is False for a question: one that was not answered is simply asked again.
    `reads_answer` is False where the status is all that counts.
    """

    method: str
    url: httpx.URL
    headers: Mapping[str, str]
    body: bytes = b""
    server_name: str = ""
    acts: bool = True
    reads_answer: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers and the bytes of the body; empty where it was not read or too long."""

    status: int
    headers: httpx.Headers
    body: bytes = b""

    def json(self) -> dict[str, object] | None:
        """Return the body as a JSON object, or None where it is none."""
        try:
            content = json.loads(self.body)
        except ValueError:
            return None
        return content if isinstance(content, dict) else None


def exchange(request: Request, limits: Limits, who: str, tls: ssl.SSLContext | None = None) -> Answer:
    """Make one request without redirects, proxies or retries; `who` is for the words of failures.

    Raises RetryableFailure NETWORK_* when no request reached the server, or when it was only a
    question; UncertainFailure NETWORK_* when the server may have acted on it.
    """
    return asyncio.run(_exchange(request, limits, who, tls))


async def _exchange(request: Request, limits: Limits, who: str, tls: ssl.SSLContext | None) -> Answer:
    timeouts = httpx.Timeout(limits.read_timeout_seconds, connect=limits.connect_timeout_seconds)
    under_way = False

    async def trace(event: str, info: object) -> None:
        nonlocal under_way
        under_way = under_way or event.endswith("send_request_headers.started")

    extensions: dict[str, object] = {"trace": trace}
    if request.server_name:
        extensions["sni_hostname"] = request.server_name
    verify = (tls or _public_authorities()) if request.url.scheme == "https" else False
    try:
        async with (
            asyncio.timeout(limits.total_timeout_seconds),
            # A client of its own for each message: the pool knows connections by address
            # alone and would hand one host's TLS connection to another.
            httpx.AsyncClient(
                timeout=timeouts, follow_redirects=False, trust_env=False, verify=verify
            ) as client,
            client.stream(
                request.method,
                request.url,
                headers={**request.headers, "User-Agent": "Criticizer", "Accept-Encoding": "identity"},
                content=request.body,
                extensions=extensions,
            ) as response,
        ):
            body = await _bounded(response, limits.max_answer_bytes) if request.reads_answer else b""
            return Answer(response.status_code, response.headers, body)
    except (httpx.TimeoutException, TimeoutError) as error:
        raise _failed(request, under_way, ErrorClass.NETWORK_TIMEOUT, who, error) from error
    except (httpx.TransportError, OSError) as error:
        raise _failed(request, under_way, ErrorClass.NETWORK_UNREACHABLE, who, error) from error


async def _bounded(response: httpx.Response, limit: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > limit:
            return b""
    return bytes(body)


@lru_cache(maxsize=1)
def _public_authorities() -> ssl.SSLContext:
    return httpx.create_ssl_context()  # costs tens of milliseconds: once a process


def _failed(
    request: Request, under_way: bool, error_class: ErrorClass, who: str, error: Exception
) -> Failure:
    context: dict[str, object] = {"cause": type(error).__name__}
    if under_way:
        kind = UncertainFailure if request.acts else RetryableFailure
        detail = f"{who} did not answer the request it was sent"
        return kind(error_class, Component.PROVIDER, detail, context=context)
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, ssl.SSLCertVerificationError):
        seen = seen.__cause__ or seen.__context__
    detail = f"no connection to {who}"
    if seen is not None:
        detail = f"the certificate of {who} is not trusted: {seen.verify_message}"
    return RetryableFailure(error_class, Component.PROVIDER, detail, context=context)


def retry_after(value: str, now: Callable[[], float] = time.time) -> float | None:
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
