"""A request is recorded or refused, never both, also when the database is lost in between.

A connection that breaks while a commit is under way leaves open whether it happened. "Try
later" would be a lie if it did, so such a request waits for the database and asks again:
intake is idempotent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import structlog
from django.db import InterfaceError, OperationalError, connection

from criticizer.db import reconnect
from reviews.api.errors import IN_DOUBT, ApiError

log = structlog.get_logger(__name__)
T = TypeVar("T")

WAIT_SECONDS = 40.0  # a restart or a failover is over by then
# Threads that may wait at once in a process: the others go on refusing, and answer the probes.
_slots = threading.BoundedSemaphore(2)


def retry_lost_commit(work: Callable[[], T]) -> T:
    """Run `work`, which must be idempotent; repeat it once the database is back if it was lost.

    Raises ApiError IN_DOUBT when it stays away, or too many requests wait for it already.
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
