"""Windows that model servers report: vLLM, llama.cpp, Ollama and LM Studio, as documented."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from criticizer.checks import OUTSIDE, environment
from reviews import health_checks
from reviews.artifacts import recipe
from reviews.reviewers.answer import parse_answer
from reviews.reviewers.health_checks import window_of
from reviews.reviewers.instructions import COMPACT_RULES, system_prompt
from reviews.reviewers.model import LlmConfig
from reviews.reviewers.prepare import ReviewLimits
from tests.fakes.llm import FakeLlm, SmallWindow
from tests.reviewers.test_answer import answer_of, raw_finding
from tests.reviewers.test_review import ONE, review

Pages = Mapping[str, object]
VLLM: Pages = {
    "/v1/models": {"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 8192}]}
}
LLAMA_CPP: Pages = {
    "/v1/models": {"data": [{"id": "m", "meta": {"n_ctx_train": 131072}}]},
    "/props": {"default_generation_settings": {"n_ctx": 16384}, "total_slots": 1},
}
OLLAMA: Pages = {
    "/v1/models": {"data": [{"id": "m", "owned_by": "library"}]},
    "/api/show": {"parameters": 'stop "<end>"\nnum_ctx                        32768', "model_info": {}},
    "/api/ps": {"models": []},
}
PLAIN_OLLAMA = {**OLLAMA, "/api/show": {"parameters": "", "model_info": {"llama.context_length": 131072}}}
LOADED_OLLAMA = {**PLAIN_OLLAMA, "/api/ps": {"models": [{"name": "m", "context_length": 65536}]}}
ROUTER: Pages = {"/v1/models": {"data": [{"id": "m", "context_length": 200_000}]}}
ODD: Pages = {
    "/v1/models": {"data": [{"id": "m", "max_model_len": "8192"}, 7]},
    "/props": [1],
    "/api/show": {"model_info": {}, "parameters": None},
    "/api/ps": {"models": {"name": "m"}},
}


@pytest.fixture
def serve() -> Iterator[Any]:
    with FakeLlm() as llm:
        pages: dict[str, object] = {}
        llm.server.pages = pages

        def start(served: Pages) -> str:
            pages.update(served)
            return llm.base_url

        yield start


@pytest.mark.parametrize(
    ("pages", "window"),
    [
        (VLLM, 8_192),
        (LLAMA_CPP, 16_384),
        (OLLAMA, 32_768),
        (PLAIN_OLLAMA, 4_096),
        (LOADED_OLLAMA, 65_536),
        (ROUTER, 200_000),
        (ODD, 4_096),
        ({}, 0),
    ],
)
def test_the_window_is_what_the_server_says(serve: Any, pages: Pages, window: int) -> None:
    assert window_of(LlmConfig(serve(pages), "m")) == window


def test_a_server_that_is_away_has_no_window() -> None:
    assert window_of(LlmConfig("http://127.0.0.1:9/v1", "m")) == 0


@pytest.mark.parametrize(("limit", "codes"), [(4_000, ["criticizer.W017"]), (3_000, [])])
def test_check_warns_of_a_window_that_is_smaller_than_a_request_and_its_answer(
    serve: Any, settings: Any, limit: int, codes: list[str]
) -> None:
    settings.LLM_PROVIDER, settings.LLM_MODEL, settings.LLM_BASE_URL = "openai", "m", serve(VLLM)
    settings.LLM_API_KEYS, settings.LLM_MAX_INPUT_TOKENS, settings.LLM_MAX_OUTPUT_TOKENS = [], limit, 5_000
    assert health_checks.small_windows in OUTSIDE
    found = environment.servers(None)
    assert [one.id for one in found] == codes
    if found:
        assert "8192" in found[0].msg


# -- the compact profile --------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "is_compact"), [(15_999, True), (16_000, False)])
def test_below_16k_the_rules_are_short_and_there_is_no_context(
    settings: Any, tokens: int, is_compact: bool
) -> None:
    settings.LLM_MAX_INPUT_TOKENS = tokens
    limits = recipe.limits()
    assert (limits.is_compact, limits.context_share > 0) == (is_compact, not is_compact)


def test_a_compact_request_is_short_and_notices_a_cut_like_any_other() -> None:
    assert len(system_prompt(10, is_compact=True)) < len(system_prompt(10)) / 2
    limits = ReviewLimits(8_000, is_compact=True, context_share=0)
    server = SmallWindow(1_200, "head", findings=[raw_finding()])
    with FakeLlm(respond=server) as llm:
        (finding,) = review(llm, ONE, limits).review.findings
        body = llm.requests[0].body
        llm.server.respond = SmallWindow(400, "head")
        assert review(llm, ONE, limits).review.usage.cut == 1
    assert body["messages"][0]["content"].startswith(COMPACT_RULES)
    schema = body["response_format"]["json_schema"]["schema"]["properties"]["findings"]["items"]
    assert set(schema["properties"]) == {
        "file", "line", "quote", "severity", "title", "problem", "suggestion",
    }  # fmt: skip
    assert finding.line == 2


def test_an_answer_by_the_compact_schema_is_read_whole() -> None:
    wanted = ("file", "line", "quote", "severity", "title", "problem", "suggestion")
    raw = {name: value for name, value in raw_finding().items() if name in wanted}
    assert len(parse_answer(json.dumps(answer_of(raw)), 10)["findings"]) == 1
