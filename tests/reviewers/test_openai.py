from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from email.utils import formatdate
from functools import partial
from typing import Any

import httpx
import pytest

from criticizer.http_client import MAX_CONNECTIONS, retry_after
from criticizer.redaction import RedactedText, RedactionBlocked, clean, guard, redact
from criticizer.resilience.failures import Component, ErrorClass, Failure, PermanentFailure, RetryableFailure
from reviews.reviewers import provider_errors, transport
from reviews.reviewers.answer import strict_schema
from reviews.reviewers.model import LlmConfig, ModelAnswer, ModelRequest
from reviews.reviewers.openai import OpenAIClient
from reviews.reviewers.transport import server_of
from tests.fakes.closed import closed_port
from tests.fakes.llm import FakeLlm, Reply, error

NOW = 1_700_000_000.0
SCHEMA = strict_schema(10)


@pytest.fixture
def llm() -> Iterator[FakeLlm]:
    with FakeLlm() as server:
        yield server


def config_for(base_url: str, **fields: Any) -> LlmConfig:
    return LlmConfig(
        **{"base_url": base_url, "model": "m", "api_keys": ("key-one",), "timeout_seconds": 20.0, **fields}
    )


def ask(llm: FakeLlm, text: object = None, times: int = 1, **fields: Any) -> ModelAnswer:
    async def run() -> ModelAnswer:
        async with OpenAIClient(config_for(llm.base_url, **fields)) as client:
            for _ in range(times):
                user = redact("hello") if text is None else text
                answer = await client.complete(ModelRequest("rules", user, SCHEMA, "call-1"))  # type: ignore[arg-type]
            return answer

    return asyncio.run(run())


def failure(llm: FakeLlm, **fields: Any) -> Failure:
    with pytest.raises(Failure) as raised:
        ask(llm, **fields)
    assert raised.value.component is Component.REVIEWER
    return raised.value


def test_further_fields_are_sent_and_an_output_limit_of_0_is_not(llm: FakeLlm) -> None:
    ask(llm, max_output_tokens=0, extra_body={"reasoning_effort": "low", "temperature": 0.6})
    ask(llm)
    first, second = (request.body for request in llm.requests)
    assert (first["reasoning_effort"], first["temperature"], first["model"]) == ("low", 0.6, "m")
    assert not {"max_tokens", "max_completion_tokens"} & set(first)
    assert (second["max_tokens"], second["temperature"]) == (8192, 0)


def test_a_call_asks_for_the_schema_and_returns_text_and_cost(llm: FakeLlm) -> None:
    llm.script(Reply(answer={"findings": [], "files_read": ["a"]}))

    answer = ask(llm)

    assert json.loads(answer.text) == {"findings": [], "files_read": ["a"]}
    assert (answer.finish_reason, answer.model) == ("stop", "m")
    assert answer.input_tokens > 0
    (request,) = llm.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer key-one"
    assert request.headers["x-request-id"] == "call-1"
    body = request.body
    assert body["messages"] == [{"role": "system", "content": "rules"}, {"role": "user", "content": "hello"}]
    assert body["response_format"]["type"] == "json_schema"
    assert body["response_format"]["json_schema"] == {"name": "review", "strict": True, "schema": SCHEMA}
    assert body["stream"] is False
    assert "tools" not in body


def test_a_local_server_without_a_key_gets_no_credential(llm: FakeLlm) -> None:
    ask(llm, api_keys=())
    assert "authorization" not in llm.requests[0].headers


@pytest.mark.parametrize("text", ["plain text", b"bytes", None])
def test_anything_but_redacted_text_is_refused(llm: FakeLlm, text: object) -> None:
    async def run() -> None:
        async with OpenAIClient(config_for(llm.base_url)) as client:
            await client.complete(ModelRequest("rules", text, SCHEMA, "call-1"))  # type: ignore[arg-type]

    with pytest.raises(TypeError):
        asyncio.run(run())
    assert llm.requests == []


def test_text_changed_after_redaction_is_blocked_by_the_guard(llm: FakeLlm) -> None:
    text = redact("hello")
    object.__setattr__(text, "text", "hello, and something else")
    with pytest.raises(RedactionBlocked):
        ask(llm, text)
    assert llm.requests == []


def test_guard_runs_before_every_send(llm: FakeLlm, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RedactedText] = []

    def counting(text: RedactedText) -> str:
        asked.append(text)
        return guard(text)

    monkeypatch.setattr(transport, "guard", counting)
    ask(llm, times=3)
    assert len(asked) == len(llm.requests) == 3


