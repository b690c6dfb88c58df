"""The one door to model servers: the only module of this room that speaks HTTP.

It takes nothing but `RedactedText`, asks the guard again right before sending (specification
001, 9.5), refuses redirects, bounds time and size, and turns every foreign error into a
`criticizer.resilience.failures` class. Nothing is retried here; budgets belong to the stage.

Calls are spread over httpx clients of a few connections each, which share one TLS context: a
pool looks at all of its connections on every call. At 600 calls in flight, ten connections per
client cost 3.4 ms of processor time per call, fifty 4.6 ms.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import httpx
import structlog

from criticizer.redaction import RedactedText, guard
from criticizer.resilience.failures import ErrorClass, Failure
from reviews.reviewers.model import LlmConfig
from reviews.reviewers.provider_errors import failure, failure_of_answer

CONNECTIONS_PER_CLIENT = 10
_CONNECT_SECONDS = 10.0

log = structlog.get_logger()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a server sent back. Header names are in lower case; `render_rows` is bounded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class _Shard:
    client: httpx.AsyncClient
    in_flight: int = 0


class Transport:
    """Sends redacted text to one model server. Belongs to the event loop that first uses it."""

    def __init__(
        self,
        config: LlmConfig,
        credentials: Callable[[str], Mapping[str, str]],
        now: Callable[[], float] = time.time,
    ) -> None:
        """`credentials` makes the headers that carry a key."""
        self._config = config
        self._credentials = credentials
        self._now = now
        self._slots = asyncio.Semaphore(config.max_concurrency)
        self._shards: list[_Shard] = []
        self._tls: ssl.SSLContext | None = None
        self._key_in_use = 0
        self._server = server_of(config)

    async def aclose(self) -> None:
        shards, self._shards = self._shards, []
        for shard in shards:
            await shard.client.aclose()

    async def within_deadline(self, call_id: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run one call under its deadline; waiting for a free slot does not use it up."""
        async with self._slots:
            started = time.monotonic()
            try:
                async with asyncio.timeout(self._config.timeout_seconds):
                    return await work()
            except TimeoutError:
                error = failure(
                    ErrorClass.NETWORK_TIMEOUT,
                    f"no answer from {self._server} within {self._config.timeout_seconds:g} seconds",
                    call=call_id,
                )
                self._log_failure(call_id, error, started)
                raise error from None
            except Failure as error:
                self._log_failure(call_id, error, started)
                raise

    async def post(
        self, path: str, text: RedactedText, build: Callable[[str], Mapping[str, object]], call_id: str
    ) -> HttpAnswer:
        """Send the body that `build` makes around the text; return any answer below 300, 400 or 422.

        A refused key (401, 403) is followed by the other key, which stays in use when it is
        accepted. Raises TypeError when `text` is not `RedactedText`, `RedactionBlocked` from
        the guard, `Failure` for everything the server or the network does wrong.
        """
        if not isinstance(text, RedactedText):
            raise TypeError(f"a model is sent RedactedText only, not {type(text).__name__}")
        content = json.dumps(build(guard(text))).encode()
        keys = self._config.keys
        first: Failure | None = None
        for turn in range(len(keys)):
            index = (self._key_in_use + turn) % len(keys)
            answer = await self._send(path, content, self._credentials(keys[index]), call_id)
            if answer.status < 300 or answer.status in {400, 422}:
                self._key_in_use = index
                return answer
            refusal = failure_of_answer(answer.status, answer.headers, answer.body, call_id, self._now)
            if answer.status not in {401, 403}:
                raise refusal
            log.warning("model_key_refused", call=call_id, key=index + 1, status=answer.status)
            first = first or refusal
        assert first is not None
        raise first

    async def _send(
        self, path: str, content: bytes, credentials: Mapping[str, str], call_id: str
    ) -> HttpAnswer:
        headers = {
            "Content-Type": "application/json",
            # A compressed answer could grow past the bound before it is counted.
            "Accept-Encoding": "identity",
            "X-Request-Id": call_id,
            **credentials,
        }
        url = self._config.base_url.rstrip("/") + path
        try:
            async with (
                self._client() as client,
                client.stream("POST", url, content=content, headers=headers) as response,
            ):
                return await self._read(response, call_id)
        except httpx.TimeoutException:
            raise failure(
                ErrorClass.NETWORK_TIMEOUT,
                f"the connection to the model server at {self._server} timed out",
                call=call_id,
            ) from None
        except httpx.ConnectError as error:
            if _is_certificate_error(error):
                raise failure(
                    ErrorClass.CONFIG_INVALID,
                    f"the certificate of the model server at {self._server} is not trusted",
                    call=call_id,
                ) from None
            raise failure(
                ErrorClass.NETWORK_UNREACHABLE,
                f"no connection to the model server at {self._server}",
                call=call_id,
            ) from None
        # A host name that no encoder takes arrives as a UnicodeError.
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError):
            raise failure(
                ErrorClass.CONFIG_INVALID, "LLM_BASE_URL or a key cannot be used", call=call_id
            ) from None
        except httpx.TransportError as error:
            raise failure(
                ErrorClass.NETWORK_UNREACHABLE,
                f"the connection to {self._server} broke before the answer was complete",
                call=call_id,
                error=type(error).__name__,
            ) from None

    async def _read(self, response: httpx.Response, call_id: str) -> HttpAnswer:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise failure(
                ErrorClass.SCHEMA_INVALID, "the answer is compressed, which was not asked for", call=call_id
            )
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > self._config.max_answer_bytes:
                raise failure(
                    ErrorClass.SCHEMA_INVALID,
                    f"the answer is larger than {self._config.max_answer_bytes} bytes",
                    call=call_id,
                    status=response.status_code,
                )
        return HttpAnswer(response.status_code, dict(response.headers.items()), bytes(body))

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        shard = next((s for s in self._shards if s.in_flight < CONNECTIONS_PER_CLIENT), None)
        if shard is None:
            shard = _Shard(self._new_client())
            self._shards.append(shard)
        shard.in_flight += 1
        try:
            yield shard.client
        finally:
            shard.in_flight -= 1

    def _new_client(self) -> httpx.AsyncClient:
        if self._tls is None:
            if self._config.base_url.startswith("https:"):
                self._tls = httpx.create_ssl_context()
            else:
                # Without certificates of its own it trusts nobody, and costs nothing to make.
                self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return httpx.AsyncClient(
            verify=self._tls,
            trust_env=False,  # the environment's proxies and netrc are not part of the configuration
            proxy=self._config.proxy_url or None,
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=min(_CONNECT_SECONDS, self._config.timeout_seconds)),
            limits=httpx.Limits(
                max_connections=CONNECTIONS_PER_CLIENT, max_keepalive_connections=CONNECTIONS_PER_CLIENT
            ),
        )

    def _log_failure(self, call_id: str, error: Failure, started: float) -> None:
        log.warning(
            "model_call_failed",
            call=call_id,
            error_class=str(error.error_class),
            status=error.context.get("status"),
            seconds=round(time.monotonic() - started, 3),
        )


def server_of(config: LlmConfig) -> str:
    """Return `host:port` of the model server, and of a proxy before it: for operators, no credentials."""
    server = _host_and_port(config.base_url)
    return f"{server} (through the proxy {_host_and_port(config.proxy_url)})" if config.proxy_url else server


def _host_and_port(address: str) -> str:
    try:
        url = httpx.URL(address)
        host = f"[{url.host}]" if ":" in url.host else url.host or "no host"
    except (httpx.InvalidURL, UnicodeError):
        return "an address that cannot be used"
    return f"{host}:{url.port or (443 if url.scheme == 'https' else 80)}"


def _is_certificate_error(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
