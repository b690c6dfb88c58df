"""Client of any server that speaks OpenAI's chat/completions protocol.

Verified against a double that speaks the documented protocol over a real socket. Servers
differ in what they accept, so three optional parameters are dropped one by one when a server
refuses them by name: the JSON schema (then `json_object`, then none), the temperature, and the
name of the output limit. A refused parameter is not sent to that server again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from criticizer.http_client import Answer
from criticizer.resilience.failures import ErrorClass
from reviews.reviewers.model import LlmConfig, ModelAnswer, ModelRequest, TokenCounts, token_count
from reviews.reviewers.provider_errors import failure, failure_of_answer, refused_parameter
from reviews.reviewers.transport import HttpModelClient

_FORMATS = ("json_schema", "json_object", "none")
_LIMITS = ("max_tokens", "max_completion_tokens", "none")
_OPTIONAL = ("response_format", "json_schema", "temperature", "max_completion_tokens", "max_tokens")

log = structlog.get_logger()


class OpenAIClient(HttpModelClient):
    def __init__(self, config: LlmConfig) -> None:
        super().__init__(config)
        self._format = 0
        self._limit = 0
        self._has_temperature = True

    @staticmethod
    def credentials(key: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    async def _complete(self, request: ModelRequest, max_output_tokens: int) -> ModelAnswer:
        # Each round but the last gives one parameter up, so the number of rounds is bounded.
        for _ in range(len(_FORMATS) + len(_LIMITS)):
            answer = await self._transport.post(
                "/chat/completions",
                request.user,
                lambda text: self._body(request, text, max_output_tokens),
                request.call_id,
            )
            if answer.status < 300:
                return self._parse(answer, request.call_id)
            if not self._give_up(refused_parameter(answer, _OPTIONAL)):
                break
        raise failure_of_answer(answer, request.call_id)

    def _body(self, request: ModelRequest, text: str, max_output_tokens: int) -> dict[str, object]:
        body: dict[str, object] = {
            "model": self._config.model,
            "messages": [{"role": "system", "content": request.system}, {"role": "user", "content": text}],
            "stream": False,
        }
        if _FORMATS[self._format] == "json_schema":
            wrapped = {"name": "review", "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": wrapped}
        elif _FORMATS[self._format] == "json_object":
            body["response_format"] = {"type": "json_object"}
        if _LIMITS[self._limit] != "none" and max_output_tokens:
            body[_LIMITS[self._limit]] = max_output_tokens
        if self._has_temperature:
            body["temperature"] = 0
        return {**body, **self._config.extra_body}

    def _give_up(self, parameter: str) -> bool:
        """Stop sending a refused parameter; return False when none is left to give up."""
        if parameter in {"response_format", "json_schema"} and self._format < len(_FORMATS) - 1:
            self._format += 1
        elif parameter in {"max_tokens", "max_completion_tokens"} and self._limit < len(_LIMITS) - 1:
            self._limit += 1
        elif parameter == "temperature" and self._has_temperature:
            self._has_temperature = False
        else:
            return False
        log.info("model_parameter_refused", parameter=parameter, model=self._config.model)
        return True

    def _parse(self, answer: Answer, call_id: str) -> ModelAnswer:
        failed = partial(failure, call=call_id, status=200)
        body: Any = answer.json()
        if isinstance(body, dict) and body.get("error") and not body.get("choices"):
            # Some gateways report the upstream's failure with status 200.
            status = body["error"].get("code") if isinstance(body["error"], dict) else None
            status = status if isinstance(status, int) and 400 <= status < 600 else 500
            raise failure_of_answer(replace(answer, status=status), call_id)
        usage = _usage(body)
        try:
            choice = body["choices"][0]
            content, refusal = choice["message"].get("content"), choice["message"].get("refusal")
            finish_reason = str(choice.get("finish_reason") or "")
            model = str(body.get("model") or self._config.model)
        except (TypeError, KeyError, IndexError, AttributeError):
            raise failed(ErrorClass.SCHEMA_INVALID, "the answer is not a chat completion", **usage) from None
        if refusal or finish_reason == "content_filter":
            raise failed(ErrorClass.POLICY_REJECTED, "the model refused to review this part", **usage)
        return ModelAnswer(
            text=_text_of(content),
            **usage,
            finish_reason=finish_reason[:40],
            model=model[:200],
        )


def _usage(body: object) -> TokenCounts:
    """Return the token counts that an answer reports, also if the answer is of no use."""
    usage = body.get("usage") if isinstance(body, dict) else None
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    return {
        "input_tokens": token_count(usage, "prompt_tokens"),
        "output_tokens": token_count(usage, "completion_tokens"),
        "cached_tokens": token_count(details, "cached_tokens"),
        "cache_write_tokens": 0,
    }


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""
