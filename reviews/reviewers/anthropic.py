"""Client of Anthropic's Messages API.

Verified only against a double that speaks the documented protocol, never against the hosted
service. The schema travels in the instructions and the answer is validated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from criticizer.http_client import Answer
from criticizer.resilience.failures import ErrorClass
from reviews.reviewers.model import ModelAnswer, ModelRequest, TokenCounts, token_count
from reviews.reviewers.prompt import shared_characters
from reviews.reviewers.provider_errors import failure, failure_of_answer
from reviews.reviewers.transport import HttpModelClient

_API_VERSION = "2023-06-01"


class AnthropicClient(HttpModelClient):
    @staticmethod
    def credentials(key: str) -> Mapping[str, str]:
        return {"anthropic-version": _API_VERSION, **({"x-api-key": key} if key else {})}

    async def _complete(self, request: ModelRequest, max_output_tokens: int) -> ModelAnswer:
        answer = await self._transport.post(
            "/messages",
            request.user,
            lambda text: self._body(request.system, text, max_output_tokens),
            request.call_id,
        )
        if answer.status >= 300:
            raise failure_of_answer(answer, request.call_id)
        return self._parse(answer, request.call_id)

    def _body(self, system: str, text: str, max_output_tokens: int) -> dict[str, object]:
        shared = shared_characters(text)
        content = [*([_cached(text[:shared])] if shared else []), _text(text[shared:])]
        return {
            "model": self._config.model,
            "max_tokens": max_output_tokens,
            "system": [_cached(system)],
            # The server keeps the text up to a mark for some minutes.
            "messages": [{"role": "user", "content": content}],
            **self._config.extra_body,
        }

    def _parse(self, answer: Answer, call_id: str) -> ModelAnswer:
        failed = partial(failure, call=call_id, status=answer.status)
        body: Any = answer.json()
        usage = _usage(body)
        try:
            text = "".join(part["text"] for part in body["content"] if part.get("type") == "text")
            stop_reason = str(body.get("stop_reason") or "")
        except (TypeError, KeyError, AttributeError):
            raise failed(ErrorClass.SCHEMA_INVALID, "the answer is not a message", **usage) from None
        if stop_reason == "refusal":
            raise failed(ErrorClass.POLICY_REJECTED, "the model refused to review this part", **usage)
        if stop_reason == "model_context_window_exceeded":
            raise failed(ErrorClass.TOKEN_LIMIT, "the request is longer than the model's window", **usage)
        return ModelAnswer(
            text=text,
            **usage,
            finish_reason=stop_reason[:40],
            model=str(body.get("model") or self._config.model)[:200],
        )


def _usage(body: object) -> TokenCounts:
    """Return the token counts that an answer reports, also if the answer is of no use."""
    usage = body.get("usage") if isinstance(body, dict) else None
    read, written = (token_count(usage, f"cache_{how}_input_tokens") for how in ("read", "creation"))
    return {
        # The server counts cached tokens apart, but the model read them too.
        "input_tokens": token_count(usage, "input_tokens") + read + written,
        "cached_tokens": read,
        "cache_write_tokens": written,
        "output_tokens": token_count(usage, "output_tokens"),
    }


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def _cached(text: str) -> dict[str, object]:
    return {**_text(text), "cache_control": {"type": "ephemeral"}}