ERRORS: list[tuple[Reply, type[Failure], ErrorClass]] = [
    (error(429, "slow down", "rate_limit_exceeded"), RetryableFailure, ErrorClass.RATE_LIMITED),
    (error(429, "no quota", "insufficient_quota"), RetryableFailure, ErrorClass.RATE_LIMITED),
    (error(500, "oops"), RetryableFailure, ErrorClass.UPSTREAM_INTERNAL),
    (error(502, "bad gateway"), RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE),
    (error(503, "busy"), RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE),
    (
        error(503, "overloaded or not ready", "server_error"),
        RetryableFailure,
        ErrorClass.UPSTREAM_UNAVAILABLE,
    ),
    (error(500, "oops", "server_error"), RetryableFailure, ErrorClass.UPSTREAM_INTERNAL),
    (error(504, "late"), RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE),
    (Reply(status=502, body="<html>Bad Gateway</html>"), RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE),
    (Reply(status=507, body=""), RetryableFailure, ErrorClass.UPSTREAM_INTERNAL),
    (error(401, "bad key", "invalid_api_key"), PermanentFailure, ErrorClass.AUTH_DENIED),
    (error(403, "not allowed"), PermanentFailure, ErrorClass.PERMISSION_DENIED),
    (error(404, "no such model", "model_not_found"), PermanentFailure, ErrorClass.NOT_FOUND),
    (error(410, "retired"), PermanentFailure, ErrorClass.NOT_FOUND),
    (error(407, "proxy login"), PermanentFailure, ErrorClass.AUTH_DENIED),
    (error(409, "conflict"), RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE),
    (error(400, "too long", "context_length_exceeded"), PermanentFailure, ErrorClass.TOKEN_LIMIT),
    (
        error(400, "This model's maximum context length is 8192 tokens"),
        PermanentFailure,
        ErrorClass.TOKEN_LIMIT,
    ),
    (error(400, "exceeds the available context size"), PermanentFailure, ErrorClass.TOKEN_LIMIT),
    (error(413, "too large"), PermanentFailure, ErrorClass.TOKEN_LIMIT),
    (error(400, "filtered", "content_filter"), PermanentFailure, ErrorClass.POLICY_REJECTED),
    (Reply(refusal="I cannot help with that"), PermanentFailure, ErrorClass.POLICY_REJECTED),
    (Reply(finish_reason="content_filter"), PermanentFailure, ErrorClass.POLICY_REJECTED),
    (error(400, "strange request"), PermanentFailure, ErrorClass.SCHEMA_INVALID),
    (Reply(body="It works!"), PermanentFailure, ErrorClass.SCHEMA_INVALID),
    (Reply(body="[]"), PermanentFailure, ErrorClass.SCHEMA_INVALID),
    (Reply(body='{"choices": []}'), PermanentFailure, ErrorClass.SCHEMA_INVALID),
    (Reply(body='{"choices": [null]}'), PermanentFailure, ErrorClass.SCHEMA_INVALID),
    (Reply(body="[" * 100_000), PermanentFailure, ErrorClass.SCHEMA_INVALID),
    (Reply(body='{"error": {"code": 502}}'), RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE),
    (Reply(body='{"error": {"code": "internal_error"}}'), RetryableFailure, ErrorClass.UPSTREAM_INTERNAL),
    (Reply(body='{"error": "rate limited"}'), RetryableFailure, ErrorClass.UPSTREAM_INTERNAL),
    (Reply(truncate=True), RetryableFailure, ErrorClass.NETWORK_UNREACHABLE),
    (Reply(reset=True), RetryableFailure, ErrorClass.NETWORK_UNREACHABLE),
    (
        Reply(status=302, headers={"Location": "http://127.0.0.1:9/"}),
        PermanentFailure,
        ErrorClass.CONFIG_INVALID,
    ),
    (Reply(headers={"Content-Encoding": "gzip"}), PermanentFailure, ErrorClass.SCHEMA_INVALID),
]


