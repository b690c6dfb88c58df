"""Client of Anthropic's Messages API.

Verified only against a double that speaks the documented protocol, never against the hosted
service. The schema travels in the instructions and the answer is validated here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Self

import structlog

from criticizer.http_client import Answer
from criticizer.redaction import RedactedText
from criticizer.resilience.failures import ErrorClass
from reviews.reviewers.model import LlmConfig, ModelAnswer, token_count
from reviews.reviewers.provider_errors import failure, failure_of_answer
from reviews.reviewers.transport import Transport

_API_VERSION = "2023-06-01"

log = structlog.get_logger()


class AnthropicClient:
    """Asks one model. Use it as an async context manager, in one event loop."""

    def __init__(self, config: LlmConfig, now: Callable[[], float] = time.time) -> None:
        self._config = config
        self._transport = Transport(config, credentials, now)
        self._now = now

    @property
    def model(self) -> str:
        return self._config.model

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def complete(
        self, system: str, user: RedactedText, schema: Mapping[str, object], call_id: str
    ) -> ModelAnswer:
        """Ask once (see `ModelClient.complete`)."""
        if not isinstance(user, RedactedText):
            raise TypeError(f"a model is sent RedactedText only, not {type(user).__name__}")
        answer = await self._transport.within_deadline(call_id, lambda: self._complete(system, user, call_id))
        log.info(
            "model_call_done",
            call=call_id,
            model=answer.model,
            finish_reason=answer.finish_reason,
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
        )
        return answer

    async def _complete(self, system: str, user: RedactedText, call_id: str) -> ModelAnswer:
        answer = await self._transport.post("/messages", user, lambda text: self._body(system, text), call_id)
        if answer.status >= 300:
            raise failure_of_answer(answer.status, answer.headers, answer.body, call_id, self._now)
        return self._parse(answer, call_id)

    def _body(self, system: str, text: str) -> dict[str, object]:
        return {
            "model": self._config.model,
            "max_tokens": self._config.max_output_tokens,
            "system": system,
            "messages": [{"role": "user", "content": text}],
        }

    def _parse(self, answer: Answer, call_id: str) -> ModelAnswer:
        try:
            body = json.loads(answer.body)
            text = "".join(part["text"] for part in body["content"] if part.get("type") == "text")
            stop_reason = str(body.get("stop_reason") or "")
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            raise failure(
                ErrorClass.SCHEMA_INVALID, "the answer is not a message", call=call_id, status=answer.status
            ) from None
        if stop_reason == "refusal":
            raise failure(
                ErrorClass.POLICY_REJECTED,
                "the model refused to review this part",
                call=call_id,
                status=answer.status,
            )
        if stop_reason == "model_context_window_exceeded":
            raise failure(
                ErrorClass.TOKEN_LIMIT,
                "the request is longer than the model's window",
                call=call_id,
                status=answer.status,
            )
        usage = body.get("usage")
        return ModelAnswer(
            text=text,
            input_tokens=token_count(usage, "input_tokens"),
            output_tokens=token_count(usage, "output_tokens"),
            finish_reason=stop_reason[:40],
            model=str(body.get("model") or self._config.model)[:200],
        )


def credentials(key: str) -> Mapping[str, str]:
    return {"anthropic-version": _API_VERSION, **({"x-api-key": key} if key else {})}
