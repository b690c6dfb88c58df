"""Health check of a model server: one GET without a body, with nothing of a change in it."""

from __future__ import annotations

from collections.abc import Mapping

from criticizer.http_client import ExchangeFailed, Fault, Limits, Request, exchange
from criticizer.resilience.failures import ErrorClass
from reviews.reviewers.anthropic import AnthropicClient
from reviews.reviewers.model import LlmConfig
from reviews.reviewers.openai import OpenAIClient
from reviews.reviewers.provider_errors import failure
from reviews.reviewers.transport import server_of

LIMITS = Limits(5.0, 5.0, 5.0)
# Says that the server has no such method or page, which a server that is there says.
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
