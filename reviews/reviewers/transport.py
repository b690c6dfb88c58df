"""Sends redacted text to model servers.

No other module of the reviewers sends any text. This one accepts nothing but `RedactedText`, runs the guard
again right before sending, and turns every foreign error into a `criticizer.resilience.failures` class.
Nothing is retried here; budgets belong to the stage.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Self, TypeVar

import structlog

from criticizer.http_client import (
    Answer,
    ClientPool,
    ExchangeFailed,
    Fault,
    Limits,
    Phase,
    Request,
    host_and_port,
)
from criticizer.redaction import RedactedText, guard
from criticizer.resilience.failures import ErrorClass, Failure
from criticizer.resilience.rotating_secrets import RotatingSecrets
from reviews.reviewers.model import LlmConfig, ModelAnswer, ModelRequest
from reviews.reviewers.provider_errors import failure, failure_of_answer

_CONNECT_SECONDS = 10.0
_KEY_REFUSED = "model_key_refused"

log = structlog.get_logger()

T = TypeVar("T")


class Transport:
    """Sends redacted text to one model server. Belongs to the event loop that first uses it."""

    def __init__(self, config: LlmConfig, credentials: Callable[[str], Mapping[str, str]]) -> None:
        """`credentials` makes the headers that carry a key."""
        self._config = config
        self._credentials = credentials
        self._slots = asyncio.Semaphore(config.max_concurrency)
        self._pool = ClientPool(config.base_url, config.proxy_url)
        self._limits = Limits(
            connect_timeout_seconds=min(_CONNECT_SECONDS, config.timeout_seconds),
            read_timeout_seconds=None,  # `within_deadline` bounds all requests of a call together
            total_timeout_seconds=None,
            max_answer_bytes=config.max_answer_bytes,
        )
        self._keys = RotatingSecrets(_KEY_REFUSED, config.api_keys, "")
        self._server = server_of(config)

    async def aclose(self) -> None:
        await self._pool.aclose()

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
    ) -> Answer:
        """Send the body that `build` makes from the text; return any answer below 300, 400 or 422.

        After a refused key (401, 403) the other key is tried, and stays in use when it is accepted.
        Raises TypeError when `text` is not `RedactedText`, `RedactionBlocked` from the guard,
        `Failure` for every error of the server or the network.
        """
        if not isinstance(text, RedactedText):
            raise TypeError(f"a model is sent RedactedText only, not {type(text).__name__}")
        content = json.dumps(build(guard(text))).encode()
        first: Failure | None = None
        for index, key in self._keys.in_turn():
            answer = await self._send(path, content, self._credentials(key), call_id)
            if answer.status < 300 or answer.status in {400, 422}:
                self._keys.accept(index)
                return answer
            refusal = failure_of_answer(answer, call_id)
            if answer.status not in {401, 403}:
                raise refusal
            log.warning(_KEY_REFUSED, call=call_id, key=index + 1, status=answer.status)
            first = first or refusal
        assert first is not None
        raise first

    async def _send(self, path: str, content: bytes, credentials: Mapping[str, str], call_id: str) -> Answer:
        headers = {"Content-Type": "application/json", "X-Request-Id": call_id, **credentials}
        request = Request("POST", self._config.base_url.rstrip("/") + path, headers, content)
        try:
            answer = await self._pool.send(request, self._limits)
        except ExchangeFailed as error:
            raise self._failure(error, call_id) from None
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise failure(
                ErrorClass.SCHEMA_INVALID, "the answer is compressed, which was not asked for", call=call_id
            )
        if answer.is_too_long:
            raise failure(
                ErrorClass.SCHEMA_INVALID,
                f"the answer is larger than {self._config.max_answer_bytes} bytes",
                call=call_id,
                status=answer.status,
            )
        return answer

    def _failure(self, error: ExchangeFailed, call_id: str) -> Failure:
        server = f"the model server at {self._server}"
        failed = partial(failure, call=call_id, sent=error.phase is not Phase.BEFORE_SEND)
        if error.fault is Fault.TIMEOUT:
            return failed(ErrorClass.NETWORK_TIMEOUT, f"the connection to {server} timed out")
        if error.fault is Fault.UNUSABLE_REQUEST:
            return failed(ErrorClass.CONFIG_INVALID, "LLM_BASE_URL or a key cannot be used")
        if error.fault is Fault.CERTIFICATE:
            return failed(ErrorClass.CONFIG_INVALID, f"the certificate of {server} is not trusted")
        if error.phase is Phase.BEFORE_SEND:
            return failed(ErrorClass.NETWORK_UNREACHABLE, f"no connection to {server}")
        return failed(
            ErrorClass.NETWORK_UNREACHABLE,
            f"the connection to {self._server} broke before the answer was complete",
            error=error.cause,
        )

    def _log_failure(self, call_id: str, error: Failure, started: float) -> None:
        log.warning(
            "model_call_failed",
            call=call_id,
            **error.facts,
            status=error.context.get("status"),
            seconds=round(time.monotonic() - started, 3),
        )


class HttpModelClient:
    """A `ModelClient` over HTTP. Use it as an async context manager, in one event loop."""

    def __init__(self, config: LlmConfig) -> None:
        self._config = config
        self._transport = Transport(config, self.credentials)

    @property
    def model(self) -> str:
        return self._config.model

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Ask once (see `ModelClient.complete`). The deadline covers every step of the call."""
        most = self._config.output_tokens(request.has_more_room)
        answer = await self._transport.within_deadline(request.call_id, lambda: self._complete(request, most))
        log.info(
            "model_call_done",
            call=request.call_id,
            model=answer.model,
            finish_reason=answer.finish_reason,
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
        )
        return answer

    async def _complete(self, request: ModelRequest, max_output_tokens: int) -> ModelAnswer:
        raise NotImplementedError

    @staticmethod
    def credentials(key: str) -> Mapping[str, str]:
        raise NotImplementedError


def server_of(config: LlmConfig) -> str:
    """Return `host:port` of the model server and of a proxy, without credentials."""
    server = host_and_port(config.base_url)
    return f"{server} (through the proxy {host_and_port(config.proxy_url)})" if config.proxy_url else server