@pytest.mark.parametrize(("reply", "kind", "error_class"), ERRORS)
def test_each_foreign_error_becomes_its_class_and_the_next_call_works(
    llm: FakeLlm, reply: Reply, kind: type[Failure], error_class: ErrorClass
) -> None:
    llm.script(reply)

    raised = failure(llm)

    assert type(raised) is kind
    assert raised.error_class is error_class
    assert raised.context["call"] == "call-1"
    assert len(llm.requests) == 1, "nothing is retried here"
    assert ask(llm).text


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"Retry-After": formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"Retry-After": "-5"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "inf"}, None),
        ({"retry-after-ms": "1500", "Retry-After": "2"}, 1.5),
        ({}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_read_in_every_form(
    llm: FakeLlm,
    status: int,
    headers: dict[str, str],
    seconds: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider_errors, "retry_after", partial(retry_after, now=lambda: NOW))
    llm.script(Reply(status=status, headers=headers, body="{}"))
    assert failure(llm).retry_after_seconds == seconds


def test_a_silent_server_is_a_timeout_and_a_later_call_works(llm: FakeLlm) -> None:
    llm.script(Reply(hang=True))
    assert failure(llm, timeout_seconds=0.5).error_class is ErrorClass.NETWORK_TIMEOUT
    assert ask(llm).text


def test_closed_port_is_unreachable() -> None:
    with closed_port() as port:
        raised = _failure_at(f"http://ann:a-password@127.0.0.1:{port}/v1?key=secret")
    assert raised.error_class is ErrorClass.NETWORK_UNREACHABLE
    assert raised.detail == f"no connection to the model server at 127.0.0.1:{port}"
    assert clean(raised.detail) == raised.detail  # the redactor leaves the address readable


@pytest.mark.parametrize(
    ("fields", "server"),
    [
        ({"base_url": "https://api.example.com/v1"}, "api.example.com:443"),
        ({"base_url": "http://llm.corp/v1"}, "llm.corp:80"),
        ({"base_url": "http://[::1]:8080/v1"}, "[::1]:8080"),
        ({"base_url": "http://u:p@llm.corp:1/v1"}, "llm.corp:1"),
        (
            {"base_url": "http://llm.corp/v1", "proxy_url": "http://u:p@proxy.corp:3128"},
            "llm.corp:80 (through the proxy proxy.corp:3128)",
        ),
        ({"base_url": "not an address"}, "no host:80"),
        ({"base_url": "http://llm.corp:port/v1"}, "an address that cannot be used"),
    ],
)
def test_a_server_is_named_by_host_and_port_alone(fields: dict[str, str], server: str) -> None:
    assert server_of(LlmConfig(model="m", **fields)) == server


@pytest.mark.long
def test_a_silent_server_and_one_that_hangs_up_are_named(llm: FakeLlm) -> None:
    where = f"127.0.0.1:{llm.server.port}"
    llm.script(Reply(hang=True), Reply(reset=True))
    assert failure(llm, timeout_seconds=1.0).detail == f"no answer from {where} within 1 seconds"
    assert failure(llm).detail == f"the connection to {where} broke before the answer was complete"


def test_a_name_that_does_not_resolve_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    assert _failure_at("http://model.invalid/v1").error_class is ErrorClass.NETWORK_UNREACHABLE


@pytest.mark.parametrize(
    "base_url", ["ftp://127.0.0.1/v1", "model.example.com/v1", "http://xn--a.example/v1"]
)
def test_an_unusable_address_is_a_configuration_error(base_url: str) -> None:
    assert _failure_at(base_url).error_class is ErrorClass.CONFIG_INVALID


def _failure_at(base_url: str) -> Failure:
    async def run() -> None:
        async with OpenAIClient(config_for(base_url)) as client:
            await client.complete(ModelRequest("rules", redact("hello"), SCHEMA, "call-1"))

    with pytest.raises(Failure) as raised:
        asyncio.run(run())
    return raised.value


def test_an_answer_over_the_bound_is_cut_off(llm: FakeLlm) -> None:
    llm.script(Reply(body="x" * 2_000_000))
    raised = failure(llm, max_answer_bytes=100_000)
    assert raised.error_class is ErrorClass.SCHEMA_INVALID
    assert "larger" in raised.detail


def test_the_second_key_serves_when_the_first_is_refused_and_stays_in_use() -> None:
    with FakeLlm(refused_keys=frozenset({"key-one"})) as llm:
        ask(llm, times=3, api_keys=("key-one", "key-two"))
        keys = [request.headers["authorization"] for request in llm.requests]
    assert keys == ["Bearer key-one", "Bearer key-two", "Bearer key-two", "Bearer key-two"]


def test_a_call_whose_key_is_refused_while_another_finds_the_next_key_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both calls begin with the revoked key, and one ends before the other learns its refusal."""
    send = transport.Transport._send

    async def run() -> None:
        async with OpenAIClient(config_for(llm.base_url, api_keys=("key-one", "key-two"))) as client:

            async def slowly(self: transport.Transport, *given: Any) -> Any:
                answer = await send(self, *given)
                monkeypatch.setattr(transport.Transport, "_send", send)
                await client.complete(ModelRequest("rules", redact("another"), SCHEMA, "call-2"))
                return answer

            monkeypatch.setattr(transport.Transport, "_send", slowly)
            await client.complete(ModelRequest("rules", redact("hello"), SCHEMA, "call-1"))

    with FakeLlm(refused_keys=frozenset({"key-one"})) as llm:
        asyncio.run(run())
        keys = [request.headers["authorization"].removeprefix("Bearer key-") for request in llm.requests]
    assert keys == ["one", "one", "two", "two"]


def test_two_refused_keys_are_an_auth_failure_without_the_keys_in_it() -> None:
    with FakeLlm(refused_keys=frozenset({"key-one", "key-two"})) as llm:
        raised = failure(llm, api_keys=("key-one", "key-two"))
        assert len(llm.requests) == 2
    assert raised.error_class is ErrorClass.AUTH_DENIED
    assert "key-" not in repr(
        (raised.detail, raised.context, config_for("x", api_keys=("key-one", "key-two")))
    )


def test_an_error_body_does_not_reach_the_failure(llm: FakeLlm) -> None:
    llm.script(error(400, "the prompt was: def secret_function()", "invalid\nvalue {x}"))
    raised = failure(llm)
    assert "secret_function" not in repr((raised.detail, raised.context))
    assert raised.context["provider_code"] == "invalidvaluex"


@pytest.mark.parametrize(
    ("refused", "sent"),
    [
        ({"response_format=json_schema"}, {"response_format": {"type": "json_object"}}),
        ({"response_format"}, {"response_format": None}),
        ({"temperature"}, {"temperature": None}),
        ({"max_tokens"}, {"max_tokens": None, "max_completion_tokens": 8192}),
        ({"max_tokens", "max_completion_tokens"}, {"max_tokens": None, "max_completion_tokens": None}),
        ({"response_format", "temperature", "max_tokens"}, {"response_format": None, "temperature": None}),
    ],
)
def test_a_parameter_refused_by_name_is_given_up_for_good(refused: set[str], sent: dict[str, object]) -> None:
    with FakeLlm(refused_parameters=frozenset(refused)) as llm:
        assert ask(llm, times=2).text
        first, second = llm.requests[-2:]
        assert {name: first.body.get(name) for name in sent} == sent
        assert second.body == first.body, "the second call starts where the first ended"


def test_calls_spread_over_small_clients_that_share_one_tls_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contexts: list[object] = []
    make = httpx.AsyncClient

    def counting(**fields: Any) -> Any:
        contexts.append(fields["verify"])
        return make(**fields)

    monkeypatch.setattr(httpx, "AsyncClient", counting)
    with FakeLlm(delay=0.3) as llm:

        async def run() -> None:
            async with OpenAIClient(config_for(llm.base_url, max_concurrency=40)) as client:
                user = redact("hello")
                calls = (client.complete(ModelRequest("rules", user, SCHEMA, f"call-{n}")) for n in range(45))
                await asyncio.gather(*calls)

        asyncio.run(run())
        assert llm.peak_in_flight <= 40
        assert len(llm.requests) == 45
    assert len(contexts) == 40 // MAX_CONNECTIONS
    assert MAX_CONNECTIONS <= 50
    assert len(set(map(id, contexts))) == 1


@pytest.mark.long
def test_waiting_for_a_slot_does_not_use_up_the_deadline(llm: FakeLlm) -> None:
    llm.server.delay = 1.0

    async def run() -> list[ModelAnswer]:
        async with OpenAIClient(config_for(llm.base_url, max_concurrency=1, timeout_seconds=4)) as client:
            user = redact("hello")
            return await asyncio.gather(
                *(client.complete(ModelRequest("r", user, SCHEMA, f"c{n}")) for n in range(5))
            )

    assert len(asyncio.run(run())) == 5
    assert llm.peak_in_flight == 1


def test_logs_name_the_call_and_never_the_text(llm: FakeLlm, capsys: pytest.CaptureFixture[str]) -> None:
    ask(llm, redact("a very recognisable prompt"))
    llm.script(error(500, "a very recognisable prompt came in"))
    failure(llm)
    written = "".join(capsys.readouterr())
    assert "recognisable" not in written
    assert "key-one" not in written
