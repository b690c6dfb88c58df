"""What every page knows: the queues that nobody serves."""

from __future__ import annotations

import structlog
from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from criticizer.health import workers_alive

log = structlog.get_logger()


def unserved_queues() -> list[str]:
    """Return the names of queues without a live worker; empty when that cannot be asked."""
    try:
        alive = workers_alive()
    except DatabaseError:
        # The page itself reports the database; a banner must not be what breaks it.
        log.warning("workers_unknown")
        return []
    queues = {queue for _, queue in settings.STAGES.values()}
    return sorted(queue for queue in queues if not alive.get(queue))


def workers(request: HttpRequest) -> dict[str, object]:
    """Offer `unserved_queues` to templates. Asked only where it is shown, and only of people logged in."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {"unserved_queues": []}
    return {"unserved_queues": SimpleLazyObject(unserved_queues)}
