"""Template context of every page: queues without a worker, dependencies with an open circuit."""

from __future__ import annotations

from collections.abc import Collection

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from criticizer.observability.health import workers_alive
from criticizer.queue import outbox
from criticizer.resilience import circuit_breaker
from criticizer.resilience.circuit_breaker import Stopped
from criticizer.resilience.states import CircuitState
from reviews import config

log = structlog.get_logger()

_ONLY_A_CALL = " with the next review or replay that needs it"


def unserved_queues() -> list[str]:
    """Return the names of queues without a live worker; empty when the database fails."""
    try:
        alive = workers_alive()
    except DatabaseError:
        # The page reports the database itself; the banner must not break it.
        log.warning("workers_unknown")
        return []
    return [queue for queue in outbox.queues() if not alive.get(queue)]


def stopped_dependencies() -> list[str]:
    """Return a sentence for each configured dependency whose circuit is not closed.

    Empty when the database fails. Webhook hosts are left out: operators see them in the admin.
    """
    try:
        states = circuit_breaker.open_circuits()
    except (DatabaseError, InterfaceError):
        log.warning("circuits_unknown")
        return []
    reviews_wait = "reviews wait and continue automatically."
    known = {
        config.perforce_dependency(): ("The version control server", reviews_wait),
        **_models({name for name, stopped in states.items() if _held(stopped)}, reviews_wait),
        "provider:mail": ("The mail server", "mail waits and is sent automatically."),
    }
    found = [(known[name], states[name]) for name in known if name in states]
    return [f"{place} {what}; {effect}" for (place, effect), stopped in found if (what := _held(stopped))]


def _models(away: Collection[str], reviews_wait: str) -> dict[str, tuple[str, str]]:
    """Return what each language model is called, and what its absence means for reviews."""
    places = (("The language model", "first"), ("The second language model", "second"))
    named = dict(zip(config.models(), places, strict=False))
    left = next((which for name, (_, which) in named.items() if name not in away), None)
    effect = reviews_wait if settings.LLM_REQUIRED else "reviews are made by the deterministic checks alone."
    if left is not None:
        effect = f"reviews are made by the {left} one."
    return {name: (place, effect) for name, (place, _) in named.items()}


def _held(stopped: Stopped) -> str:
    """Return why a dependency is not called; empty for a circuit that an operator forced closed."""
    if stopped.state == CircuitState.OPEN:
        return (
            "refuses our credentials, and an operator must renew them"
            if stopped.is_refused
            else "is not answering"
        )
    if stopped.state == CircuitState.HALF_OPEN:
        was = "refused our credentials and is" if stopped.is_refused else "is being"
        return f"{was} tried again{_ONLY_A_CALL if stopped.needs_call else ''}"
    if stopped.state == CircuitState.FORCED_OPEN:
        return "is not called: an operator stopped all calls"
    return ""


def banners(request: HttpRequest) -> dict[str, object]:
    """Return both banners for logged-in users; each is queried only where a template shows it."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {"unserved_queues": [], "stopped_dependencies": []}
    return {
        "unserved_queues": SimpleLazyObject(unserved_queues),
        "stopped_dependencies": SimpleLazyObject(stopped_dependencies),
        "operators_are_alerted": bool(settings.OPERATOR_ALERTS),
    }
