"""Refuses requests for unknown changes before they become dead letters (guarantee G145)."""

from __future__ import annotations

import time

from criticizer.db import prepared
from criticizer.resilience.failures import ErrorClass, Failure
from reviews import config
from reviews.sources import registry

LOOK_UP_SECONDS = 2.0  # then the fetch decides
LETTERS_AN_HOUR = 100  # of one requester, for changes that their source does not know
WAIT_SECONDS = 600.0
REFUSED_SECONDS = 60.0  # then the dead letters are counted again
LOOK_EVERY = 50  # requests of one requester between two counts, so that few requests cost no query

_LETTERS = """
SELECT count(*) FROM dead_letters l JOIN jobs j ON j.id = l.job_id
 WHERE l.last_failure_at > now() - interval '1 hour' AND l.stage = 'fetch' AND l.error_class = 'NOT_FOUND'
   AND j.requested_by = %(requester)s"""
# Of this process, by requester.
_requests: dict[str, int] = {}
_refused_until: dict[str, float] = {}


def why_unknown(changelist_id: str) -> str:
    """Return why a commit cannot be reviewed: it is not in its repository, or no reference leads to it.

    Empty when it can, when the repository does not answer in time, and for a Perforce server, which is
    not asked: it waits for this answer in its trigger (docs/api.md).
    """
    try:
        registry.look_up(changelist_id, config.sources(), timeout_seconds=LOOK_UP_SECONDS)
    except Failure as failure:
        return failure.detail if failure.error_class is ErrorClass.NOT_FOUND else ""
    return ""


def has_used_up_letters(requester: str) -> bool:
    """Return whether too many requests of this requester ended as unknown changes."""
    now = time.monotonic()
    if now < _refused_until.get(requester, 0.0):
        return True
    _requests[requester] = (_requests.get(requester, 0) + 1) % LOOK_EVERY
    if _requests[requester] or prepared.value(_LETTERS, {"requester": requester}) < LETTERS_AN_HOUR:
        return False
    _refused_until[requester] = now + REFUSED_SECONDS
    return True
