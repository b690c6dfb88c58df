"""Resolve requests whose commit outcome is unknown after a lost connection.

A connection that breaks during a commit leaves open whether the commit happened, so the answer cannot
be "try later". Intake is idempotent: such a request waits for the database and runs again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import structlog
from django.db import InterfaceError, OperationalError, connection

from criticizer.db import reconnect
from reviews.api.error_catalog import IN_DOUBT
from reviews.api.errors import ApiError

log = structlog.get_logger(__name__)
T = TypeVar("T")

WAIT_SECONDS = 40.0  # a restart or a failover is over by then
# Threads of a process that may wait at once: the others refuse at once, and answer health checks.
_slots = threading.BoundedSemaphore(2)


def retry_lost_commit(work: Callable[[], T]) -> T:
    """Run `work`, which must be idempotent; repeat it once if the database was lost and is back.

    Raises ApiError IN_DOUBT when it stays away, or when too many requests wait for it already.
    """
    try:
        return work()
    except (OperationalError, InterfaceError) as error:
        if connection.in_atomic_block or not reconnect.is_disconnect(error):
            raise
        reconnect.note_loss()
        connection.close()
        doubt = error
    if not _slots.acquire(blocking=False):
        raise ApiError(IN_DOUBT) from doubt
    try:
        log.warning("request_in_doubt")
        if reconnect.pause(WAIT_SECONDS):
            return work()
    except (OperationalError, InterfaceError) as error:
        raise ApiError(IN_DOUBT) from error
    finally:
        _slots.release()
    raise ApiError(IN_DOUBT) from doubt
