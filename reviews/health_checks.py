"""Harmless health checks of the source and the model server; each bounds its own time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from django.conf import settings
from django.core.checks import CheckMessage

from criticizer.checks import message
from criticizer.db import prepared
from deadletters.types import Failed
from reviews import config
from reviews.pipeline.dependencies import dependencies_of
from reviews.reviewers.health_checks import check_health, window_of
from reviews.reviewers.transport import server_of
from reviews.sources.perforce.client import P4Client

_P4_SECONDS = 5.0
_MAX_STAGES = 1000  # that wait at once: more only keep a circuit half-open, which costs nothing

# From the messages: there are few, while stages are never deleted.
_RETRIED = """
SELECT s.job_id, s.stage FROM outbox_messages m JOIN stage_runs s ON s.id = m.aggregate_id
 WHERE m.aggregate_type = 'stage_run' AND m.retry_count > 0 AND s.status = 'retry_wait'
 ORDER BY m.id DESC LIMIT %(limit)s"""


def perforce(name: str) -> None:
    """Run `p4 info -s`. Raises `Failure` when the server does not answer.

    A server that is no longer configured passes, so that its circuit closes.
    """
    server = config.sources().perforce
    if server is not None and name == config.perforce_dependency():
        P4Client(replace(server, info_timeout_seconds=_P4_SECONDS)).check_health()


def model(name: str) -> None:
    """List the models of a model server. Raises `Failure` when it does not answer."""
    llm = config.models().get(name)
    if llm is not None:
        check_health(llm)


def embeddings(name: str) -> None:
    """List the models of the server of embeddings. Raises `Failure` when it does not answer."""
    llm = config.embeddings()
    if llm is not None and name == config.embeddings_dependency():
        check_health(llm)


def dependencies_to_retry() -> frozenset[str]:
    """Return the names of the dependencies that stages in `retry_wait` need."""
    waiting = [Failed(**row) for row in prepared.rows(_RETRIED, {"limit": _MAX_STAGES})]
    return frozenset(name for names in dependencies_of(waiting).values() for name in names)


def small_windows() -> Iterator[CheckMessage]:
    """Yield a warning for each model server whose window is too small.

    It must hold a request and its answer.
    """
    needed = settings.LLM_MAX_INPUT_TOKENS + settings.LLM_MAX_OUTPUT_TOKENS
    for llm in config.models().values():
        if 0 < (window := window_of(llm)) < needed:
            yield message(
                "W017",
                f"The window of {llm.model} at {server_of(llm)} holds {window} tokens; a request and its"
                f" answer may take {needed}.",
                "Enlarge it at the server (num_ctx or OLLAMA_CONTEXT_LENGTH, --ctx-size, --max-model-len),"
                " or lower LLM_MAX_INPUT_TOKENS and LLM_MAX_OUTPUT_TOKENS.",
            )
