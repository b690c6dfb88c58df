"""Asks a model server whether it is there: one GET without a body, nothing of a change in it.

The other module of this room that speaks HTTP (`transport` is the one for text).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx

from criticizer.resilience.failures import ErrorClass
from reviews.reviewers.anthropic import API_VERSION
from reviews.reviewers.model import LlmConfig
from reviews.reviewers.provider_errors import failure
from reviews.reviewers.transport import server_of

TOTAL_SECONDS = 5.0
# Says that the server has no such method or page, which a server that is there says.
_ALIVE = frozenset({501, 505})
_REFUSED = frozenset({401, 403})


def probe(config: LlmConfig, provider: str) -> None:
    """List the models of the server: return when it answers, whatever it says of the list.

    Takes 5 seconds at most. Raises `Failure` of Place.REVIEWER when it does not answer, answers
    with a 5xx, or refuses every key.
    """
    status = 0
    for key in config.keys:
        status = asyncio.run(_status(config, _credentials(provider, key)))
        if status not in _REFUSED:
            break
    if status in _REFUSED:
        raise failure(
            ErrorClass.AUTH_DENIED, f"the model server at {server_of(config)} refuses our key", status=status
        )
    if status >= 500 and status not in _ALIVE:
        raise failure(
            ErrorClass.UPSTREAM_UNAVAILABLE,
            f"the model server at {server_of(config)} answered {status} to a probe",
            status=status,
        )


async def _status(config: LlmConfig, credentials: Mapping[str, str]) -> int:
    url = config.base_url.rstrip("/") + "/models"
    try:
        async with (
            asyncio.timeout(TOTAL_SECONDS),
            httpx.AsyncClient(
                trust_env=False,
                proxy=config.proxy_url or None,
                follow_redirects=False,
                timeout=TOTAL_SECONDS,
            ) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity", **credentials}) as response,
        ):
            return response.status_code  # the list is not read
    except (httpx.TimeoutException, TimeoutError):
        raise failure(
            ErrorClass.NETWORK_TIMEOUT,
            f"the model server at {server_of(config)} did not answer a probe in time",
        ) from None
    except (httpx.TransportError, httpx.InvalidURL, OSError):
        raise failure(
            ErrorClass.NETWORK_UNREACHABLE,
            f"the model server at {server_of(config)} could not be reached by a probe",
        ) from None


def _credentials(provider: str, key: str) -> Mapping[str, str]:
    if provider == "anthropic":
        return {"anthropic-version": API_VERSION, **({"x-api-key": key} if key else {})}
    return {"Authorization": f"Bearer {key}"} if key else {}
