"""PostgreSQL advisory locks, with every number that the project uses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, unique

from criticizer.db import prepared


@unique
class Lock(IntEnum):
    """Advisory locks by their numbers.

    The work of a lock is done by one process at a time; a digest's locks also have a key.
    """

    SWEEP = 7_100_001
    SOURCE_POLL = 7_100_002
    DELIVERY_AUDIT = 7_100_003
    ROLL_UP = 7_100_004
    MIGRATE = 7_100_005  # machines that start together migrate one after another
    DIGEST_JOIN = 7_100  # key: the recipient; two concurrent joins make one digest
    DIGEST_ASK = 7_101  # key: the carrier's id; one job at a time looks its message up
    TOKEN_LIMITS = 7_103  # one key; reservations are made one after another
    FIRST_LOGIN = 7_104  # one key; machines that start together create one account
    ALLOW_LIST = 7_105  # one key; what an edit opens or denies is decided by the lines before it
    CEILING = 7_102  # one key; of processes that start together, one records a change of the ceiling


TRY = "SELECT pg_try_advisory_lock(%(lock)s) AS got, pg_backend_pid() AS pid"
_POLL_SECONDS = 0.2
_UNLOCK = "SELECT pg_advisory_unlock(%(lock)s)"
_TRY_ONE = "SELECT pg_try_advisory_lock(%(lock)s, hashint8(%(key)s))"
_UNLOCK_ONE = "SELECT pg_advisory_unlock(%(lock)s, hashint8(%(key)s))"
# The session that has a lock. The upper half of a 64-bit number is in `classid`.
_HOLDER = """
SELECT l.pid, host(a.client_addr) AS address, a.backend_start
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid = 0 AND l.objid = %(lock)s
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_TAKE_NOW = "SELECT pg_try_advisory_xact_lock(%(lock)s)"
_TAKE_ONE = "SELECT pg_advisory_xact_lock(%(lock)s, hashtext(%(key)s))"


@contextmanager
def held(lock: Lock, key: int | None = None) -> Iterator[bool]:
    """Hold a lock in the block unless another session has it; yield whether it is held.

    Never waits.
    """
    parameters = {"lock": lock.value, "key": key}
    if not prepared.value(TRY if key is None else _TRY_ONE, parameters):
        yield False
        return
    try:
        yield True
    finally:
        # A lost connection has released it.
        prepared.value(_UNLOCK if key is None else _UNLOCK_ONE, parameters)


@dataclass(frozen=True, slots=True)
class Holder:
    """The database session that has a lock.

    `address` is None on the database's own machine. PostgreSQL hides it and `backend_start` from other roles.
    """

    pid: int
    address: str | None
    backend_start: datetime | None


@contextmanager
def awaited(lock: Lock, on_wait: Callable[[Holder], None] = lambda _: None) -> Iterator[None]:
    """Wait for a lock and hold it in the block.

    Calls `on_wait` with each session that has the lock meanwhile. Waits between statements, not in one:
    CREATE INDEX CONCURRENTLY waits for every running statement.
    """
    known = None
    while not prepared.value(TRY, {"lock": lock.value}):
        found = prepared.row(_HOLDER, {"lock": lock.value})
        if found is not None and found["pid"] != known:
            known = found["pid"]
            on_wait(Holder(**found))
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        prepared.value(_UNLOCK, {"lock": lock.value})


def take_now(lock: Lock) -> bool:
    """Take a lock until this transaction ends; False when another session has it."""
    return bool(prepared.value(_TAKE_NOW, {"lock": lock.value}))


def take(lock: Lock, key: str) -> None:
    """Wait for the lock of `key` and hold it until this transaction ends."""
    prepared.rows(_TAKE_ONE, {"lock": lock.value, "key": key})
