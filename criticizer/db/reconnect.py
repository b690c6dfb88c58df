"""Reconnecting to PostgreSQL: repeat work, wait for the server, note losses."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import structlog
from django.db import InterfaceError, InternalError, OperationalError, connection

from criticizer.resilience.classification import sqlstate_of

log = structlog.get_logger(__name__)
T = TypeVar("T")

TRY_SECONDS = 0.5  # between two tries to connect to a server that is away
_CONFLICTS = {"40001", "40P01"}  # serialization failure, deadlock
# The server stops, crashed, starts, or ended an idle session or transaction; or a standby answers
# in place of the server that it replaced.
_AWAY = {"57P01", "57P02", "57P03", "57P05", "25P03", "25006"}
_lost_at = -math.inf  # monotonic


def with_retries(
    work: Callable[[], T], *, waits: Iterable[float], sleep: Callable[[float], None] = time.sleep
) -> T:
    """Run `work`, again after a lost connection to PostgreSQL, a deadlock or a conflict.

    `work` must be safe to repeat: a lost connection may hide a commit. `waits` are the seconds
    before each further try; after the last one the error is raised. A wait ends early when the
    server answers again.
    """
    is_answer_trusted = True  # a proxy may answer for a server that is still away
    remaining = iter(waits)
    while True:
        try:
            return work()
        except (OperationalError, InterfaceError, InternalError) as error:
            is_conflict = sqlstate_of(error) in _CONFLICTS
            if connection.in_atomic_block or not (is_conflict or is_disconnect(error)):
                raise
            seconds = next(remaining, None)
            if seconds is None:
                raise
            if is_conflict:
                sleep(0.05)
                continue
            note_loss()
            log.warning("database_reconnect", seconds=round(seconds, 1))
            connection.close()
            if is_answer_trusted:
                is_answer_trusted = not pause(seconds, sleep)
            else:
                is_answer_trusted = True
                sleep(seconds)


def pause(seconds: float, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Wait at most `seconds` for the server, trying twice a second; return whether it answered."""
    left = seconds
    while True:
        if _answers():
            return True
        if left <= 0:
            return False
        sleep(min(TRY_SECONDS, left))
        left -= TRY_SECONDS


def _answers() -> bool:
    connection.close()
    try:
        connection.ensure_connection()
    except (OperationalError, InterfaceError):
        note_loss()
        return False
    return bool(connection.is_usable())


def note_loss() -> None:
    """Note that this process found the database away just now."""
    global _lost_at
    _lost_at = time.monotonic()


def seconds_since_loss() -> float:
    """Return how long ago this process last found the database away (infinity: never)."""
    return time.monotonic() - _lost_at


def is_disconnect(error: BaseException) -> bool:
    """Return whether the connection is gone, or the server accepts none at the moment."""
    sqlstate = sqlstate_of(error)
    if sqlstate in _AWAY:
        return True
    # 08: connection error; no code at all: the socket was closed.
    return not isinstance(error, InternalError) and (not sqlstate or sqlstate.startswith("08"))
