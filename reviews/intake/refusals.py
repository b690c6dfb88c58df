"""Refused webhooks: the newest of each reason, for the page of repositories (G402)."""

from __future__ import annotations

import threading
import time

import structlog
from django.db import DatabaseError
from django.db.models.functions import Now

from criticizer.codehosts.events import Refused
from reviews.models import HostRefusal

log = structlog.get_logger(__name__)

APART_SECONDS = 5.0  # between two writes of a process for one host and reason: anyone can send a webhook
_written: dict[tuple[str, Refused], float] = {}
_lock = threading.Lock()


def record(host: str, reason: Refused, remote_address: str, delivery: str) -> None:
    """Keep a refusal in place of the one before, unless that is seconds old. Never raises."""
    if not _is_due((host, reason)):
        return
    now = {"remote_address": remote_address[:64], "delivery_id": delivery[:128], "refused_at": Now()}
    try:
        HostRefusal.objects.update_or_create(host=host, reason=reason, defaults=now)
    except DatabaseError:  # the sender is refused all the same
        log.warning("refusal_not_recorded", host=host)


def forget() -> None:
    """Write the next refusal of each kind; for tests."""
    _written.clear()


def _is_due(key: tuple[str, Refused]) -> bool:
    with _lock:
        now = time.monotonic()
        if now - _written.get(key, float("-inf")) < APART_SECONDS:
            return False
        _written[key] = now
        return True
