"""Requests to a model server that hold no change: for its health and its window."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from criticizer.http_client import ExchangeFailed, Fault, Limits, Request, exchange
from criticizer.resilience.failures import ErrorClass
from reviews.reviewers.anthropic import AnthropicClient
from reviews.reviewers.model import LlmConfig, token_count
from reviews.reviewers.openai import OpenAIClient
from reviews.reviewers.provider_errors import failure
from reviews.reviewers.transport import server_of

LIMITS = Limits(5.0, 5.0, 5.0)
# A server that answers so has no such method or page, but it is alive.
_ALIVE = frozenset({501, 505})
_REFUSED = frozenset({401, 403})


def check_health(config: LlmConfig) -> None:
    """Request the list of models: return when the server answers, whatever the list holds.

    Takes 5 seconds at most per key. Raises `Failure` of Component.REVIEWER when the server does not
    answer, answers with a 5xx, or refuses every key.
    """
    credentials = (AnthropicClient if config.provider == "anthropic" else OpenAIClient).credentials
    status = 0
    for key in list(config.api_keys) or [""]:
        status = _status(config, credentials(key))
        if status not in _REFUSED:
            break
    server = f"the model server at {server_of(config)}"
    if status in _REFUSED:
        raise failure(ErrorClass.AUTH_DENIED, f"{server} refuses our key", status=status)
    if status >= 500 and status not in _ALIVE:
        detail = f"{server} answered {status} to a health check"
        raise failure(ErrorClass.UPSTREAM_UNAVAILABLE, detail, status=status)


def _status(config: LlmConfig, credentials: Mapping[str, str]) -> int:
    request = Request("GET", config.base_url.rstrip("/") + "/models", credentials, reads_answer=False)
    try:
        return exchange(request, LIMITS, proxy_url=config.proxy_url).status
    except ExchangeFailed as error:
        server = f"the model server at {server_of(config)}"
        if error.fault is Fault.TIMEOUT:
            detail = f"{server} did not answer a health check in time"
            raise failure(ErrorClass.NETWORK_TIMEOUT, detail) from None
        detail = f"{server} could not be reached by a health check"
        raise failure(ErrorClass.NETWORK_UNREACHABLE, detail) from None


_WINDOW_NAMES = (
    "max_model_len",
    "loaded_context_length",
    "context_length",
    "max_context_length",
    "context_window",
)
_OLLAMA_WINDOW = 4_096  # unless its model file or its server says otherwise


def window_of(config: LlmConfig) -> int:
    """Return the window of the model in tokens, as the server states it, or 0.

    Asks vLLM and others by the list of models, llama.cpp by /props, Ollama by /api/ps and /api/show.
    Takes 5 seconds a page at most; raises nothing.
    """
    try:
        return _window(config) if config.provider == "openai" else 0
    except (ExchangeFailed, RecursionError):
        return 0


def _window(config: LlmConfig) -> int:
    root = config.base_url.rstrip("/").removesuffix("/v1")
    listed = _listed(_asked(config, f"{config.base_url.rstrip('/')}/models").get("data"), config.model)
    if size := next((size for name in _WINDOW_NAMES if (size := token_count(listed, name))), 0):
        return size
    props = _asked(config, f"{root}/props").get("default_generation_settings")
    if size := token_count(props, "n_ctx"):
        return size
    shown = _asked(config, f"{root}/api/show", json.dumps({"model": config.model}).encode())
    if "model_info" not in shown:
        return 0
    loaded = _listed(_asked(config, f"{root}/api/ps").get("models"), config.model)
    stated = re.search(r"^num_ctx\s+(\d{1,9})", str(shown.get("parameters", "")), re.MULTILINE)
    return token_count(loaded, "context_length") or (int(stated.group(1)) if stated else _OLLAMA_WINDOW)


def _listed(entries: object, model: str) -> dict[str, object]:
    """Return the entry of the model, or the only one."""
    found = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    named = [entry for entry in found if model in (entry.get("id"), entry.get("model"), entry.get("name"))]
    return (named or (found if len(found) == 1 else [{}]))[0]


def _asked(config: LlmConfig, url: str, body: bytes = b"") -> dict[str, object]:
    """Return the JSON object that a page of the server answers, {} for any other answer."""
    key = next(iter(config.api_keys), "")
    headers = {**OpenAIClient.credentials(key), **({"Content-Type": "application/json"} if body else {})}
    request = Request("POST" if body else "GET", url, headers, body)
    answer = exchange(request, LIMITS, proxy_url=config.proxy_url)
    return (answer.json() or {}) if answer.status == 200 else {}
