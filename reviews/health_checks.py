"""Harmless health checks of the source and the model server; each bounds its own time."""

from __future__ import annotations

from dataclasses import replace

from django.conf import settings

from reviews import config
from reviews.reviewers.health_checks import probe
from reviews.sources.perforce.client import P4Client

_P4_SECONDS = 5.0


def perforce(name: str) -> None:
    """Run `p4 info -s`. Raises `Failure` when the server does not answer.

    A server that is no longer configured passes, so that its circuit closes.
    """
    server = config.sources().perforce
    if server is not None and name == config.perforce_dependency():
        P4Client(replace(server, info_timeout_seconds=_P4_SECONDS)).probe()


def model(name: str) -> None:
    """List the models of the model server. Raises `Failure` when it does not answer."""
    llm = config.model()
    if llm is not None and name == config.model_dependency():
        probe(llm, settings.LLM_PROVIDER)
