from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from criticizer.redaction import Redactor, redact
from criticizer.resilience.failures import Component, ErrorClass, Failure, PermanentFailure, RetryableFailure
from reviews.reviewers.anthropic import AnthropicClient
from reviews.reviewers.model import LlmConfig, ModelAnswer, ModelRequest
from reviews.reviewers.prepare import prepare
from reviews.reviewers.prompt import request_text
from tests.fakes.llm import FakeLlm, Reply
from tests.reviewers.build import added, change


@pytest.fixture
def llm() -> Iterator[FakeLlm]:
    with FakeLlm() as server:
        yield server


def ask(llm: FakeLlm, text: object = None, **fields: Any) -> ModelAnswer:
    async def run() -> ModelAnswer:
        config = LlmConfig(llm.base_url, "m", **{"api_keys": ("key-one",), "timeout_seconds": 20, **fields})
        async with AnthropicClient(config) as client:
            user = redact("hello") if text is None else text
            return await client.complete(ModelRequest("rules", user, {}, "call-1"))  # type: ignore[arg-type]

    return asyncio.run(run())


def test_a_call_speaks_the_documented_protocol(llm: FakeLlm) -> None:
    answer = ask(llm)
    (request,) = llm.requests
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == "key-one"
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert request.headers["x-request-id"] == "call-1"
    assert request.body == {
        "model": "m",
        "max_tokens": 8192,
        "system": [{"type": "text", "text": "rules", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    }
    assert json.loads(answer.text) == {"findings": [], "files_read": []}
    assert (answer.finish_reason, answer.model, answer.input_tokens > 0) == ("end_turn", "m", True)


def test_what_parts_share_is_a_block_that_the_server_may_keep(llm: FakeLlm) -> None:
    of = prepare(change(added("//depot/p/a.py", "x\n")), Redactor())
    user = request_text(of.text, of.chunks, 0)
    ask(llm, user)
    shared, rest = llm.requests[0].body["messages"][0]["content"]
    assert shared["text"] + rest["text"] == user.text
    assert shared["text"].rstrip().endswith("| add")
    assert (shared["cache_control"], set(rest)) == ({"type": "ephemeral"}, {"type", "text"})


def test_cached_tokens_count_as_read(llm: FakeLlm) -> None:
    usage = {"input_tokens": 7, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 90}
    body = {"content": [{"type": "text", "text": "{}"}], "stop_reason": "end_turn", "usage": usage}
    llm.script(Reply(body=json.dumps(body)))
    answer = ask(llm)
    assert (answer.input_tokens, answer.cached_tokens, answer.cache_write_tokens) == (997, 900, 90)


def test_anything_but_redacted_text_is_refused(llm: FakeLlm) -> None:
    with pytest.raises(TypeError):
        ask(llm, "plain")
    assert llm.requests == []


def envelope(status: int, kind: str, message: str = "", **headers: str) -> Reply:
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return Reply(status=status, headers=headers, body=json.dumps(body))


@pytest.mark.parametrize(
    ("reply", "kind", "error_class"),
    [
        (envelope(429, "rate_limit_error"), RetryableFailure, ErrorClass.RATE_LIMITED),
        (envelope(529, "overloaded_error"), RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE),
        (envelope(500, "api_error"), RetryableFailure, ErrorClass.UPSTREAM_INTERNAL),
        (envelope(401, "authentication_error"), PermanentFailure, ErrorClass.AUTH_DENIED),
        (envelope(403, "permission_error"), PermanentFailure, ErrorClass.PERMISSION_DENIED),
        (envelope(404, "not_found_error"), PermanentFailure, ErrorClass.NOT_FOUND),
        (envelope(413, "request_too_large"), PermanentFailure, ErrorClass.TOKEN_LIMIT),
        (
            envelope(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
            PermanentFailure,
            ErrorClass.TOKEN_LIMIT,
        ),
        (envelope(400, "invalid_request_error", "odd"), PermanentFailure, ErrorClass.SCHEMA_INVALID),
        (Reply(finish_reason="refusal"), PermanentFailure, ErrorClass.POLICY_REJECTED),
        (Reply(finish_reason="model_context_window_exceeded"), PermanentFailure, ErrorClass.TOKEN_LIMIT),
        (Reply(body="{}"), PermanentFailure, ErrorClass.SCHEMA_INVALID),
        (Reply(body='{"content": [7]}'), PermanentFailure, ErrorClass.SCHEMA_INVALID),
        (Reply(truncate=True), RetryableFailure, ErrorClass.NETWORK_UNREACHABLE),
    ],
)
def test_each_foreign_error_becomes_its_class_and_the_next_call_works(
    llm: FakeLlm, reply: Reply, kind: type[Failure], error_class: ErrorClass
) -> None:
    llm.script(reply)
    with pytest.raises(Failure) as raised:
        ask(llm)
    assert type(raised.value) is kind
    assert (raised.value.error_class, raised.value.component) == (error_class, Component.REVIEWER)
    assert ask(llm).text


def test_the_second_key_serves_when_the_first_is_refused() -> None:
    with FakeLlm(refused_keys=frozenset({"key-one"})) as llm:
        ask(llm, api_keys=("key-one", "key-two"))
        assert [request.headers["x-api-key"] for request in llm.requests] == ["key-one", "key-two"]
