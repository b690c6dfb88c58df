"""Banners of every page: queues without a worker, dependencies with an open circuit."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from criticizer.admin_site.timestamps import format_utc
from criticizer.observability.health import workers_alive
from criticizer.queue import outbox
from criticizer.resilience import circuit_breaker
from criticizer.resilience.circuit_breaker import Stopped
from criticizer.resilience.states import CircuitState
from reviews import config
from reviews.dashboard.waiting import waiting_for
from reviews.recipients.viewing_scopes import scope_of

log = structlog.get_logger()


def unserved_queues() -> list[str]:
    """Return the names of queues without a live worker; empty when the database fails."""
    try:
        alive = workers_alive()
    except DatabaseError:
        # The page reports the database itself; the banner must not break it.
        log.warning("workers_unknown")
        return []
    return [queue for queue in outbox.queues() if not alive.get(queue)]


def stopped_dependencies(*, counts: Callable[[], bool] = lambda: True) -> list[str]:
    """Return a sentence for each configured dependency whose circuit is not closed.

    It says what the dependency lacks, and what waits for it. `counts` returns whether it adds how many wait
    and the first deadline, which is for people who see every review; it is called only where something is
    shown. Empty when the database fails. Webhook hosts are left out: operators see them in the admin.
    """
    try:
        states = {
            name: stopped
            for name, stopped in circuit_breaker.open_circuits().items()
            if stopped.state != CircuitState.FORCED_CLOSED
        }
        known = {
            config.perforce_dependency(): ("The version control server", "review"),
            **_models(states),
            "provider:mail": ("The mail server", "message"),
        }
        shown = [name for name in known if name in states]
        waiting = waiting_for(shown) if shown and counts() else {}
    except (DatabaseError, InterfaceError):
        log.warning("circuits_unknown")
        return []
    return [
        f"{known[name][0]} {_state(states[name])}. {_effect(known[name][1], states[name], waiting.get(name))}"
        for name in shown
    ]


def _models(away: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return the name of each language model, and what waits for it.

    Where nothing waits for it, a sentence says so.
    """
    places = (("The language model", "first"), ("The second language model", "second"))
    named = dict(zip(config.models(), places, strict=False))
    left = next((which for name, (_, which) in named.items() if name not in away), None)
    what = "review" if settings.LLM_REQUIRED else "Reviews are made by the deterministic checks alone."
    if left is not None:
        what = f"Reviews are made by the {left} one."
    return {name: (place, what) for name, (place, _) in named.items()}


def _state(stopped: Stopped) -> str:
    """Return how a dependency is, such as `is not answering`."""
    if stopped.state == CircuitState.OPEN:
        return "rejects our credentials" if stopped.is_refused else "is not answering"
    if stopped.state == CircuitState.HALF_OPEN:
        was = "rejected our credentials and is" if stopped.is_refused else "is being"
        when = " with the next review or replay that needs it" if stopped.needs_call else ""
        return f"{was} tried again{when}"
    return "is not called: an operator stopped all calls"


def _effect(what: str, stopped: Stopped, waiting: tuple[int, datetime | None] | None) -> str:
    """Return what waits, who must act before it continues, and until when it can wait."""
    if what.endswith("."):
        return what
    number, deadline = waiting or (0, None)
    is_one = number == 1
    subject = f"{number or ''} {what if is_one else f'{what}s'} {'waits' if is_one else 'wait'}".strip()
    who = "automatically when it answers"
    if stopped.state == CircuitState.FORCED_OPEN:
        who = "when calls are allowed again"
    elif stopped.state == CircuitState.OPEN and stopped.is_refused:
        who = "once an operator renews them"
    until = f", and expire{'s' if is_one else ''} from {format_utc(deadline)}" if deadline else ""
    they = "it continues" if is_one else "they continue"
    return f"{subject[0].upper()}{subject[1:]}; {they} {who}{until}."


def banners(request: HttpRequest) -> dict[str, object]:
    """Return both banners for logged-in users; each is queried only where a template shows it."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {"unserved_queues": [], "stopped_dependencies": []}
    return {
        "unserved_queues": SimpleLazyObject(unserved_queues),
        "stopped_dependencies": SimpleLazyObject(
            lambda: stopped_dependencies(counts=lambda: scope_of(user).everything)
        ),
        "operators_are_alerted": bool(settings.OPERATOR_ALERTS),
    }
