"""Requests that this web process accepted last, recorded again where the database lost them (guarantee G493).

A standby that is promoted under asynchronous replication, and a restored backup, lack the last commits. The
clients have their answers by then, so that what was lost is known to nobody but the process that answered.
It keeps its last MOST requests for KEEP_SECONDS. When the database is on another timeline, it looks for their
reviews, requests again those that are gone, and tells the operators. A process that ended forgot them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
from django.db import Error, connection

from criticizer.db import reconnect, timeline
from deadletters import alerts
from reviews.intake import review_requests
from reviews.intake.review_requests import IntakeOutcome, IntakeResult, ReviewRequest
from reviews.models import ReviewJob

log = structlog.get_logger(__name__)

MOST = 5000
KEEP_SECONDS = 600.0  # a standby that is farther behind is broken
LOOK_SECONDS = 2.0
REFUSED_SECONDS = 60.0  # each look at a server that tells no timeline is an error in its log
MAX_LINES = 100  # of an alert
_MADE = (IntakeOutcome.CREATED, IntakeOutcome.DUPLICATE_KEY, IntakeOutcome.SAME_VERSION)


@dataclass(frozen=True, slots=True)
class Kept:
    """An accepted request. `record` makes its review, or finds it, and returns the review's number."""

    job: int
    changelist_id: str
    name: str  # as the client knows it
    record: Callable[[], int | None]
    at: float  # monotonic


_kept: dict[tuple[int, str], Kept] = {}  # by number and changelist, the oldest first
_known: tuple[int, int] | None = None  # timeline and system at the last look; the first one learns them
_lock = threading.Lock()


def keep(job: int | None, changelist_id: str, name: str, record: Callable[[], int | None]) -> None:
    """Keep a request that was accepted as `job`. `record` must be idempotent."""
    if job is None:
        return
    with _lock:
        # A request that is repeated takes no other's place.
        _kept.setdefault((job, changelist_id), Kept(job, changelist_id, name, record, time.monotonic()))
        if len(_kept) > MOST:
            del _kept[next(iter(_kept))]


def keep_review(wanted: ReviewRequest, result: IntakeResult) -> None:
    """Keep a request for a review, unless it found a review of something else."""
    if result.outcome in _MADE and result.is_same_version and not result.payload_mismatch:
        keep(
            result.job_id,
            wanted.changelist_id,
            wanted.idempotency_key,
            lambda: review_requests.request_review(wanted).job_id,
        )


def watch() -> None:
    """Look at once, and every LOOK_SECONDS while anything is kept. Runs in a thread beside the web server."""
    seconds = 0.0
    while True:
        time.sleep(seconds)
        seconds = LOOK_SECONDS
        if not _kept and _known is not None:
            connection.close()
            continue
        try:
            if not look():
                seconds = REFUSED_SECONDS
        except Error as error:  # the database is away: the next look has the same requests
            log.info("kept_requests_wait", error=type(error).__name__)
            connection.close()
        except Exception:
            log.exception("kept_requests_failed")
            connection.close()


def look() -> bool:
    """Record the kept requests again that the database lost since the last look. Raises django.db.Error.

    Return False where the server is there and tells no timeline.
    """
    global _known
    found = timeline.read()
    if found is None:
        is_there = connection.connection is not None and connection.is_usable()
        connection.close()
        return not is_there
    if _known is not None and found != _known:
        _record_lost(found)
    _known = found
    with _lock:
        for key in [key for key, one in _kept.items() if one.at < time.monotonic() - KEEP_SECONDS]:
            del _kept[key]
    return True


def _record_lost(found: tuple[int, int]) -> None:
    with _lock:
        kept = list(_kept.values())
    there = dict(
        ReviewJob.objects.filter(pk__in={one.job for one in kept}).values_list("pk", "changelist_id")
    )
    lost = [(one, _record(one)) for one in kept if there.get(one.job) != one.changelist_id]
    if not lost:
        return
    number, system = found
    # Each process tells its own. A look that fails before this is repeated: `record` is idempotent.
    alerts.tell(
        "requests_lost",
        key=f"requests_lost:{system}:{number}:{os.uname().nodename}:{os.getpid()}",
        requests=f"{len(lost)} accepted requests" if len(lost) > 1 else "An accepted request",
        timeline=number,
        lines="\n".join(_lines(lost)),
    )
    for one, job in lost:
        with _lock:
            _kept.pop((one.job, one.changelist_id), None)
        keep(job, one.changelist_id, one.name, one.record)


def _record(one: Kept) -> int | None:
    """Request the review again; return its number, or None where that cannot be. Raises django.db.Error."""
    try:
        job = one.record()
    except Exception as error:
        if isinstance(error, Error) and reconnect.is_disconnect(error):
            raise
        log.exception("lost_request_failed", was=one.job, changelist=one.changelist_id)
        return None
    log.warning("lost_request_recorded", was=one.job, job=job, changelist=one.changelist_id)
    return job


def _lines(lost: Sequence[tuple[Kept, int | None]]) -> list[str]:
    lines = [
        f"{one.name}: was review {one.job}, is review {job}"
        if job is not None
        else f"{one.name}: was review {one.job}, could not be requested again"
        for one, job in lost[:MAX_LINES]
    ]
    if len(lost) > MAX_LINES:
        lines.append(f"and {len(lost) - MAX_LINES} more: lost_request_recorded in the log")
    return lines
